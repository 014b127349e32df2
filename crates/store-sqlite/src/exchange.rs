//! The exchange: settle, quarantine, suspend, register, fetch, in one transaction.

use std::collections::BTreeMap;

use postrider_contract::{Timestamp, receipt::Packed};
use postrider_core::{DestinationId, Position, outcome::bounded_detail};
use postrider_store::{
    ExchangeError,
    clock::later,
    dispatch::{Exchange, Exchanged, Registration, Settled, SettledAs, Settlement, Unfit},
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    control::execute,
    fault::Fault,
    fetch::{self, Manner},
    runs::{self, Run},
    sessions::{attempt_runs, finish_attempt, is_live},
    sql,
};

pub(crate) fn run(
    connection: &Connection,
    exchange: &Exchange,
    now: Timestamp,
) -> Result<Result<Exchanged, ExchangeError>, Fault> {
    if !is_live(connection, exchange.session, now)? {
        return Ok(Err(ExchangeError::Ended));
    }
    fetch::manner(connection, exchange.destination)?;
    let mut answer = Exchanged::default();
    for settlement in &exchange.settle {
        answer.duplicates += settle(connection, exchange, settlement, now)?;
    }
    for unfit in &exchange.quarantine {
        quarantine_unfit(connection, exchange.destination, unfit, now)?;
    }
    if let Some(suspend) = &exchange.suspend {
        execute(
            connection,
            sql::DESTINATION_SUSPEND,
            params![
                exchange.destination.0,
                suspend.code,
                bounded_detail(&suspend.detail),
                now.unix_micros()
            ],
        )?;
    }
    for registration in &exchange.register {
        register(connection, exchange, registration, now)?;
    }
    if let Some(fetch) = &exchange.fetch {
        // Read again: this exchange may have suspended it.
        let manner: Manner = fetch::manner(connection, exchange.destination)?;
        fetch::run(
            connection,
            exchange.destination,
            manner,
            fetch,
            now,
            &mut answer,
        )?;
    }
    Ok(Ok(answer))
}

struct Attempt {
    number: i64,
    registered_at: i64,
}

/// Answers how many receipts were duplicates.
fn settle(
    connection: &Connection,
    exchange: &Exchange,
    settlement: &Settlement,
    now: Timestamp,
) -> Result<u64, Fault> {
    let Some(attempt) = unfinished(connection, exchange, settlement)? else {
        return Ok(0);
    };
    let mut acknowledged = Vec::new();
    let mut exceptions = 0_i64;
    for settled in &settlement.members {
        match &settled.next {
            SettledAs::Acknowledged(receipt) => {
                acknowledged.push((settled.position, receipt.pack()));
            }
            SettledAs::Retry { .. } | SettledAs::Unknown { .. } | SettledAs::Quarantined { .. } => {
                exceptions += 1;
                settle_exception(connection, exchange.destination, &attempt, settled, now)?;
            }
        }
    }
    let won = close(connection, exchange.destination, &acknowledged, now)?;
    let (primary, duplicates): (Vec<_>, Vec<_>) = acknowledged
        .iter()
        .map(|(position, packed)| (*position, packed))
        .partition(|(position, _)| won.binary_search(position).is_ok());
    keep_receipts(
        connection,
        exchange.destination,
        attempt.number,
        &primary,
        (now, false),
    )?;
    for (position, packed) in &duplicates {
        keep_duplicate(
            connection,
            (exchange.destination, *position),
            attempt.number,
            packed,
            (now, false),
        )?;
    }
    let count = i64::try_from(acknowledged.len()).unwrap_or(i64::MAX);
    finish_attempt(
        connection,
        (&exchange.session.to_string(), attempt.number),
        "settled",
        (count, exceptions),
        now,
    )?;
    Ok(duplicates.len() as u64)
}

