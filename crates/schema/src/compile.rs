//! One JSON Schema text, compiled with every way to the outside closed.

use jsonschema::{PatternOptions, Retrieve, Uri, Validator, error::ValidationErrorKind};
use postrider_contract::EventType;
use serde_json::Value;

use crate::violation::cut;

/// Steps that one match of a pattern with look-around may take: some milliseconds. Patterns
/// without it are matched in linear time and have no use for the bound.
const BACKTRACK_MAX: usize = 100_000;
/// Bytes of one compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;
/// Bytes of the message of an error.
const MESSAGE_BYTES_MAX: usize = 400;

/// Why the schema of an event type cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema of event type {event_type:?} version {schema_version:?} {problem}")]
pub struct CompileError {
    pub event_type: String,
    pub schema_version: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("is not JSON: {0}")]
    NotJson(String),
    #[error(
        "refers to something that is not in it: {0}; copy what it needs into its $defs, because \
         nothing is ever fetched"
    )]
    Outside(String),
    #[error("is not a valid JSON Schema at {pointer:?}: {message}")]
    Invalid {
        /// RFC 6901 JSON Pointer into the schema; empty: the whole document.
        pointer: String,
        message: String,
    },
}

pub(crate) fn compile(event_type: &EventType, text: &str) -> Result<Validator, CompileError> {
    let failed = |problem| CompileError {
        event_type: event_type.event_type.clone(),
        schema_version: event_type.schema_version.clone(),
        problem,
    };
    let schema: Value =
        serde_json::from_str(text).map_err(|error| failed(Problem::NotJson(error.to_string())))?;
    jsonschema::options()
        // The crate is built without its retrievers, but another crate of the same program may
        // turn them on: this one refuses whatever the build has.
        .with_retriever(Nothing)
        .with_pattern_options(
            PatternOptions::fancy_regex()
                .backtrack_limit(BACKTRACK_MAX)
                .size_limit(PATTERN_BYTES_MAX)
                .dfa_size_limit(PATTERN_BYTES_MAX),
        )
        .build(&schema)
        .map_err(|error| {
            let message = cut(&error.to_string(), MESSAGE_BYTES_MAX);
            failed(
                if matches!(error.kind(), ValidationErrorKind::Referencing(_)) {
                    Problem::Outside(message)
                } else {
                    let pointer = cut(error.instance_path().as_str(), MESSAGE_BYTES_MAX);
                    Problem::Invalid { pointer, message }
                },
            )
        })
}

/// Retrieves nothing.
struct Nothing;

impl Retrieve for Nothing {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("{uri} is not in the document").into())
    }
}
