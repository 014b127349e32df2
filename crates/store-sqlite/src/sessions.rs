//! Sessions, lanes, and what becomes of a session that ended.

use std::time::Duration;

use postrider_contract::Timestamp;
use postrider_core::{DestinationId, Lane, Position, SessionId, outcome::bounded_detail};
use postrider_store::{
    OpenError, SessionError,
    clock::later,
    sessions::{BreakerReport, NewSession, Recovered, Share},
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    column::{self, read},
    control::execute,
    fault::Fault,
    runs::Run,
    sql,
};

/// The exception of a member whose session was lost, and the reason of its attempt's end.
const LEASE_EXPIRED: &str = "lease_expired_unknown";

/// Why a session ended whose lease was over.
const LEASE_OVER: &str = "lease_expired";

pub(crate) fn open(
    connection: &Connection,
    new: &NewSession,
    now: Timestamp,
) -> Result<Result<(), OpenError>, Fault> {
    let id = new.id.to_string();
    let ended = connection
        .prepare_cached(sql::SESSION_FIND)?
        .query_row([&id], |row| row.get::<_, Option<i64>>(0))
        .optional()?;
    match ended {
        Some(None) => return Ok(Ok(())),
        Some(Some(_)) => return Ok(Err(OpenError::Ended)),
        None => {}
    }
    if new.exclusive
        && let Err(held) = make_way_for_exclusive(connection, now)?
    {
        return Ok(Err(held));
    }
    let until = later(now, new.lease).unix_micros();
    execute(
        connection,
        sql::SESSION_INSERT,
        params![
            id,
            new.owner,
            new.version,
            new.exclusive,
            now.unix_micros(),
            until
        ],
    )?;
    for destination in &new.serves {
        execute(
            connection,
            sql::SESSION_DESTINATION_INSERT,
            params![id, destination.0],
        )?;
    }
    Ok(Ok(()))
}

fn make_way_for_exclusive(
    connection: &Connection,
    now: Timestamp,
) -> Result<Result<(), OpenError>, Fault> {
    let mut holders = Vec::new();
    {
        let mut statement = connection.prepare_cached(sql::SESSION_EXCLUSIVE)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            if column::time(row, 2)? > now {
                let owner = read(row, 1)?;
                return Ok(Err(OpenError::ExclusiveHeld { owner }));
            }
            holders.push(column::session(row, 0)?);
        }
    }
    for holder in holders {
        end(connection, holder, LEASE_OVER, now)?;
    }
    Ok(Ok(()))
}

pub(crate) fn heartbeat(
    connection: &Connection,
    session: SessionId,
    lease: Duration,
    reports: &[BreakerReport],
    now: Timestamp,
) -> Result<Result<Vec<Share>, SessionError>, Fault> {
    let id = session.to_string();
    let micros = now.unix_micros();
    let until = later(now, lease).unix_micros();
    if execute(connection, sql::SESSION_EXTEND, params![id, micros, until])? == 0 {
        return Ok(Err(SessionError::Ended));
    }
    for report in reports {
        match &report.open {
            Some(open) => execute(
                connection,
                sql::BREAKER_REPORT,
                params![
                    report.destination.0,
                    id,
                    micros,
                    open.code,
                    bounded_detail(&open.detail),
                    later(now, open.next_probe_in).unix_micros(),
                    open.refused,
                ],
            )?,
            None => execute(
                connection,
                sql::BREAKER_CLOSE,
                params![report.destination.0, id],
            )?,
        };
    }
    let mut shares = Vec::new();
    let mut statement = connection.prepare_cached(sql::SESSION_SHARES)?;
    let mut rows = statement.query(params![id, micros])?;
    while let Some(row) = rows.next()? {
        let destination = column::destination(row, 0)?;
        shares.push(Share {
            destination,
            lanes: read(row, 1)?,
            sessions: read(row, 2)?,
            held: held_lanes(connection, &id, destination)?,
            free: read(row, 3)?,
            suspended: read(row, 4)?,
        });
    }
    Ok(Ok(shares))
}

