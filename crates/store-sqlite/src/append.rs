//! Append inside an application's own transaction, and the statements of it for other drivers.
//!
//! An event takes two statements: [`CONTEXT`] (what sealing needs), [`INSERT`] (a trigger writes
//! the deliveries). With an id of the caller's own, [`FIND`] goes first. [`Context`], [`seal`] and
//! [`postrider_store::append::check_retry`] are what happens between them, so a driver that is
//! not rusqlite runs the very same append.

use postrider_contract::{
    Digest, EventId, Timestamp, envelope::DeliverySetRef, new_event::NewEvent,
};
use postrider_core::Position;
use postrider_store::{AppendError, StoreError, append::check_retry, dispatch::Appended};
use rusqlite::{Connection, params};
use uuid::Uuid;

use crate::{column, fault::Fault, sql};

/// The stored event of an id. Parameter: event id (text). Columns: position (integer), envelope
/// (text), envelope digest (32 bytes).
pub const FIND: &str = sql::APPEND_FIND;

/// What sealing needs. Parameters: event type, schema version (text), payload length (integer).
/// Columns: those of [`Context::from_columns`], in order. No row: no delivery set is active.
pub const CONTEXT: &str = sql::APPEND_CONTEXT;

/// Writes an event with its deliveries. Parameters: the fields of [`NewRow`], in order. Column:
/// position.
pub const INSERT: &str = sql::APPEND_EVENT;

/// What the database knows and the application does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    delivery_set: DeliverySetRef,
    known: bool,
    schema_digest: Option<Digest>,
    too_small: Option<(String, u64)>,
}

impl Context {
    /// From the columns of [`CONTEXT`]: the delivery set's version and digest, whether it has the
    /// event type, the digest of the type's JSON Schema, and the first destination whose limit
    /// the payload is over, with that limit.
    ///
    /// # Errors
    /// `Corrupt` when a column does not hold what this program stores.
    pub fn from_columns(
        version: i64,
        digest: &str,
        known: bool,
        schema_digest: Option<&str>,
        too_small: Option<String>,
        too_small_limit: Option<i64>,
    ) -> Result<Self, StoreError> {
        let parse = |text: &str| {
            text.parse::<Digest>().map_err(|error| StoreError::Corrupt {
                message: error.to_string(),
            })
        };
        let positive = |number: i64| {
            u64::try_from(number).map_err(|_| StoreError::Corrupt {
                message: format!("{number} where a positive number is stored"),
            })
        };
        Ok(Self {
            delivery_set: DeliverySetRef {
                version: positive(version)?,
                digest: parse(digest)?,
            },
            known,
            schema_digest: schema_digest.map(parse).transpose()?,
            too_small: too_small.zip(too_small_limit.map(positive).transpose()?),
        })
    }
}

/// The parameters of [`INSERT`], in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRow {
    pub event_id: String,
    pub event_type: String,
    pub schema_version: String,
    pub tenant: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
    pub partition_key: String,
    pub key_hash: i64,
    pub envelope: String,
    pub envelope_digest: [u8; 32],
    pub payload: Vec<u8>,
    /// `[["name","value"], …]`; `None` when there are none.
    pub headers: Option<String>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub delivery_set: i64,
    /// Microseconds since 1970.
    pub appended_at: i64,
}

/// Makes the row of an event, under the given id.
///
/// # Errors
/// [`AppendError`] says why the event cannot be appended.
pub fn seal(
    event: &NewEvent,
    event_id: EventId,
    context: &Context,
    now: Timestamp,
) -> Result<NewRow, AppendError> {
    if !context.known {
        return Err(AppendError::UnknownEventType {
            event_type: event.event_type.clone(),
            schema_version: event.schema_version.clone(),
        });
    }
    if let Some((destination, limit)) = &context.too_small {
        return Err(AppendError::TooLarge {
            destination: destination.clone(),
            length: u64::try_from(event.payload.len()).unwrap_or(u64::MAX),
            limit: *limit,
        });
    }
    let sealed = event
        .seal(event_id, now, &context.delivery_set, context.schema_digest)
        .map_err(|invalid| AppendError::Invalid(invalid.to_string()))?;
    let headers = (!sealed.headers.is_empty())
        .then(|| serde_json::to_string(&sealed.headers).expect("pairs of strings serialise"));
    let delivery_set = i64::try_from(sealed.envelope.delivery_set.version).map_err(|_| {
        AppendError::Invalid("deliverySet.version: is past 2^63 - 1; number it lower".to_owned())
    })?;
    let envelope = sealed.envelope;
    Ok(NewRow {
        event_id: envelope.event_id.to_string(),
        event_type: envelope.event_type,
        schema_version: envelope.schema_version,
        tenant: envelope.tenant,
        aggregate_type: envelope.aggregate.kind,
        aggregate_id: envelope.aggregate.id,
        partition_key: envelope.partition_key,
        key_hash: sealed.key_hash,
        envelope: sealed.canonical,
        envelope_digest: sealed.digest.bytes,
        payload: event.payload.clone(),
        headers,
        traceparent: event.traceparent.clone(),
        tracestate: event.tracestate.clone(),
        delivery_set,
        appended_at: now.unix_micros(),
    })
}

