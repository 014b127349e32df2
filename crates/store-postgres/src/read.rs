//! Rows into the port's types. What is stored is input: nothing here unwraps.

use postrider_contract::{Digest, EventId, Receipt, Timestamp, digest::Algorithm, receipt::Packed};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId, delivery::State};
use postrider_store::{StoreError, dispatch::StoredEvent};
use tokio_postgres::{Row, types::FromSql};
use uuid::Uuid;

use crate::{
    error::{corrupt, store},
    param::Moment,
};

/// One column by name.
pub(crate) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<T, StoreError> {
    row.try_get(column).map_err(|error| store(&error))
}

pub(crate) fn time(row: &Row, column: &str) -> Result<Timestamp, StoreError> {
    get::<Moment>(row, column).map(|moment| moment.0)
}

pub(crate) fn time_opt(row: &Row, column: &str) -> Result<Option<Timestamp>, StoreError> {
    get::<Option<Moment>>(row, column).map(|moment| moment.map(|moment| moment.0))
}

pub(crate) fn position(row: &Row, column: &str) -> Result<Position, StoreError> {
    get(row, column).map(Position)
}

pub(crate) fn destination(row: &Row) -> Result<DestinationId, StoreError> {
    get(row, "destination_id").map(DestinationId)
}

pub(crate) fn event_id(row: &Row) -> Result<EventId, StoreError> {
    get::<Uuid>(row, "event_id").map(EventId)
}

pub(crate) fn attempt_id(row: &Row) -> Result<AttemptId, StoreError> {
    get::<Uuid>(row, "attempt_id").map(AttemptId)
}

pub(crate) fn session_id(row: &Row) -> Result<SessionId, StoreError> {
    get::<Uuid>(row, "session_id").map(SessionId)
}

pub(crate) fn lane(row: &Row) -> Result<Lane, StoreError> {
    get::<i16>(row, "lane").and_then(lane_of)
}

pub(crate) fn lane_of(lane: i16) -> Result<Lane, StoreError> {
    u16::try_from(lane)
        .map(Lane)
        .map_err(|_| corrupt(format!("lane {lane}")))
}

/// A non-negative number.
pub(crate) fn number<T: TryFrom<i64>>(value: i64, what: &str) -> Result<T, StoreError> {
    T::try_from(value).map_err(|_| corrupt(format!("{what} {value}")))
}

pub(crate) fn micros(value: i64) -> std::time::Duration {
    std::time::Duration::from_micros(u64::try_from(value).unwrap_or(0))
}

pub(crate) fn jcs_digest(row: &Row, column: &str) -> Result<Digest, StoreError> {
    let bytes: &[u8] = get(row, column)?;
    jcs_of(bytes)
}

pub(crate) fn jcs_of(bytes: &[u8]) -> Result<Digest, StoreError> {
    Ok(Digest {
        algorithm: Algorithm::JcsSha256V1,
        bytes: bytes
            .try_into()
            .map_err(|_| corrupt(format!("a digest of {} bytes", bytes.len())))?,
    })
}

/// `None`: the open row is gone.
pub(crate) fn state(state: Option<i16>) -> Result<State, StoreError> {
    match state {
        None => Ok(State::Acknowledged),
        Some(0) => Ok(State::Pending),
        Some(1) => Ok(State::Unknown),
        Some(2) => Ok(State::Quarantined),
        Some(other) => Err(corrupt(format!("delivery state {other}"))),
    }
}

/// The stored number of an open state.
pub(crate) fn state_number(state: State) -> Option<i16> {
    match state {
        State::Pending => Some(0),
        State::Unknown => Some(1),
        State::Quarantined => Some(2),
        State::Acknowledged => None,
    }
}

pub(crate) fn receipt(shared: &str, number: Option<i64>) -> Result<Receipt, StoreError> {
    Receipt::unpack(&Packed {
        shared: shared.to_owned(),
        number,
    })
    .map_err(corrupt)
}

pub(crate) fn event(row: &Row) -> Result<StoredEvent, StoreError> {
    let headers: Option<&str> = get(row, "headers")?;
    let headers = match headers {
        None => Vec::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| corrupt(format!("headers of an event: {error}")))?,
    };
    let payload: &[u8] = get(row, "payload")?;
    Ok(StoredEvent {
        event_id: event_id(row)?,
        envelope: get(row, "envelope")?,
        envelope_digest: jcs_digest(row, "envelope_digest")?,
        payload: bytes::Bytes::copy_from_slice(payload),
        traceparent: get(row, "traceparent")?,
        tracestate: get(row, "tracestate")?,
        headers,
        appended_at: time(row, "appended_at")?,
    })
}
