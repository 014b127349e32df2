//! What people and metrics may ask. Reads only, each of one snapshot.

use std::time::Duration;

use postrider_contract::{EventId, Timestamp, key};
use postrider_core::{DestinationId, Position, delivery::State};
use postrider_store::{
    dispatch::StoredEvent,
    inspect::{
        ATTEMPTS_SHOWN_MAX, AttemptRow, Backlog, BreakerRow, COUNT_MAX, Count, DeliveryDetail,
        DeliveryFilter, DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow, Page,
        QuarantineReason, ReceiptRow, SessionRow,
    },
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::{
    column::{self, read},
    evidence::{receipt_at, receipt_row},
    fault::Fault,
    sql,
};

/// One more than is counted, to see whether there is more.
const COUNT_PROBE: i64 = 100_001;
const _: () = assert!(COUNT_PROBE as u64 == COUNT_MAX + 1);

pub(crate) fn backlog(connection: &Connection, now: Timestamp) -> Result<Vec<Backlog>, Fault> {
    let mut statement = connection.prepare_cached(sql::BACKLOG)?;
    let mut rows = statement.query(params![now.unix_micros(), COUNT_PROBE])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let breaker = column::optional_session(row, 7)?
            .map(|session| -> Result<BreakerRow, Fault> {
                Ok(BreakerRow {
                    session,
                    since: column::time(row, 8)?,
                    code: read(row, 9)?,
                    detail: read(row, 10)?,
                    next_probe_at: column::time(row, 11)?,
                    refused: read(row, 12)?,
                })
            })
            .transpose()?;
        found.push(Backlog {
            destination: column::destination(row, 0)?,
            pending: count(read(row, 1)?),
            unknown: count(read(row, 2)?),
            quarantined: count(read(row, 3)?),
            // Below zero after the clock stepped back.
            oldest_pending: read::<Option<i64>>(row, 4)?
                .map(|micros| Duration::from_micros(u64::try_from(micros).unwrap_or(0))),
            breaker,
            lanes: read(row, 5)?,
            lanes_held: read(row, 6)?,
        });
    }
    Ok(found)
}

pub(crate) fn sessions(connection: &Connection, limit: u32) -> Result<Vec<SessionRow>, Fault> {
    let mut statement = connection.prepare_cached(sql::SESSIONS_PAGE)?;
    let mut rows = statement.query([limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(SessionRow {
            id: column::session(row, 0)?,
            owner: read(row, 1)?,
            version: read(row, 2)?,
            exclusive: read(row, 3)?,
            opened_at: column::time(row, 4)?,
            expires_at: column::time(row, 5)?,
            ended: column::optional_time(row, 6)?.zip(read(row, 7)?),
            lanes: u64::from(read::<u32>(row, 8)?),
        });
    }
    Ok(found)
}

pub(crate) fn lanes(connection: &Connection) -> Result<Vec<LaneRow>, Fault> {
    let mut statement = connection.prepare_cached(sql::LANES_ALL)?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(LaneRow {
            destination: column::destination(row, 0)?,
            lane: column::lane(row, 1)?,
            session: column::optional_session(row, 2)?,
            owner: read(row, 3)?,
            since: column::optional_time(row, 4)?,
        });
    }
    Ok(found)
}

pub(crate) fn events(
    connection: &Connection,
    filter: &EventFilter,
    after: Position,
    limit: u32,
) -> Result<Page<EventRow>, Fault> {
    let by_key = filter.partition_key.as_deref().map(key::hash);
    let statement = match by_key {
        Some(_) => sql::EVENTS_PAGE_OF_KEY,
        None => sql::EVENTS_PAGE,
    };
    let mut statement = connection.prepare_cached(statement)?;
    let common = params![
        after.0,
        one_more(limit),
        filter.event_type,
        filter.tenant,
        filter.aggregate_type,
        filter.aggregate_id,
        filter.partition_key,
    ];
    let mut parameters = common.to_vec();
    if let Some(hash) = &by_key {
        parameters.push(hash);
    }
    let mut rows = statement.query(&parameters[..])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(EventRow {
            position: column::position(row, 0)?,
            event_id: column::event_id(row, 1)?,
            envelope: read(row, 2)?,
            appended_at: column::time(row, 3)?,
            open: read(row, 4)?,
        });
    }
    Ok(page(found, limit))
}

