//! What the file wants registered against what is registered. Reads no database, changes nothing.

mod describe;
mod wanted;

use std::{collections::BTreeSet, sync::Arc};

use postrider_contract::{
    DeliverySet, Destination,
    delivery_set::{ApplicableEvent, Member, ProjectionTarget},
};
use postrider_store::control::{ControlPlane, Registry};
use serde::Serialize;

use crate::{backend::transport, code::Code, config::Config, fault::Fault};

/// What `apply` would do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Everything the file wants, numbered.
    pub(crate) control_plane: ControlPlane,
    pub(crate) changes: Vec<Change>,
    /// What an operator should know about the changes, or about what stays.
    pub(crate) notes: Vec<String>,
}

/// One thing that is registered anew.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "what",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Change {
    Destination {
        name: String,
        generation: u64,
        /// The generation it follows.
        was: Option<u64>,
        digest: String,
        /// Empty for a new destination.
        fields: Vec<FieldChange>,
    },
    EventType {
        event_type: String,
        schema_version: String,
        /// Registered before, with other content.
        again: bool,
        schema_digest: Option<String>,
    },
    DeliverySet {
        version: u64,
        was: Option<u64>,
        digest: String,
        added: Vec<Line>,
        removed: Vec<Line>,
    },
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct FieldChange {
    pub(crate) field: String,
    pub(crate) from: serde_json::Value,
    pub(crate) to: serde_json::Value,
}

/// One prescribed delivery.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) event_type: String,
    pub(crate) schema_version: String,
    pub(crate) destination: String,
    pub(crate) generation: Option<u64>,
    pub(crate) consumer: String,
    pub(crate) mandatory: bool,
}

/// The plan, with every destination tried on its transport: what that refuses would be found only
/// by the relay.
///
/// # Errors
/// As [`compute`], or what the transports refuse.
pub(crate) fn tried(config: &Arc<Config>, registry: &Registry) -> Result<Plan, Vec<Fault>> {
    let plan = compute(config, registry)?;
    let faults = transport::misfits(config, &plan.control_plane.destinations);
    if faults.is_empty() {
        Ok(plan)
    } else {
        Err(faults)
    }
}

