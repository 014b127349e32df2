//! Bounds on the text of canonical objects: what an identifier, a name or a key may hold.
//!
//! One rule everywhere: text is UTF-8, kept byte for byte (no Unicode normalisation), compared
//! and sorted by its UTF-8 bytes. Lengths are in bytes. Control characters (C0, DEL, C1; so CR,
//! LF and NUL) are refused, so that no value can break a header, a log line or a database column.
//! Names are narrower still: letters, digits and `. _ : / @ -`.

use crate::invalid::{Invalid, Problem};

/// Longest event type, destination, consumer, kind or projection name.
pub const NAME_MAX: usize = 100;
/// Longest schema version.
pub const VERSION_MAX: usize = 64;
/// Longest identifier: tenant, aggregate, actor, request, correlation, causation, operation.
pub const ID_MAX: usize = 255;
/// Longest partition key: room for its default, `{aggregate type}/{aggregate id}`.
pub const PARTITION_KEY_MAX: usize = 2 * ID_MAX + 1;
/// Longest content type.
pub const CONTENT_TYPE_MAX: usize = 255;
/// Longest target. URLs with tokens in the path are longer than an identifier.
pub const TARGET_MAX: usize = 1024;

/// What an event type's name may be, such as `order.created` or `run.created@2.0`.
pub fn event_type(value: &str) -> Result<(), Invalid> {
    name("eventType", value, NAME_MAX)
}

/// An exact version: text, compared byte for byte; `1` and `1.0` are two versions.
pub fn schema_version(value: &str) -> Result<(), Invalid> {
    name("schemaVersion", value, VERSION_MAX)
}

/// A destination's name.
pub fn destination(value: &str) -> Result<(), Invalid> {
    name("destination", value, NAME_MAX)
}

/// A consumer's name.
pub fn consumer(value: &str) -> Result<(), Invalid> {
    name("consumer", value, NAME_MAX)
}

/// A destination's transport, such as `jetstream`.
pub fn kind(value: &str) -> Result<(), Invalid> {
    name("kind", value, NAME_MAX)
}

/// A receipt's `type`, such as `jetstream.ack/1` or a consumer's own.
pub fn receipt_type(value: &str) -> Result<(), Invalid> {
    name("receiptType", value, NAME_MAX)
}

/// A projection's name.
pub fn projection_name(value: &str) -> Result<(), Invalid> {
    name("projectionName", value, NAME_MAX)
}

/// Whose event it is.
pub fn tenant(value: &str) -> Result<(), Invalid> {
    free("tenant", value, ID_MAX)
}

/// What kind of business object the event is about.
pub fn aggregate_type(value: &str) -> Result<(), Invalid> {
    free("aggregate.type", value, ID_MAX)
}

/// Which business object the event is about.
pub fn aggregate_id(value: &str) -> Result<(), Invalid> {
    free("aggregate.id", value, ID_MAX)
}

/// May be empty: an event without a key. All such events share one key, and so one lane.
pub fn partition_key(value: &str) -> Result<(), Invalid> {
    bounded("partitionKey", value, PARTITION_KEY_MAX)
}

/// Who caused the event.
pub fn actor(value: &str) -> Result<(), Invalid> {
    free("actor", value, ID_MAX)
}

/// The request that was being served.
pub fn request_id(value: &str) -> Result<(), Invalid> {
    free("requestId", value, ID_MAX)
}

/// What ties the events of a business transaction together.
pub fn correlation_id(value: &str) -> Result<(), Invalid> {
    free("correlationId", value, ID_MAX)
}

/// What led to the event.
pub fn causation_id(value: &str) -> Result<(), Invalid> {
    free("causationId", value, ID_MAX)
}

/// The business operation, stable across its retries.
pub fn operation_id(value: &str) -> Result<(), Invalid> {
    free("operationId", value, ID_MAX)
}

/// The identity of a cluster.
pub fn cluster(value: &str) -> Result<(), Invalid> {
    free("cluster", value, ID_MAX)
}

/// A transport's own address of a place.
pub fn target(value: &str) -> Result<(), Invalid> {
    free("target", value, TARGET_MAX)
}

/// What a target needs beside it, such as a stream name.
pub fn container(value: &str) -> Result<(), Invalid> {
    free("container", value, ID_MAX)
}

