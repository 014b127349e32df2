//! One event as a line of JSON: the members are those of the SQL function
//! `postrider.append_batch`.

use std::collections::BTreeMap;

use postrider_contract::{EventId, NewEvent, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    event_type: String,
    schema_version: Option<Version>,
    aggregate_type: String,
    aggregate_id: String,
    aggregate_version: Option<serde_json::Number>,
    payload: Option<String>,
    payload_base64: Option<String>,
    /// Kept exactly as it is written.
    #[serde(borrow)]
    payload_json: Option<&'a RawValue>,
    event_id: Option<EventId>,
    tenant: Option<String>,
    content_type: Option<String>,
    partition_key: Option<String>,
    actor: Option<String>,
    request_id: Option<String>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    operation_id: Option<String>,
    occurred_at: Option<Timestamp>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    headers: Option<Headers>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Pairs(Vec<(String, String)>),
    Object(BTreeMap<String, String>),
}

/// People write `1` and `"1"`; the version is text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Version {
    Text(String),
    Number(u64),
}

/// The place in the line; the caller knows which line it is.
fn in_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => format!("{what}, at column {}", error.column()),
        None => text,
    }
}

pub(super) fn parse(text: &str) -> Result<NewEvent, String> {
    let line: Line<'_> = serde_json::from_str(text).map_err(|error| in_line(&error))?;
    let payload = match (line.payload, line.payload_base64, line.payload_json) {
        (Some(text), None, None) => text.into_bytes(),
        (None, Some(encoded), None) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD
                .decode(encoded)
                .map_err(|error| format!("payload_base64: is not base64: {error}"))?
        }
        (None, None, Some(value)) => value.get().as_bytes().to_vec(),
        (_, _, _) => {
            return Err(
                "payload: must be given once, as payload, payload_base64 or payload_json"
                    .to_owned(),
            );
        }
    };
    let version = match line.schema_version {
        None => "1".to_owned(),
        Some(Version::Text(text)) => text,
        Some(Version::Number(number)) => number.to_string(),
    };
    let mut event = NewEvent::new(
        line.event_type,
        version,
        line.aggregate_type,
        line.aggregate_id,
        payload,
    );
    event.aggregate.version = match line.aggregate_version {
        None => None,
        Some(number) => Some(super::aggregate_version(&number.to_string())?),
    };
    event.event_id = line.event_id;
    event.tenant = line.tenant;
    event.content_type = line.content_type;
    event.partition_key = line.partition_key;
    event.actor = line.actor;
    event.request_id = line.request_id;
    event.correlation_id = line.correlation_id;
    event.causation_id = line.causation_id;
    event.operation_id = line.operation_id;
    event.occurred_at = line.occurred_at;
    event.traceparent = line.traceparent;
    event.tracestate = line.tracestate;
    event.headers = match line.headers {
        None => Vec::new(),
        Some(Headers::Pairs(pairs)) => pairs,
        Some(Headers::Object(object)) => object.into_iter().collect(),
    };
    Ok(event)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_is_kept_as_it_is_written() {
        let event = parse(
            r#"{"event_type":"a","aggregate_type":"t","aggregate_id":"i","payload_json":{"b": 1.0, "a":[ ]},"headers":[["x","y"]]}"#,
        )
        .unwrap();
        assert_eq!(event.payload, br#"{"b": 1.0, "a":[ ]}"#);
        assert_eq!(event.schema_version, "1");
        assert_eq!(event.headers, [("x".to_owned(), "y".to_owned())]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |members: &str, says: &str| {
            let text = format!(
                r#"{{"event_type":"a","aggregate_type":"t","aggregate_id":"i",{members}}}"#
            );
            let said = parse(&text).unwrap_err();
            assert!(said.contains(says), "{members}: {said}");
        };
        check(
            r#""payload":"x","payload_base64":"eA==""#,
            "must be given once",
        );
        check(r#""payload":null"#, "must be given once");
        check(r#""payload_base64":"?""#, "payload_base64");
        check(r#""payload":"x","paylod":1"#, "unknown field `paylod`");
        check(
            r#""payload":"x","payload":"y""#,
            "duplicate field `payload`",
        );
        check(
            r#""payload":"x","aggregate_version":-1"#,
            "aggregateVersion",
        );
        check(
            r#""payload":"x","aggregate_version":1.5"#,
            "aggregateVersion",
        );
        check(r#""payload":"x","occurred_at":"infinity""#, "infinity");
        check(r#""payload":"x","event_id":"nope""#, "nope");
    }
}
