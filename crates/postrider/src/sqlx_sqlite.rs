//! Append in a transaction of `sqlx` on SQLite.
//!
//! ```no_run
//! # async fn place(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
//! use postrider::{NewEvent, json_payload, sqlx_sqlite};
//!
//! // Once, at the start of the program.
//! let registry = sqlx_sqlite::load(&mut *pool.acquire().await?).await?;
//!
//! let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
//! sqlx::query("INSERT INTO orders (id, total) VALUES (?1, ?2)")
//!     .bind("42")
//!     .bind(10)
//!     .execute(&mut *transaction)
//!     .await?;
//! let payload = json_payload(&serde_json::json!({"id": "42", "total": 10}))?;
//! let event = NewEvent::new("order.placed", "1", "order", "42", payload);
//! sqlx_sqlite::append(&mut transaction, &registry, event).await?;
//! transaction.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Begin the transaction IMMEDIATE, and give the connection a busy timeout (`sqlx` sets 5 s). A
//! deferred one that reads first fails at once ([`Outdated`](AppendError::Outdated)) when somebody
//! wrote between its first read and its first write, whatever the timeout, and has to be run again
//! from its beginning.

use std::sync::Arc;

use postrider_contract::{Digest, NewEvent, Timestamp, digest::Algorithm};
use postrider_store::append::check_retry;
use postrider_store_sqlite::append::{CONTEXT, Context, FIND, INSERT, seal};
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

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
pub async fn load(connection: &mut SqliteConnection) -> Result<Registry, LoadError> {
    let registry = Registry::empty();
    refresh(connection, &registry).await?;
    Ok(registry)
}

/// Loads the registry again, for everybody who shares it.
///
/// An append does so by itself when the registry is old, or does not know the event type.
///
/// # Errors
/// As [`load`]; the registry is then as before.
pub async fn refresh(
    connection: &mut SqliteConnection,
    registry: &Registry,
) -> Result<(), LoadError> {
    reload(connection, registry).await.map(drop)
}

/// Appends an event in the transaction that is open on the connection (a `sqlx::Transaction`
/// derefs to it); without one, in a transaction of its own.
///
/// # Errors
/// Nothing was written, and the transaction goes on; except after
/// [`Outdated`](AppendError::Outdated), when it must be rolled back.
pub async fn append(
    connection: &mut SqliteConnection,
    registry: &Registry,
    event: NewEvent,
) -> Result<Appended, AppendError> {
    let appended = append_all(connection, registry, vec![event]).await;
    let appended = appended.map_err(|error| error.error)?;
    Ok(*appended.first().expect("one answer for one event"))
}

/// Appends events, in order, all or nothing.
///
/// # Errors
/// As [`append`], with the place in the batch.
pub async fn append_all(
    connection: &mut SqliteConnection,
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
        let stale = match try_append(connection, &snapshot, &events).await {
            Err(error) if error.error.may_be_stale() => error,
            done => return done,
        };
        if refreshed || !snapshot.is_from_database() {
            return Err(stale);
        }
        snapshot = reload(connection, registry)
            .await
            .map_err(|error| BatchError::of_all(error.into()))?;
        refreshed = true;
    }
}

async fn try_append(
    connection: &mut SqliteConnection,
    snapshot: &Snapshot,
    events: &[Prepared],
) -> Result<Vec<Appended>, BatchError> {
    let digests = batch::judge(snapshot, events)?;
    for (event_type, schema_version, digest) in sqlite::used(events, &digests) {
        let current = current(connection, event_type, schema_version)
            .await
            .map_err(|error| BatchError::of_all(failed(error)))?
            .ok_or_else(|| BatchError::of_all(AppendError::NoActiveDeliverySet))?;
        if !current.is(snapshot, digest) {
            return Err(BatchError::of_all(AppendError::StaleRegistry));
        }
    }
    let now = sqlite::now().map_err(BatchError::of_all)?;
    // One event is one statement that writes, and so atomic by itself.
    if let [event] = events {
        let appended = append_one(connection, event, now).await;
        return Ok(vec![
            appended.map_err(|error| batch::located(error, events))?,
        ]);
    }
    let run = |error| BatchError::of_all(failed(error));
    sqlx::query("SAVEPOINT postrider_append")
        .execute(&mut *connection)
        .await
        .map_err(run)?;
    let appended = append_each(connection, events, now).await;
    if appended.is_err() {
        sqlx::query("ROLLBACK TO postrider_append")
            .execute(&mut *connection)
            .await
            .map_err(run)?;
    }
    sqlx::query("RELEASE postrider_append")
        .execute(&mut *connection)
        .await
        .map_err(run)?;
    appended
}

async fn append_each(
    connection: &mut SqliteConnection,
    events: &[Prepared],
    now: Timestamp,
) -> Result<Vec<Appended>, BatchError> {
    let mut appended = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let one = append_one(connection, event, now).await;
        appended.push(one.map_err(|error| BatchError {
            index: Some(index),
            error,
        })?);
    }
    Ok(appended)
}

