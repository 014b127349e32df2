//! The outbox in SQLite.

use std::path::Path;

use anyhow::Result;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::{Counts, Database, Receipt};
use crate::digest::Sha256;

/// The plus keeps SQLite from the index on destination and position, in which it would walk over
/// all runs below.
const RECEIPTS: &str = "\
    select e.event_id, d.name, r.number + e.position - r.first, exists (
        select 1 from postrider_attempt_runs a
        where a.attempt = b.attempt and +a.destination_id = r.destination_id
            and e.position >= a.first and e.position < a.first + a.length)
    from postrider_receipt_runs r
    join postrider_receipt_batches b using (receipt_batch)
    join postrider_destinations d using (destination_id)
    join postrider_events e on e.position >= r.first and e.position < r.first + r.length";
const OPEN: &str = "\
    select format('%s to %s: state %d, %d attempts, since %d', e.event_id, d.name, o.state,
        o.attempts, o.available_at)
    from postrider_deliveries o
    join postrider_events e using (position)
    join postrider_destinations d using (destination_id)";
const QUARANTINED: &str =
    "select format('position %d: %s %s', position, code, detail) from postrider_quarantine";
const FINDINGS: &str = "\
    select format('%s at %d: %s', code, position, detail) from postrider_findings
    where resolved_at is null";

pub(crate) fn count(connection: &Connection, query: &str) -> Result<u64> {
    let count: i64 = connection.query_row(query, [], |row| row.get(0))?;
    Ok(count.try_into()?)
}

pub(crate) fn open(file: &Path) -> Result<Connection> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

fn texts(connection: &Connection, query: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare(query)?;
    let texts = statement.query_map([], |row| row.get(0))?;
    Ok(texts.collect::<Result<_, _>>()?)
}

pub(crate) fn database(file: &Path) -> Result<Database> {
    let connection = open(file)?;
    let mut found = Database {
        open_deliveries: texts(&connection, OPEN)?,
        open_attempts: count(&connection, "select count(*) from postrider_open_attempts")?,
        quarantined: texts(&connection, QUARANTINED)?,
        findings: texts(&connection, FINDINGS)?,
        counts: counts(&connection)?,
        ..Database::default()
    };
    let own = "select transaction_id from torture_transactions where not absent";
    for id in texts(&connection, own)? {
        found.transactions.insert(id.parse()?);
    }
    let mut events = connection.prepare("select event_id, payload from postrider_events")?;
    let mut rows = events.query([])?;
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let payload: Vec<u8> = row.get(1)?;
        found.events.insert(id.parse()?, Sha256::of(&payload));
    }
    let codes = "select code, count(*) from postrider_attempt_exceptions group by code";
    let mut codes = connection.prepare(codes)?;
    let mut rows = codes.query([])?;
    while let Some(row) = rows.next()? {
        let count: i64 = row.get(1)?;
        found.codes.insert(row.get(0)?, count.try_into()?);
    }
    let mut receipts = connection.prepare(RECEIPTS)?;
    let mut rows = receipts.query([])?;
    while let Some(row) = rows.next()? {
        let event: String = row.get(0)?;
        found.receipts.push(Receipt {
            event: event.parse::<Uuid>()?,
            destination: row.get(1)?,
            stream: None,
            number: row
                .get::<_, Option<i64>>(2)?
                .map(u64::try_from)
                .transpose()?,
            of_an_attempt: row.get(3)?,
        });
    }
    Ok(found)
}

fn counts(connection: &Connection) -> Result<Counts> {
    let of = |what: &str| {
        count(
            connection,
            &format!("select count(*) from postrider_{what}"),
        )
    };
    Ok(Counts {
        sessions: of("sessions")?,
        sessions_expired: of("sessions where ended_reason <> 'stopped'")?,
        attempts: of("attempts")?,
        attempts_recovered: of("attempt_finishes where reason <> 'settled'")?,
        late_receipts: of(
            "receipt_runs join postrider_receipt_batches using (receipt_batch) \
                           where late = 1",
        )?,
        duplicate_receipts: of("duplicate_receipts")?,
    })
}

/// What happened to an event, in order.
pub(crate) fn story(file: &Path, event: Uuid) -> Result<Vec<String>> {
    let story = "\
        select format('%d attempt %s of %s, registered; it ended as %s at %d; %s', a.registered_at,
            substr(a.attempt_id, 1, 8), s.owner, f.reason, f.finished_at,
            coalesce(x.outcome || ' ' || x.code || ' ' || x.detail, 'no exception'))
        from postrider_events e
        join postrider_attempt_runs r on e.position >= r.first and e.position < r.first + r.length
        join postrider_attempts a using (attempt)
        join postrider_sessions s using (session_id)
        left join postrider_attempt_finishes f using (attempt)
        left join postrider_attempt_exceptions x
            on x.attempt = a.attempt and x.position = e.position
        where e.event_id = ?1
        order by a.registered_at";
    let connection = open(file)?;
    let mut statement = connection.prepare(story)?;
    let lines = statement.query_map([event.to_string()], |row| row.get(0))?;
    Ok(lines.collect::<Result<_, _>>()?)
}
