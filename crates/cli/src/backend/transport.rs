//! Opening the transport of a destination, with the connection that its cluster has in the
//! configuration.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use postrider_contract::{
    Destination,
    destination::{Durability, Partitioner},
};
use postrider_core::DestinationId;
use postrider_relay::TransportFactory;
use postrider_store::control::RegisteredDestination;
use postrider_transport::{Error, Transport};
use postrider_transport_file as file;
use postrider_transport_http as http;
use postrider_transport_kafka as kafka;
use postrider_transport_nats as nats;
use postrider_transport_rabbitmq as rabbitmq;
use postrider_transport_redis as redis;
use serde_json::{Map, Value, json};

use crate::{
    code::Code,
    config::{
        Config, keys,
        model::{Connection, Http, JetStream, Kafka, Kind, RabbitMq, RedisStreams},
        secret::Secret,
    },
    fault::Fault,
};

/// What a kind of destination is, if nothing else is asked for.
pub(crate) struct Defaults {
    pub(crate) receipt_type: &'static str,
    pub(crate) durability: Durability,
    pub(crate) partitioner: Partitioner,
}

/// The defaults of a connection's destinations.
pub(crate) fn defaults(connection: &Connection) -> Defaults {
    match connection.kind {
        Kind::JetStream(_) => Defaults {
            receipt_type: nats::RECEIPT_TYPE,
            durability: Durability::Stored,
            partitioner: Partitioner::None,
        },
        Kind::RabbitMq(_) => Defaults {
            receipt_type: rabbitmq::RECEIPT_TYPE,
            durability: Durability::Stored,
            partitioner: Partitioner::None,
        },
        Kind::Kafka(_) => Defaults {
            receipt_type: kafka::RECEIPT_TYPE,
            durability: Durability::Stored,
            partitioner: Partitioner::Murmur2,
        },
        Kind::Http(_) => Defaults {
            receipt_type: http::RECEIPT_TYPE,
            durability: Durability::Stored,
            partitioner: Partitioner::None,
        },
        Kind::File { .. } => Defaults {
            receipt_type: file::RECEIPT_TYPE,
            durability: Durability::Synced,
            partitioner: Partitioner::None,
        },
        Kind::RedisStreams(_) => Defaults {
            receipt_type: redis::RECEIPT_TYPE,
            durability: Durability::Stored,
            partitioner: Partitioner::None,
        },
    }
}

/// Opens transports with the connections of a configuration.
#[derive(Debug)]
pub(crate) struct Factory {
    config: Arc<Config>,
}

impl Factory {
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self { config }
    }

    fn connection(&self, kind: &str, cluster: &str) -> Result<(&str, &Connection), Error> {
        self.config
            .connections
            .iter()
            .find(|(_, connection)| connection.kind() == kind && connection.cluster == cluster)
            .map(|(name, connection)| (name.as_str(), connection))
            .ok_or_else(|| Error::Misconfigured {
                code: "connection_missing",
                message: format!(
                    "no connection of kind {kind} has the cluster {cluster:?}; add [connections.{cluster:?}] to the configuration"
                ),
            })
    }
}

impl TransportFactory for Factory {
    fn kinds(&self) -> &[&'static str] {
        keys::KINDS
    }

    fn open(&self, registered: &RegisteredDestination) -> Result<Arc<dyn Transport>, Error> {
        let destination = &registered.destination;
        let (name, connection) = self.connection(&destination.kind, &destination.cluster)?;
        let place = Place {
            base: &self.config.base,
            name,
        };
        let deadlines = self.config.relay.deadlines.settings();
        let connect = deadlines.connect;
        Ok(match &connection.kind {
            Kind::JetStream(settings) => {
                let settings = read(place.jetstream(settings, connect)?)?;
                Arc::new(nats::JetStream::open(destination, settings)?)
            }
            Kind::RabbitMq(settings) => {
                let settings = read(place.rabbitmq(settings, connect)?)?;
                Arc::new(rabbitmq::RabbitMq::open(destination, settings)?)
            }
            Kind::Kafka(settings) => {
                let settings = read(place.kafka(settings, connect, deadlines.hard)?)?;
                Arc::new(kafka::Kafka::open(destination, settings)?)
            }
            Kind::Http(settings) => {
                let settings = read(place.http(settings, connect)?)?;
                Arc::new(http::Webhook::open(destination, settings)?)
            }
            Kind::File { folder, index_max } => {
                let settings = json!({
                    "folder": self.config.base.join(folder),
                    "index_max": index_max,
                });
                Arc::new(file::JsonLines::open(destination, read(settings)?)?)
            }
            Kind::RedisStreams(settings) => {
                let settings = read(place.redis(settings, connect)?)?;
                Arc::new(redis::RedisStreams::open(destination, settings)?)
            }
        })
    }
}