/// A media type: `type/subtype`, optionally followed by `;` and parameters in printable ASCII.
/// Kept as given; only the part before `;` has a meaning here, and that without regard to case.
pub fn content_type(value: &str) -> Result<(), Invalid> {
    free("contentType", value, CONTENT_TYPE_MAX)?;
    let (essence, parameters) = match value.split_once(';') {
        Some((essence, parameters)) => (essence.trim_end_matches(' '), Some(parameters)),
        None => (value, None),
    };
    let is_token = |text: &str| !text.is_empty() && text.bytes().all(is_token_byte);
    let essence_holds = essence
        .split_once('/')
        .is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    let parameters_hold = parameters.is_none_or(|text| {
        text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
            && !text.is_empty()
            && !text.ends_with(' ')
    });
    if essence_holds && parameters_hold {
        Ok(())
    } else {
        Err(Invalid::malformed(
            "contentType",
            value,
            "a media type such as application/json",
        ))
    }
}

/// A byte of an RFC 9110 token, as in header names and media types.
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A non-empty name of letters, digits and `. _ : / @ -`, at most `max` bytes long.
pub fn name(field: &str, value: &str, max: usize) -> Result<(), Invalid> {
    free(field, value, max)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    match value.char_indices().find(|(_, c)| !allowed(*c)) {
        Some((offset, found)) => Err(Invalid::new(
            field,
            Problem::NotInAlphabet { found, offset },
        )),
        None => Ok(()),
    }
}

/// Non-empty text without control characters, at most `max` bytes long.
pub fn free(field: &str, value: &str, max: usize) -> Result<(), Invalid> {
    if value.is_empty() {
        return Err(Invalid::new(field, Problem::Empty));
    }
    bounded(field, value, max)
}

/// Text without control characters, possibly empty, at most `max` bytes long.
pub fn bounded(field: &str, value: &str, max: usize) -> Result<(), Invalid> {
    if value.len() > max {
        return Err(Invalid::new(
            field,
            Problem::TooLong {
                length: value.len(),
                max,
            },
        ));
    }
    match value.char_indices().find(|(_, c)| c.is_control()) {
        Some((offset, c)) => Err(Invalid::new(
            field,
            Problem::Control {
                code: u32::from(c),
                offset,
            },
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(result: Result<(), Invalid>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn names_take_what_the_specifications_use_and_nothing_that_needs_quoting() {
        for value in [
            "run.created@2.0",
            "core_operations",
            "A/b:c-d",
            &"x".repeat(NAME_MAX),
        ] {
            event_type(value).unwrap();
        }
        assert_eq!(
            problem(event_type("")),
            "eventType: is empty; give it a value"
        );
        assert_eq!(
            problem(consumer(&"x".repeat(101))),
            "consumer: is 101 bytes long, at most 100 are allowed; shorten it"
        );
        for value in ["a b", "a\"b", "é", "a*", "a>b", "a,b", "a+b"] {
            assert!(
                problem(destination(value)).starts_with("destination: holds "),
                "{value}"
            );
        }
    }

    #[test]
    fn identifiers_take_any_text_but_control_characters() {
        for value in [
            "a b",
            "\"\\",
            "é",
            "e\u{301}",
            "\u{1F600}",
            "\u{2028}",
            " ",
            "\u{FFFF}",
        ] {
            aggregate_id(value).unwrap();
        }
        for (value, code) in [
            ("a\0", "0000"),
            ("a\r", "000D"),
            ("a\n", "000A"),
            ("a\u{7f}", "007F"),
            ("a\u{85}", "0085"),
        ] {
            let text = problem(tenant(value));
            assert!(
                text.starts_with(&format!(
                    "tenant: holds the control character U+{code} at byte 1"
                )),
                "{text}"
            );
        }
        // The bound is on bytes, and two-byte characters count twice.
        aggregate_id(&"é".repeat(127)).unwrap();
        assert!(aggregate_id(&"é".repeat(128)).is_err());
    }

    #[test]
    fn the_default_partition_key_of_the_longest_aggregate_fits() {
        partition_key("").unwrap();
        let longest = format!("{}/{}", "t".repeat(ID_MAX), "i".repeat(ID_MAX));
        partition_key(&longest).unwrap();
        assert!(partition_key(&format!("{longest}x")).is_err());
    }

    #[test]
    fn content_types_are_media_types() {
        for value in [
            "application/json",
            "application/json; charset=utf-8",
            "text/plain;a=\"b c\"",
            "x/y+z",
        ] {
            content_type(value).unwrap();
        }
        for value in [
            "",
            "json",
            "application/",
            "/json",
            "a/b/c",
            "a b/c",
            "a/b;",
            "a/b; ",
            "a/b;c=é",
            "a/b\r\n",
        ] {
            assert!(content_type(value).is_err(), "{value:?}");
        }
    }
}
