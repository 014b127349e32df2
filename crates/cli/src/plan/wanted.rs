//! Contract objects from the file.

use postrider_contract::{Destination, EventType, destination::Schema};
use postrider_schema::Schemas;

use crate::{
    backend::transport,
    code::Code,
    config::{
        Config,
        model::{self, Connection},
    },
    fault::Fault,
};

/// The destination of the file: the registered one if it says the same, else its next generation.
pub(super) fn destination(
    name: &str,
    wanted: &model::Destination,
    connection: &Connection,
    current: Option<&Destination>,
) -> Destination {
    let defaults = transport::defaults(connection);
    let mut destination = Destination {
        schema: Schema::V1,
        name: name.to_owned(),
        generation: current.map_or(1, |current| current.generation),
        kind: connection.kind().to_owned(),
        cluster: connection.cluster.clone(),
        target: wanted.target.clone(),
        container: wanted.container.clone(),
        key: wanted.key,
        partitioner: wanted.partitioner.unwrap_or(defaults.partitioner),
        serializer: wanted.serializer,
        durability: wanted.durability.unwrap_or(defaults.durability),
        receipt_type: wanted
            .receipt_type
            .clone()
            .unwrap_or_else(|| defaults.receipt_type.to_owned()),
        ordering: wanted.ordering,
        lanes: wanted.lanes,
        on_unknown: wanted.on_unknown,
        on_quarantine: wanted.on_quarantine,
        max_attempts: wanted.max_attempts,
        max_payload_bytes: wanted.max_payload_bytes,
    };
    if current.is_some_and(|current| *current != destination) {
        destination.generation += 1;
    }
    destination
}

/// The file's event types with their schemas, read and compiled.
///
/// # Errors
/// Every schema that cannot be used.
pub(super) fn event_types(config: &Config) -> Result<Vec<EventType>, Vec<Fault>> {
    let mut event_types = Vec::new();
    let mut faults = Vec::new();
    for wanted in &config.event_types {
        match event_type(config, wanted) {
            Ok(event_type) => event_types.push(event_type),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() {
        Ok(event_types)
    } else {
        Err(faults)
    }
}

fn event_type(config: &Config, wanted: &model::EventType) -> Result<EventType, Fault> {
    let named = format!(
        "event type {} version {}",
        wanted.event_type, wanted.schema_version
    );
    let bad = |what: String| {
        Fault::new(
            Code::BadJsonSchema,
            format!("{named}: {what}"),
            "Nothing was registered.",
            "correct the schema file, or the path in json_schema",
        )
    };
    let text = match &wanted.json_schema {
        None => None,
        Some(path) => {
            let path = config.base.join(path);
            let text = std::fs::read_to_string(&path)
                .map_err(|error| bad(format!("{} cannot be read: {error}", path.display())))?;
            Some(text)
        }
    };
    let event_type = EventType::new(
        wanted.event_type.clone(),
        wanted.schema_version.clone(),
        wanted.content_type.clone(),
        text.as_deref(),
    )
    .map_err(|invalid| bad(invalid.to_string()))?;
    Schemas::compile([&event_type]).map_err(|error| bad(error.to_string()))?;
    Ok(event_type)
}
