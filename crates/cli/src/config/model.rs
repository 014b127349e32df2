//! The configuration as the commands use it: typed, complete, every reference resolved.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use postrider_contract::destination::{
    Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
};
use postrider_core::{backoff::Backoff, deadline::Deadlines};

use super::{
    layers::Settings,
    secret::{Secret, Url},
};

#[derive(Debug)]
pub(crate) struct Config {
    /// Where relative paths start: the folder of the file.
    pub(crate) base: PathBuf,
    /// What was given, for `config show`.
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) relay: Relay,
    /// `None`: nothing is served.
    pub(crate) admin_listen: Option<SocketAddr>,
    pub(crate) log: Log,
    pub(crate) connections: BTreeMap<String, Connection>,
    pub(crate) destinations: BTreeMap<String, Destination>,
    pub(crate) event_types: Vec<EventType>,
    pub(crate) routes: Vec<Route>,
}

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) url: Url,
    pub(crate) doorbell_url: Option<Url>,
    pub(crate) schema: String,
    pub(crate) connections_max: u32,
}

#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) owner: Option<String>,
    pub(crate) exclusive: bool,
    pub(crate) batch_max: u32,
    pub(crate) batch_bytes_max: u64,
    pub(crate) sending_max: usize,
    pub(crate) late_max: usize,
    pub(crate) poll_min: Duration,
    pub(crate) poll_max: Duration,
    pub(crate) poll_max_with_doorbell: Duration,
    pub(crate) rescan: Duration,
    pub(crate) backoff: Backoff,
    pub(crate) breaker: Backoff,
    pub(crate) deadlines: Deadlines,
}

#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) json: bool,
    pub(crate) level: String,
    /// It is not the default.
    pub(crate) level_given: bool,
}

/// How to reach a cluster.
#[derive(Debug)]
pub(crate) struct Connection {
    /// As frozen in destinations.
    pub(crate) cluster: String,
    pub(crate) kind: Kind,
}

/// What a kind of connection needs.
#[derive(Debug)]
pub(crate) enum Kind {
    JetStream(JetStream),
    Kafka(Kafka),
    RabbitMq(RabbitMq),
    Http(Http),
    File {
        /// As written; relative to [`Config::base`], as every path here.
        folder: PathBuf,
        index_max: u32,
    },
    RedisStreams(RedisStreams),
}

#[derive(Debug)]
pub(crate) struct JetStream {
    pub(crate) servers: Vec<String>,
    pub(crate) creds: Option<Secret>,
    pub(crate) token: Option<Secret>,
    pub(crate) nkey_seed: Option<Secret>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) tls_required: bool,
    pub(crate) tls_first: bool,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) api_timeout: Duration,
    pub(crate) ping_interval: Duration,
    pub(crate) in_flight_max: u32,
    pub(crate) lookup_messages_max: u32,
    pub(crate) inbox_prefix: String,
    pub(crate) provision_replicas: u32,
    pub(crate) provision_bytes_max: Option<u64>,
    pub(crate) provision_age_max: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct RabbitMq {
    pub(crate) servers: Vec<String>,
    pub(crate) vhost: String,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) certificate_login: bool,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) api_timeout: Duration,
    pub(crate) heartbeat: Duration,
    pub(crate) in_flight_max: u32,
    pub(crate) publish_bytes_max: u64,
    pub(crate) priority: Option<u8>,
    pub(crate) expiration: Option<Duration>,
    pub(crate) streams: Vec<String>,
    pub(crate) lookup_messages_max: u32,
    pub(crate) provision_exchange_type: String,
    pub(crate) provision_queue_type: String,
}

#[derive(Debug)]
pub(crate) struct Kafka {
    pub(crate) brokers: Vec<String>,
    pub(crate) sasl_mechanism: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) tls_required: bool,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) api_timeout: Duration,
    pub(crate) in_flight_max: u32,
    pub(crate) in_flight_bytes_max: u64,
    pub(crate) message_bytes_max: u32,
    pub(crate) lookup_messages_max: u32,
    pub(crate) provision_partitions: u32,
    pub(crate) provision_replicas: u32,
}

#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) url: Url,
    pub(crate) authorization: Option<Secret>,
    pub(crate) headers: BTreeMap<String, Secret>,
    pub(crate) signing_secrets: Vec<Secret>,
    pub(crate) allow_networks: Vec<String>,
    pub(crate) allow_plain_http: bool,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) concurrency_max: u32,
    pub(crate) response_bytes_max: u32,
    pub(crate) request_bytes_max: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct RedisStreams {
    pub(crate) servers: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) database: u32,
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) cert_file: Option<PathBuf>,
    pub(crate) key_file: Option<PathBuf>,
    pub(crate) api_timeout: Duration,
    /// Zero: the server remembers no ids.
    pub(crate) dedup_window: Duration,
    pub(crate) dedup_ids_max: u32,
    pub(crate) replicas_min: u32,
    pub(crate) groups: Vec<String>,
    pub(crate) length_max: Option<u64>,
    pub(crate) lookup_entries_max: u32,
}

/// A destination as wanted; `plan` gives it a generation.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    /// The name of its connection.
    pub(crate) connection: String,
    pub(crate) target: String,
    pub(crate) container: Option<String>,
    pub(crate) receipt_type: Option<String>,
    pub(crate) key: Key,
    /// Absent: the kind's own.
    pub(crate) partitioner: Option<Partitioner>,
    pub(crate) serializer: Serializer,
    pub(crate) durability: Option<Durability>,
    pub(crate) ordering: Ordering,
    pub(crate) lanes: u16,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) on_quarantine: OnQuarantine,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) max_payload_bytes: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct EventType {
    pub(crate) event_type: String,
    pub(crate) schema_version: String,
    pub(crate) content_type: String,
    /// As written; relative to [`Config::base`].
    pub(crate) json_schema: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) event_type: String,
    pub(crate) schema_version: String,
    pub(crate) destinations: Vec<String>,
    pub(crate) consumer: Option<String>,
    pub(crate) mandatory: bool,
}

impl Connection {
    /// The kind of the destinations on it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.kind {
            Kind::JetStream(_) => "jetstream",
            Kind::Kafka(_) => "kafka",
            Kind::RabbitMq(_) => "rabbitmq",
            Kind::Http(_) => "http",
            Kind::File { .. } => "file",
            Kind::RedisStreams(_) => "redis-streams",
        }
    }
}
