//! How to reach the servers: everything that may change without changing what is delivered where.

use std::{fmt, time::Duration};

pub use postrider_transport::tls::Files as Tls;
use postrider_transport::{Error, Secret};
use serde::Deserialize;
use url::Url;

/// Operational settings of one Redis server, with its replicas, or of one Redis Cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `redis://host:port`, or `rediss://host:port` for TLS, tried in turn: the primary is the one
    /// that is used. Credentials in a URL are refused: they would end up in logs.
    pub servers: Vec<String>,
    /// An ACL user; absent: the default user.
    #[serde(default)]
    pub user: Option<String>,
    #[serde(default)]
    pub password: Option<Secret>,
    /// The number of the database.
    #[serde(default)]
    pub database: u32,
    #[serde(default)]
    pub tls: Tls,
    /// Longest time for one connection to be made, in milliseconds.
    #[serde(default = "defaults::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Longest wait for one answer that is not a batch's, in milliseconds.
    #[serde(default = "defaults::api_timeout_ms")]
    pub api_timeout_ms: u64,
    /// How long the server remembers event ids, in milliseconds; 0: not at all.
    #[serde(default = "defaults::dedup_window_ms")]
    pub dedup_window_ms: u64,
    /// Most ids that it remembers of one stream, some 120 bytes each. More shorten the memory.
    #[serde(default = "defaults::dedup_ids_max")]
    pub dedup_ids_max: u32,
    /// Replicas that must have a message before it is acknowledged, where the destination asks for
    /// durability `replicated`.
    #[serde(default = "defaults::replicas_min")]
    pub replicas_min: u32,
    /// Consumer groups that must exist. Nothing that one of them has not confirmed is trimmed.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Entries that a stream keeps, about; more are trimmed once every group has confirmed them.
    /// Absent: nothing is ever trimmed.
    #[serde(default)]
    pub length_max: Option<u64>,
    /// Most entries read in one look-up of earlier sends.
    #[serde(default = "defaults::lookup_entries_max")]
    pub lookup_entries_max: u32,
}

mod defaults {
    pub(super) fn connect_timeout_ms() -> u64 {
        5_000
    }

    pub(super) fn api_timeout_ms() -> u64 {
        5_000
    }

    /// Most resends come within seconds; later ones are looked up. At 1,000 events a second this
    /// holds 600,000 to 1,200,000 ids.
    pub(super) fn dedup_window_ms() -> u64 {
        600_000
    }

    /// Some 120 MB.
    pub(super) fn dedup_ids_max() -> u32 {
        1_000_000
    }

    pub(super) fn replicas_min() -> u32 {
        1
    }

    pub(super) fn lookup_entries_max() -> u32 {
        20_000
    }
}

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
        let url = Url::parse(text).map_err(|_| "is not an address; write redis://host:6379")?;
        if !matches!(url.scheme(), "redis" | "rediss") {
            return Err("must start with redis:// or rediss://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "holds credentials; move them to `user` and `password`, where they are kept \
                        out of logs",
            );
        }
        let host = url
            .host_str()
            .filter(|host| !host.is_empty())
            .ok_or("names no host")?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("has more than a host and a port; the database goes into `database`");
        }
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: url.port().unwrap_or(6379),
            tls: url.scheme() == "rediss",
        })
    }

    /// Where an answer such as `MOVED 3999 10.0.0.7:6381` points.
    pub(crate) fn moved(&self, error: &str) -> Option<Self> {
        let (host, port) = error.split(' ').nth(2)?.rsplit_once(':')?;
        // An empty host means the one that answered.
        let host = if host.is_empty() { &self.host } else { host };
        Some(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.parse().ok()?,
            tls: self.tls,
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
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
    pub(crate) tls: Tls,
    pub(crate) connect_timeout: Duration,
    pub(crate) api_timeout: Duration,
    /// `None`: the server remembers no ids.
    pub(crate) dedup_window: Option<Duration>,
    pub(crate) dedup_ids_max: u32,
    pub(crate) replicas_min: u32,
    pub(crate) groups: Vec<String>,
    pub(crate) length_max: Option<u64>,
    pub(crate) lookup_entries_max: u32,
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
        if connection.user.is_some() && connection.password.is_none() {
            return Err(invalid("user is set and password is not".to_owned()));
        }
        if connection.tls.cert_file.is_some() != connection.tls.key_file.is_some() {
            return Err(invalid(
                "tls.cert_file and tls.key_file go together".to_owned(),
            ));
        }
        let positive = [
            ("connect_timeout_ms", connection.connect_timeout_ms),
            ("api_timeout_ms", connection.api_timeout_ms),
            ("dedup_ids_max", connection.dedup_ids_max.into()),
            ("replicas_min", connection.replicas_min.into()),
            ("length_max", connection.length_max.unwrap_or(1)),
            ("lookup_entries_max", connection.lookup_entries_max.into()),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(invalid(format!(
                "{name} is 0; give it a positive value, or leave it out"
            )));
        }
        if connection.groups.iter().any(String::is_empty) {
            return Err(invalid("groups has an empty name".to_owned()));
        }
        let window = Duration::from_millis(connection.dedup_window_ms);
        Ok(Self {
            servers,
            user: connection.user,
            password: connection.password,
            database: connection.database,
            tls: connection.tls,
            connect_timeout: Duration::from_millis(connection.connect_timeout_ms),
            api_timeout: Duration::from_millis(connection.api_timeout_ms),
            dedup_window: (!window.is_zero()).then_some(window),
            dedup_ids_max: connection.dedup_ids_max,
            replicas_min: connection.replicas_min,
            groups: connection.groups,
            length_max: connection.length_max,
            lookup_entries_max: connection.lookup_entries_max,
        })
    }
}

fn invalid(message: String) -> Error {
    Error::Misconfigured {
        code: "connection",
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(text: &str) -> Result<String, &'static str> {
        Server::parse(text).map(|server| format!("{server} {}", server.tls))
    }

    #[test]
    fn addresses_hold_no_credentials_and_no_database() {
        assert_eq!(server("redis://a"), Ok("a:6379 false".to_owned()));
        assert_eq!(server("rediss://[::1]:7"), Ok("[::1]:7 true".to_owned()));
        for bad in [
            "a:1",
            "http://a",
            "redis://u:p@a",
            "redis://:p@a",
            "redis://a/1",
            "redis://",
        ] {
            assert!(server(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_move_names_the_next_server() {
        let own = Server::parse("redis://a:1").unwrap();
        let moved = |error| own.moved(error).map(|server| server.to_string());
        assert_eq!(
            moved("MOVED 3999 10.0.0.7:6381"),
            Some("10.0.0.7:6381".to_owned())
        );
        assert_eq!(moved("MOVED 3999 :6381"), Some("a:6381".to_owned()));
        assert_eq!(moved("MOVED 3999 ::1:6381"), Some("[::1]:6381".to_owned()));
        assert_eq!(moved("MOVED 3999"), None);
    }
}
