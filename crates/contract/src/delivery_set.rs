//! A delivery set: which destinations each exact (event type, schema version) must reach.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Digest, canonical};

/// The schema name of [`DeliverySet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    #[serde(rename = "postrider.delivery-set/1")]
    V1,
}

/// `postrider.delivery-set/1`: immutable and content-addressed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeliverySet {
    pub schema: Schema,
    pub version: u64,
    pub applicable_event_count: u64,
    /// Sorted by (eventType, schemaVersion), no duplicates.
    pub applicable_events: Vec<ApplicableEvent>,
    pub member_count: u64,
    /// Sorted by (eventType, schemaVersion, destination name, consumer), no duplicates.
    pub members: Vec<Member>,
}

#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApplicableEvent {
    pub event_type: String,
    pub schema_version: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    pub event_type: String,
    pub schema_version: String,
    /// The destination's name; its exact version is `destination_digest`.
    pub destination: String,
    pub destination_digest: Digest,
    pub consumer: String,
    pub expected_receipt_type: String,
    pub expected_receipt_schema_version: String,
    pub projection_target: ProjectionTarget,
    /// A mandatory member must be acknowledged before its event may be purged.
    pub mandatory: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "state", deny_unknown_fields)]
pub enum ProjectionTarget {
    NotApplicable {},
    #[serde(rename_all = "camelCase")]
    Required {
        projection_name: String,
        projection_version: String,
    },
}

impl DeliverySet {
    #[must_use]
    pub fn canonical(&self) -> String {
        canonical::to_string(self)
    }

    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of_canonical(&self.canonical())
    }
}
