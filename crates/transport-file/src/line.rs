//! Messages as lines of JSON, and lines read back.
//!
//! - Structured: the CloudEvents object itself. If its payload holds line breaks, it stands in
//!   `data_base64` instead of `data`, which means the same and fits on a line.
//! - Binary and raw: `{"id":…,"headers":{…},"body":…}`, or `bodyBase64` for a body that is not
//!   UTF-8.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use postrider_contract::{Digest, EventId, destination::Serializer};
use postrider_transport::Message;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The line of a message, with its line break.
///
/// # Errors
/// What keeps it from being one.
pub(crate) fn write(message: &Message, serializer: Serializer) -> Result<Vec<u8>, String> {
    let mut line = match serializer {
        Serializer::CloudeventsStructured => structured(&message.body)?,
        Serializer::CloudeventsBinary | Serializer::Raw => record(message)?,
    };
    line.push(b'\n');
    Ok(line)
}

fn structured(body: &[u8]) -> Result<Vec<u8>, String> {
    if !body.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
        return Ok(body.to_vec());
    }
    let unreadable =
        |error: serde_json::Error| format!("the structured event is not JSON: {error}");
    let mut members: BTreeMap<&str, Box<RawValue>> =
        serde_json::from_slice(body).map_err(unreadable)?;
    if let Some(data) = members.remove("data") {
        let encoded = format!("\"{}\"", STANDARD.encode(data.get()));
        members.insert(
            "data_base64",
            RawValue::from_string(encoded).map_err(unreadable)?,
        );
    }
    serde_json::to_vec(&members).map_err(unreadable)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'a> {
    id: String,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
}

fn record(message: &Message) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(&message.body).ok();
    let record = Record {
        id: message.event_id.to_string(),
        headers: message.headers.iter().collect(),
        body: text,
        body_base64: text.is_none().then(|| STANDARD.encode(&message.body)),
    };
    serde_json::to_vec(&record).map_err(|error| error.to_string())
}

/// What a look-up needs to know of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) event_id: EventId,
    /// `None`: the line does not tell.
    pub(crate) payload_digest: Option<Digest>,
}

/// Either form of line. Strings may be long: what is not needed is skipped, not kept.
#[derive(Deserialize)]
struct AnyLine {
    id: String,
    #[serde(default)]
    payloaddigest: Option<String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default, rename = "bodyBase64")]
    body_base64: Option<String>,
}

/// The event id of a line alone.
#[derive(Deserialize)]
struct IdOnly<'a> {
    #[serde(borrow)]
    id: std::borrow::Cow<'a, str>,
}

pub(crate) fn event_id(line: &[u8]) -> Option<EventId> {
    let only: IdOnly<'_> = serde_json::from_slice(line).ok()?;
    only.id.parse().ok()
}

pub(crate) fn read(line: &[u8]) -> Option<Known> {
    let any: AnyLine = serde_json::from_slice(line).ok()?;
    let payload_digest = match (&any.payloaddigest, &any.body, &any.body_base64) {
        (Some(digest), _, _) => digest.parse().ok(),
        (None, Some(body), _) => Some(Digest::of_bytes(body.as_bytes())),
        (None, None, Some(body)) => STANDARD
            .decode(body)
            .ok()
            .map(|body| Digest::of_bytes(&body)),
        (None, None, None) => None,
    };
    Some(Known {
        event_id: any.id.parse().ok()?,
        payload_digest,
    })
}
