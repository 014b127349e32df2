//! Values as columns hold them, both ways. What is read is input: it never panics.

use std::str::FromStr;

use bytes::Bytes;
use postrider_contract::{Digest, EventId, Receipt, Timestamp, digest::Algorithm, receipt::Packed};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId, delivery::State};
use rusqlite::{
    Row,
    types::{FromSql, Type},
};
use uuid::Uuid;

use crate::fault::Fault;

/// Reads a column that must hold what this program wrote.
pub(crate) fn read<T: FromSql>(row: &Row<'_>, index: usize) -> Result<T, Fault> {
    row.get(index).map_err(Fault::from)
}

pub(crate) fn position(row: &Row<'_>, index: usize) -> Result<Position, Fault> {
    read(row, index).map(Position)
}

pub(crate) fn destination(row: &Row<'_>, index: usize) -> Result<DestinationId, Fault> {
    read(row, index).map(DestinationId)
}

pub(crate) fn lane(row: &Row<'_>, index: usize) -> Result<Lane, Fault> {
    read(row, index).map(Lane)
}

pub(crate) fn state(row: &Row<'_>, index: usize) -> Result<State, Fault> {
    state_of(read(row, index)?)
}

/// Reads the number of an open delivery's state.
pub(crate) fn state_of(number: i64) -> Result<State, Fault> {
    match number {
        0 => Ok(State::Pending),
        1 => Ok(State::Unknown),
        2 => Ok(State::Quarantined),
        other => Err(Fault::corrupt(format!("delivery state {other}"))),
    }
}

/// The number of an open delivery's state; `None`: no open delivery has it.
pub(crate) fn state_number(state: State) -> Option<i64> {
    match state {
        State::Pending => Some(0),
        State::Unknown => Some(1),
        State::Quarantined => Some(2),
        State::Acknowledged => None,
    }
}

pub(crate) fn time(row: &Row<'_>, index: usize) -> Result<Timestamp, Fault> {
    time_of(read(row, index)?)
}

pub(crate) fn optional_time(row: &Row<'_>, index: usize) -> Result<Option<Timestamp>, Fault> {
    read::<Option<i64>>(row, index)?.map(time_of).transpose()
}

fn time_of(micros: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_unix_micros(micros)
        .ok_or_else(|| Fault::corrupt(format!("a time of {micros} microseconds")))
}

fn parsed<T: FromStr>(row: &Row<'_>, index: usize, what: &str) -> Result<T, Fault> {
    let text: String = read(row, index)?;
    text.parse()
        .map_err(|_| Fault::corrupt(format!("{what} {text:?}")))
}

pub(crate) fn event_id(row: &Row<'_>, index: usize) -> Result<EventId, Fault> {
    parsed::<Uuid>(row, index, "event id").map(EventId)
}

pub(crate) fn session(row: &Row<'_>, index: usize) -> Result<SessionId, Fault> {
    parsed::<Uuid>(row, index, "session id").map(SessionId)
}

pub(crate) fn optional_session(row: &Row<'_>, index: usize) -> Result<Option<SessionId>, Fault> {
    match row.get_ref(index).map_err(Fault::from)?.data_type() {
        Type::Null => Ok(None),
        Type::Integer | Type::Real | Type::Text | Type::Blob => session(row, index).map(Some),
    }
}

pub(crate) fn attempt_id(row: &Row<'_>, index: usize) -> Result<AttemptId, Fault> {
    parsed::<Uuid>(row, index, "attempt id").map(AttemptId)
}

/// A digest stored as text, with its algorithm.
pub(crate) fn digest(row: &Row<'_>, index: usize) -> Result<Digest, Fault> {
    parsed(row, index, "digest")
}

/// An envelope's digest, stored as its bytes.
pub(crate) fn envelope_digest(row: &Row<'_>, index: usize) -> Result<Digest, Fault> {
    Ok(Digest {
        algorithm: Algorithm::JcsSha256V1,
        bytes: read(row, index)?,
    })
}

pub(crate) fn bytes(row: &Row<'_>, index: usize) -> Result<Bytes, Fault> {
    read::<Vec<u8>>(row, index).map(Bytes::from)
}

/// `[["name","value"], …]`; null when there are none.
pub(crate) fn headers(row: &Row<'_>, index: usize) -> Result<Vec<(String, String)>, Fault> {
    let Some(text) = read::<Option<String>>(row, index)? else {
        return Ok(Vec::new());
    };
    serde_json::from_str(&text)
        .map_err(|error| Fault::corrupt(format!("headers {text:?}: {error}")))
}

/// A receipt from its shared part and its number, in two columns that follow each other.
pub(crate) fn receipt(row: &Row<'_>, index: usize) -> Result<Receipt, Fault> {
    let packed = Packed {
        shared: read(row, index)?,
        number: read(row, index + 1)?,
    };
    Receipt::unpack(&packed).map_err(|error| Fault::corrupt(error.to_string()))
}

/// Integers as the JSON array that statements take apart with `json_each`.
pub(crate) fn json(integers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::from("[");
    for (index, integer) in integers.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text.push_str(&integer.to_string());
    }
    text.push(']');
    text
}

/// Event ids as the JSON array that statements take apart with `json_each`. Ids need no escapes.
pub(crate) fn json_ids(ids: &[EventId]) -> String {
    let quoted: Vec<String> = ids.iter().map(|id| format!("\"{id}\"")).collect();
    format!("[{}]", quoted.join(","))
}