fn held_lanes(
    connection: &Connection,
    session: &str,
    destination: DestinationId,
) -> Result<Vec<Lane>, Fault> {
    let mut statement = connection.prepare_cached(sql::SESSION_LANES)?;
    let lanes = statement.query_map(params![session, destination.0], |row| row.get(0))?;
    Ok(lanes.map(|lane| lane.map(Lane)).collect::<Result<_, _>>()?)
}

/// Lanes of a destination that were taken.
type Claimed = (DestinationId, Vec<Lane>);

pub(crate) fn claim_lanes(
    connection: &Connection,
    session: SessionId,
    wanted: &[(DestinationId, u16)],
    now: Timestamp,
) -> Result<Result<Vec<Claimed>, SessionError>, Fault> {
    if !is_live(connection, session, now)? {
        return Ok(Err(SessionError::Ended));
    }
    let id = session.to_string();
    let mut claimed = Vec::with_capacity(wanted.len());
    for (destination, count) in wanted {
        let mut statement = connection.prepare_cached(sql::LANES_CLAIM)?;
        let taken = statement.query_map(
            params![id, destination.0, count, now.unix_micros()],
            |row| row.get(0),
        )?;
        let mut lanes: Vec<Lane> = taken.map(|lane| lane.map(Lane)).collect::<Result<_, _>>()?;
        lanes.sort_unstable();
        claimed.push((*destination, lanes));
    }
    Ok(Ok(claimed))
}

pub(crate) fn release_lanes(
    connection: &Connection,
    session: SessionId,
    destination: DestinationId,
    lanes: &[Lane],
    now: Timestamp,
) -> Result<Result<(), SessionError>, Fault> {
    if !is_live(connection, session, now)? {
        return Ok(Err(SessionError::Ended));
    }
    let lanes = column::json(lanes.iter().map(|lane| i64::from(lane.0)));
    execute(
        connection,
        sql::LANES_RELEASE,
        params![session.to_string(), destination.0, lanes],
    )?;
    Ok(Ok(()))
}

pub(crate) fn set_asleep(
    connection: &Connection,
    session: SessionId,
    asleep: bool,
) -> Result<(), Fault> {
    execute(
        connection,
        sql::SESSION_ASLEEP,
        params![session.to_string(), asleep],
    )?;
    Ok(())
}

/// The fence (I8).
pub(crate) fn is_live(
    connection: &Connection,
    session: SessionId,
    now: Timestamp,
) -> Result<bool, Fault> {
    let mut statement = connection.prepare_cached(sql::SESSION_LIVE)?;
    Ok(statement.exists(params![session.to_string(), now.unix_micros()])?)
}

pub(crate) fn expired(
    connection: &Connection,
    sessions_max: u32,
    now: Timestamp,
) -> Result<Vec<SessionId>, Fault> {
    let mut sessions = Vec::new();
    let mut statement = connection.prepare_cached(sql::SESSIONS_EXPIRED)?;
    let mut rows = statement.query(params![now.unix_micros(), sessions_max])?;
    while let Some(row) = rows.next()? {
        sessions.push(column::session(row, 0)?);
    }
    Ok(sessions)
}

/// Ends an expired session. `None`: another one was faster, or it has a lease again.
pub(crate) fn recover(
    connection: &Connection,
    session: SessionId,
    now: Timestamp,
) -> Result<Option<Recovered>, Fault> {
    if is_live(connection, session, now)? {
        return Ok(None);
    }
    end(connection, session, LEASE_OVER, now)
}

