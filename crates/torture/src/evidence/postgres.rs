//! The outbox in PostgreSQL, and the consumers' tables beside it.

use anyhow::Result;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{Consumed, Counts, Database, Receipt};
use crate::{digest::Sha256, made};

const RECEIPTS: &str = "\
    select r.event_id, r.destination, r.number, exists (
        select from postrider.attempts a
        cross join lateral unnest(a.run_starts, a.run_lengths) run(first, length)
        where a.attempt_id = r.attempt_id and a.destination_id = r.destination_id
            and r.position >= run.first and r.position < run.first + run.length), r.shared ->> 'stream'
    from postrider.receipts r";
const EVENTS: &str = "select event_id, payload from postrider.events";
/// The server must have been started with `track_commit_timestamp`.
const STORY: &str = "\
    select format('position %s, committed %s; ', e.position, pg_xact_commit_timestamp(e.xmin)) ||
        format('attempt %s to %s of %s, registered %s; ', left(a.attempt_id::text, 8), d.name,
            s.owner, a.registered_at) ||
        format('it ended as %s at %s; ', f.reason, f.finished_at) ||
        coalesce(x.outcome || ' ' || x.code || ' ' || x.detail, 'no exception')
    from postrider.events e
    join postrider.attempts a
        on int8range(a.first_position, a.last_position, '[]') @> e.position
    join postrider.destinations d using (destination_id)
    join postrider.sessions s using (session_id)
    left join postrider.attempt_finishes f using (attempt_id)
    left join postrider.attempt_exceptions x
        on x.attempt_id = a.attempt_id and x.position = e.position
    where e.event_id = $1 and exists (
        select from unnest(a.run_starts, a.run_lengths) run(first, length)
        where e.position >= run.first and e.position < run.first + run.length)
    order by a.registered_at";
const OPEN: &str = "\
    select format('%s to %s: %s, %s attempts, since %s', d.event_id, d.destination, d.state, \
        d.attempts, d.available_at)
    from postrider.deliveries_status d join postrider.deliveries o
        on o.destination_id = d.destination_id and o.position = d.position";
const QUARANTINED: &str =
    "select format('%s: %s %s', event_id, code, detail) from postrider.quarantine";
const FINDINGS: &str = "\
    select format('%s at %s: %s', code, position, detail) from postrider.findings \
    where resolved_at is null";

pub(crate) async fn count(client: &Client, query: &str) -> Result<u64> {
    let row = client.query_one(query, &[]).await?;
    Ok(row.try_get::<_, i64>(0)?.try_into()?)
}

async fn texts(client: &Client, query: &str) -> Result<Vec<String>> {
    let rows = client.query(query, &[]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(crate) async fn database(client: &Client) -> Result<Database> {
    let mut found = Database {
        open_deliveries: texts(client, OPEN).await?,
        open_attempts: count(client, "select count(*) from postrider.open_attempts").await?,
        quarantined: texts(client, QUARANTINED).await?,
        findings: texts(client, FINDINGS).await?,
        counts: counts(client).await?,
        ..Database::default()
    };
    let own = "select transaction_id from torture.transactions where not absent";
    for row in client.query(own, &[]).await? {
        found.transactions.insert(row.try_get(0)?);
    }
    for row in client.query(EVENTS, &[]).await? {
        let payload: &[u8] = row.try_get(1)?;
        found.events.insert(row.try_get(0)?, Sha256::of(payload));
    }
    let codes = "select code, count(*) from postrider.attempt_exceptions group by code";
    for row in client.query(codes, &[]).await? {
        let count: i64 = row.try_get(1)?;
        found.codes.insert(row.try_get(0)?, count.try_into()?);
    }
    for row in client.query(RECEIPTS, &[]).await? {
        found.receipts.push(Receipt {
            event: row.try_get(0)?,
            destination: row.try_get(1)?,
            stream: row.try_get(4)?,
            number: row
                .try_get::<_, Option<i64>>(2)?
                .map(u64::try_from)
                .transpose()?,
            of_an_attempt: row.try_get(3)?,
        });
    }
    Ok(found)
}

async fn counts(client: &Client) -> Result<Counts> {
    let of =
        async |what: &str| count(client, &format!("select count(*) from postrider.{what}")).await;
    Ok(Counts {
        sessions: of("sessions").await?,
        sessions_expired: of("sessions where ended_reason <> 'stopped'").await?,
        attempts: of("attempts").await?,
        attempts_recovered: of("attempt_finishes where reason <> 'settled'").await?,
        late_receipts: of("receipts where late").await?,
        duplicate_receipts: of("duplicate_receipts").await?,
    })
}

/// What the consumers of both streams wrote. A stream has the name of its destination in capitals.
pub(crate) async fn consumed(client: &Client) -> Result<Consumed> {
    let mut consumed = Consumed {
        conflicts: count(client, "select count(*) from torture.conflicts").await?,
        redeliveries: count(client, "select count from torture.redeliveries").await?,
        ..Consumed::default()
    };
    let effects = "select stream, event_id from torture.effects";
    for row in client.query(effects, &[]).await? {
        let stream: &str = row.try_get(0)?;
        let event = row.try_get(1)?;
        let destination = made::destination_of(stream);
        *consumed.effects.entry((destination, event)).or_default() += 1;
    }
    Ok(consumed)
}

/// What happened to an event, in order.
pub(crate) async fn story(client: &Client, event: Uuid) -> Result<Vec<String>> {
    let rows = client.query(STORY, &[&event]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
