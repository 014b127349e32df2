//! What may be appended, as last loaded: event types, their schemas and what their destinations
//! take. Asking it costs no database.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

use postrider_contract::{Digest, EventType, Invalid, NewEvent, canonical, media};
use postrider_schema::{CompileError, Schemas};

use crate::{check, error::AppendError};

/// The registered event types with their compiled schemas.
///
/// Load it once, share it, and refresh it when the control plane was changed: an append looks at
/// it before it sends anything to the database, so that a refused event leaves the transaction
/// as it was. What it holds is never older than its last refresh and may be older than the
/// database; the database has the last word on everything but the schema's verdict, and tells
/// when that was made with a schema that is not the registered one any more.
#[derive(Debug)]
pub struct Registry {
    snapshot: RwLock<Arc<Snapshot>>,
}

impl Registry {
    /// A registry of event types that a program brings along, such as with `include_str!`.
    /// Destinations' limits are then checked by the database alone.
    ///
    /// # Errors
    /// Names the first event type whose schema cannot be used.
    pub fn from_event_types(event_types: &[EventType]) -> Result<Self, CompileError> {
        Snapshot::new(event_types).map(Self::of)
    }

    /// Checks an event as an append does before it asks the database, without appending it.
    ///
    /// # Errors
    /// As an append that gets no answer from a database.
    pub fn check(&self, event: &NewEvent) -> Result<(), AppendError> {
        check::one(&self.snapshot(), event.clone()).map(drop)
    }

    /// The digest of the schema that an event of this type is checked with. `None`: the type is
    /// unknown, or its payload is opaque.
    #[must_use]
    pub fn schema_digest(&self, event_type: &str, schema_version: &str) -> Option<Digest> {
        self.snapshot()
            .find(event_type, schema_version)?
            .schema_digest
    }

    /// The known (event type, schema version) pairs, in order.
    #[must_use]
    pub fn event_types(&self) -> Vec<(String, String)> {
        let snapshot = self.snapshot();
        let pairs = snapshot.types.iter().flat_map(|(event_type, versions)| {
            versions
                .keys()
                .map(|version| (event_type.clone(), version.clone()))
        });
        pairs.collect()
    }

    pub(crate) fn of(snapshot: Snapshot) -> Self {
        Self {
            snapshot: RwLock::new(Arc::new(snapshot)),
        }
    }

    // A panic while the lock is held leaves a whole snapshot behind, the old or the new one.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(feature = "_driver")]
    pub(crate) fn replace(&self, snapshot: Snapshot) {
        *self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(snapshot);
    }
}

/// An event type as a program brings it along: JSON payloads that follow `json_schema`, the text
/// of a JSON Schema.
///
/// # Errors
/// When the text is not JSON, or not JSON that its canonical form keeps.
pub fn json_event_type(
    event_type: impl Into<String>,
    schema_version: impl Into<String>,
    json_schema: &str,
) -> Result<EventType, Invalid> {
    Ok(EventType {
        event_type: event_type.into(),
        schema_version: schema_version.into(),
        content_type: media::JSON.to_owned(),
        json_schema: Some(canonical::payload_value(json_schema).map_err(|error| {
            Invalid::inconsistent("jsonSchema", format!("is not JSON: {error}"))
        })?),
    })
}

/// One state of the registry, whole.
#[derive(Debug)]
pub(crate) struct Snapshot {
    types: BTreeMap<String, BTreeMap<String, Known>>,
    schemas: Schemas,
}

/// What is known of an (event type, schema version).
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) content_type: String,
    pub(crate) schema_digest: Option<Digest>,
    /// The tightest of its destinations' limits.
    pub(crate) limit: Option<Limit>,
}

/// What a destination takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) destination: String,
    pub(crate) payload_bytes_max: u64,
}

impl Snapshot {
    pub(crate) fn new(event_types: &[EventType]) -> Result<Self, CompileError> {
        let schemas = Schemas::compile(event_types)?;
        let mut types = BTreeMap::<String, BTreeMap<String, Known>>::new();
        for event_type in event_types {
            let known = Known {
                content_type: event_type.content_type.clone(),
                schema_digest: event_type.schema_digest(),
                limit: None,
            };
            types
                .entry(event_type.event_type.clone())
                .or_default()
                .insert(event_type.schema_version.clone(), known);
        }
        Ok(Self { types, schemas })
    }

    #[cfg(any(test, feature = "_driver"))]
    /// Notes what a destination of an event type takes. Nothing if the type is unknown.
    pub(crate) fn limit(&mut self, event_type: &str, schema_version: &str, limit: Limit) {
        let known = self
            .types
            .get_mut(event_type)
            .and_then(|versions| versions.get_mut(schema_version));
        if let Some(known) = known
            && known
                .limit
                .as_ref()
                .is_none_or(|tightest| limit.payload_bytes_max < tightest.payload_bytes_max)
        {
            known.limit = Some(limit);
        }
    }

    pub(crate) fn find(&self, event_type: &str, schema_version: &str) -> Option<&Known> {
        self.types.get(event_type)?.get(schema_version)
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }
}
