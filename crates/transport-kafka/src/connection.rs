//! How to reach a cluster: everything that may change without changing what is delivered where.

use std::{fmt, path::PathBuf, time::Duration};

use postrider_transport::{Error, Secret};
use rdkafka::ClientConfig;
use serde::Deserialize;

/// Operational settings of one Kafka cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `host:port`, some brokers of the cluster; the others are learnt from them.
    pub brokers: Vec<String>,
    #[serde(default)]
    pub sasl: Option<Sasl>,
    #[serde(default)]
    pub tls: Tls,
    /// Longest time for a connection to be made and a topic to be looked up, in milliseconds.
    #[serde(default = "defaults::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Longest wait for one answer to a question (offsets, settings, a stored message), in
    /// milliseconds.
    #[serde(default = "defaults::api_timeout_ms")]
    pub api_timeout_ms: u64,
    /// After this the client library gives a message up by itself, in milliseconds. A send ends
    /// by its own deadline before; this is a second bound behind it, and a longer send timeout is
    /// cut to it.
    #[serde(default = "defaults::message_timeout_ms")]
    pub message_timeout_ms: u64,
    /// Most messages handed over and not acknowledged yet; also the longest batch.
    #[serde(default = "defaults::in_flight_max")]
    pub in_flight_max: u32,
    /// Most bytes of them.
    #[serde(default = "defaults::in_flight_bytes_max")]
    pub in_flight_bytes_max: u64,
    /// Largest message, and largest batch of them, in bytes. Where the topic's own limit can be
    /// read and is smaller, that one counts.
    #[serde(default = "defaults::message_bytes_max")]
    pub message_bytes_max: u32,
    /// Most messages read in one look-up.
    #[serde(default = "defaults::lookup_messages_max")]
    pub lookup_messages_max: u32,
    /// What `provision` gives a topic that does not exist yet.
    #[serde(default)]
    pub provision: Provision,
}

/// How to say who we are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sasl {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: Secret,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// Every connection is made with TLS, or not at all.
    #[serde(default)]
    pub required: bool,
    /// PEM file of the authorities to trust; the system's if absent.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM files of a client certificate and its key; both or neither.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// The shape of a topic made by `provision`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provision {
    #[serde(default = "defaults::partitions")]
    pub partitions: u32,
    #[serde(default = "defaults::replicas")]
    pub replicas: u32,
}

impl Default for Provision {
    fn default() -> Self {
        Self {
            partitions: defaults::partitions(),
            replicas: defaults::replicas(),
        }
    }
}

mod defaults {
    pub(super) fn connect_timeout_ms() -> u64 {
        3_000
    }

    pub(super) fn api_timeout_ms() -> u64 {
        5_000
    }

    /// The relay's hard deadline.
    pub(super) fn message_timeout_ms() -> u64 {
        8_000
    }

    pub(super) fn in_flight_max() -> u32 {
        2_000
    }

    /// Twice the relay's largest batch, twice over.
    pub(super) fn in_flight_bytes_max() -> u64 {
        32 << 20
    }

    /// What a broker takes by default is 1 MiB and 12 bytes, the batch around it included.
    pub(super) fn message_bytes_max() -> u32 {
        1_000_000
    }

    pub(super) fn lookup_messages_max() -> u32 {
        20_000
    }

    pub(super) fn partitions() -> u32 {
        6
    }

    pub(super) fn replicas() -> u32 {
        1
    }
}

/// The client library refuses less.
const MESSAGE_BYTES_MIN: u32 = 1_000;
/// The client library refuses more.
const MESSAGE_BYTES_LIMIT: u32 = 1_000_000_000;
const IN_FLIGHT_LIMIT: u32 = 10_000;
/// Half a second between two tries of the library, at most: a broker that is back is found soon.
const RECONNECT_MAX_MS: u32 = 500;

