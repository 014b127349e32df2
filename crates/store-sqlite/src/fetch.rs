//! Fetch: what is due, read only as far as it is wanted.

use std::sync::Arc;

use postrider_contract::Timestamp;
use postrider_core::DestinationId;
use postrider_store::{
    clock::between,
    dispatch::{Exchanged, Fetch, Fetched, StoredEvent},
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    column::{self, read},
    fault::Fault,
    sql,
};

/// How a destination wants its keys treated, and whether it is suspended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    by_key: bool,
    quarantine_holds: bool,
    suspended: bool,
}

pub(crate) fn manner(connection: &Connection, destination: DestinationId) -> Result<Manner, Fault> {
    let found: Option<(String, String, bool)> = connection
        .prepare_cached(sql::EXCHANGE_DESTINATION)?
        .query_row([destination.0], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((ordering, on_quarantine, suspended)) = found else {
        return Err(Fault::refused(format!(
            "destination {destination} is not registered"
        )));
    };
    Ok(Manner {
        by_key: ordering != "none",
        quarantine_holds: on_quarantine == "hold",
        suspended,
    })
}

pub(crate) fn run(
    connection: &Connection,
    destination: DestinationId,
    manner: Manner,
    fetch: &Fetch,
    now: Timestamp,
    answer: &mut Exchanged,
) -> Result<(), Fault> {
    answer.now = Some(now);
    if manner.suspended {
        answer.exhausted = true;
        return Ok(());
    }
    let lanes = column::json(fetch.lanes.iter().map(|lane| i64::from(lane.0)));
    let mut statement = connection.prepare_cached(sql::FETCH)?;
    let mut rows = statement.query(params![
        destination.0,
        now.unix_micros(),
        fetch.after.0,
        lanes,
        column::json(fetch.exclude.iter().map(|position| position.0)),
        column::json(fetch.busy_keys.iter().copied()),
        manner.by_key,
        manner.quarantine_holds,
        fetch.limit,
    ])?;
    let mut bytes = 0_u64;
    while let Some(row) = rows.next()? {
        let length: u32 = read(row, 12)?;
        bytes = bytes.saturating_add(u64::from(length));
        if bytes > fetch.bytes_max && !answer.fetched.is_empty() {
            return Ok(());
        }
        answer.fetched.push(Fetched {
            position: column::position(row, 0)?,
            lane: column::lane(row, 1)?,
            key_hash: read(row, 2)?,
            attempts: read(row, 3)?,
            first_attempt_ago: column::optional_time(row, 4)?.map(|first| between(first, now)),
            event: Arc::new(StoredEvent {
                event_id: column::event_id(row, 5)?,
                envelope: read(row, 6)?,
                envelope_digest: column::envelope_digest(row, 7)?,
                traceparent: read(row, 8)?,
                tracestate: read(row, 9)?,
                headers: column::headers(row, 10)?,
                appended_at: column::time(row, 11)?,
                payload: column::bytes(row, 13)?,
            }),
        });
    }
    if answer.fetched.len() as u64 >= u64::from(fetch.limit) {
        return Ok(());
    }
    answer.exhausted = true;
    let next: Option<i64> = connection
        .prepare_cached(sql::FETCH_NEXT_DUE)?
        .query_row(params![destination.0, now.unix_micros(), lanes], |row| {
            row.get(0)
        })?;
    answer.next_due = next
        .and_then(Timestamp::from_unix_micros)
        .map(|due| between(now, due));
    Ok(())
}
