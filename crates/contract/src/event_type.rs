//! An event type: a name, an exact schema version and, for JSON payloads, a JSON Schema.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// A registered (event type, schema version).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventType {
    pub event_type: String,
    pub schema_version: String,
    pub content_type: String,
    /// Canonical JSON of the JSON Schema; absent: the payload is opaque.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<String>,
}

impl EventType {
    /// The digest of the JSON Schema, as frozen in envelopes.
    #[must_use]
    pub fn schema_digest(&self) -> Option<Digest> {
        self.json_schema.as_deref().map(Digest::of_canonical)
    }
}