/// What the transports refuse of destinations before anything is sent: a target that is none, a
/// key that is none, an address that is never sent to. Secrets that cannot be read here are left
/// to whoever runs the relay: a plan is often made elsewhere.
pub(crate) fn misfits(config: &Arc<Config>, destinations: &[Destination]) -> Vec<Fault> {
    let factory = Factory::new(Arc::clone(config));
    let mut faults = Vec::new();
    for destination in destinations {
        let registered = RegisteredDestination {
            id: DestinationId(0),
            digest: destination.digest(),
            destination: destination.clone(),
            current: true,
            suspended: None,
        };
        match factory.open(&registered) {
            Ok(_) | Err(Error::Unavailable { .. }) => {}
            Err(Error::Misconfigured { code, .. }) if code == SECRET_UNREADABLE => {}
            Err(error @ Error::Misconfigured { .. }) => faults.push(Fault::new(
                Code::DestinationNotReady,
                format!("destinations.{}: {error}", destination.name),
                "Nothing was registered.",
                "correct the destination or its connection",
            )),
        }
    }
    faults
}

const SECRET_UNREADABLE: &str = "secret_unreadable";

/// A transport's own settings from JSON, so that what it adds keeps its default here.
fn read<T: serde::de::DeserializeOwned>(settings: Value) -> Result<T, Error> {
    serde_json::from_value(settings).map_err(|error| Error::Misconfigured {
        code: "connection",
        message: error.to_string(),
    })
}

/// Whose settings are put together.
struct Place<'a> {
    base: &'a Path,
    name: &'a str,
}

