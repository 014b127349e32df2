//! Receipts: a destination's evidence of acceptance, a closed union by `type`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, Timestamp};

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

/// A packed receipt that is not one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a stored receipt cannot be read: {0}")]
pub struct UnpackError(pub String);

impl Receipt {
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
            shared: crate::canonical::to_string(&value),
            number,
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
