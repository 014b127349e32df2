//! Everything that can be judged without a database, before anything is sent to one: a refused
//! event then leaves the caller's transaction as it was.

use postrider_contract::{
    Digest, EventId, Invalid, NewEvent, Timestamp, envelope::DeliverySetRef, media,
    new_event::CONTENT_TYPE_DEFAULT,
};
use uuid::Uuid;

use crate::{
    error::AppendError,
    registry::{Known, Snapshot},
};

/// An event whose fields break no rule.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "_driver"),
    expect(dead_code, reason = "only a driver sends it on")
)]
pub(crate) struct Prepared {
    /// Has an id; its headers are sorted.
    pub(crate) event: NewEvent,
    pub(crate) event_id: EventId,
    /// The id is the caller's, so it may have been appended before.
    pub(crate) given_id: bool,
    /// Of everything but what the database adds.
    pub(crate) content: Digest,
}

/// Checks the fields of one event, and gives it an id if it has none.
pub(crate) fn prepare(mut event: NewEvent) -> Result<Prepared, AppendError> {
    let given_id = event.event_id.is_some();
    // The database seals the event with what it knows better. Sealing it here as well, with
    // anything in those places, is how every rule of the contract is checked by its own code.
    let fresh = EventId(Uuid::now_v7());
    let sealed = event.seal(fresh, some_time(), &some_delivery_set(), None)?;
    event.headers = sealed.headers;
    event.event_id = Some(sealed.envelope.event_id);
    Ok(Prepared {
        event_id: sealed.envelope.event_id,
        given_id,
        content: sealed.digest,
        event,
    })
}

/// Checks one event against the registry; answers the digest of the schema that its payload
/// follows.
pub(crate) fn judge(snapshot: &Snapshot, event: &NewEvent) -> Result<Option<Digest>, AppendError> {
    if snapshot.lacks_delivery_set() {
        return Err(AppendError::NoActiveDeliverySet);
    }
    let known = snapshot
        .find(&event.event_type, &event.schema_version)
        .ok_or_else(|| AppendError::UnknownEventType {
            event_type: event.event_type.clone(),
            schema_version: event.schema_version.clone(),
        })?;
    content_type(event, known)?;
    size(event, known)?;
    if let Some(schema_digest) = &known.schema_digest {
        snapshot
            .schemas()
            .validate(schema_digest, &event.payload)
            .map_err(|violation| AppendError::Schema {
                event_type: event.event_type.clone(),
                schema_version: event.schema_version.clone(),
                violation,
            })?;
    }
    Ok(known.schema_digest)
}

/// The schema judges a payload of the registered type; with another one it would judge bytes
/// that it was not written for.
fn content_type(event: &NewEvent, known: &Known) -> Result<(), Invalid> {
    let given = event
        .content_type
        .as_deref()
        .unwrap_or(CONTENT_TYPE_DEFAULT);
    if media::essence(given).eq_ignore_ascii_case(media::essence(&known.content_type)) {
        return Ok(());
    }
    Err(Invalid::inconsistent(
        "contentType",
        format!(
            "is {given}, but event type {} version {} is registered with {}; give the event that \
             one",
            event.event_type, event.schema_version, known.content_type
        ),
    ))
}

fn size(event: &NewEvent, known: &Known) -> Result<(), AppendError> {
    let length = u64::try_from(event.payload.len()).expect("a length fits 64 bits");
    match &known.limit {
        Some(limit) if length > limit.payload_bytes_max => Err(AppendError::TooLarge {
            destination: limit.destination.clone(),
            length,
            limit: limit.payload_bytes_max,
        }),
        Some(_) | None => Ok(()),
    }
}

fn some_time() -> Timestamp {
    Timestamp::from_unix_micros(0).expect("1970 is a year that timestamps have")
}