impl Place<'_> {
    fn secret(&self, key: &str, secret: &Secret) -> Result<String, Error> {
        secret
            .read(&format!("connections.{}.{key}", self.name), self.base)
            .map_err(|fault| unreadable(&fault))
    }

    fn path(&self, path: Option<&PathBuf>) -> Value {
        path.map_or(Value::Null, |path| json!(self.base.join(path)))
    }

    fn jetstream(
        &self,
        settings: &JetStream,
        connect: std::time::Duration,
    ) -> Result<Value, Error> {
        let one = |way: &str, secret: &Option<Secret>| -> Result<Option<Value>, Error> {
            let Some(secret) = secret else {
                return Ok(None);
            };
            Ok(Some(json!({ way: self.secret(way, secret)? })))
        };
        let credentials = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => Some(json!({
                "user_password": { "user": user, "password": self.secret("password", password)? }
            })),
            (_, _) => one("creds", &settings.creds)?
                .or(one("token", &settings.token)?)
                .or(one("nkey_seed", &settings.nkey_seed)?),
        };
        Ok(json!({
            "servers": settings.servers,
            "credentials": credentials,
            "tls": {
                "required": settings.tls_required,
                "first": settings.tls_first,
                "ca_file": self.path(settings.ca_file.as_ref()),
                "cert_file": self.path(settings.cert_file.as_ref()),
                "key_file": self.path(settings.key_file.as_ref()),
            },
            "connect_timeout_ms": millis(connect),
            "api_timeout_ms": millis(settings.api_timeout),
            "ping_interval_ms": millis(settings.ping_interval),
            "in_flight_max": settings.in_flight_max,
            "lookup_messages_max": settings.lookup_messages_max,
            "inbox_prefix": settings.inbox_prefix,
            "provision": {
                "replicas": settings.provision_replicas,
                "bytes_max": settings.provision_bytes_max,
                "age_max_s": settings.provision_age_max.map(|age| age.as_secs()),
            },
        }))
    }

    fn redis(&self, settings: &RedisStreams, connect: std::time::Duration) -> Result<Value, Error> {
        let password = settings.password.as_ref();
        let password = password.map(|secret| self.secret("password", secret));
        Ok(json!({
            "servers": settings.servers,
            "user": settings.user,
            "password": password.transpose()?,
            "database": settings.database,
            "tls": {
                "ca_file": self.path(settings.ca_file.as_ref()),
                "cert_file": self.path(settings.cert_file.as_ref()),
                "key_file": self.path(settings.key_file.as_ref()),
            },
            "connect_timeout_ms": millis(connect),
            "api_timeout_ms": millis(settings.api_timeout),
            // Zero means something here.
            "dedup_window_ms": u64::try_from(settings.dedup_window.as_millis()).unwrap_or(u64::MAX),
            "dedup_ids_max": settings.dedup_ids_max,
            "replicas_min": settings.replicas_min,
            "groups": settings.groups,
            "length_max": settings.length_max,
            "lookup_entries_max": settings.lookup_entries_max,
        }))
    }

    fn rabbitmq(&self, settings: &RabbitMq, connect: std::time::Duration) -> Result<Value, Error> {
        let credentials = match (&settings.user, &settings.password) {
            (Some(user), Some(password)) => json!({
                "user_password": { "user": user, "password": self.secret("password", password)? }
            }),
            (_, _) if settings.certificate_login => json!("certificate"),
            (_, _) => json!("guest"),
        };
        Ok(json!({
            "servers": settings.servers,
            "vhost": settings.vhost,
            "credentials": credentials,
            "tls": {
                "ca_file": self.path(settings.ca_file.as_ref()),
                "cert_file": self.path(settings.cert_file.as_ref()),
                "key_file": self.path(settings.key_file.as_ref()),
            },
            "connect_timeout_ms": millis(connect),
            "api_timeout_ms": millis(settings.api_timeout),
            "heartbeat_s": settings.heartbeat.as_secs().clamp(1, u16::MAX.into()),
            "in_flight_max": settings.in_flight_max,
            "publish_bytes_max": settings.publish_bytes_max,
            "priority": settings.priority,
            "expiration_ms": settings
                .expiration
                .map(|time| millis(time).min(u32::MAX.into())),
            "streams": settings.streams,
            "lookup_messages_max": settings.lookup_messages_max,
            "provision": {
                "exchange_type": settings.provision_exchange_type,
                "queue_type": settings.provision_queue_type,
            },
        }))
    }

    /// `hard`: no client library may hold a message longer than the relay waits for it.
    fn kafka(
        &self,
        settings: &Kafka,
        connect: std::time::Duration,
        hard: std::time::Duration,
    ) -> Result<Value, Error> {
        let sasl = match (&settings.sasl_mechanism, &settings.user, &settings.password) {
            (Some(mechanism), Some(user), Some(password)) => json!({
                "mechanism": mechanism,
                "user": user,
                "password": self.secret("password", password)?,
            }),
            (_, _, _) => Value::Null,
        };
        Ok(json!({
            "brokers": settings.brokers,
            "sasl": sasl,
            "tls": {
                "required": settings.tls_required,
                "ca_file": self.path(settings.ca_file.as_ref()),
                "cert_file": self.path(settings.cert_file.as_ref()),
                "key_file": self.path(settings.key_file.as_ref()),
            },
            "connect_timeout_ms": millis(connect),
            "api_timeout_ms": millis(settings.api_timeout),
            "message_timeout_ms": millis(hard),
            "in_flight_max": settings.in_flight_max,
            "in_flight_bytes_max": settings.in_flight_bytes_max,
            "message_bytes_max": settings.message_bytes_max,
            "lookup_messages_max": settings.lookup_messages_max,
            "provision": {
                "partitions": settings.provision_partitions,
                "replicas": settings.provision_replicas,
            },
        }))
    }

    fn http(&self, settings: &Http, connect: std::time::Duration) -> Result<Value, Error> {
        let url = settings
            .url
            .read(&format!("connections.{}.url", self.name), self.base)
            .map_err(|fault| unreadable(&fault))?;
        let authorization = settings
            .authorization
            .as_ref()
            .map(|secret| self.secret("authorization", secret))
            .transpose()?;
        let mut headers = Map::new();
        for (name, secret) in &settings.headers {
            let value = self.secret(&format!("headers.{name}"), secret)?;
            headers.insert(name.clone(), json!(value));
        }
        let signing_secrets: Vec<String> = settings
            .signing_secrets
            .iter()
            .map(|secret| self.secret("signing_secrets", secret))
            .collect::<Result<_, _>>()?;
        Ok(json!({
            "url": url,
            "authorization": authorization,
            "headers": headers,
            "signing_secrets": signing_secrets,
            "allow_networks": settings.allow_networks,
            "allow_plain_http": settings.allow_plain_http,
            "ca_file": self.path(settings.ca_file.as_ref()),
            "connect_timeout_ms": millis(connect),
            "concurrency_max": settings.concurrency_max,
            "response_bytes_max": settings.response_bytes_max,
            "request_bytes_max": settings.request_bytes_max,
        }))
    }
}

/// At least one: a transport refuses zero, and less than a millisecond is none.
fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

fn unreadable(fault: &Fault) -> Error {
    Error::Misconfigured {
        code: SECRET_UNREADABLE,
        message: format!("{}; {}", fault.what, fault.fix),
    }
}
