//! RFC 8785 canonical JSON (JCS): strict reading, one way of writing.
//!
//! Three profiles share one parser, see [`Profile`]. All of them refuse what two readers could
//! understand differently: duplicate members at any depth, lone surrogates (escaped ones too), a
//! byte order mark, invalid UTF-8, anything after the value, and nesting past [`DEPTH_MAX`].

mod number;
mod parse;
mod write;

use serde::{Serialize, de::DeserializeOwned, de::IgnoredAny};

pub use parse::{Error, Problem};

/// Deepest nesting of arrays and objects. Below the limit of 128 that common parsers have, and
/// shallow enough for a recursive parser on any thread's stack.
pub const DEPTH_MAX: usize = 100;

/// What a JSON text may hold beside what RFC 8785 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// An envelope, destination, delivery set or receipt: numbers are integers within
    /// ±(2^53 - 1), written as such (`1.0`, `1e2` and `-0` are refused); `null` never appears,
    /// an absent member is left out.
    Object,
    /// A payload given as a value, or a JSON Schema: numbers as in RFC 8785, but one that the
    /// canonical form would change is refused: an integer written past ±(2^53 - 1), more digits
    /// than a double holds, a magnitude that a double cannot reach.
    Value,
    /// RFC 8785 and nothing more: every number becomes the nearest double.
    Rfc8785,
}

/// The canonical form of JSON text.
///
/// # Errors
/// Names the byte offset, the JSON Pointer and what to do.
pub fn canonicalise(text: &[u8], profile: Profile) -> Result<String, Error> {
    let value = parse::parse(text, profile)?;
    let mut out = String::with_capacity(text.len());
    write::tree(&mut out, &value);
    Ok(out)
}

/// The payload bytes of an `application/json` payload that is given as a value: canonicalised
/// once, here, and never again. Payload bytes that must be kept as they are need no
/// canonicalising: see [`check`].
///
/// # Errors
/// As [`canonicalise`] with [`Profile::Value`].
pub fn payload_value(text: &str) -> Result<String, Error> {
    canonicalise(text.as_bytes(), Profile::Value)
}

/// Checks that payload bytes are JSON text (RFC 8259, UTF-8, no byte order mark, at most
/// [`DEPTH_MAX`] deep) without changing them. Duplicate members, escaped lone surrogates and
/// numbers of any size are the payload's own business: the bytes are delivered as given.
///
/// # Errors
/// Names the byte offset.
pub fn check(bytes: &[u8]) -> Result<(), Error> {
    let text = parse::utf8(bytes)?;
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        // Slower, but it knows the offset and what to say.
        return Err(parse::parse(bytes, Profile::Rfc8785)
            .err()
            .unwrap_or_else(|| Error::at(0, Problem::Syntax("something that is not JSON"))));
    }
    match parse::too_deep(bytes) {
        Some(offset) => Err(Error::at(offset, Problem::TooDeep)),
        None => Ok(()),
    }
}

/// The canonical form of a value of this crate's types, whose numbers are integers.
///
/// # Panics
/// Never for the types of this crate: they serialise without error.
#[must_use]
pub fn to_string<T: Serialize>(value: &T) -> String {
    let value = serde_json::to_value(value).expect("contract types serialise");
    let mut out = String::with_capacity(512);
    write::json(&mut out, &value);
    out
}

/// Why a text is not the canonical object it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// Not JSON, or not strict enough.
    #[error("not canonicalisable JSON: {0}")]
    Json(#[from] Error),
    /// A member is missing, unknown or of the wrong type.
    #[error("not a {object}: {message}")]
    Shape {
        object: &'static str,
        message: String,
    },
    /// A member breaks its rule.
    #[error("not a valid {object}: {invalid}")]
    Invalid {
        object: &'static str,
        invalid: crate::Invalid,
    },
}

/// Reads a canonical object from any JSON text that says the same.
pub(crate) fn read<T: DeserializeOwned>(
    object: &'static str,
    text: &str,
    validate: impl FnOnce(&T) -> Result<(), crate::Invalid>,
) -> Result<T, ReadError> {
    parse::parse(text.as_bytes(), Profile::Object)?;
    let value = serde_json::from_str(text).map_err(|error| ReadError::Shape {
        object,
        message: error.to_string(),
    })?;
    validate(&value).map_err(|invalid| ReadError::Invalid { object, invalid })?;
    Ok(value)
}

/// Reads a canonical object from text that was checked when it was stored.
pub(crate) fn read_stored<T: DeserializeOwned>(
    object: &'static str,
    text: &str,
) -> Result<T, ReadError> {
    serde_json::from_str(text).map_err(|error| ReadError::Shape {
        object,
        message: error.to_string(),
    })
}