/// A checked [`Connection`].
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) brokers: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) api_timeout: Duration,
    pub(crate) message_timeout: Duration,
    pub(crate) in_flight_max: u32,
    pub(crate) message_bytes_max: u32,
    pub(crate) lookup_messages_max: u32,
    pub(crate) provision: Provision,
    in_flight_bytes_max: u64,
    sasl: Option<Sasl>,
    tls: Tls,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("brokers", &self.brokers)
            .finish_non_exhaustive()
    }
}

impl Settings {
    pub(crate) fn check(connection: Connection) -> Result<Self, Error> {
        let misfit = |message: &str| {
            Err(Error::Misconfigured {
                code: "connection",
                message: message.to_owned(),
            })
        };
        let plain = |broker: &String| {
            !broker.is_empty()
                && broker
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b",@/".contains(&byte))
        };
        if connection.brokers.is_empty() || !connection.brokers.iter().all(plain) {
            return misfit(
                "brokers must list host:port, at least one, without a scheme, user or password",
            );
        }
        let times = [
            connection.connect_timeout_ms,
            connection.api_timeout_ms,
            connection.message_timeout_ms,
        ];
        if times.contains(&0) || times.iter().any(|time| i32::try_from(*time).is_err()) {
            return misfit(
                "connect_timeout_ms, api_timeout_ms and message_timeout_ms must be from 1 to 2147483647",
            );
        }
        if !(1..=IN_FLIGHT_LIMIT).contains(&connection.in_flight_max) {
            return misfit("in_flight_max must be from 1 to 10000");
        }
        if !(MESSAGE_BYTES_MIN..=MESSAGE_BYTES_LIMIT).contains(&connection.message_bytes_max) {
            return misfit("message_bytes_max must be from 1000 to 1000000000");
        }
        if connection.in_flight_bytes_max < u64::from(connection.message_bytes_max) {
            return misfit("in_flight_bytes_max must be at least message_bytes_max");
        }
        if connection.lookup_messages_max == 0 {
            return misfit("lookup_messages_max must be at least 1");
        }
        if connection.provision.partitions == 0 || connection.provision.replicas == 0 {
            return misfit("provision.partitions and provision.replicas must be at least 1");
        }
        if connection.tls.cert_file.is_some() != connection.tls.key_file.is_some() {
            return misfit("tls.cert_file and tls.key_file go together");
        }
        let scram = connection
            .sasl
            .as_ref()
            .is_some_and(|sasl| match sasl.mechanism {
                Mechanism::Plain => false,
                Mechanism::ScramSha256 | Mechanism::ScramSha512 => true,
            });
        if !cfg!(feature = "tls") && (connection.tls.required || scram) {
            return Err(Error::Misconfigured {
                code: "tls_not_built",
                message: "TLS, and SASL by SCRAM, need a program that was built with the feature \
                          `kafka-tls`"
                    .to_owned(),
            });
        }
        Ok(Self {
            brokers: connection.brokers.join(","),
            connect_timeout: Duration::from_millis(connection.connect_timeout_ms),
            api_timeout: Duration::from_millis(connection.api_timeout_ms),
            message_timeout: Duration::from_millis(connection.message_timeout_ms),
            in_flight_max: connection.in_flight_max,
            message_bytes_max: connection.message_bytes_max,
            lookup_messages_max: connection.lookup_messages_max,
            provision: connection.provision,
            in_flight_bytes_max: connection.in_flight_bytes_max,
            sasl: connection.sasl,
            tls: connection.tls,
        })
    }

    /// What every client of this cluster has.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "postrider")
            .set("allow.auto.create.topics", "false")
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", RECONNECT_MAX_MS.to_string())
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true");
        let protocol = match (self.tls.required, &self.sasl) {
            (false, None) => "plaintext",
            (true, None) => "ssl",
            (false, Some(_)) => "sasl_plaintext",
            (true, Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(sasl) = &self.sasl {
            let mechanism = match sasl.mechanism {
                Mechanism::Plain => "PLAIN",
                Mechanism::ScramSha256 => "SCRAM-SHA-256",
                Mechanism::ScramSha512 => "SCRAM-SHA-512",
            };
            config
                .set("sasl.mechanism", mechanism)
                .set("sasl.username", &sasl.user)
                .set("sasl.password", sasl.password.reveal());
        }
        let files = [
            ("ssl.ca.location", &self.tls.ca_file),
            ("ssl.certificate.location", &self.tls.cert_file),
            ("ssl.key.location", &self.tls.key_file),
        ];
        for (key, file) in files {
            if let (true, Some(file)) = (self.tls.required, file) {
                config.set(key, file.display().to_string());
            }
        }
        config
    }

    /// A producer whose acknowledgements mean something. `bytes_max`: the largest message, and the
    /// largest set of them that is sent as one, so that the topic refuses no set for its size.
    pub(crate) fn producer(&self, bytes_max: u32, gapless: bool) -> ClientConfig {
        let timeout = self.message_timeout.as_millis().to_string();
        let mut config = self.client();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // What fails for good ends the producer, so that nothing behind it overtakes it.
            .set("enable.gapless.guarantee", gapless.to_string())
            .set("message.timeout.ms", &timeout)
            .set("request.timeout.ms", &timeout)
            // No request ends before its messages do: what is not answered is not sent again
            // behind our back while the connection stands.
            .set(
                "socket.timeout.ms",
                self.message_timeout.as_millis().max(1_000).to_string(),
            )
            .set("linger.ms", "1")
            .set("batch.size", bytes_max.to_string())
            .set("message.max.bytes", bytes_max.to_string())
            .set(
                "queue.buffering.max.messages",
                self.in_flight_max.to_string(),
            )
            .set(
                "queue.buffering.max.kbytes",
                (self.in_flight_bytes_max / 1024).max(1).to_string(),
            );
        config
    }

    /// A consumer that reads where it is told and leaves no trace.
    pub(crate) fn consumer(&self, group: &str) -> ClientConfig {
        let mut config = self.client();
        config
            .set("group.id", group)
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            // What stands behind somebody's open transaction is there all the same.
            .set("isolation.level", "read_uncommitted")
            .set("fetch.wait.max.ms", "50")
            .set("fetch.error.backoff.ms", "50");
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(settings: &serde_json::Value) -> Result<Settings, String> {
        let connection = serde_json::from_value(settings.clone()).map_err(|e| e.to_string())?;
        Settings::check(connection).map_err(|error| error.to_string())
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        use serde_json::json;
        assert!(check(&json!({ "brokers": ["a:9092", "b:9092"] })).is_ok());
        for (settings, expect) in [
            (json!({ "brokers": [] }), "brokers"),
            (json!({ "brokers": ["kafka://a:1"] }), "scheme"),
            (json!({ "brokers": ["u:p@a:1"] }), "password"),
            (
                json!({ "brokers": ["a:1"], "in_flight_max": 0 }),
                "in_flight_max",
            ),
            (
                json!({ "brokers": ["a:1"], "message_bytes_max": 10 }),
                "1000",
            ),
            (
                json!({ "brokers": ["a:1"], "api_timeout_ms": 0 }),
                "api_timeout_ms",
            ),
            (
                json!({ "brokers": ["a:1"], "tls": { "key_file": "k" } }),
                "together",
            ),
            (json!({ "brokers": ["a:1"], "nope": 1 }), "nope"),
        ] {
            let error = check(&settings).unwrap_err();
            assert!(error.contains(expect), "{error}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let settings = check(&serde_json::json!({
            "brokers": ["a:1"],
            "sasl": { "mechanism": "plain", "user": "u", "password": "S3CRET" },
        }))
        .unwrap();
        assert!(!format!("{settings:?}").contains("S3CRET"));
        assert_eq!(
            settings.client().get("security.protocol"),
            Some("sasl_plaintext")
        );
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn what_was_not_built_is_said_at_once() {
        let scram = serde_json::json!({
            "brokers": ["a:1"],
            "sasl": { "mechanism": "scram-sha-512", "user": "u", "password": "p" },
        });
        let tls = serde_json::json!({ "brokers": ["a:1"], "tls": { "required": true } });
        for settings in [scram, tls] {
            assert!(check(&settings).unwrap_err().contains("kafka-tls"));
        }
    }
}