/// A fresh event id: a UUIDv7.
#[must_use]
pub fn fresh_id() -> EventId {
    EventId(Uuid::now_v7())
}

/// Appends events in the caller's open transaction, in order, all or nothing. After an error the
/// transaction can go on.
///
/// Begin the transaction with `BEGIN IMMEDIATE`
/// ([`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate)). One that reads
/// first and writes later fails at once when somebody wrote in between, whatever the busy
/// timeout, and has to be run again from its beginning.
///
/// # Errors
/// As [`Store::append`](postrider_store::Store::append); [`StoreError::Refused`] when no
/// transaction is open.
pub fn append_in(
    connection: &Connection,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<Vec<Appended>, AppendError> {
    if connection.is_autocommit() {
        return Err(AppendError::Store(StoreError::Refused {
            message: "no transaction is open: events are appended in the transaction that changes the business data; begin one (IMMEDIATE)".to_owned(),
            source: None,
        }));
    }
    append_all(connection, events, now).map_err(|refusal| match refusal {
        Refusal::Fault(fault) => AppendError::Store(fault.into()),
        Refusal::Append(error) => error,
    })
}

/// Why nothing was appended: what the unit of work may try again, and what it must not.
#[derive(Debug)]
pub(crate) enum Refusal {
    Fault(Fault),
    Append(AppendError),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Fault(error.into())
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<AppendError> for Refusal {
    fn from(error: AppendError) -> Self {
        Self::Append(error)
    }
}

pub(crate) fn append_all(
    connection: &Connection,
    events: &[NewEvent],
    now: Timestamp,
) -> Result<Vec<Appended>, Refusal> {
    // One event is one statement that writes, and so atomic by itself.
    if let [event] = events {
        return Ok(vec![append_one(connection, event, now)?]);
    }
    connection
        .prepare_cached("SAVEPOINT postrider_append")?
        .execute([])?;
    let appended: Result<Vec<Appended>, Refusal> = events
        .iter()
        .map(|event| append_one(connection, event, now))
        .collect();
    if appended.is_err() {
        connection
            .prepare_cached("ROLLBACK TO postrider_append")?
            .execute([])?;
    }
    connection
        .prepare_cached("RELEASE postrider_append")?
        .execute([])?;
    appended
}

fn append_one(
    connection: &Connection,
    event: &NewEvent,
    now: Timestamp,
) -> Result<Appended, Refusal> {
    if let Some(event_id) = event.event_id
        && let Some(position) = find(connection, event, event_id)?
    {
        return Ok(Appended {
            event_id,
            position,
            already: true,
        });
    }
    let context = context(connection, event)?.ok_or(AppendError::NoActiveDeliverySet)?;
    let event_id = event.event_id.unwrap_or_else(fresh_id);
    let row = seal(event, event_id, &context, now)?;
    Ok(Appended {
        event_id,
        position: Position(insert(connection, &row)?),
        already: false,
    })
}

fn find(
    connection: &Connection,
    event: &NewEvent,
    event_id: EventId,
) -> Result<Option<Position>, Refusal> {
    let mut statement = connection.prepare_cached(FIND)?;
    let mut rows = statement.query([event_id.to_string()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let position = column::position(row, 0)?;
    let envelope: String = column::read(row, 1)?;
    let digest = column::envelope_digest(row, 2)?;
    check_retry(event, event_id, &envelope, digest)?;
    Ok(Some(position))
}

fn context(connection: &Connection, event: &NewEvent) -> Result<Option<Context>, Refusal> {
    let mut statement = connection.prepare_cached(CONTEXT)?;
    let length = i64::try_from(event.payload.len()).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![event.event_type, event.schema_version, length])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let digest: String = column::read(row, 1)?;
    let schema_digest: Option<String> = column::read(row, 3)?;
    Ok(Some(Context::from_columns(
        column::read(row, 0)?,
        &digest,
        column::read(row, 2)?,
        schema_digest.as_deref(),
        column::read(row, 4)?,
        column::read(row, 5)?,
    )?))
}

fn insert(connection: &Connection, row: &NewRow) -> rusqlite::Result<i64> {
    connection.prepare_cached(INSERT)?.query_row(
        params![
            row.event_id,
            row.event_type,
            row.schema_version,
            row.tenant,
            row.aggregate_type,
            row.aggregate_id,
            row.partition_key,
            row.key_hash,
            row.envelope,
            row.envelope_digest,
            row.payload,
            row.headers,
            row.traceparent,
            row.tracestate,
            row.delivery_set,
            row.appended_at,
        ],
        |row| row.get(0),
    )
}
