//! What is registered: insert or compare, all or nothing.

use postrider_contract::{DeliverySet, Destination, EventType, Timestamp};
use postrider_core::DestinationId;
use postrider_store::{
    StoreError,
    control::{
        Applied, Audit, ControlPlane, RegisteredDestination, RegisteredEventType, Registry,
        Suspension,
    },
};
use rusqlite::{Connection, OptionalExtension, params};
use serde::de::DeserializeOwned;

use crate::{
    column::{self, read},
    fault::Fault,
    sql,
};

pub(crate) fn registry(connection: &Connection) -> Result<Registry, Fault> {
    let mut destinations = Vec::new();
    let mut statement = connection.prepare_cached(sql::DESTINATIONS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let suspended = match (
            read::<Option<String>>(row, 4)?,
            read::<Option<String>>(row, 5)?,
            column::optional_time(row, 6)?,
        ) {
            (Some(code), Some(detail), Some(since)) => Some(Suspension {
                code,
                detail,
                since,
            }),
            _ => None,
        };
        destinations.push(RegisteredDestination {
            id: column::destination(row, 0)?,
            destination: canonical(&read::<String>(row, 1)?)?,
            digest: column::digest(row, 2)?,
            current: read(row, 3)?,
            suspended,
        });
    }
    let mut event_types = Vec::new();
    let mut statement = connection.prepare_cached(sql::EVENT_TYPES)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        event_types.push(RegisteredEventType {
            event_type: EventType {
                event_type: read(row, 1)?,
                schema_version: read(row, 2)?,
                content_type: read(row, 3)?,
                json_schema: read(row, 4)?,
            },
            current: read(row, 5)?,
        });
    }
    Ok(Registry {
        destinations,
        event_types,
        delivery_set: active_set(connection)?.map(|(_, set)| set),
    })
}

fn active_set(connection: &Connection) -> Result<Option<(i64, DeliverySet)>, Fault> {
    let mut statement = connection.prepare_cached(sql::DELIVERY_SET_ACTIVE)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let set = canonical(&read::<String>(row, 1)?)?;
    Ok(Some((read(row, 0)?, set)))
}

fn canonical<T: DeserializeOwned>(text: &str) -> Result<T, Fault> {
    serde_json::from_str(text)
        .map_err(|error| Fault::corrupt(format!("registered object {text:?}: {error}")))
}

pub(crate) fn apply(
    connection: &Connection,
    plan: &ControlPlane,
    by: &Audit,
    now: Timestamp,
) -> Result<Result<Applied, StoreError>, Fault> {
    let mut applied = Applied::default();
    for destination in &plan.destinations {
        match add_destination(connection, destination)? {
            Ok(added) => applied.destinations_added += u32::from(added),
            Err(different) => return Ok(Err(different)),
        }
    }
    for event_type in &plan.event_types {
        applied.event_types_added += u32::from(add_event_type(connection, event_type)?);
    }
    let set = &plan.delivery_set;
    let version = version(set)?;
    if let Err(different) = add_delivery_set(connection, set, version)? {
        return Ok(Err(different));
    }
    applied.delivery_set_activated =
        active_set(connection)?.is_none_or(|(active, _)| active != version);
    if applied.delivery_set_activated {
        execute(
            connection,
            sql::DELIVERY_SET_ACTIVATE,
            params![version, now.unix_micros()],
        )?;
    }
    let changed = i64::from(applied.destinations_added)
        + i64::from(applied.event_types_added)
        + i64::from(applied.delivery_set_activated);
    if changed > 0 {
        audit(connection, "apply", by, changed, now)?;
    }
    Ok(Ok(applied))
}

fn version(set: &DeliverySet) -> Result<i64, Fault> {
    i64::try_from(set.version).map_err(|_| {
        Fault::refused(format!(
            "delivery set version {} is past 2^63 - 1; number it lower",
            set.version
        ))
    })
}

fn add_destination(
    connection: &Connection,
    destination: &Destination,
) -> Result<Result<bool, StoreError>, Fault> {
    let digest = destination.digest().to_string();
    let generation = integer("generation", destination.generation)?;
    let existing = text(
        connection,
        sql::DESTINATION_DIGEST,
        params![destination.name, generation],
    )?;
    if let Some(existing) = existing {
        if existing == digest {
            return Ok(Ok(false));
        }
        return Ok(Err(StoreError::AlreadyDifferent {
            what: format!("destination {:?} generation {generation}", destination.name),
            existing,
            offered: digest,
        }));
    }
    let limit = destination
        .max_payload_bytes
        .map(|limit| integer("maxPayloadBytes", limit))
        .transpose()?;
    let mut statement = connection.prepare_cached(sql::DESTINATION_INSERT)?;
    let id: i32 = statement.query_row(
        params![
            destination.name,
            generation,
            digest,
            destination.canonical(),
            destination.lanes,
            word(&destination.ordering)?,
            word(&destination.on_unknown)?,
            word(&destination.on_quarantine)?,
            limit,
        ],
        |row| row.get(0),
    )?;
    execute(connection, sql::LANES_MAKE, params![id, destination.lanes])?;
    Ok(Ok(true))
}

