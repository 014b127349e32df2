//! Append in a transaction of `rusqlite`.
//!
//! ```no_run
//! # fn place(connection: &mut rusqlite::Connection) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{NewEvent, json_payload, rusqlite as outbox};
//! use rusqlite::TransactionBehavior;
//!
//! // Once, at the start of the program.
//! let registry = outbox::load(connection)?;
//!
//! let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! transaction.execute("INSERT INTO orders (id, total) VALUES (?1, ?2)", ("42", 10))?;
//! let payload = json_payload(&serde_json::json!({"id": "42", "total": 10}))?;
//! let event = NewEvent::new("order.placed", "1", "order", "42", payload);
//! outbox::append(&transaction, &registry, event)?;
//! transaction.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! Begin the transaction IMMEDIATE, and give the connection a busy timeout. A deferred one that
//! reads first fails at once ([`Outdated`](AppendError::Outdated)) when somebody wrote between
//! its first read and its first write, whatever the timeout, and has to be run again from its
//! beginning.

use std::sync::Arc;

use ::rusqlite::{Connection, params};
use postrider_contract::NewEvent;
use postrider_store_sqlite::append_in;

use crate::{
    Appended, batch,
    check::Prepared,
    error::{AppendError, BatchError, LoadError},
    registry::{Registry, Snapshot},
    sqlite::{self, Current, RegistryRow},
};

/// Loads the registry.
///
/// # Errors
/// When the database does not give it, or a registered JSON Schema cannot be used.
pub fn load(connection: &Connection) -> Result<Registry, LoadError> {
    let registry = Registry::empty();
    refresh(connection, &registry)?;
    Ok(registry)
}

/// Loads the registry again, for everybody who shares it.
///
/// An append does so by itself when the registry is old, or does not know the event type.
///
/// # Errors
/// As [`load`]; the registry is then as before.
pub fn refresh(connection: &Connection, registry: &Registry) -> Result<(), LoadError> {
    reload(connection, registry).map(drop)
}

/// Appends an event in the transaction that is open on the connection (a `rusqlite::Transaction`
/// derefs to it). Without one it is refused.
///
/// # Errors
/// Nothing was written, and the transaction goes on; except after
/// [`Outdated`](AppendError::Outdated), when it must be rolled back.
pub fn append(
    connection: &Connection,
    registry: &Registry,
    event: NewEvent,
) -> Result<Appended, AppendError> {
    let appended = append_all(connection, registry, vec![event]).map_err(|error| error.error)?;
    Ok(*appended.first().expect("one answer for one event"))
}

/// Appends events, in order, all or nothing.
///
/// # Errors
/// As [`append`], with the place in the batch.
pub fn append_all(
    connection: &Connection,
    registry: &Registry,
    events: Vec<NewEvent>,
) -> Result<Vec<Appended>, BatchError> {
    let events = batch::prepare(events)?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let mut snapshot = registry.snapshot();
    let mut refreshed = false;
    loop {
        let stale = match try_append(connection, &snapshot, &events) {
            Err(error) if error.error.may_be_stale() => error,
            done => return done,
        };
        if refreshed || !snapshot.is_from_database() {
            return Err(stale);
        }
        snapshot =
            reload(connection, registry).map_err(|error| BatchError::of_all(error.into()))?;
        refreshed = true;
    }
}

fn try_append(
    connection: &Connection,
    snapshot: &Snapshot,
    events: &[Prepared],
) -> Result<Vec<Appended>, BatchError> {
    let digests = batch::judge(snapshot, events)?;
    for (event_type, schema_version, digest) in sqlite::used(events, &digests) {
        let current = current(connection, event_type, schema_version)
            .map_err(|error| BatchError::of_all(failed(error)))?
            .ok_or_else(|| BatchError::of_all(AppendError::NoActiveDeliverySet))?;
        if !current.is(snapshot, digest) {
            return Err(BatchError::of_all(AppendError::StaleRegistry));
        }
    }
    let now = sqlite::now().map_err(BatchError::of_all)?;
    let given: Vec<NewEvent> = events
        .iter()
        .map(|prepared| prepared.event.clone())
        .collect();
    let appended = append_in(connection, &given, now)
        .map_err(|error| batch::located(sqlite::refused(error), events))?;
    let appended = appended.into_iter().map(|appended| Appended {
        event_id: appended.event_id,
        position: appended.position.0,
        already: appended.already,
    });
    Ok(appended.collect())
}

fn reload(connection: &Connection, registry: &Registry) -> Result<Arc<Snapshot>, LoadError> {
    let rows = registry_rows(connection).map_err(|error| LoadError::Database {
        message: sqlite::load_advice(&error),
        source: error.into(),
    })?;
    Ok(registry.replace(sqlite::snapshot(rows)?))
}

fn registry_rows(connection: &Connection) -> ::rusqlite::Result<Vec<RegistryRow>> {
    let mut statement = connection.prepare_cached(sqlite::REGISTRY)?;
    let rows = statement.query_map([], |row| {
        Ok(RegistryRow {
            delivery_set: row.get(0)?,
            event_type: row.get(1)?,
            schema_version: row.get(2)?,
            content_type: row.get(3)?,
            json_schema: row.get(4)?,
            destination: row.get(5)?,
            payload_bytes_max: row.get(6)?,
        })
    })?;
    rows.collect()
}

fn current(
    connection: &Connection,
    event_type: &str,
    schema_version: &str,
) -> ::rusqlite::Result<Option<Current>> {
    let mut statement = connection.prepare_cached(sqlite::CURRENT)?;
    let mut rows = statement.query(params![event_type, schema_version])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    Ok(Some(Current {
        delivery_set: row.get(0)?,
        registered: row.get(1)?,
        schema_digest: row.get(2)?,
    }))
}

fn failed(error: ::rusqlite::Error) -> AppendError {
    let code = sqlite::extended_code(&error);
    sqlite::failed(error.to_string(), code, error.into())
}
