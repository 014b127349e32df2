//! What a content type says about the payload.

/// The content type whose payloads are checked to be JSON text at append.
pub const JSON: &str = "application/json";

/// The content type of an explicit tombstone: "the thing with this key is gone". Its payload is
/// empty and its partition key is not. Transports map it to what their broker has for it (a null
/// value on a compacted log); everywhere else it is an empty body with this content type.
/// An empty payload of any other type is an empty payload, and the four bytes `null` are JSON.
pub const TOMBSTONE: &str = "application/vnd.postrider.tombstone";

/// The media type without its parameters.
#[must_use]
pub fn essence(content_type: &str) -> &str {
    let (essence, _) = content_type.split_once(';').unwrap_or((content_type, ""));
    essence.trim_end_matches(' ')
}

/// Whether it is `application/json`, in any case and with any parameters.
#[must_use]
pub fn is_json(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case(JSON)
}

/// Whether it is a JSON format by its structured syntax suffix, such as `application/x+json`.
/// Payloads of these are not checked at append.
#[must_use]
pub fn has_json_suffix(content_type: &str) -> bool {
    let essence = essence(content_type).as_bytes();
    essence.len() > 5 && essence[essence.len() - 5..].eq_ignore_ascii_case(b"+json")
}

/// Whether it is [`TOMBSTONE`], in any case and with any parameters.
#[must_use]
pub fn is_tombstone(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case(TOMBSTONE)
}
