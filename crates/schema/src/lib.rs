//! The JSON Schemas of event types, compiled: payloads are checked with them at append and again
//! before dispatch. Never fetches anything: a schema is complete in itself or refused.

mod compile;
mod strict;
mod violation;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
};

use jsonschema::Validator;
use postrider_contract::{Digest, EventType};

pub use compile::CompileError;
pub use violation::{LASTING_CODES, Violation};

/// Compiled schemas by digest. A (type, version) whose schema was changed has several, and an
/// event is checked with the one that its envelope names.
#[derive(Default)]
pub struct Schemas {
    by_digest: BTreeMap<Digest, Validator>,
}

impl Schemas {
    /// Compiles the schema of every event type that has one. Types with the same schema share it.
    ///
    /// # Errors
    /// Names the first event type whose schema is not a JSON Schema, or refers to something
    /// outside itself. Two readers of one digest must mean the same rules, so a `$ref` may only
    /// point into its own document or to one of the published JSON Schema drafts, which are built
    /// in.
    pub fn compile<'a>(
        event_types: impl IntoIterator<Item = &'a EventType>,
    ) -> Result<Self, CompileError> {
        let mut schemas = Self::default();
        for event_type in event_types {
            schemas.add(event_type)?;
        }
        Ok(schemas)
    }

    /// Compiles the schema of one more event type, if it has one that is not here yet.
    ///
    /// # Errors
    /// As [`Schemas::compile`].
    pub fn add(&mut self, event_type: &EventType) -> Result<(), CompileError> {
        let (Some(text), Some(digest)) = (&event_type.json_schema, event_type.schema_digest())
        else {
            return Ok(());
        };
        if let Entry::Vacant(free) = self.by_digest.entry(digest) {
            free.insert(compile::compile(event_type, text)?);
        }
        Ok(())
    }

    /// Whether the schema with this digest is here. If not, it may have been registered since.
    #[must_use]
    pub fn contains(&self, schema_digest: &Digest) -> bool {
        self.by_digest.contains_key(schema_digest)
    }

    /// Checks payload bytes against the schema with this digest.
    ///
    /// The payload must be JSON that has one meaning only: a member named twice, half a surrogate
    /// pair, or a number that no double can hold would be read differently by different readers,
    /// and so would the schema's verdict.
    ///
    /// # Errors
    /// The first rule that the payload breaks. It never holds a value of the payload.
    pub fn validate(&self, schema_digest: &Digest, payload: &[u8]) -> Result<(), Violation> {
        let validator = self
            .by_digest
            .get(schema_digest)
            .ok_or(Violation::UnknownSchema {
                schema_digest: *schema_digest,
            })?;
        let value = strict::parse(payload)?;
        validator
            .validate(&value)
            .map_err(|error| Violation::of(&error))
    }
}

impl fmt::Debug for Schemas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_digest.keys()).finish()
    }
}
