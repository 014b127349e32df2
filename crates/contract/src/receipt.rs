//! Receipts: a destination's evidence of acceptance, a closed union by `type`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Destination, Digest, INTEGER_MAX, Invalid, Timestamp,
    canonical::{self, ReadError},
    invalid, text,
};

/// The evidence that one message was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Receipt {
    #[serde(rename = "jetstream.ack/1")]
    JetStream {
        stream: String,
        sequence: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        domain: Option<String>,
        /// The server knew the message id already; `sequence` is the first copy's.
        duplicate: bool,
    },
    #[serde(rename = "http.response/1")]
    Http {
        status: u16,
        /// `sha256` over the response body, when it was read whole.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body_digest: Option<Digest>,
    },
    #[serde(rename = "file.append/1")]
    File {
        file: String,
        /// Byte offset of the line's first byte.
        offset: u64,
        duplicate: bool,
    },
    #[serde(rename = "handler.result/1")]
    Handler { handler: String, sequence: u64 },
    #[serde(rename = "kafka.offset/1")]
    Kafka {
        cluster: String,
        topic: String,
        partition: u32,
        offset: u64,
    },
    #[serde(rename = "amqp.confirm/1")]
    Amqp {
        exchange: String,
        routing_key: String,
        delivery_tag: u64,
    },
    #[serde(rename = "redis.entry/1")]
    Redis { key: String, entry_id: String },
    #[serde(rename = "sqs.message/1")]
    Sqs { queue: String, message_id: String },
    #[serde(rename = "consumer.receipt/1")]
    Consumer {
        consumer: String,
        receipt_type: String,
        receipt_schema_version: String,
        receipt_digest: Digest,
        committed_at: Timestamp,
    },
}

/// A receipt split for storage: many receipts share `shared` and differ in `number` only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packed {
    /// Canonical JSON of the receipt without its number.
    pub shared: String,
    /// The receipt's position at the destination (sequence, offset, tag), where it has one.
    pub number: Option<i64>,
}

/// Packs many receipts one after the other. Those of one place differ in their numbers only, so
/// what they share is made once.
#[derive(Debug, Default)]
pub struct Packer {
    last: Option<(Receipt, Packed)>,
}

impl Packer {
    /// As [`Receipt::pack`].
    pub fn pack(&mut self, receipt: &Receipt) -> Packed {
        if let (Some((last, packed)), Some(number)) = (&mut self.last, receipt.number())
            && let (Some(_), Ok(packed_number)) = (packed.number, i64::try_from(number))
        {
            last.set_number(number);
            if last == receipt {
                packed.number = Some(packed_number);
                return packed.clone();
            }
        }
        let packed = receipt.pack();
        self.last = Some((receipt.clone(), packed.clone()));
        packed
    }
}

/// A packed receipt that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored receipt cannot be read: {0}")]
pub struct UnpackError(pub String);

/// The receipts by which transports prove acceptance. Any other type is a consumer's own.
const TRANSPORT_KINDS: [&str; 8] = [
    "jetstream.ack/1",
    "http.response/1",
    "file.append/1",
    "handler.result/1",
    "kafka.offset/1",
    "amqp.confirm/1",
    "redis.entry/1",
    "sqs.message/1",
];

impl Receipt {
    /// Whether this type says that a transport accepted a message, and no more.
    #[must_use]
    pub fn is_transport_kind(receipt_type: &str) -> bool {
        TRANSPORT_KINDS.contains(&receipt_type)
    }

    /// The canonical bytes: what is stored and digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    /// The digest of [`Receipt::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }

