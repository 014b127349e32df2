//! The database, the stream and the backlog that a measurement runs on.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::{self, stream};
use postrider_contract::{
    DeliverySet, Destination, EventType,
    delivery_set::{ApplicableEvent, Member, ProjectionTarget},
    destination::{
        self, Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
    },
    new_event::NewEvent,
};
use postrider_store::{
    Store as _,
    control::{Audit, ControlPlane},
};
use postrider_store_postgres::{MigrateOptions, Options, PostgresStore, migrate};

pub(crate) const EVENT_TYPE: &str = "bench.made";

/// A destination that takes every event to `stream`.
pub(crate) fn destination(stream: &str, ordering: Ordering) -> Destination {
    Destination {
        schema: destination::Schema::V1,
        name: stream.to_lowercase(),
        generation: 1,
        kind: "jetstream".to_owned(),
        cluster: String::from("bench"),
        target: format!("{stream}.{{event_type}}"),
        container: Some(stream.to_owned()),
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: "jetstream.ack/1".to_owned(),
        ordering,
        lanes: 16,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: None,
        max_payload_bytes: None,
    }
}

/// Migrates a fresh database and registers one event type that goes to all of `destinations`.
pub(crate) async fn database(url: &str, destinations: Vec<Destination>) -> Result<PostgresStore> {
    migrate(url, &MigrateOptions::default())
        .await
        .context("migrating")?;
    let store = PostgresStore::new(Options::new(url))?;
    let event = ApplicableEvent {
        event_type: EVENT_TYPE.to_owned(),
        schema_version: "1".to_owned(),
    };
    let members: Vec<Member> = destinations
        .iter()
        .map(|destination| Member {
            event_type: event.event_type.clone(),
            schema_version: event.schema_version.clone(),
            destination: destination.name.clone(),
            destination_digest: destination.digest(),
            consumer: "bench".to_owned(),
            expected_receipt_type: destination.receipt_type.clone(),
            expected_receipt_schema_version: "1".to_owned(),
            projection_target: ProjectionTarget::NotApplicable {},
            mandatory: true,
        })
        .collect();
    let plan = ControlPlane {
        event_types: vec![EventType {
            event_type: event.event_type.clone(),
            schema_version: event.schema_version.clone(),
            content_type: "application/json".to_owned(),
            json_schema: None,
        }],
        destinations,
        delivery_set: DeliverySet::new(1, vec![event], members),
    };
    let audit = Audit {
        actor: "bench".to_owned(),
        reason: "bench".to_owned(),
    };
    store.apply(&plan, &audit).await?;
    Ok(store)
}

/// Appends `count` events of `bytes` bytes over 1,000 keys.
pub(crate) async fn backlog(store: &PostgresStore, count: usize, bytes: usize) -> Result<()> {
    const TOGETHER: usize = 2_000;
    const AROUND: usize = r#"{"text":""}"#.len();
    let payload = format!(
        r#"{{"text":"{}"}}"#,
        "x".repeat(bytes.saturating_sub(AROUND))
    );
    let mut made = 0;
    while made < count {
        let events = (made..count.min(made + TOGETHER))
            .map(|n| {
                let key = format!("key-{}", n % 1000);
                NewEvent::new(EVENT_TYPE, "1", "bench", &key, payload.as_str())
            })
            .collect();
        made += store.append(events).await.context("appending")?.len();
    }
    Ok(())
}

/// A file stream with dedup, as a user would make it.
pub(crate) fn stream_config(name: &str) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        storage: stream::StorageType::File,
        duplicate_window: Duration::from_secs(3600),
        ..stream::Config::default()
    }
}

/// Creates the stream `name`.
pub(crate) async fn stream(nats: &str, name: &str) -> Result<jetstream::Context> {
    let client = async_nats::connect(nats)
        .await
        .context("connecting to NATS")?;
    let context = jetstream::new(client);
    context
        .create_stream(stream_config(name))
        .await
        .context("creating the stream")?;
    Ok(context)
}

pub(crate) async fn stored(context: &jetstream::Context, name: &str) -> Result<u64> {
    let mut stream = context.get_stream(name).await?;
    Ok(stream.info().await?.state.messages)
}