async fn append_one(
    connection: &mut SqliteConnection,
    prepared: &Prepared,
    now: Timestamp,
) -> Result<Appended, AppendError> {
    let Prepared {
        event,
        event_id,
        given_id,
        ..
    } = prepared;
    if *given_id && let Some(position) = find(connection, prepared).await? {
        return Ok(Appended {
            event_id: *event_id,
            position,
            already: true,
        });
    }
    let context = context(connection, event)
        .await?
        .ok_or(AppendError::NoActiveDeliverySet)?;
    let row = seal(event, *event_id, &context, now).map_err(sqlite::refused)?;
    let inserted = sqlx::query_scalar(INSERT)
        .bind(row.event_id)
        .bind(row.event_type)
        .bind(row.schema_version)
        .bind(row.tenant)
        .bind(row.aggregate_type)
        .bind(row.aggregate_id)
        .bind(row.partition_key)
        .bind(row.key_hash)
        .bind(row.envelope)
        .bind(row.envelope_digest.to_vec())
        .bind(row.payload)
        .bind(row.headers)
        .bind(row.traceparent)
        .bind(row.tracestate)
        .bind(row.delivery_set)
        .bind(row.appended_at)
        .fetch_one(&mut *connection)
        .await;
    let position = inserted.map_err(failed)?;
    Ok(Appended {
        event_id: *event_id,
        position,
        already: false,
    })
}

async fn find(
    connection: &mut SqliteConnection,
    Prepared {
        event, event_id, ..
    }: &Prepared,
) -> Result<Option<i64>, AppendError> {
    let found = sqlx::query(FIND)
        .bind(event_id.to_string())
        .fetch_optional(connection)
        .await;
    let Some(row) = found.map_err(failed)? else {
        return Ok(None);
    };
    let read = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    let (position, envelope, digest): (i64, String, Vec<u8>) = read(&row).map_err(failed)?;
    let bytes = <[u8; 32]>::try_from(digest).map_err(|digest| {
        let message = format!("the digest of event {event_id} has {} bytes", digest.len());
        AppendError::Database {
            source: message.clone().into(),
            message,
        }
    })?;
    let digest = Digest {
        algorithm: Algorithm::JcsSha256V1,
        bytes,
    };
    check_retry(event, *event_id, &envelope, digest).map_err(sqlite::refused)?;
    Ok(Some(position))
}

async fn context(
    connection: &mut SqliteConnection,
    event: &NewEvent,
) -> Result<Option<Context>, AppendError> {
    let row = sqlx::query(CONTEXT)
        .bind(&event.event_type)
        .bind(&event.schema_version)
        .bind(i64::try_from(event.payload.len()).unwrap_or(i64::MAX))
        .fetch_optional(connection)
        .await;
    let Some(row) = row.map_err(failed)? else {
        return Ok(None);
    };
    let digest: String = row.try_get(1).map_err(failed)?;
    let schema_digest: Option<String> = row.try_get(3).map_err(failed)?;
    let context = Context::from_columns(
        row.try_get(0).map_err(failed)?,
        &digest,
        row.try_get(2).map_err(failed)?,
        schema_digest.as_deref(),
        row.try_get(4).map_err(failed)?,
        row.try_get(5).map_err(failed)?,
    );
    context
        .map(Some)
        .map_err(|error| sqlite::refused(error.into()))
}

async fn reload(
    connection: &mut SqliteConnection,
    registry: &Registry,
) -> Result<Arc<Snapshot>, LoadError> {
    let rows = registry_rows(connection)
        .await
        .map_err(|error| LoadError::Database {
            message: sqlite::load_advice(&error),
            source: error.into(),
        })?;
    Ok(registry.replace(sqlite::snapshot(rows)?))
}

async fn registry_rows(connection: &mut SqliteConnection) -> Result<Vec<RegistryRow>, sqlx::Error> {
    let rows = sqlx::query(sqlite::REGISTRY).fetch_all(connection).await?;
    let read = |row: &SqliteRow| {
        Ok(RegistryRow {
            delivery_set: row.try_get(0)?,
            event_type: row.try_get(1)?,
            schema_version: row.try_get(2)?,
            content_type: row.try_get(3)?,
            json_schema: row.try_get(4)?,
            destination: row.try_get(5)?,
            payload_bytes_max: row.try_get(6)?,
        })
    };
    rows.iter().map(read).collect()
}

async fn current(
    connection: &mut SqliteConnection,
    event_type: &str,
    schema_version: &str,
) -> Result<Option<Current>, sqlx::Error> {
    let row = sqlx::query(sqlite::CURRENT)
        .bind(event_type)
        .bind(schema_version)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    Ok(Some(Current {
        delivery_set: row.try_get(0)?,
        registered: row.try_get(1)?,
        schema_digest: row.try_get(2)?,
    }))
}

fn failed(error: sqlx::Error) -> AppendError {
    let code = error
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| code.parse().ok());
    sqlite::failed(error.to_string(), code, error.into())
}