/// `None`: it was finished before.
fn unfinished(
    connection: &Connection,
    exchange: &Exchange,
    settlement: &Settlement,
) -> Result<Option<Attempt>, Fault> {
    let found: Option<(i64, i64, bool)> = connection
        .prepare_cached(sql::ATTEMPT_FIND)?
        .query_row(
            params![
                settlement.attempt.to_string(),
                exchange.session.to_string(),
                exchange.destination.0
            ],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((number, registered_at, finished)) = found else {
        return Err(Fault::refused(format!(
            "attempt {} was not registered by session {} for destination {}",
            settlement.attempt, exchange.session, exchange.destination
        )));
    };
    if finished {
        return Ok(None);
    }
    let members = settlement.members.iter().map(|settled| settled.position);
    if attempt_runs(connection, number)? != runs::of_positions(members) {
        return Err(Fault::refused(format!(
            "attempt {} is settled with other members than were registered",
            settlement.attempt
        )));
    }
    Ok(Some(Attempt {
        number,
        registered_at,
    }))
}

fn settle_exception(
    connection: &Connection,
    destination: DestinationId,
    attempt: &Attempt,
    settled: &Settled,
    now: Timestamp,
) -> Result<(), Fault> {
    let (outcome, state, attempts, available_at, code, detail) = match &settled.next {
        SettledAs::Retry {
            attempts,
            delay,
            code,
            detail,
        } => {
            let available_at = later(now, *delay).unix_micros();
            (
                "retry",
                0,
                Some(*attempts),
                Some(available_at),
                code,
                detail,
            )
        }
        SettledAs::Unknown { code, detail } => ("unknown", 1, None, None, code, detail),
        SettledAs::Quarantined {
            attempts,
            code,
            detail,
        } => ("quarantined", 2, Some(*attempts), None, code, detail),
        SettledAs::Acknowledged(_) => return Ok(()),
    };
    let detail = bounded_detail(detail);
    let position = settled.position.0;
    if state == 2 {
        execute(
            connection,
            sql::QUARANTINE_INSERT,
            params![destination.0, position, code, detail, now.unix_micros()],
        )?;
    }
    execute(
        connection,
        sql::DELIVERY_CHANGE,
        params![
            destination.0,
            position,
            attempt.registered_at,
            state,
            attempts,
            available_at
        ],
    )?;
    execute(
        connection,
        sql::EXCEPTION_INSERT,
        params![attempt.number, position, outcome, code, detail],
    )?;
    Ok(())
}

/// Deletes the open rows of these members; answers those that it won, ascending.
fn close(
    connection: &Connection,
    destination: DestinationId,
    members: &[(Position, Packed)],
    now: Timestamp,
) -> Result<Vec<Position>, Fault> {
    let mut won = Vec::with_capacity(members.len());
    for run in runs::of_positions(members.iter().map(|(position, _)| *position)) {
        for closed in close_run(connection, destination, run, now)? {
            won.push(closed.position);
        }
    }
    won.sort_unstable();
    Ok(won)
}

/// An open row that was deleted, as it was.
pub(crate) struct Closed {
    pub(crate) position: Position,
    pub(crate) key_hash: i64,
    /// It had failed, was unknown or quarantined.
    pub(crate) waited: bool,
}

/// Wins the publish slots of a run. Every position of it is a member: deleting a range that
/// contained another one could take a delivery that was committed late into the gap.
pub(crate) fn close_run(
    connection: &Connection,
    destination: DestinationId,
    run: Run,
    now: Timestamp,
) -> Result<Vec<Closed>, Fault> {
    let mut closed = Vec::new();
    let mut quarantined = Vec::new();
    {
        let mut statement = connection.prepare_cached(sql::DELIVERY_CLOSE)?;
        let mut rows = statement.query(params![destination.0, run.first, run.last()])?;
        while let Some(row) = rows.next()? {
            let position = Position(row.get(0)?);
            if row.get::<_, i64>(2)? == 2 {
                quarantined.push(position);
            }
            closed.push(Closed {
                position,
                key_hash: row.get(1)?,
                waited: row.get(3)?,
            });
        }
    }
    for position in quarantined {
        execute(
            connection,
            sql::QUARANTINE_RESOLVE,
            params![destination.0, position.0, now.unix_micros(), "receipt"],
        )?;
    }
    Ok(closed)
}

/// Keeps primary receipts, packed: one batch for each shared part.
pub(crate) fn keep_receipts(
    connection: &Connection,
    destination: DestinationId,
    attempt: i64,
    receipts: &[(Position, &Packed)],
    (now, late): (Timestamp, bool),
) -> Result<(), Fault> {
    let mut by_shared: BTreeMap<&str, Vec<(Position, &Packed)>> = BTreeMap::new();
    for (position, packed) in receipts {
        by_shared
            .entry(&packed.shared)
            .or_default()
            .push((*position, packed));
    }
    for (shared, members) in by_shared {
        let batch: i64 = connection
            .prepare_cached(sql::RECEIPT_BATCH_INSERT)?
            .query_row(params![attempt, now.unix_micros(), shared, late], |row| {
                row.get(0)
            })?;
        for run in runs::of_receipts(members) {
            execute(
                connection,
                sql::RECEIPT_RUN_INSERT,
                params![destination.0, run.first, run.length, run.number, batch],
            )?;
        }
    }
    Ok(())
}

pub(crate) fn keep_duplicate(
    connection: &Connection,
    (destination, position): (DestinationId, Position),
    attempt: i64,
    packed: &Packed,
    (now, late): (Timestamp, bool),
) -> Result<(), Fault> {
    execute(
        connection,
        sql::DUPLICATE_INSERT,
        params![
            destination.0,
            position.0,
            attempt,
            now.unix_micros(),
            packed.shared,
            packed.number,
            late
        ],
    )?;
    Ok(())
}

fn quarantine_unfit(
    connection: &Connection,
    destination: DestinationId,
    unfit: &Unfit,
    now: Timestamp,
) -> Result<(), Fault> {
    let detail = bounded_detail(&unfit.detail);
    execute(
        connection,
        sql::QUARANTINE_INSERT,
        params![
            destination.0,
            unfit.position.0,
            unfit.code,
            detail,
            now.unix_micros()
        ],
    )?;
    execute(
        connection,
        sql::DELIVERY_UNFIT,
        params![destination.0, unfit.position.0],
    )?;
    Ok(())
}

fn register(
    connection: &Connection,
    exchange: &Exchange,
    registration: &Registration,
    now: Timestamp,
) -> Result<(), Fault> {
    let session = exchange.session.to_string();
    let attempt: Option<i64> = connection
        .prepare_cached(sql::ATTEMPT_REGISTER)?
        .query_row(
            params![
                registration.attempt.to_string(),
                session,
                exchange.destination.0,
                now.unix_micros()
            ],
            |row| row.get(0),
        )
        .optional()?;
    let Some(attempt) = attempt else {
        return Ok(());
    };
    for run in runs::of_positions(registration.members.iter().copied()) {
        execute(
            connection,
            sql::ATTEMPT_RUN_INSERT,
            params![exchange.destination.0, run.first, attempt, run.length],
        )?;
    }
    execute(connection, sql::ATTEMPT_OPEN, params![session, attempt])?;
    Ok(())
}