/// The word of a choice, as its canonical object writes it.
fn word<T: serde::Serialize>(choice: &T) -> Result<String, Fault> {
    match serde_json::to_value(choice) {
        Ok(serde_json::Value::String(word)) => Ok(word),
        other => Err(Fault::refused(format!(
            "a choice without a word: {other:?}"
        ))),
    }
}

fn integer(field: &str, value: u64) -> Result<i64, Fault> {
    i64::try_from(value)
        .map_err(|_| Fault::refused(format!("{field} {value} is past 2^63 - 1; make it smaller")))
}

/// Whether it was added or became current again.
fn add_event_type(connection: &Connection, event_type: &EventType) -> Result<bool, Fault> {
    let mut statement = connection.prepare_cached(sql::EVENT_TYPE_FIND)?;
    let found: Option<(i64, bool)> = statement
        .query_row(
            params![
                event_type.event_type,
                event_type.schema_version,
                event_type.content_type,
                event_type.json_schema,
            ],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    let id = match found {
        Some((_, true)) => return Ok(false),
        Some((id, false)) => id,
        None => {
            let schema_digest = event_type.schema_digest().map(|digest| digest.to_string());
            let mut statement = connection.prepare_cached(sql::EVENT_TYPE_INSERT)?;
            statement.query_row(
                params![
                    event_type.event_type,
                    event_type.schema_version,
                    event_type.content_type,
                    event_type.json_schema,
                    schema_digest,
                ],
                |row| row.get(0),
            )?
        }
    };
    execute(
        connection,
        sql::EVENT_TYPE_MAKE_CURRENT,
        params![event_type.event_type, event_type.schema_version, id],
    )?;
    Ok(true)
}

fn add_delivery_set(
    connection: &Connection,
    set: &DeliverySet,
    version: i64,
) -> Result<Result<(), StoreError>, Fault> {
    for member in &set.members {
        let digest = member.destination_digest.to_string();
        let mut statement = connection.prepare_cached(sql::DESTINATION_BY_DIGEST)?;
        if !statement.exists([&digest])? {
            return Err(Fault::refused(format!(
                "delivery set {version} names destination {:?} with digest {digest}, which is not registered",
                member.destination
            )));
        }
    }
    let digest = set.digest().to_string();
    let existing = text(connection, sql::DELIVERY_SET_DIGEST, params![version])?;
    if let Some(existing) = existing {
        if existing == digest {
            return Ok(Ok(()));
        }
        return Ok(Err(StoreError::AlreadyDifferent {
            what: format!("delivery set version {version}"),
            existing,
            offered: digest,
        }));
    }
    execute(
        connection,
        sql::DELIVERY_SET_INSERT,
        params![version, digest, set.canonical()],
    )?;
    for event in &set.applicable_events {
        execute(
            connection,
            sql::DELIVERY_SET_EVENT_INSERT,
            params![version, event.event_type, event.schema_version],
        )?;
    }
    for member in &set.members {
        execute(
            connection,
            sql::DELIVERY_SET_MEMBER_INSERT,
            params![
                version,
                member.event_type,
                member.schema_version,
                member.destination_digest.to_string()
            ],
        )?;
    }
    Ok(Ok(()))
}

/// `false`: it was not suspended.
pub(crate) fn resume(
    connection: &Connection,
    destination: DestinationId,
    by: &Audit,
    now: Timestamp,
) -> Result<bool, Fault> {
    let resumed = execute(connection, sql::DESTINATION_RESUME, params![destination.0])? > 0;
    if resumed {
        audit(connection, "resume_destination", by, 1, now)?;
    }
    Ok(resumed)
}

pub(crate) fn audit(
    connection: &Connection,
    action: &str,
    by: &Audit,
    changed: i64,
    now: Timestamp,
) -> Result<(), Fault> {
    execute(
        connection,
        sql::AUDIT_INSERT,
        params![now.unix_micros(), action, by.actor, by.reason, changed],
    )?;
    Ok(())
}

fn text(
    connection: &Connection,
    statement: &str,
    parameters: impl rusqlite::Params,
) -> Result<Option<String>, Fault> {
    let mut statement = connection.prepare_cached(statement)?;
    Ok(statement
        .query_row(parameters, |row| row.get(0))
        .optional()?)
}

/// Runs a statement that answers no row; answers how many rows it changed.
pub(crate) fn execute(
    connection: &Connection,
    statement: &str,
    parameters: impl rusqlite::Params,
) -> Result<usize, Fault> {
    Ok(connection.prepare_cached(statement)?.execute(parameters)?)
}
