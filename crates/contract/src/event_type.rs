//! An event type: a name, an exact schema version and, for JSON payloads, a JSON Schema.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Digest, Invalid,
    canonical::{self, ReadError},
    invalid::Problem,
    media, text,
};

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

/// Longest JSON Schema, in bytes of its canonical form. It is compiled by every process that
/// appends or delivers.
pub const JSON_SCHEMA_MAX: usize = 256 * 1024;

/// The JSON Schema dialects whose meta-schema needs no fetching.
const DIALECTS: [&str; 5] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];

/// Keywords whose value is a reference to a schema.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

impl EventType {
    /// An event type with its JSON Schema as text, which is canonicalised here.
    ///
    /// # Errors
    /// Names the field that breaks its rule.
    pub fn new(
        event_type: impl Into<String>,
        schema_version: impl Into<String>,
        content_type: impl Into<String>,
        json_schema: Option<&str>,
    ) -> Result<Self, Invalid> {
        let not_json = |error| Invalid::new("jsonSchema", Problem::NotJson(error));
        let event_type = Self {
            event_type: event_type.into(),
            schema_version: schema_version.into(),
            content_type: content_type.into(),
            json_schema: json_schema
                .map(canonical::payload_value)
                .transpose()
                .map_err(not_json)?,
        };
        event_type.validate()?;
        Ok(event_type)
    }

    /// Reads an event type from any JSON text that says the same, and checks every rule.
    ///
    /// # Errors
    /// When the text is not strict JSON, has unknown or missing members, or a rule is broken.
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        canonical::read("event type", text, Self::validate)
    }

    /// The digest of the JSON Schema, as frozen in envelopes.
    #[must_use]
    pub fn schema_digest(&self) -> Option<Digest> {
        self.json_schema.as_deref().map(Digest::of_canonical)
    }

    /// Checks every field. A JSON Schema goes with the content type `application/json` only, is
    /// canonical, and refers to nothing outside itself: nothing is ever fetched.
    ///
    /// # Errors
    /// Names the field that breaks its rule.
    pub fn validate(&self) -> Result<(), Invalid> {
        text::event_type(&self.event_type)?;
        text::schema_version(&self.schema_version)?;
        text::content_type(&self.content_type)?;
        let Some(schema) = &self.json_schema else {
            return Ok(());
        };
        if !media::is_json(&self.content_type) {
            return Err(Invalid::inconsistent(
                "jsonSchema",
                format!(
                    "is given for payloads of type {}; only {} has a JSON Schema",
                    self.content_type,
                    media::JSON
                ),
            ));
        }
        if schema.len() > JSON_SCHEMA_MAX {
            let problem = Problem::TooLong {
                length: schema.len(),
                max: JSON_SCHEMA_MAX,
            };
            return Err(Invalid::new("jsonSchema", problem));
        }
        let canonical = canonical::payload_value(schema)
            .map_err(|error| Invalid::new("jsonSchema", Problem::NotJson(error)))?;
        if canonical != *schema {
            let rule = "is not canonical JSON; make the event type with EventType::new";
            return Err(Invalid::inconsistent("jsonSchema", rule));
        }
        let value: Value = serde_json::from_str(schema).map_err(|error| {
            Invalid::inconsistent("jsonSchema", format!("cannot be read: {error}"))
        })?;
        if !matches!(value, Value::Object(_) | Value::Bool(_)) {
            let rule = "is neither an object nor true or false, and so no JSON Schema";
            return Err(Invalid::inconsistent("jsonSchema", rule));
        }
        closed(&value, &mut String::from("jsonSchema"))
    }
}

/// Refuses references to anything outside the document and dialects that would have to be
/// fetched. Every member of these names counts as the keyword, even inside `enum` or `const`:
/// refusing data that only looks like a reference is the safe side.
fn closed(value: &Value, path: &mut String) -> Result<(), Invalid> {
    let length = path.len();
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                path.push('/');
                path.push_str(name);
                if let Value::String(text) = value {
                    keyword(name, text, path)?;
                }
                closed(value, path)?;
                path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_str(&format!("/{index}"));
                closed(item, path)?;
                path.truncate(length);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn keyword(name: &str, text: &str, path: &str) -> Result<(), Invalid> {
    if REFERENCES.contains(&name) && !text.starts_with('#') {
        return Err(Invalid::inconsistent(
            path,
            format!(
                "refers to {}, outside this schema; nothing is fetched, so copy what it needs \
                 into $defs and refer to that with #/$defs/…",
                crate::invalid::quote(text)
            ),
        ));
    }
    if name == "$schema" && !DIALECTS.contains(&text.trim_end_matches('#')) {
        return Err(Invalid::inconsistent(
            path,
            format!(
                "names the dialect {}, which is not known here; known are {}",
                crate::invalid::quote(text),
                DIALECTS.join(", ")
            ),
        ));
    }
    Ok(())
}