    /// Reads a receipt from any JSON text that says the same, and checks every field.
    ///
    /// # Errors
    /// When the text is not strict JSON, has unknown or missing members, or a field breaks its
    /// rule.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        canonical::read("receipt", text, Self::validate)
    }

    /// Checks every field: text within bounds and free of control characters, numbers within
    /// 2^53 - 1, an HTTP status that says success.
    ///
    /// # Errors
    /// Names the field that breaks its rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        let id = |field, value: &String| text::free(field, value, text::ID_MAX);
        let position = |field, value: &u64| invalid::range(field, *value, 0, INTEGER_MAX);
        match self {
            Self::JetStream {
                stream,
                sequence,
                domain,
                duplicate: _,
            } => {
                id("stream", stream)?;
                domain
                    .as_ref()
                    .map_or(Ok(()), |domain| id("domain", domain))?;
                position("sequence", sequence)
            }
            Self::Http {
                status,
                body_digest,
            } => {
                invalid::range("status", (*status).into(), 200, 299)?;
                let algorithm = crate::digest::Algorithm::Sha256;
                body_digest.map_or(Ok(()), |digest| digest.expect("bodyDigest", algorithm))
            }
            Self::File {
                file,
                offset,
                duplicate: _,
            } => {
                text::free("file", file, text::TARGET_MAX)?;
                position("offset", offset)
            }
            Self::Handler { handler, sequence } => {
                id("handler", handler)?;
                position("sequence", sequence)
            }
            Self::Kafka {
                cluster,
                topic,
                partition: _,
                offset,
            } => {
                id("cluster", cluster)?;
                id("topic", topic)?;
                position("offset", offset)
            }
            Self::Amqp {
                exchange,
                routing_key,
                delivery_tag,
            } => {
                // The default exchange and an empty routing key are both legal.
                text::bounded("exchange", exchange, text::ID_MAX)?;
                text::bounded("routingKey", routing_key, text::ID_MAX)?;
                position("deliveryTag", delivery_tag)
            }
            Self::Redis { key, entry_id } => {
                text::free("key", key, text::TARGET_MAX)?;
                id("entryId", entry_id)
            }
            Self::Sqs { queue, message_id } => {
                text::free("queue", queue, text::TARGET_MAX)?;
                id("messageId", message_id)
            }
            Self::Consumer {
                consumer,
                receipt_type,
                receipt_schema_version,
                receipt_digest: _,
                committed_at: _,
            } => {
                text::consumer(consumer)?;
                text::receipt_type(receipt_type)?;
                text::name(
                    "receiptSchemaVersion",
                    receipt_schema_version,
                    text::VERSION_MAX,
                )
            }
        }
    }

    /// Whether this can be evidence for a send to that destination: it is of the type that the
    /// destination prescribes and, where it names a place that the destination fixes, of that
    /// place.
    ///
    /// # Errors
    /// Says what differs.
    pub fn fits(&self, destination: &Destination) -> Result<(), Invalid> {
        self.validate()?;
        // A consumer's receipt goes by its own type, inside the envelope that carries it.
        let own = if let Self::Consumer { receipt_type, .. } = self {
            receipt_type.as_str()
        } else {
            self.kind()
        };
        if ![self.kind(), own].contains(&destination.receipt_type.as_str()) {
            return Err(Invalid::inconsistent(
                "type",
                format!(
                    "is {own}, but destination {} is closed by {}",
                    destination.name, destination.receipt_type
                ),
            ));
        }
        let same = |field: &'static str, found: &str, fixed: &str| {
            if found == fixed {
                return Ok(());
            }
            let rule = format!(
                "is {found:?}, but destination {} says {fixed:?}",
                destination.name
            );
            Err(Invalid::inconsistent(field, rule))
        };
        match self {
            Self::JetStream { stream, .. } => destination
                .container
                .as_deref()
                .map_or(Ok(()), |container| same("stream", stream, container)),
            Self::Kafka { cluster, .. } => same("cluster", cluster, &destination.cluster),
            Self::Http { .. }
            | Self::File { .. }
            | Self::Handler { .. }
            | Self::Amqp { .. }
            | Self::Redis { .. }
            | Self::Sqs { .. }
            | Self::Consumer { .. } => Ok(()),
        }
    }

    /// The `type` tag.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.form().0
    }

    /// The tag, and the name of the field that numbers receipts of one place.
    fn form(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::JetStream { .. } => ("jetstream.ack/1", Some("sequence")),
            Self::Http { .. } => ("http.response/1", None),
            Self::File { .. } => ("file.append/1", Some("offset")),
            Self::Handler { .. } => ("handler.result/1", Some("sequence")),
            Self::Kafka { .. } => ("kafka.offset/1", Some("offset")),
            Self::Amqp { .. } => ("amqp.confirm/1", Some("deliveryTag")),
            Self::Redis { .. } => ("redis.entry/1", None),
            Self::Sqs { .. } => ("sqs.message/1", None),
            Self::Consumer { .. } => ("consumer.receipt/1", None),
        }
    }

    /// Splits off the number. Numbers above `i64::MAX` stay in `shared`.
    ///
    /// # Panics
    /// Never: a receipt always serialises to an object.
    #[must_use]
    pub fn pack(&self) -> Packed {
        let mut value = serde_json::to_value(self).expect("a receipt serialises");
        let object = value.as_object_mut().expect("a receipt is an object");
        let number = self.form().1.and_then(|field| {
            let number = object.get(field)?.as_i64()?;
            object.remove(field);
            Some(number)
        });
        Packed {
            shared: canonical::to_string(&value),
            number,
        }
    }

    /// The receipt's position at the destination, where its kind has one.
    fn number(&self) -> Option<u64> {
        match self {
            Self::JetStream { sequence, .. } | Self::Handler { sequence, .. } => Some(*sequence),
            Self::File { offset, .. } | Self::Kafka { offset, .. } => Some(*offset),
            Self::Amqp { delivery_tag, .. } => Some(*delivery_tag),
            Self::Http { .. } | Self::Redis { .. } | Self::Sqs { .. } | Self::Consumer { .. } => {
                None
            }
        }
    }

    fn set_number(&mut self, number: u64) {
        match self {
            Self::JetStream { sequence, .. } | Self::Handler { sequence, .. } => *sequence = number,
            Self::File { offset, .. } | Self::Kafka { offset, .. } => *offset = number,
            Self::Amqp { delivery_tag, .. } => *delivery_tag = number,
            Self::Http { .. } | Self::Redis { .. } | Self::Sqs { .. } | Self::Consumer { .. } => {}
        }
    }

    /// Joins what [`Receipt::pack`] split.
    ///
    /// # Errors
    /// When the stored text is not a receipt of a known type.
    pub fn unpack(packed: &Packed) -> Result<Self, UnpackError> {
        let unreadable = |error: serde_json::Error| UnpackError(error.to_string());
        let mut value: serde_json::Value =
            serde_json::from_str(&packed.shared).map_err(unreadable)?;
        if let Some(number) = packed.number {
            let field = match value["type"].as_str() {
                Some("jetstream.ack/1" | "handler.result/1") => "sequence",
                Some("file.append/1" | "kafka.offset/1") => "offset",
                Some("amqp.confirm/1") => "deliveryTag",
                other => return Err(UnpackError(format!("type {other:?} has no number"))),
            };
            value[field] = number.into();
        }
        serde_json::from_value(value).map_err(unreadable)
    }
}