pub(crate) fn event(connection: &Connection, id: EventId) -> Result<Option<EventDetail>, Fault> {
    let mut statement = connection.prepare_cached(sql::EVENT_FIND)?;
    let mut rows = statement.query([id.to_string()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let position = column::position(row, 0)?;
    Ok(Some(EventDetail {
        position,
        event: StoredEvent {
            event_id: column::event_id(row, 1)?,
            envelope: read(row, 2)?,
            envelope_digest: column::envelope_digest(row, 3)?,
            traceparent: read(row, 4)?,
            tracestate: read(row, 5)?,
            headers: column::headers(row, 6)?,
            appended_at: column::time(row, 7)?,
            payload: column::bytes(row, 8)?,
        },
        key_hash: read(row, 9)?,
        deliveries: event_deliveries(connection, position)?,
    }))
}

fn event_deliveries(
    connection: &Connection,
    position: Position,
) -> Result<Vec<DeliveryDetail>, Fault> {
    let mut statement = connection.prepare_cached(sql::EVENT_DELIVERIES)?;
    let mut rows = statement.query([position.0])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(delivery(connection, row, position)?);
    }
    Ok(found)
}

fn delivery(
    connection: &Connection,
    row: &Row<'_>,
    position: Position,
) -> Result<DeliveryDetail, Fault> {
    let destination = column::destination(row, 0)?;
    let open = read::<Option<i64>>(row, 2)?
        .map(column::state_of)
        .transpose()?;
    let receipt = receipt_at(connection, (destination, position))?;
    if open.is_some() == receipt.is_some() {
        return Err(Fault::corrupt(format!(
            "the delivery of position {position} to destination {destination} must be either open or closed by a receipt"
        )));
    }
    let quarantine = match (
        read::<Option<String>>(row, 5)?,
        read::<Option<String>>(row, 6)?,
        column::optional_time(row, 7)?,
    ) {
        (Some(code), Some(detail), Some(since)) => Some(QuarantineReason {
            code,
            detail,
            since,
        }),
        _ => None,
    };
    Ok(DeliveryDetail {
        destination,
        lane: column::lane(row, 1)?,
        state: open.unwrap_or(State::Acknowledged),
        attempts_charged: read::<Option<u32>>(row, 3)?.unwrap_or(0),
        available_at: column::optional_time(row, 4)?,
        attempts: attempts(connection, destination, position)?,
        receipt,
        duplicates: duplicates(connection, destination, position)?,
        quarantine,
    })
}

fn attempts(
    connection: &Connection,
    destination: DestinationId,
    position: Position,
) -> Result<Vec<AttemptRow>, Fault> {
    let mut statement = connection.prepare_cached(sql::DELIVERY_ATTEMPTS)?;
    let mut rows = statement.query(params![destination.0, position.0, ATTEMPTS_SHOWN_MAX])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let finished_at = column::optional_time(row, 4)?;
        let code: Option<String> = read(row, 5)?;
        found.push(AttemptRow {
            attempt: column::attempt_id(row, 0)?,
            session: column::session(row, 1)?,
            owner: read(row, 2)?,
            registered_at: column::time(row, 3)?,
            finished_at,
            outcome: finished_at
                .map(|_| code.unwrap_or_else(|| State::Acknowledged.word().to_owned())),
            detail: read::<Option<String>>(row, 6)?.filter(|detail| !detail.is_empty()),
            lease_until: column::time(row, 7)?,
        });
    }
    found.reverse();
    Ok(found)
}

