//! The envelope: an event's canonical header. Its digest covers the payload's digest.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Digest, Timestamp, canonical};

/// The identity of an event. UUIDv7 by default, any UUID is accepted.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct EventId(pub Uuid);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The schema name of [`Envelope`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    #[serde(rename = "postrider.envelope/1")]
    V1,
}

/// `postrider.envelope/1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Envelope {
    pub schema: Schema,
    pub event_id: EventId,
    /// 1 at append; one more for each migration to another destination.
    pub generation: u64,
    pub tenant: String,
    pub aggregate: Aggregate,
    pub event_type: String,
    /// The version of the event type's schema: exact text, compared byte for byte.
    pub schema_version: String,
    pub payload: Payload,
    pub partition_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    pub occurred_at: Timestamp,
    pub delivery_set: DeliverySetRef,
}

/// The business object that the event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Aggregate {
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    /// The aggregate's own revision, 0 to 2^53 - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// What the payload bytes are. The bytes themselves stand beside the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Payload {
    pub content_type: String,
    /// The digest of the JSON Schema under which the payload was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_digest: Option<Digest>,
    /// `sha256` over the payload bytes.
    pub digest: Digest,
    /// Bytes.
    pub length: u64,
}

/// The delivery set that was active at append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverySetRef {
    pub version: u64,
    pub digest: Digest,
}

impl Envelope {
    /// The canonical bytes: what is stored, sent and digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }
}
