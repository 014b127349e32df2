//! The envelope: an event's canonical header. Its digest covers the payload's digest.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::event_id::EventId;
use crate::{
    Digest, INTEGER_MAX, Invalid, Timestamp,
    canonical::{self, ReadError},
    digest::Algorithm,
    invalid, media, schema, text,
};

/// The name that every such object carries.
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
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub generation: u64,
    /// Whose event it is; `default` where nobody says.
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub tenant: String,
    pub aggregate: Aggregate,
    /// Exact text, such as `order.placed`.
    #[schemars(length(min = 1, max = 100), regex(pattern = schema::NAME))]
    pub event_type: String,
    /// The version of the event type's schema: exact text, compared byte for byte.
    #[schemars(length(min = 1, max = 64), regex(pattern = schema::NAME))]
    pub schema_version: String,
    pub payload: Payload,
    /// What order is kept by: events of one key share a lane. Empty: no key, or rather
    /// the one key of all events without one.
    #[schemars(length(max = 511), regex(pattern = schema::NO_CONTROLS))]
    pub partition_key: String,
    /// Who caused it, as the application names people and services.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub actor: Option<String>,
    /// The request that was being served.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub request_id: Option<String>,
    /// Ties together the events of one business transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub correlation_id: Option<String>,
    /// The event or command that led to this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub causation_id: Option<String>,
    /// The business operation, stable across its retries.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub operation_id: Option<String>,
    /// When it happened, as the application says, else when it was appended.
    pub occurred_at: Timestamp,
    pub delivery_set: DeliverySetRef,
}

/// The business object that the event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Aggregate {
    /// `type` in JSON.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub kind: String,
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub id: String,
    /// The aggregate's own revision, 0 to 2^53 - 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    pub version: Option<u64>,
}

/// What the payload bytes are. The bytes themselves stand beside the envelope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Payload {
    #[schemars(length(min = 1, max = 255), regex(pattern = schema::NO_CONTROLS))]
    pub content_type: String,
    /// The digest of the JSON Schema under which the payload was committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_digest: Option<Digest>,
    /// `sha256` over the payload bytes.
    pub digest: Digest,
    /// Bytes.
    #[schemars(range(min = 0, max = 9_007_199_254_740_991_u64))]
    pub length: u64,
}

/// The delivery set that was active at append.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverySetRef {
    #[schemars(range(min = 1, max = 9_007_199_254_740_991_u64))]
    pub version: u64,
    pub digest: Digest,
}

impl Envelope {
    /// The canonical bytes: what is stored, sent and digested.
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    /// The digest of [`Envelope::canonical`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }

    /// Reads an envelope from any JSON text that says the same, and checks every field.
    ///
    /// # Errors
    /// When the text is not strict JSON, has unknown or missing members, or a field breaks its
    /// rule.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        canonical::read("postrider.envelope/1", text, Self::validate)
    }

    /// Reads an envelope that was stored, and so checked, before. Only its shape is looked at.
    ///
    /// # Errors
    /// When the text is not an envelope.
    pub fn from_stored(text: &str) -> Result<Self, ReadError> {
        canonical::read_stored("postrider.envelope/1", text)
    }

    /// Checks every field against its rule.
    ///
    /// # Errors
    /// Names the first field that breaks its rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        invalid::range("generation", self.generation, 1, INTEGER_MAX)?;
        text::tenant(&self.tenant)?;
        text::aggregate_type(&self.aggregate.kind)?;
        text::aggregate_id(&self.aggregate.id)?;
        if let Some(version) = self.aggregate.version {
            invalid::range("aggregate.version", version, 0, INTEGER_MAX)?;
        }
        text::event_type(&self.event_type)?;
        text::schema_version(&self.schema_version)?;
        text::content_type(&self.payload.content_type).map_err(|e| e.within("payload"))?;
        if let Some(digest) = &self.payload.schema_digest {
            digest.expect("payload.schemaDigest", Algorithm::JcsSha256V1)?;
        }
        self.payload
            .digest
            .expect("payload.digest", Algorithm::Sha256)?;
        invalid::range("payload.length", self.payload.length, 0, INTEGER_MAX)?;
        text::partition_key(&self.partition_key)?;
        if media::is_tombstone(&self.payload.content_type) {
            if self.payload.length > 0 {
                let rule = "must be empty in a tombstone; use another content type for a payload";
                return Err(Invalid::inconsistent("payload", rule));
            }
            if self.partition_key.is_empty() {
                let rule = "must not be empty in a tombstone: it says which key is gone";
                return Err(Invalid::inconsistent("partitionKey", rule));
            }
        }
        check(&self.actor, text::actor)?;
        check(&self.request_id, text::request_id)?;
        check(&self.correlation_id, text::correlation_id)?;
        check(&self.causation_id, text::causation_id)?;
        check(&self.operation_id, text::operation_id)?;
        self.delivery_set
            .validate()
            .map_err(|invalid| invalid.within("deliverySet"))
    }
}

fn check(
    value: &Option<String>,
    rule: impl FnOnce(&str) -> Result<(), Invalid>,
) -> Result<(), Invalid> {
    value.as_deref().map_or(Ok(()), rule)
}

impl DeliverySetRef {
    fn validate(&self) -> Result<(), Invalid> {
        invalid::range("version", self.version, 1, INTEGER_MAX)?;
        self.digest.expect("digest", Algorithm::JcsSha256V1)
    }
}
