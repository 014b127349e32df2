//! What a plan shows for each kind of change.

use postrider_store::control::{RegisteredDestination, RegisteredEventType};

use super::*;
use crate::config::{self, Sources};

const FILE: &str = r#"
[store]
url = "sqlite:x"
[connections.main]
kind = "jetstream"
cluster = "prod"
servers = ["nats://127.0.0.1"]
[connections.files]
kind = "file"
folder = "."
[destinations.orders]
connection = "main"
stream = "ORDERS"
target = "orders.{event_type}"
[destinations.audit]
connection = "files"
target = "a.jsonl"
[[event_types]]
event_type = "order.placed"
schema_version = "1"
[[routes]]
event_type = "order.placed"
schema_version = "1"
destinations = ["orders", "audit"]
"#;

fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("postrider.toml");
    std::fs::write(&path, text).unwrap();
    config::load(&Sources {
        file: Some(path),
        assignments: Vec::new(),
        alone: true,
    })
    .unwrap()
}

/// The registry after a plan was applied.
fn applied(registry: &Registry, plan: &Plan) -> Registry {
    let mut registry = registry.clone();
    for destination in &plan.control_plane.destinations {
        let digest = destination.digest();
        if registry.destinations.iter().any(|row| row.digest == digest) {
            continue;
        }
        for row in &mut registry.destinations {
            row.current &= row.destination.name != destination.name;
        }
        let id = i32::try_from(registry.destinations.len() + 1).unwrap();
        registry.destinations.push(RegisteredDestination {
            id: postrider_core::DestinationId(id),
            destination: destination.clone(),
            digest,
            current: true,
            suspended: None,
        });
    }
    registry.event_types = plan
        .control_plane
        .event_types
        .iter()
        .map(|event_type| RegisteredEventType {
            event_type: event_type.clone(),
            current: true,
        })
        .collect();
    registry.delivery_set = Some(plan.control_plane.delivery_set.clone());
    registry
}

fn names(plan: &Plan) -> Vec<String> {
    plan.changes
        .iter()
        .map(|change| match change {
            Change::Destination {
                name, generation, ..
            } => format!("{name}#{generation}"),
            Change::EventType { event_type, .. } => event_type.clone(),
            Change::DeliverySet { version, .. } => format!("set {version}"),
        })
        .collect()
}

#[test]
fn the_same_file_again_changes_nothing() {
    let config = config(FILE);
    let first = compute(&config, &Registry::default()).unwrap();
    assert_eq!(
        names(&first),
        ["audit#1", "orders#1", "order.placed", "set 1"]
    );
    let registry = applied(&Registry::default(), &first);
    assert_eq!(names(&compute(&config, &registry).unwrap()), [""; 0]);
}

#[test]
fn a_destination_is_what_the_file_and_its_kind_say() {
    let plan = compute(&config(FILE), &Registry::default()).unwrap();
    let [audit, orders] = plan.control_plane.destinations.as_slice() else {
        panic!("two destinations");
    };
    assert_eq!(
        (orders.kind.as_str(), orders.cluster.as_str()),
        ("jetstream", "prod")
    );
    assert_eq!(orders.container.as_deref(), Some("ORDERS"));
    assert_eq!(orders.receipt_type, "jetstream.ack/1");
    assert_eq!(
        (audit.kind.as_str(), audit.cluster.as_str()),
        ("file", "files")
    );
    assert_eq!(audit.receipt_type, "file.append/1");
    assert_eq!(
        audit.durability,
        postrider_contract::destination::Durability::Synced
    );
}

#[test]
fn there_and_back_is_two_more_generations() {
    let mut registry = Registry::default();
    let other = FILE.replace("orders.{event_type}", "other.{event_type}");
    for (text, expect) in [(FILE, "orders#1"), (&other, "orders#2"), (FILE, "orders#3")] {
        let plan = compute(&config(text), &registry).unwrap();
        assert!(
            names(&plan).contains(&expect.to_owned()),
            "{:?}",
            names(&plan)
        );
        registry = applied(&registry, &plan);
    }
    assert_eq!(registry.delivery_set.unwrap().version, 3);
}

#[test]
fn how_to_reach_a_cluster_is_no_change() {
    let plan = compute(&config(FILE), &Registry::default()).unwrap();
    let registry = applied(&Registry::default(), &plan);
    let moved = FILE.replace("nats://127.0.0.1", "nats://10.0.0.1");
    assert_eq!(
        names(&compute(&config(&moved), &registry).unwrap()),
        [""; 0]
    );
}

#[test]
fn what_left_the_file_is_named_and_stays() {
    let plan = compute(&config(FILE), &Registry::default()).unwrap();
    let registry = applied(&Registry::default(), &plan);
    let without = FILE
        .replace(
            "[destinations.audit]\nconnection = \"files\"\ntarget = \"a.jsonl\"\n",
            "",
        )
        .replace(", \"audit\"", "");
    let plan = compute(&config(&without), &registry).unwrap();
    assert_eq!(names(&plan), ["set 2"]);
    let [note] = plan.notes.as_slice() else {
        panic!("{:?}", plan.notes);
    };
    assert!(note.starts_with("destination audit is registered and not in the file"));
    let Change::DeliverySet { removed, added, .. } = &plan.changes[0] else {
        panic!("a delivery set");
    };
    assert_eq!((removed.len(), added.len()), (1, 0));
    assert_eq!(removed[0].destination, "audit");
}

#[test]
fn the_examples_are_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    for name in ["postrider.toml", "jetstream.toml"] {
        let config = config::load(&Sources {
            file: Some(format!("{folder}/{name}").into()),
            assignments: Vec::new(),
            alone: true,
        })
        .unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
        compute(&config, &Registry::default())
            .unwrap_or_else(|faults| panic!("{name}: {faults:?}"));
    }
}