fn duplicates(
    connection: &Connection,
    destination: DestinationId,
    position: Position,
) -> Result<Vec<ReceiptRow>, Fault> {
    let mut statement = connection.prepare_cached(sql::DUPLICATES_FIND)?;
    let mut rows = statement.query(params![destination.0, position.0])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(receipt_row(row)?);
    }
    Ok(found)
}

/// Destination by destination, so that each page is one stretch of an index.
pub(crate) fn deliveries(
    connection: &Connection,
    filter: &DeliveryFilter,
    after: Option<(DestinationId, Position)>,
    limit: u32,
) -> Result<Page<DeliveryRow>, Fault> {
    let state = match filter.state.map(column::state_number) {
        // Closed deliveries have no open row.
        Some(None) => return Ok(page(Vec::new(), limit)),
        Some(number) => number,
        None => None,
    };
    let statement = match state {
        Some(1..) => sql::DELIVERIES_PAGE_STUCK,
        Some(_) | None => sql::DELIVERIES_PAGE,
    };
    let first = after.map_or(DestinationId(0), |(destination, _)| destination);
    let mut found = Vec::new();
    for destination in destination_ids(connection)? {
        if destination < first
            || filter
                .destination
                .is_some_and(|wanted| wanted != destination)
        {
            continue;
        }
        let start = match after {
            Some((last, position)) if last == destination => position,
            Some(_) | None => Position::START,
        };
        let wanted = one_more(limit) - i64::try_from(found.len()).unwrap_or(i64::MAX);
        let mut statement = connection.prepare_cached(statement)?;
        let mut rows = statement.query(params![
            destination.0,
            start.0,
            wanted,
            state,
            filter.key_hash
        ])?;
        while let Some(row) = rows.next()? {
            found.push(DeliveryRow {
                destination,
                position: column::position(row, 0)?,
                event_id: column::event_id(row, 1)?,
                lane: column::lane(row, 2)?,
                state: column::state(row, 3)?,
                attempts_charged: read(row, 4)?,
                available_at: column::time(row, 5)?,
            });
        }
        if found.len() as u64 > u64::from(limit) {
            break;
        }
    }
    Ok(page(found, limit))
}

fn destination_ids(connection: &Connection) -> Result<Vec<DestinationId>, Fault> {
    let mut statement = connection.prepare_cached(sql::DESTINATION_IDS)?;
    let ids = statement.query_map([], |row| row.get(0))?;
    Ok(ids
        .map(|id| id.map(DestinationId))
        .collect::<Result<_, _>>()?)
}

pub(crate) fn held_by(
    connection: &Connection,
    destination: DestinationId,
    position: Position,
    now: Timestamp,
) -> Result<Option<HeldKey>, Fault> {
    let mut statement = connection.prepare_cached(sql::HELD_BY)?;
    let mut rows = statement.query(params![destination.0, position.0, now.unix_micros()])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let head = column::position(row, 0)?;
    Ok(Some(HeldKey {
        head,
        head_event: column::event_id(row, 1)?,
        head_state: column::state(row, 2)?,
        head_available_at: column::time(row, 3)?,
        tail: tail(connection, destination, head, read(row, 4)?)?,
    }))
}

/// Open deliveries of a key behind a position.
pub(crate) fn tail(
    connection: &Connection,
    destination: DestinationId,
    position: Position,
    key_hash: i64,
) -> Result<Count, Fault> {
    let found = connection
        .prepare_cached(sql::TAIL_COUNT)?
        .query_row(
            params![destination.0, position.0, key_hash, COUNT_PROBE],
            |row| row.get(0),
        )
        .optional()?;
    Ok(count(found.unwrap_or(0)))
}

fn count(found: u32) -> Count {
    let found = u64::from(found);
    Count {
        value: found.min(COUNT_MAX),
        capped: found > COUNT_MAX,
    }
}

/// One more than a page holds, to see whether there is more.
pub(crate) fn one_more(limit: u32) -> i64 {
    i64::from(limit) + 1
}

pub(crate) fn page<T>(mut rows: Vec<T>, limit: u32) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    Page { rows, more }
}
