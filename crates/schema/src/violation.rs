//! Which rule a payload breaks, without a value of the payload.

use jsonschema::{ValidationError, error::ValidationErrorKind};
use postrider_contract::Digest;

/// Bytes of a JSON Pointer in a violation. Two of them and the words around them stay below the
/// 512 bytes that are kept of an outcome's detail.
const POINTER_BYTES_MAX: usize = 180;

/// Why a payload is refused. `Display` is bounded and holds no value of the payload: names of
/// members and numbers of items are all that it repeats.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The event names a schema that is not among the compiled ones.
    #[error("no schema with digest {schema_digest} is registered")]
    UnknownSchema { schema_digest: Digest },
    /// Not JSON, or JSON that readers could understand differently.
    #[error("the payload is not JSON with one meaning: {problem}")]
    Unreadable {
        line: usize,
        column: usize,
        problem: String,
    },
    /// A keyword of the schema says no.
    #[error("the payload breaks {keyword:?} at {pointer:?} (schema: {rule:?})")]
    Broken {
        /// RFC 6901 JSON Pointer into the payload; empty: the whole payload. For `required` it
        /// points to the member that is missing, for `additionalProperties` to the first that is
        /// too many.
        pointer: String,
        /// The keyword, such as `required` or `maximum`.
        keyword: String,
        /// RFC 6901 JSON Pointer to the keyword in the schema.
        rule: String,
    },
    /// A pattern with look-around or back-references gave up on the payload.
    #[error(
        "the pattern at {rule:?} of the schema takes too long to match {pointer:?}; write it \
         without look-around"
    )]
    Undecided { pointer: String, rule: String },
}

/// The codes that no replay outlives: neither the payload nor the schema that an event was committed
/// with can change.
pub const LASTING_CODES: [&str; 2] = ["payload_unreadable", "schema_violation"];

impl Violation {
    /// A stable word, for outcomes and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownSchema { .. } => "schema_unknown",
            Self::Unreadable { .. } => "payload_unreadable",
            Self::Broken { .. } => "schema_violation",
            Self::Undecided { .. } => "schema_undecided",
        }
    }

    pub(crate) fn of(error: &ValidationError<'_>) -> Self {
        let pointer = cut(&pointer(error), POINTER_BYTES_MAX);
        let rule = cut(error.schema_path().as_str(), POINTER_BYTES_MAX);
        let undecided = matches!(
            error.kind(),
            ValidationErrorKind::BacktrackLimitExceeded { .. }
                | ValidationErrorKind::RegexEngineFailure { .. }
        );
        if undecided {
            Self::Undecided { pointer, rule }
        } else {
            Self::Broken {
                pointer,
                keyword: error.kind().keyword().to_owned(),
                rule,
            }
        }
    }
}

fn pointer(error: &ValidationError<'_>) -> String {
    let at = error.instance_path().as_str();
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other keywords judge the value itself"
    )]
    let member = match error.kind() {
        ValidationErrorKind::Required { property } => property.as_str(),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            unexpected.first().map(String::as_str)
        }
        _ => None,
    };
    match member {
        Some(member) => format!("{at}/{}", member.replace('~', "~0").replace('/', "~1")),
        None => at.to_owned(),
    }
}

/// The text on one line of at most `max` bytes and an ellipsis.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut line: String = text[..end]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if end < text.len() {
        line.push('…');
    }
    line
}