/// Computes the plan.
///
/// # Errors
/// Everything in the file that cannot be registered.
pub(crate) fn compute(config: &Config, registry: &Registry) -> Result<Plan, Vec<Fault>> {
    let event_types = wanted::event_types(config)?;
    let mut changes = Vec::new();
    let mut notes = Vec::new();
    let mut faults = Vec::new();

    let mut destinations = Vec::new();
    for (name, wanted) in &config.destinations {
        let Some(connection) = config.connections.get(&wanted.connection) else {
            continue;
        };
        let current = registry
            .destinations
            .iter()
            .find(|registered| registered.current && registered.destination.name == *name)
            .map(|registered| &registered.destination);
        let destination = wanted::destination(name, wanted, connection, current);
        if let Err(invalid) = destination.validate() {
            faults.push(Fault::new(
                Code::BadValue,
                format!("destinations.{name}: {invalid}"),
                "Nothing was registered.",
                "correct it",
            ));
        }
        if current != Some(&destination) {
            changes.push(changed(&destination, current));
            if let Some(current) = current {
                notes.push(format!(
                    "destination {name}: deliveries that wait for generation {} still go there, as they were promised; between the two the order of a key is not kept",
                    current.generation
                ));
                if current.lanes != destination.lanes {
                    notes.push(format!(
                        "destination {name}: generation {} has {} lanes of its own, generation {} keeps its {}",
                        destination.generation, destination.lanes, current.generation, current.lanes
                    ));
                }
            }
        }
        destinations.push(destination);
    }
    for registered in registry.destinations.iter().filter(|row| row.current) {
        let name = &registered.destination.name;
        if !config.destinations.contains_key(name) {
            notes.push(format!(
                "destination {name} is registered and not in the file: nothing new goes there, what waits for it is still sent"
            ));
        }
    }

    for event_type in &event_types {
        let same_version = |row: &&postrider_store::control::RegisteredEventType| {
            row.event_type.event_type == event_type.event_type
                && row.event_type.schema_version == event_type.schema_version
        };
        let current = registry
            .event_types
            .iter()
            .filter(same_version)
            .find(|row| row.current);
        if current.is_some_and(|row| row.event_type == *event_type) {
            continue;
        }
        changes.push(Change::EventType {
            event_type: event_type.event_type.clone(),
            schema_version: event_type.schema_version.clone(),
            again: current.is_some(),
            schema_digest: event_type.schema_digest().map(|digest| digest.to_string()),
        });
        if current.is_some() {
            notes.push(format!(
                "event type {} version {}: events committed before keep the schema they were committed with",
                event_type.event_type, event_type.schema_version
            ));
        }
    }

    let delivery_set = delivery_set(config, registry, &destinations);
    if let Err(invalid) = delivery_set.validate() {
        faults.push(Fault::new(
            Code::BadValue,
            format!("routes: {invalid}"),
            "Nothing was registered.",
            "correct it",
        ));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    if registry.delivery_set.as_ref() != Some(&delivery_set) {
        changes.push(set_change(&delivery_set, registry, &destinations));
    }
    Ok(Plan {
        control_plane: ControlPlane {
            event_types,
            destinations,
            delivery_set,
        },
        changes,
        notes,
    })
}

fn changed(destination: &Destination, current: Option<&Destination>) -> Change {
    Change::Destination {
        name: destination.name.clone(),
        generation: destination.generation,
        was: current.map(|current| current.generation),
        digest: destination.digest().to_string(),
        fields: current.map_or_else(Vec::new, |current| fields(current, destination)),
    }
}

/// Which fields differ, the generation aside.
fn fields(from: &Destination, to: &Destination) -> Vec<FieldChange> {
    let object = |destination: &Destination| match serde_json::to_value(destination) {
        Ok(serde_json::Value::Object(object)) => object,
        Ok(_) | Err(_) => serde_json::Map::new(),
    };
    let (from, to) = (object(from), object(to));
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    names
        .into_iter()
        .filter(|name| *name != "generation" && from.get(*name) != to.get(*name))
        .map(|name| FieldChange {
            field: name.clone(),
            from: from.get(name).cloned().unwrap_or(serde_json::Value::Null),
            to: to.get(name).cloned().unwrap_or(serde_json::Value::Null),
        })
        .collect()
}

/// The set of the file's routes, with the active version if it says the same, else the next.
fn delivery_set(config: &Config, registry: &Registry, destinations: &[Destination]) -> DeliverySet {
    let applicable = config
        .event_types
        .iter()
        .map(|event_type| ApplicableEvent {
            event_type: event_type.event_type.clone(),
            schema_version: event_type.schema_version.clone(),
        })
        .collect();
    let mut members = Vec::new();
    for route in &config.routes {
        let targets = destinations
            .iter()
            .filter(|destination| route.destinations.contains(&destination.name));
        for destination in targets {
            members.push(Member {
                event_type: route.event_type.clone(),
                schema_version: route.schema_version.clone(),
                destination: destination.name.clone(),
                destination_digest: destination.digest(),
                consumer: route
                    .consumer
                    .clone()
                    .unwrap_or_else(|| destination.name.clone()),
                expected_receipt_type: destination.receipt_type.clone(),
                expected_receipt_schema_version: "1".to_owned(),
                projection_target: ProjectionTarget::NotApplicable {},
                mandatory: route.mandatory,
            });
        }
    }
    let active = registry.delivery_set.as_ref();
    let version = active.map_or(1, |active| active.version);
    let same = DeliverySet::new(version, applicable, members);
    match active {
        None => same,
        Some(active) if *active == same => same,
        Some(_) => DeliverySet::new(version + 1, same.applicable_events, same.members),
    }
}

fn set_change(set: &DeliverySet, registry: &Registry, destinations: &[Destination]) -> Change {
    let lines = |set: &DeliverySet| -> BTreeSet<Line> {
        set.members
            .iter()
            .map(|member| Line {
                event_type: member.event_type.clone(),
                schema_version: member.schema_version.clone(),
                destination: member.destination.clone(),
                generation: registry
                    .destinations
                    .iter()
                    .map(|registered| &registered.destination)
                    .chain(destinations)
                    .find(|known| known.digest() == member.destination_digest)
                    .map(|known| known.generation),
                consumer: member.consumer.clone(),
                mandatory: member.mandatory,
            })
            .collect()
    };
    let after = lines(set);
    let before = registry
        .delivery_set
        .as_ref()
        .map_or_else(BTreeSet::new, lines);
    Change::DeliverySet {
        version: set.version,
        was: registry.delivery_set.as_ref().map(|active| active.version),
        digest: set.digest().to_string(),
        added: after.difference(&before).cloned().collect(),
        removed: before.difference(&after).cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
