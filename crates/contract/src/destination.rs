//! A destination: an immutable, content-addressed version of "where and how".

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Digest, INTEGER_MAX, Invalid,
    canonical::{self, ReadError},
    invalid, schema, text,
};

/// Most lanes of one destination.
pub const LANES_MAX: u16 = 1024;

/// The name that every such object carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    #[serde(rename = "postrider.destination/1")]
    V1,
}

/// `postrider.destination/1`. Any change makes another digest, and so another generation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Destination {
    pub schema: Schema,
    /// Names the destination across its versions.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub name: String,
    /// 1, 2, …: counts the versions registered under this name.
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub generation: u64,
    /// The transport: `jetstream`, `http`, `file`, …
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub kind: String,
    /// The identity of the cluster, checked at connect where the transport can.
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub cluster: String,
    /// The transport's own address of the place: a subject template, a URL path, a file name.
    #[schemars(length(min = 1, max = 1024), regex(pattern = schema::NO_CONTROLS))]
    pub target: String,
    /// What the transport needs beyond the target to know the right place, such as a stream name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub container: Option<String>,
    pub key: Key,
    pub partitioner: Partitioner,
    pub serializer: Serializer,
    pub durability: Durability,
    /// The `type` of the receipts that close deliveries here, such as `jetstream.ack/1`.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub receipt_type: String,
    pub ordering: Ordering,
    /// 1 to 1024.
    #[schemars(range(min = 1, max = 1024))]
    pub lanes: u16,
    pub on_unknown: OnUnknown,
    pub on_quarantine: OnQuarantine,
    /// Charged attempts before quarantine; absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub max_attempts: Option<u32>,
    /// Largest payload in bytes, refused at append.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub max_payload_bytes: Option<u64>,
}

/// What the broker's key is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// The event's partition key.
    PartitionKey,
    /// The message has no key.
    None,
}

/// How a key chooses a partition, for brokers that leave it to the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Partitioner {
    /// The broker has no partitions, or chooses.
    None,
    /// As the Java client of Kafka does.
    Murmur2,
    /// As librdkafka does by default.
    Crc32,
    /// The target names the partition.
    Explicit,
}

/// The wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Serializer {
    /// CloudEvents 1.0 binary mode: attributes as headers, the payload as body.
    CloudeventsBinary,
    /// CloudEvents 1.0 structured mode: one JSON object.
    CloudeventsStructured,
    /// The payload alone; the event id in a header.
    Raw,
}

/// What the destination must have done before it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Stored as the destination's own default says.
    Stored,
    /// On disk before the acknowledgement (fsync).
    Synced,
    /// On a quorum of replicas.
    Replicated,
}

/// Which deliveries wait for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ordering {
    /// Deliveries never wait for each other.
    None,
    /// A waiting or unknown delivery holds the later ones of its key.
    Key,
    /// As `key`, and one message of a key in flight at a time.
    Strict,
}

/// What becomes of a delivery whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnUnknown {
    /// It is sent again: something behind the destination tells copies apart.
    Resend,
    /// The destination is asked first.
    Probe,
    /// It waits for a person.
    Hold,
}

/// Whether a quarantined delivery holds the later ones of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnQuarantine {
    /// It does: no later event of the key overtakes it.
    Hold,
    /// It does not: order is kept among those that are delivered.
    Pass,
}

impl Destination {
    /// The canonical bytes: what is stored and digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    /// The digest of [`Destination::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }

    /// Reads a destination from any JSON text that says the same, and checks every field.
    ///
    /// # Errors
    /// When the text is not strict JSON, has unknown or missing members, or a field breaks its
    /// rule.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        canonical::read("postrider.destination/1", text, Self::validate)
    }

    /// Reads a destination that was stored, and so checked, before. Only its shape is looked at.
    ///
    /// # Errors
    /// When the text is not a destination.
    pub fn from_stored(text: &str) -> Result<Self, ReadError> {
        canonical::read_stored("postrider.destination/1", text)
    }

    /// Checks every field against its rule.
    ///
    /// # Errors
    /// Names the first field that breaks its rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        text::name("name", &self.name, text::NAME_MAX)?;
        invalid::range("generation", self.generation, 1, INTEGER_MAX)?;
        text::kind(&self.kind)?;
        text::cluster(&self.cluster)?;
        text::target(&self.target)?;
        if let Some(container) = &self.container {
            text::container(container)?;
        }
        text::receipt_type(&self.receipt_type)?;
        invalid::range("lanes", self.lanes.into(), 1, LANES_MAX.into())?;
        if let Some(attempts) = self.max_attempts {
            invalid::range("maxAttempts", attempts.into(), 1, u32::MAX.into())?;
        }
        if let Some(bytes) = self.max_payload_bytes {
            invalid::range("maxPayloadBytes", bytes, 1, INTEGER_MAX)?;
        }
        Ok(())
    }

    /// Refuses a payload of `length` bytes that is larger than this destination takes.
    ///
    /// # Errors
    /// Names both sizes.
    pub fn check_payload(&self, length: u64) -> Result<(), Invalid> {
        match self.max_payload_bytes {
            Some(max) if length > max => Err(Invalid::inconsistent(
                "payload",
                format!(
                    "is {length} bytes long, and destination {} takes at most {max}; make it \
                     smaller, or send a reference to it",
                    self.name
                ),
            )),
            Some(_) | None => Ok(()),
        }
    }
}
