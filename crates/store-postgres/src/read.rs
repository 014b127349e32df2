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

/// One event.
pub(crate) fn event(row: &Row) -> Result<StoredEvent, StoreError> {
    EventColumns::of(Some(row))?.event(row)
}

/// Where the columns of an event are in the rows of one answer: looked up once, not for each row.
#[derive(Debug, Default)]
pub(crate) struct EventColumns {
    position: Option<usize>,
    event_id: usize,
    envelope: usize,
    envelope_digest: usize,
    payload: usize,
    traceparent: usize,
    tracestate: usize,
    headers: usize,
    appended_at: usize,
}

impl EventColumns {
    /// `None`: there are no rows, so nothing will be asked.
    pub(crate) fn of(row: Option<&Row>) -> Result<Self, StoreError> {
        let Some(row) = row else {
            return Ok(Self::default());
        };
        let find = |name| {
            row.columns()
                .iter()
                .position(|column| column.name() == name)
        };
        let place = |name| find(name).ok_or_else(|| corrupt(format!("no column {name}")));
        Ok(Self {
            position: find("position"),
            event_id: place("event_id")?,
            envelope: place("envelope")?,
            envelope_digest: place("envelope_digest")?,
            payload: place("payload")?,
            traceparent: place("traceparent")?,
            tracestate: place("tracestate")?,
            headers: place("headers")?,
            appended_at: place("appended_at")?,
        })
    }

    pub(crate) fn position(&self, row: &Row) -> Result<Position, StoreError> {
        let place = self.position.ok_or_else(|| corrupt("no column position"))?;
        at(row, place).map(Position)
    }

    pub(crate) fn event(&self, row: &Row) -> Result<StoredEvent, StoreError> {
        let headers: Option<&str> = at(row, self.headers)?;
        let headers = match headers {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text)
                .map_err(|error| corrupt(format!("headers of an event: {error}")))?,
        };
        let payload: &[u8] = at(row, self.payload)?;
        Ok(StoredEvent {
            event_id: at::<Uuid>(row, self.event_id).map(EventId)?,
            envelope: at(row, self.envelope)?,
            envelope_digest: jcs_of(at(row, self.envelope_digest)?)?,
            payload: bytes::Bytes::copy_from_slice(payload),
            traceparent: at(row, self.traceparent)?,
            tracestate: at(row, self.tracestate)?,
            headers,
            appended_at: at::<Moment>(row, self.appended_at)?.0,
        })
    }
}

fn at<'a, T: FromSql<'a>>(row: &'a Row, place: usize) -> Result<T, StoreError> {
    row.try_get(place).map_err(|error| store(&error))
}
