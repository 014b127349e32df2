//! What is wrong with a field of a canonical object, in words that name the field and the fix.

use std::fmt::Write as _;

use crate::canonical;

/// A field that breaks its rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    /// Where: `aggregate.id`, `members[3].consumer`, `headers["x-note"]`.
    pub field: String,
    pub problem: Problem,
}

/// Which rule is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("is empty; give it a value")]
    Empty,
    #[error("is {length} bytes long, at most {max} are allowed; shorten it")]
    TooLong { length: usize, max: usize },
    #[error(
        "holds the control character U+{code:04X} at byte {offset}; remove it (line breaks, NUL \
         and other control characters are not allowed here)"
    )]
    Control { code: u32, offset: usize },
    #[error(
        "holds {found:?} at byte {offset}; allowed are the letters A-Z and a-z, digits, and . _ : \
         / @ -"
    )]
    NotInAlphabet { found: char, offset: usize },
    #[error("is {found}, but must be between {min} and {max}")]
    OutOfRange { found: u64, min: u64, max: u64 },
    #[error("is {found}; expected {expected}")]
    Malformed {
        /// What was given, quoted and cut.
        found: String,
        expected: &'static str,
    },
    #[error("is not JSON: {0}; fix it, or give another content type")]
    NotJson(canonical::Error),
    /// A rule between fields; the text says which and what to do.
    #[error("{0}")]
    Inconsistent(String),
}

/// Bytes of a found value that an error repeats (I17).
const QUOTED_MAX: usize = 100;

impl Invalid {
    #[must_use]
    pub fn new(field: impl Into<String>, problem: Problem) -> Self {
        Self {
            field: field.into(),
            problem,
        }
    }

    /// A rule between fields is broken.
    #[must_use]
    pub fn inconsistent(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::new(field, Problem::Inconsistent(rule.into()))
    }

    /// The value does not have the expected form.
    #[must_use]
    pub fn malformed(field: impl Into<String>, found: &str, expected: &'static str) -> Self {
        Self::new(
            field,
            Problem::Malformed {
                found: quote(found),
                expected,
            },
        )
    }

    /// The same problem, seen from the object that holds this field under `outer`.
    #[must_use]
    pub fn within(mut self, outer: &str) -> Self {
        self.field = format!("{outer}.{}", self.field);
        self
    }
}

/// The text as a quoted, escaped literal of at most about [`QUOTED_MAX`] bytes.
pub(crate) fn quote(text: &str) -> String {
    let mut end = text.len().min(QUOTED_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut quoted = format!("{:?}", &text[..end]);
    if end < text.len() {
        write!(quoted, "… ({} bytes)", text.len()).expect("writing to a String succeeds");
    }
    quoted
}

/// Refuses a number outside `min..=max`.
pub(crate) fn range(field: &str, found: u64, min: u64, max: u64) -> Result<(), Invalid> {
    if (min..=max).contains(&found) {
        Ok(())
    } else {
        Err(Invalid::new(field, Problem::OutOfRange { found, min, max }))
    }
}
