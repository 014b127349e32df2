//! How to reach the servers: everything that may change without changing what is delivered where.

use std::{fmt, time::Duration};

pub use postrider_transport::tls::Files as Tls;
use postrider_transport::{Error, Secret};
use serde::Deserialize;
use url::Url;

use crate::message::{Extras, SHORT_MAX};

/// Operational settings of one virtual host of one RabbitMQ cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `amqp://host:port` or `amqps://host:port`, tried in turn. Credentials in a URL are refused:
    /// they would end up in logs.
    pub servers: Vec<String>,
    #[serde(default = "defaults::vhost")]
    pub vhost: String,
    #[serde(default)]
    pub credentials: Credentials,
    #[serde(default)]
    pub tls: Tls,
    /// Longest time for one connection to be made, in milliseconds.
    #[serde(default = "defaults::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Longest wait for one answer that is not about a message, in milliseconds.
    #[serde(default = "defaults::api_timeout_ms")]
    pub api_timeout_ms: u64,
    /// Heartbeats in seconds; two that do not come end the connection.
    #[serde(default = "defaults::heartbeat_s")]
    pub heartbeat_s: u16,
    /// Most messages sent and not confirmed yet; also the longest batch.
    #[serde(default = "defaults::in_flight_max")]
    pub in_flight_max: u32,
    /// Larger messages, headers and body together, are rejected before they are sent.
    #[serde(default = "defaults::publish_bytes_max")]
    pub publish_bytes_max: u64,
    /// The priority of messages whose event has no header `amqp-priority`.
    #[serde(default)]
    pub priority: Option<u8>,
    /// The time to live of messages whose event has no header `amqp-expiration`, in milliseconds.
    #[serde(default)]
    pub expiration_ms: Option<u32>,
    /// The queues that are streams. They can be read again, so events can be looked for there.
    #[serde(default)]
    pub streams: Vec<String>,
    /// Most messages read in one look-up in a stream.
    #[serde(default = "defaults::lookup_messages_max")]
    pub lookup_messages_max: u32,
    /// What `provision` makes where nothing is there yet.
    #[serde(default)]
    pub provision: Provision,
}

/// How to say who we are.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Credentials {
    /// RabbitMQ's account `guest`, which a server accepts from its own machine only.
    #[default]
    Guest,
    UserPassword {
        user: String,
        password: Secret,
    },
    /// By the client certificate (mechanism EXTERNAL).
    Certificate,
}

/// The shape of what `provision` makes.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    #[serde(default)]
    pub exchange_type: ExchangeType,
    #[serde(default)]
    pub queue_type: QueueType,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExchangeType {
    #[default]
    Topic,
    Direct,
    Fanout,
}

impl ExchangeType {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Direct => "direct",
            Self::Fanout => "fanout",
        }
    }
}

/// Of a queue that is not listed as a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueType {
    /// Replicated, where the cluster has more than one node.
    #[default]
    Quorum,
    Classic,
}

mod defaults {
    pub(super) fn vhost() -> String {
        "/".to_owned()
    }

    pub(super) fn connect_timeout_ms() -> u64 {
        5_000
    }

    pub(super) fn api_timeout_ms() -> u64 {
        5_000
    }

    /// Two of them are a little more than a usual send timeout: a silent server costs one timeout
    /// of messages, not many.
    pub(super) fn heartbeat_s() -> u16 {
        5
    }

    pub(super) fn in_flight_max() -> u32 {
        2_000
    }

    /// What servers before 4.0 take; since then it is 16 MiB, which one learns from a refusal.
    pub(super) fn publish_bytes_max() -> u64 {
        128 * 1024 * 1024
    }

    pub(super) fn lookup_messages_max() -> u32 {
        20_000
    }
}

/// More would only lengthen what a lost connection leaves unknown.
const IN_FLIGHT_LIMIT: u32 = 10_000;
/// The largest a server can be configured to take.
const MESSAGE_BYTES_LIMIT: u64 = 512 * 1024 * 1024;

/// One address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
}

impl Server {
    /// The text may hold a password: errors do not repeat it.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "is not an address; write amqp://host:5672")?;
        let tls = match url.scheme() {
            "amqp" => false,
            "amqps" => true,
            _ => return Err("must start with amqp:// or amqps://"),
        };
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
            return Err("has more than a host and a port; the virtual host is `vhost`");
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(if tls { 5671 } else { 5672 }),
            tls,
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
    pub(crate) vhost: String,
    pub(crate) credentials: Credentials,
    pub(crate) tls: Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) api_timeout: Duration,
    pub(crate) heartbeat_s: u16,
    pub(crate) in_flight_max: u32,
    pub(crate) publish_bytes_max: usize,
    pub(crate) extras: Extras,
    pub(crate) streams: Vec<String>,
    pub(crate) lookup_messages_max: u32,
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
        if connection.tls.cert_file.is_some() != connection.tls.key_file.is_some() {
            return Err(invalid(
                "tls.cert_file and tls.key_file go together".to_owned(),
            ));
        }
        if connection.vhost.is_empty() || connection.vhost.len() > SHORT_MAX {
            return Err(invalid(format!(
                "vhost is {:?}; it takes 1 to {SHORT_MAX} bytes, and \"/\" is the usual one",
                connection.vhost
            )));
        }
        match &connection.credentials {
            Credentials::UserPassword { user, password } => {
                if user.contains('\0') || password.reveal().contains('\0') {
                    return Err(invalid("user and password cannot hold a NUL".to_owned()));
                }
            }
            Credentials::Certificate if connection.tls.cert_file.is_none() => {
                return Err(invalid(
                    "credentials are the certificate, and tls.cert_file names none".to_owned(),
                ));
            }
            Credentials::Guest | Credentials::Certificate => {}
        }
        let bounded = [
            (
                "connect_timeout_ms",
                connection.connect_timeout_ms,
                u64::MAX,
            ),
            ("api_timeout_ms", connection.api_timeout_ms, u64::MAX),
            ("heartbeat_s", connection.heartbeat_s.into(), u64::MAX),
            (
                "in_flight_max",
                connection.in_flight_max.into(),
                IN_FLIGHT_LIMIT.into(),
            ),
            (
                "publish_bytes_max",
                connection.publish_bytes_max,
                MESSAGE_BYTES_LIMIT,
            ),
            (
                "lookup_messages_max",
                connection.lookup_messages_max.into(),
                u64::MAX,
            ),
        ];
        for (name, value, max) in bounded {
            if value == 0 {
                return Err(invalid(format!(
                    "{name} is 0; give it a positive value, or leave it out"
                )));
            }
            if value > max {
                return Err(invalid(format!(
                    "{name} is {value}; at most {max} are possible"
                )));
            }
        }
        Ok(Self {
            servers,
            vhost: connection.vhost,
            credentials: connection.credentials,
            tls: connection.tls,
            connect_timeout: Duration::from_millis(connection.connect_timeout_ms),
            api_timeout: Duration::from_millis(connection.api_timeout_ms),
            heartbeat_s: connection.heartbeat_s,
            in_flight_max: connection.in_flight_max,
            publish_bytes_max: usize::try_from(connection.publish_bytes_max).unwrap_or(usize::MAX),
            extras: Extras {
                priority: connection.priority,
                expiration_ms: connection.expiration_ms,
            },
            streams: connection.streams,
            lookup_messages_max: connection.lookup_messages_max,
            provision: connection.provision,
        })
    }
}

fn invalid(message: String) -> Error {
    Error::Misconfigured {
        code: "connection",
        message,
    }
}