fn some_delivery_set() -> DeliverySetRef {
    DeliverySetRef {
        version: 1,
        digest: Digest::of_canonical("{}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(snapshot: &Snapshot, event: NewEvent) -> Result<Prepared, AppendError> {
        let prepared = prepare(event)?;
        judge(snapshot, &prepared.event)?;
        Ok(prepared)
    }

    use crate::registry::{Limit, Origin, json_event_type};

    fn snapshot() -> Snapshot {
        let order = json_event_type(
            "order.placed",
            "1",
            r#"{"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}"#,
        )
        .unwrap();
        let opaque = |event_type: &str, content_type: &str| postrider_contract::EventType {
            event_type: event_type.into(),
            schema_version: "1".into(),
            content_type: content_type.into(),
            json_schema: None,
        };
        let types = [
            order,
            opaque("photo.taken", "image/png"),
            opaque("note", "application/json"),
            opaque("any", "application/json"),
        ];
        let mut snapshot = Snapshot::new(&types, Origin::Program).unwrap();
        for (destination, payload_bytes_max) in [("wide", 1_000), ("narrow", 20), ("middle", 100)] {
            let destination = destination.to_owned();
            snapshot.limit(
                "note",
                "1",
                Limit {
                    destination,
                    payload_bytes_max,
                },
            );
        }
        snapshot
    }

    fn note(payload: &str) -> NewEvent {
        NewEvent::new("note", "1", "note", "n-1", payload)
    }

    fn refusal(event: NewEvent) -> String {
        one(&snapshot(), event).unwrap_err().to_string()
    }

    #[test]
    fn a_good_event_gets_an_id_and_keeps_its_own() {
        let checked = one(&snapshot(), note("{}")).unwrap();
        assert_eq!(checked.event.event_id, Some(checked.event_id));
        assert_eq!(checked.event_id.0.get_version_num(), 7);
        let id = EventId(Uuid::from_u128(5));
        let event = NewEvent {
            event_id: Some(id),
            ..note("{}")
        };
        assert_eq!(one(&snapshot(), event).unwrap().event_id, id);
    }

    #[test]
    fn a_refusal_names_the_field_and_the_fix() {
        let id = |id: &str| NewEvent::new("note", "1", "note", id, "{}");
        let control = "holds the control character";
        for (event, says) in [
            (id(""), "aggregate.id: is empty"),
            (id("a\0"), control),
            (
                NewEvent {
                    tenant: Some("a\r\nX-Evil: 1".into()),
                    ..note("{}")
                },
                control,
            ),
            (
                NewEvent {
                    partition_key: Some("\0".into()),
                    ..note("{}")
                },
                control,
            ),
            (
                NewEvent {
                    headers: vec![("x-a".into(), "\0".into())],
                    ..note("{}")
                },
                control,
            ),
            (
                NewEvent {
                    headers: vec![("Host".into(), "x".into())],
                    ..note("{}")
                },
                "header name",
            ),
            (
                NewEvent {
                    traceparent: Some("00-x".into()),
                    ..note("{}")
                },
                "traceparent",
            ),
            (note("{\"x\":"), "payload: is not JSON"),
            (note(""), "payload: is not JSON"),
            (
                NewEvent::new("note", "2", "note", "n", "{}"),
                "event type \"note\" version \"2\" is not registered; register it with `postrider",
            ),
            (
                NewEvent::new("photo.taken", "1", "photo", "p", "{}"),
                "contentType: is application/json, but event type photo.taken version 1 is \
                 registered with image/png",
            ),
            (
                note(&format!("\"{}\"", "x".repeat(19))),
                "payload of 21 bytes is over the 20 bytes that destination \"narrow\" takes",
            ),
            (
                NewEvent::new("order.placed", "1", "order", "o", r#"{"id":4111}"#),
                "event type \"order.placed\" version \"1\": the payload breaks \"type\" at \"/id\"",
            ),
        ] {
            let refusal = refusal(event);
            assert!(refusal.contains(says), "{refusal}");
            assert!(!refusal.contains("4111"), "{refusal}");
        }
        let mut version = note("{}");
        version.aggregate.version = Some(1 << 53);
        assert!(refusal(version).contains("aggregate.version: is 9007199254740992"));
    }

    #[test]
    fn the_rest_of_a_content_type_does_not_matter() {
        let event = NewEvent {
            content_type: Some("Application/JSON; charset=utf-8".into()),
            ..NewEvent::new("order.placed", "1", "order", "o", r#"{"id":"o"}"#)
        };
        assert!(judge(&snapshot(), &event).unwrap().is_some());
    }

    #[test]
    fn json_is_kept_byte_for_byte_whatever_it_says() {
        for payload in [r#"{"x":"\u0000"}"#, r#" {"b":-0,"a":1e400,"a":1.0 }"#] {
            let event = NewEvent::new("any", "1", "any", "a", payload);
            assert_eq!(
                one(&snapshot(), event).unwrap().event.payload,
                payload.as_bytes()
            );
        }
    }
}