/// Ends a session and settles what it left. `None`: it had ended, or never was.
pub(crate) fn end(
    connection: &Connection,
    session: SessionId,
    reason: &str,
    now: Timestamp,
) -> Result<Option<Recovered>, Fault> {
    let id = session.to_string();
    let owner: Option<String> = connection
        .prepare_cached(sql::SESSION_END)?
        .query_row(params![id, now.unix_micros(), reason], |row| row.get(0))
        .optional()?;
    let Some(owner) = owner else {
        return Ok(None);
    };
    execute(connection, sql::SESSION_BREAKERS_FORGET, [&id])?;
    let lanes = execute(connection, sql::SESSION_LANES_FREE, [&id])?;
    let unfinished = open_attempts(connection, &id)?;
    let mut deliveries = std::collections::BTreeSet::new();
    for attempt in &unfinished {
        deliveries.extend(abandon(connection, &id, attempt, now)?);
    }
    Ok(Some(Recovered {
        session,
        owner,
        attempts: unfinished.len() as u64,
        deliveries: deliveries.len() as u64,
        lanes: lanes as u64,
    }))
}

struct OpenAttempt {
    attempt: i64,
    destination: i32,
    registered_at: i64,
    resends: bool,
}

fn open_attempts(connection: &Connection, session: &str) -> Result<Vec<OpenAttempt>, Fault> {
    let mut statement = connection.prepare_cached(sql::SESSION_OPEN_ATTEMPTS)?;
    let mut rows = statement.query([session])?;
    let mut attempts = Vec::new();
    while let Some(row) = rows.next()? {
        attempts.push(OpenAttempt {
            attempt: read(row, 0)?,
            destination: read(row, 1)?,
            registered_at: read(row, 2)?,
            resends: read::<String>(row, 3)? == "resend",
        });
    }
    Ok(attempts)
}

/// Finishes an attempt whose session was lost; answers its deliveries that are open.
fn abandon(
    connection: &Connection,
    session: &str,
    open: &OpenAttempt,
    now: Timestamp,
) -> Result<Vec<(i32, Position)>, Fault> {
    let mut deliveries = Vec::new();
    let mut acknowledged = 0_i64;
    let mut exceptions = 0_i64;
    let next_state = if open.resends { 0 } else { 1 };
    for position in attempt_runs(connection, open.attempt)?
        .into_iter()
        .flat_map(Run::positions)
    {
        let at = params![open.destination, position.0, open.attempt];
        let receipt: bool = connection
            .prepare_cached(sql::ATTEMPT_HAS_RECEIPT)?
            .query_row(at, |row| row.get(0))?;
        if receipt {
            acknowledged += 1;
        } else {
            exceptions += 1;
            execute(
                connection,
                sql::EXCEPTION_INSERT,
                params![open.attempt, position.0, "unknown", LEASE_EXPIRED, ""],
            )?;
        }
        let changed = execute(
            connection,
            sql::DELIVERY_ABANDON,
            params![
                open.destination,
                position.0,
                open.registered_at,
                next_state,
                now.unix_micros()
            ],
        )?;
        if changed > 0 {
            deliveries.push((open.destination, position));
        }
    }
    finish_attempt(
        connection,
        (session, open.attempt),
        LEASE_EXPIRED,
        (acknowledged, exceptions),
        now,
    )?;
    Ok(deliveries)
}

pub(crate) fn attempt_runs(connection: &Connection, attempt: i64) -> Result<Vec<Run>, Fault> {
    let mut statement = connection.prepare_cached(sql::ATTEMPT_RUNS)?;
    let runs = statement.query_map([attempt], |row| {
        Ok(Run {
            first: row.get(0)?,
            length: row.get(1)?,
            number: None,
        })
    })?;
    Ok(runs.collect::<Result<_, _>>()?)
}

/// Writes the end of an attempt of a session, with how many members were acknowledged and how
/// many were not.
pub(crate) fn finish_attempt(
    connection: &Connection,
    (session, attempt): (&str, i64),
    reason: &str,
    (acknowledged, exceptions): (i64, i64),
    now: Timestamp,
) -> Result<(), Fault> {
    execute(
        connection,
        sql::ATTEMPT_FINISH,
        params![attempt, now.unix_micros(), reason, acknowledged, exceptions],
    )?;
    execute(connection, sql::ATTEMPT_CLOSE, params![session, attempt])?;
    Ok(())
}
