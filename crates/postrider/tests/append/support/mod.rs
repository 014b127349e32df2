//! A registered control plane, and an application that appends through each of the drivers.

pub(crate) mod application;
pub(crate) mod control;
pub(crate) mod wire;

use postrider::{EventId, NewEvent};
use postrider_contract::Envelope;
use postrider_store::{Store, inspect::EventDetail};

/// An event of a type that has a JSON Schema.
pub(crate) fn order(id: &str) -> NewEvent {
    NewEvent::new(
        control::PLACED,
        "1",
        "order",
        id,
        format!(r#"{{"id":"{id}"}}"#),
    )
}

/// An event of a type that takes any JSON.
pub(crate) fn note(payload: impl Into<Vec<u8>>) -> NewEvent {
    NewEvent::new(control::NOTED, "1", "note", "n-1", payload)
}

/// An event of a type that takes any bytes.
pub(crate) fn blob(payload: impl Into<Vec<u8>>) -> NewEvent {
    NewEvent {
        content_type: Some("application/octet-stream".to_owned()),
        ..NewEvent::new(control::BLOB, "1", "file", "f-1", payload)
    }
}

pub(crate) async fn stored(store: &dyn Store, id: EventId) -> EventDetail {
    store
        .event(id)
        .await
        .expect("the store answers")
        .expect("the event is there")
}

pub(crate) async fn envelope(store: &dyn Store, id: EventId) -> Envelope {
    let envelope = stored(store, id).await.event.envelope;
    Envelope::from_json(&envelope).expect("an envelope is stored")
}
