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
/// Load it once and share it: an append looks at it before it sends anything to the database, so
/// that a refused event leaves the transaction as it was. The database knows which registry is
/// its own. When it says that this one is old, or when this one does not know an event type, the
/// append loads it again, once, and judges the event anew.
#[derive(Debug)]
pub struct Registry {
    /// Where the outbox is in a Postgres database.
    #[cfg(feature = "_postgres")]
    schema: String,
    snapshot: RwLock<Arc<Snapshot>>,
}

/// Longest name of a Postgres schema that `postrider migrate` makes.
#[cfg(feature = "_postgres")]
const SCHEMA_BYTES_MAX: usize = 40;

impl Registry {
    /// A registry of event types that a program brings along, such as with `include_str!`.
    /// Destinations' limits are then checked by the database alone.
    ///
    /// # Errors
    /// Names the first event type whose schema cannot be used.
    pub fn from_event_types(event_types: &[EventType]) -> Result<Self, CompileError> {
        Snapshot::new(event_types, Origin::Program).map(Self::of)
    }

    /// The same registry for an outbox in another Postgres schema than `postrider`. To load it
    /// from there, name the schema of an empty one and refresh that:
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let registry = postrider::Registry::from_event_types(&[])?.in_schema("outbox")?;
    /// // postrider::tokio_postgres::refresh(&client, &registry).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When `postrider migrate` makes no schema of this name.
    #[cfg(feature = "_postgres")]
    pub fn in_schema(mut self, schema: &str) -> Result<Self, Invalid> {
        let first = |c: char| c.is_ascii_lowercase() || c == '_';
        let allowed = schema.starts_with(first)
            && schema.chars().all(|c| first(c) || c.is_ascii_digit())
            && schema.len() <= SCHEMA_BYTES_MAX
            && !schema.starts_with("pg_");
        if !allowed {
            let expected =
                "1 to 40 lower-case letters, digits and _, not starting with a digit or pg_";
            return Err(Invalid::malformed("schema", schema, expected));
        }
        schema.clone_into(&mut self.schema);
        Ok(self)
    }

    /// Checks an event as an append does before it asks the database, without appending it.
    ///
    /// # Errors
    /// As an append that gets no answer from a database.
    pub fn check(&self, event: &NewEvent) -> Result<(), AppendError> {
        let prepared = check::prepare(event.clone())?;
        check::judge(&self.snapshot(), &prepared.event).map(drop)
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
            #[cfg(feature = "_postgres")]
            schema: "postrider".to_owned(),
            snapshot: RwLock::new(Arc::new(snapshot)),
        }
    }

    /// Knows nothing yet; to be filled from a database.
    #[cfg(feature = "_driver")]
    pub(crate) fn empty() -> Self {
        Self::of(Snapshot::default())
    }

    /// SQL text with the name of the schema, which was checked, in it.
    #[cfg(feature = "_postgres")]
    pub(crate) fn statement(&self, sql: &str) -> String {
        sql.replace("{schema}", &self.schema)
    }

    // A panic while the lock is held leaves a whole snapshot behind, the old or the new one.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    #[cfg(feature = "_driver")]
    pub(crate) fn replace(&self, snapshot: Snapshot) -> Arc<Snapshot> {
        let snapshot = Arc::new(snapshot);
        let mut kept = self
            .snapshot
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Arc::clone(&snapshot);
        snapshot
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
#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    origin: Origin,
    types: BTreeMap<String, BTreeMap<String, Known>>,
    schemas: Schemas,
}

/// Where a snapshot is from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The program brought it along.
    #[default]
    Program,
    /// A database, with this delivery set active.
    #[cfg(feature = "_driver")]
    Database { delivery_set: Option<i64> },
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
    pub(crate) fn new(event_types: &[EventType], origin: Origin) -> Result<Self, CompileError> {
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
        Ok(Self {
            origin,
            types,
            schemas,
        })
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

    #[cfg(feature = "_driver")]
    pub(crate) fn is_from_database(&self) -> bool {
        matches!(self.origin, Origin::Database { .. })
    }

    /// The delivery set that was active when it was loaded.
    #[cfg(feature = "_driver")]
    pub(crate) fn delivery_set(&self) -> Option<i64> {
        match self.origin {
            Origin::Program => None,
            Origin::Database { delivery_set } => delivery_set,
        }
    }

    /// Nothing can be appended to the database it is from, whatever the event type.
    pub(crate) fn lacks_delivery_set(&self) -> bool {
        match self.origin {
            Origin::Program => false,
            #[cfg(feature = "_driver")]
            Origin::Database { delivery_set } => delivery_set.is_none(),
        }
    }

    pub(crate) fn find(&self, event_type: &str, schema_version: &str) -> Option<&Known> {
        self.types.get(event_type)?.get(schema_version)
    }

    pub(crate) fn schemas(&self) -> &Schemas {
        &self.schemas
    }
}
