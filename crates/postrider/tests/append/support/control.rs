//! What the tests register.

use postrider_contract::{
    DeliverySet, Destination, EventType, canonical,
    delivery_set::{self, ApplicableEvent, Member, ProjectionTarget},
    destination::{
        self, Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
    },
};
use postrider_store::{
    Store,
    control::{Applied, Audit, ControlPlane},
};

/// Has [`ORDER_SCHEMA`].
pub(crate) const PLACED: &str = "order.placed";
/// JSON of any kind.
pub(crate) const NOTED: &str = "note.written";
/// Bytes of any kind.
pub(crate) const BLOB: &str = "file.stored";

pub(crate) const ORDER_SCHEMA: &str = r#"{
    "type": "object",
    "properties": {"id": {"type": "string"}, "total": {"type": "integer"}},
    "required": ["id"],
    "additionalProperties": false
}"#;

/// Everything goes to `wide`; orders go to `narrow` too, which takes little.
pub(crate) const NARROW_BYTES_MAX: u64 = 1_000;

pub(crate) fn destination(name: &str, max_payload_bytes: Option<u64>) -> Destination {
    Destination {
        schema: destination::Schema::V1,
        name: name.to_owned(),
        generation: 1,
        kind: "file".to_owned(),
        cluster: "test".to_owned(),
        target: format!("{name}.jsonl"),
        container: None,
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::Raw,
        durability: Durability::Synced,
        receipt_type: "file.append/1".to_owned(),
        ordering: Ordering::Key,
        lanes: 8,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: None,
        max_payload_bytes,
    }
}

/// An event type; with a schema, its payloads are JSON.
pub(crate) fn event_type(name: &str, content_type: &str, schema: Option<&str>) -> EventType {
    EventType {
        event_type: name.to_owned(),
        schema_version: "1".to_owned(),
        content_type: content_type.to_owned(),
        json_schema: schema.map(|text| canonical::payload_value(text).expect("a schema is JSON")),
    }
}

pub(crate) fn event_types() -> Vec<EventType> {
    vec![
        event_type(BLOB, "application/octet-stream", None),
        event_type(NOTED, "application/json", None),
        event_type(PLACED, "application/json", Some(ORDER_SCHEMA)),
    ]
}

pub(crate) fn plan() -> ControlPlane {
    let destinations = vec![
        destination("narrow", Some(NARROW_BYTES_MAX)),
        destination("wide", None),
    ];
    plan_of(1, event_types(), destinations)
}

/// Orders go to every destination, everything else to the last one. Event types and destinations
/// are given in the order of their names.
pub(crate) fn plan_of(
    version: u64,
    event_types: Vec<EventType>,
    destinations: Vec<Destination>,
) -> ControlPlane {
    let applicable_events: Vec<_> = event_types
        .iter()
        .map(|event_type| ApplicableEvent {
            event_type: event_type.event_type.clone(),
            schema_version: event_type.schema_version.clone(),
        })
        .collect();
    let mut members = Vec::new();
    for event_type in &event_types {
        let all = event_type.event_type == PLACED;
        let first = if all { 0 } else { destinations.len() - 1 };
        for destination in &destinations[first..] {
            members.push(Member {
                event_type: event_type.event_type.clone(),
                schema_version: event_type.schema_version.clone(),
                destination: destination.name.clone(),
                destination_digest: destination.digest(),
                consumer: format!("{}-consumer", destination.name),
                expected_receipt_type: destination.receipt_type.clone(),
                expected_receipt_schema_version: "1".to_owned(),
                projection_target: ProjectionTarget::NotApplicable {},
                mandatory: true,
            });
        }
    }
    ControlPlane {
        event_types,
        destinations,
        delivery_set: DeliverySet {
            schema: delivery_set::Schema::V1,
            version,
            applicable_event_count: applicable_events.len() as u64,
            applicable_events,
            member_count: members.len() as u64,
            members,
        },
    }
}

pub(crate) async fn apply(store: &dyn Store, plan: &ControlPlane) -> Applied {
    let audit = Audit {
        actor: "test".to_owned(),
        reason: "test".to_owned(),
    };
    store.apply(plan, &audit).await.expect("the plan applies")
}
