//! How to reach the servers: everything that may change without changing what is delivered where.

use std::{fmt, path::PathBuf, time::Duration};

use postrider_transport::{Error, Secret, tls};
use serde::Deserialize;
use url::Url;

use crate::handshake::creds_parts;

/// Operational settings of one NATS cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `nats://host:port` or `tls://host:port`, tried in turn. Credentials in a URL are refused:
    /// they would end up in logs.
    pub servers: Vec<String>,
    #[serde(default)]
    pub credentials: Option<Credentials>,
    #[serde(default)]
    pub tls: Tls,
    /// Longest time for one connection to be made, in milliseconds.
    #[serde(default = "defaults::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Longest wait for one answer of the JetStream API, in milliseconds.
    #[serde(default = "defaults::api_timeout_ms")]
    pub api_timeout_ms: u64,
    /// Time between two pings, in milliseconds. Three without an answer end the connection, and
    /// with it the wait for a server that went silent.
    #[serde(default = "defaults::ping_interval_ms")]
    pub ping_interval_ms: u64,
    /// Most messages sent and not acknowledged yet; also the longest batch.
    #[serde(default = "defaults::in_flight_max")]
    pub in_flight_max: u32,
    /// Most messages read in one look-up of earlier sends.
    #[serde(default = "defaults::lookup_messages_max")]
    pub lookup_messages_max: u32,
    /// First part of the subjects that answers come to; change it where a user may not subscribe
    /// to `_INBOX.>`.
    #[serde(default = "defaults::inbox_prefix")]
    pub inbox_prefix: String,
    /// What `provision` gives a stream that does not exist yet.
    #[serde(default)]
    pub provision: Provision,
}

/// How to say who we are. At most one way.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Credentials {
    Token(Secret),
    UserPassword {
        user: String,
        password: Secret,
    },
    /// The seed of a user nkey, `SU…`.
    NkeySeed(Secret),
    /// The text of a `.creds` file.
    Creds(Secret),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Refuse a connection without TLS.
    #[serde(default)]
    pub required: bool,
    /// Start TLS before the server's first line (`handshake_first` on the server).
    #[serde(default)]
    pub first: bool,
    /// PEM file of the authorities to trust; the system's if absent.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM files of a client certificate and its key; both or neither.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

impl Tls {
    pub(crate) fn files(&self) -> tls::Files {
        tls::Files {
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
        }
    }
}

/// The shape of a stream made by `provision`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    #[serde(default = "defaults::replicas")]
    pub replicas: u32,
    /// Largest stream, in bytes; absent: no bound.
    #[serde(default)]
    pub bytes_max: Option<u64>,
    /// Oldest message kept, in seconds; absent: no bound.
    #[serde(default)]
    pub age_max_s: Option<u64>,
}

impl Default for Provision {
    fn default() -> Self {
        Self {
            replicas: defaults::replicas(),
            bytes_max: None,
            age_max_s: None,
        }
    }
}

mod defaults {
    pub(super) fn connect_timeout_ms() -> u64 {
        5_000
    }

    pub(super) fn api_timeout_ms() -> u64 {
        5_000
    }

    /// Three of them are a few seconds more than a usual send timeout: a silent server costs one
    /// timeout of messages, not many.
    pub(super) fn ping_interval_ms() -> u64 {
        5_000
    }

    pub(super) fn in_flight_max() -> u32 {
        2_000
    }

    pub(super) fn lookup_messages_max() -> u32 {
        20_000
    }

    pub(super) fn inbox_prefix() -> String {
        "_INBOX".to_owned()
    }

    pub(super) fn replicas() -> u32 {
        1
    }
}

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `tls://`: no connection without TLS.
    pub(crate) tls: bool,
}

impl Server {
    /// The text may hold a password: errors do not repeat it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "is not an address; write nats://host:4222")?;
        if !matches!(url.scheme(), "nats" | "tls") {
            return Err("must start with nats:// or tls://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "holds credentials; move them to `credentials`, where they are kept out \
                        of logs",
            );
        }
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or("names no host")?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("has more than a host and a port");
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(4222),
            tls: url.scheme() == "tls",
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A checked [`Connection`].
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Server>,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) tls: Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) api_timeout: Duration,
    pub(crate) ping_interval: Duration,
    pub(crate) in_flight_max: u32,
    pub(crate) lookup_messages_max: u32,
    pub(crate) inbox_prefix: String,
    pub(crate) provision: Provision,
}

impl Settings {
    pub(crate) fn check(connection: Connection) -> Result<Self, Error> {
        let mut servers = Vec::with_capacity(connection.servers.len());
        for (at, text) in connection.servers.iter().enumerate() {
            servers
                .push(Server::parse(text).map_err(|why| invalid(format!("servers[{at}] {why}")))?);
        }
        if servers.is_empty() {
            return Err(invalid("servers is empty; name at least one".to_owned()));
        }
        if let Some(Credentials::Creds(text)) = &connection.credentials
            && creds_parts(text).is_none()
        {
            return Err(invalid(
                "credentials.creds is not the text of a .creds file".to_owned(),
            ));
        }
        if connection.tls.cert_file.is_some() != connection.tls.key_file.is_some() {
            return Err(invalid(
                "tls.cert_file and tls.key_file go together".to_owned(),
            ));
        }
        let positive = [
            ("connect_timeout_ms", connection.connect_timeout_ms),
            ("api_timeout_ms", connection.api_timeout_ms),
            ("ping_interval_ms", connection.ping_interval_ms),
            ("in_flight_max", connection.in_flight_max.into()),
            ("lookup_messages_max", connection.lookup_messages_max.into()),
            ("provision.replicas", connection.provision.replicas.into()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(invalid(format!(
                "{name} is 0; give it a positive value, or leave it out"
            )));
        }
        if crate::subject::check_levels(&connection.inbox_prefix).is_err() {
            return Err(invalid(format!(
                "inbox_prefix is {:?}; it must be a subject without wildcards",
                connection.inbox_prefix
            )));
        }
        if connection.in_flight_max > IN_FLIGHT_LIMIT {
            return Err(invalid(format!(
                "in_flight_max is {}; at most {IN_FLIGHT_LIMIT} are possible",
                connection.in_flight_max
            )));
        }
        Ok(Self {
            servers,
            credentials: connection.credentials,
            tls: connection.tls,
            connect_timeout: Duration::from_millis(connection.connect_timeout_ms),
            api_timeout: Duration::from_millis(connection.api_timeout_ms),
            ping_interval: Duration::from_millis(connection.ping_interval_ms),
            in_flight_max: connection.in_flight_max,
            lookup_messages_max: connection.lookup_messages_max,
            inbox_prefix: connection.inbox_prefix,
            provision: connection.provision,
        })
    }
}

/// A stream's inbound queue takes 10,000 messages by default (2.10 and later).
const IN_FLIGHT_LIMIT: u32 = 10_000;

pub(crate) fn invalid(message: String) -> Error {
    Error::Misconfigured {
        code: "connection",
        message,
    }
}
