//! The exchange: one pipelined round trip, and the careful way for what that cannot answer.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use postrider_contract::{EventId, receipt::Packed};
use postrider_core::{AttemptId, Lane, Position, outcome::bounded_detail};
use postrider_store::{
    ExchangeError, StoreError,
    dispatch::{Exchange, Exchanged, Fetch, Fetched, Horizon, Registration, SettledAs, Settlement},
};
use tokio_postgres::{Client, Row, Transaction, error::SqlState, types::FromSql};
use uuid::Uuid;

use crate::{
    PostgresStore,
    client::{Pipeline, begin},
    error::{self, code, corrupt, refused},
    param::{Moment, params},
    read::{self, EventColumns, get},
    runs::{Runs, multirange},
    settle::{Members, Receipts, Settle},
    sql::Sql,
};

impl PostgresStore {
    pub(crate) async fn run_exchange(
        &self,
        exchange: &Exchange,
    ) -> Result<Exchanged, ExchangeError> {
        let now = self.now_parameter();
        let mut client = self.connections.take().await?;
        let work = async {
            match fast(&client, &self.sql, exchange, now).await? {
                Some(exchanged) => Ok(exchanged),
                None => careful(&mut client, &self.sql, exchange, now).await,
            }
        };
        let done = self.connections.in_time(work).await;
        self.connections.unless_late(client, done)
    }
}

/// What a fetch asks, as parameters.
struct FetchParams {
    lanes: Vec<i16>,
    after: i64,
    exclude: String,
    busy: String,
    limit: i64,
    bytes_max: i64,
}

impl FetchParams {
    fn of(fetch: &Fetch) -> Self {
        Self {
            lanes: fetch.lanes.iter().copied().filter_map(sql_lane).collect(),
            after: fetch.after.0,
            exclude: multirange(fetch.exclude.iter().map(|position| position.0)),
            busy: multirange(fetch.busy_keys.iter().copied()),
            limit: i64::from(fetch.limit),
            bytes_max: i64::try_from(fetch.bytes_max).unwrap_or(i64::MAX),
        }
    }
}

/// No destination has lanes that do not fit.
pub(crate) fn sql_lane(Lane(lane): Lane) -> Option<i16> {
    i16::try_from(lane).ok()
}

/// Everything in one pipeline. `None`: something needs care, and nothing was done.
async fn fast(
    client: &Client,
    sql: &Sql,
    exchange: &Exchange,
    now: Option<Moment>,
) -> Result<Option<Exchanged>, ExchangeError> {
    let Some(settle) = Settle::of(&exchange.settle) else {
        return Ok(None);
    };
    let session = exchange.session.0;
    let destination = exchange.destination.0;
    let lasts = settle.closed.lasts();
    let unfit = UnfitParams::of(exchange);
    let members = Members::of(&exchange.register);
    let suspend = exchange
        .suspend
        .as_ref()
        .map(|suspend| (suspend.code, bounded_detail(&suspend.detail)));
    let fetch = exchange.fetch.as_ref().map(FetchParams::of);
    let late = false;

    let mut pipeline = Pipeline::new(&sql.bounds);
    pipeline.add(&sql.fence, params![session, now]);
    if !exchange.settle.is_empty() {
        pipeline.add(
            &sql.finish,
            params![
                session,
                destination,
                settle.members.attempts,
                settle.acknowledged,
                settle.exceptions,
                settle.members.runs.starts,
                settle.members.runs.lengths,
                settle.members.from,
                settle.members.to,
                now
            ],
        );
    }
    if !settle.receipts.is_empty() {
        pipeline.add(
            &sql.acknowledge,
            params![
                destination,
                settle.closed.starts,
                lasts,
                settle.closed_count
            ],
        );
        pipeline.add(
            &sql.receipts,
            &settle.receipts.params(&destination, &now, &late),
        );
    }
    if !settle.outcomes.is_empty() {
        pipeline.add(&sql.outcomes, &settle.outcomes.params(&destination, &now));
    }
    if !exchange.quarantine.is_empty() {
        pipeline.add(
            &sql.unfit,
            params![
                destination,
                unfit.positions,
                unfit.codes,
                unfit.details,
                now
            ],
        );
    }
    if let Some((code, detail)) = &suspend {
        pipeline.add(&sql.suspend, params![destination, *code, *detail, now]);
    }
    if !exchange.register.is_empty() {
        pipeline.add(
            &sql.register,
            params![
                session,
                destination,
                members.attempts,
                members.runs.starts,
                members.runs.lengths,
                members.from,
                members.to,
                now
            ],
        );
    }
    let fetched = fetch.as_ref().map(|fetch| {
        pipeline.add(
            &sql.fetch,
            params![
                destination,
                fetch.lanes,
                fetch.after,
                fetch.exclude,
                fetch.busy,
                fetch.limit,
                fetch.bytes_max,
                now
            ],
        )
    });
    let rows = match pipeline.run(client).await {
        Ok(rows) => rows,
        Err(error) if needs_care(&error) => return Ok(None),
        Err(error) => return Err(error::exchange(&error)),
    };
    let mut exchanged = Exchanged::default();
    if let (Some(fetch), Some(fetched)) = (&exchange.fetch, fetched) {
        read_fetch(fetch, &rows[fetched], &mut exchanged)?;
    }
    Ok(Some(exchanged))
}

/// A slot was taken, an attempt is finished or registered already, or the settlement is not the
/// attempt's: the careful path tells which.
fn needs_care(error: &tokio_postgres::Error) -> bool {
    error::is(error, code::NEEDS_CARE) || error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}

struct UnfitParams {
    positions: Vec<i64>,
    codes: Vec<&'static str>,
    details: Vec<String>,
}

impl UnfitParams {
    fn of(exchange: &Exchange) -> Self {
        let unfit = &exchange.quarantine;
        Self {
            positions: unfit.iter().map(|unfit| unfit.position.0).collect(),
            codes: unfit.iter().map(|unfit| unfit.code).collect(),
            details: unfit
                .iter()
                .map(|unfit| bounded_detail(&unfit.detail))
                .collect(),
        }
    }
}

fn read_fetch(fetch: &Fetch, rows: &[Row], exchanged: &mut Exchanged) -> Result<(), StoreError> {
    // The statement's first branch gives one row, and comes first.
    let Some((whole, events)) = rows.split_first() else {
        return Err(refused("the destination is not registered"));
    };
    exchanged.now = Some(read::time(whole, "now")?);
    exchanged.horizon = Some(Horizon {
        number: read::number(get(whole, "number")?, "number")?,
        over: read::number(get(whole, "over")?, "over")?,
    });
    let found: i64 = get(whole, "found")?;
    exchanged.fetched = read_deliveries(whole, events)?;
    if get(whole, "suspended")? {
        exchanged.exhausted = true;
        return Ok(());
    }
    let cut_by_bytes = found > i64::try_from(exchanged.fetched.len()).unwrap_or(i64::MAX);
    exchanged.exhausted = found < i64::from(fetch.limit) && !cut_by_bytes;
    if exchanged.exhausted {
        exchanged.next_due = get::<Option<i64>>(whole, "due_in_us")?.map(read::micros);
    }
    Ok(())
}

/// Joins the deliveries of a fetch, given as parallel arrays, with their events. The id is compared
/// too: no index keeps positions unique over all partitions.
fn read_deliveries(whole: &Row, events: &[Row]) -> Result<Vec<Fetched>, StoreError> {
    let mut by_position = HashMap::with_capacity(events.len());
    let columns = EventColumns::of(events.first())?;
    for row in events {
        let event = columns.event(row)?;
        by_position.insert((columns.position(row)?, event.event_id), event);
    }
    let positions = array::<i64>(whole, "positions")?;
    let event_ids = array::<Uuid>(whole, "event_ids")?;
    let lanes = array::<i16>(whole, "lanes")?;
    let key_hashes = array::<i64>(whole, "key_hashes")?;
    let attempts = array::<i32>(whole, "attempts")?;
    let first_attempts = array::<Option<i64>>(whole, "first_attempt_ago_us")?;
    let rows = positions.into_iter().zip(event_ids).zip(lanes);
    let rows = rows.zip(key_hashes).zip(attempts).zip(first_attempts);
    let mut fetched = rows
        .map(|(((((position, id), lane), key_hash), attempts), ago)| {
            let position = Position(position);
            let event = by_position
                .remove(&(position, EventId(id)))
                .ok_or_else(|| corrupt(format!("delivery {position} without its event")))?;
            Ok(Fetched {
                position,
                lane: read::lane_of(lane)?,
                key_hash,
                attempts: read::number(i64::from(attempts), "attempts")?,
                first_attempt_ago: ago.map(read::micros),
                event: Arc::new(event),
            })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    fetched.sort_unstable_by_key(|fetched| fetched.position);
    Ok(fetched)
}

/// An array column; no elements were aggregated if it is null.
fn array<'a, T: FromSql<'a>>(row: &'a Row, column: &str) -> Result<Vec<T>, StoreError> {
    get::<Option<Vec<T>>>(row, column).map(Option::unwrap_or_default)
}

/// The same in steps: looks at each attempt, keeps duplicates, skips what was done before.
async fn careful(
    client: &mut Client,
    sql: &Sql,
    exchange: &Exchange,
    now: Option<Moment>,
) -> Result<Exchanged, ExchangeError> {
    let db = |error| error::exchange(&error);
    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
    let mut exchanged = Exchanged::default();
    let destination = exchange.destination.0;
    transaction
        .query_typed(&sql.fence, params![exchange.session.0, now])
        .await
        .map_err(db)?;
    let open = check_settlements(&transaction, sql, exchange).await?;
    for settlement in &exchange.settle {
        if open.contains(&settlement.attempt.0) {
            exchanged.duplicates +=
                settle_one(&transaction, sql, exchange, settlement, now).await?;
        }
    }
    if !exchange.quarantine.is_empty() {
        let unfit = UnfitParams::of(exchange);
        transaction
            .query_typed(
                &sql.unfit,
                params![
                    destination,
                    unfit.positions,
                    unfit.codes,
                    unfit.details,
                    now
                ],
            )
            .await
            .map_err(db)?;
    }
    if let Some(suspend) = &exchange.suspend {
        let detail = bounded_detail(&suspend.detail);
        transaction
            .query_typed(
                &sql.suspend,
                params![destination, suspend.code, detail, now],
            )
            .await
            .map_err(db)?;
    }
    register_new(&transaction, sql, exchange, now).await?;
    if let Some(fetch) = &exchange.fetch {
        let asked = FetchParams::of(fetch);
        let rows = transaction
            .query_typed(
                &sql.fetch,
                params![
                    destination,
                    asked.lanes,
                    asked.after,
                    asked.exclude,
                    asked.busy,
                    asked.limit,
                    asked.bytes_max,
                    now
                ],
            )
            .await
            .map_err(db)?;
        read_fetch(fetch, &rows, &mut exchanged)?;
    }
    transaction.commit().await.map_err(db)?;
    Ok(exchanged)
}

/// Which of the settled attempts are open. Refuses a settlement that is not the attempt's.
async fn check_settlements(
    transaction: &Transaction<'_>,
    sql: &Sql,
    exchange: &Exchange,
) -> Result<BTreeSet<Uuid>, ExchangeError> {
    let attempts: Vec<Uuid> = exchange.settle.iter().map(|s| s.attempt.0).collect();
    let rows = transaction
        .query_typed(&sql.attempts_known, params![attempts])
        .await
        .map_err(|error| error::exchange(&error))?;
    let mut open = BTreeSet::new();
    for settlement in &exchange.settle {
        let mut known = None;
        for row in &rows {
            let same = get::<Uuid>(row, "attempt_id")? == settlement.attempt.0
                && get::<Uuid>(row, "session_id")? == exchange.session.0
                && get::<i32>(row, "destination_id")? == exchange.destination.0;
            if same {
                known = Some(row);
            }
        }
        let Some(row) = known else {
            return Err(ExchangeError::Store(refused(format!(
                "attempt {} was not registered by session {} for destination {}",
                settlement.attempt, exchange.session, exchange.destination
            ))));
        };
        if !get::<bool>(row, "open")? {
            continue;
        }
        let registered = Runs {
            starts: get(row, "run_starts")?,
            lengths: get(row, "run_lengths")?,
        };
        if Runs::of(settlement.members.iter().map(|m| m.position)) != registered {
            return Err(ExchangeError::Store(refused(format!(
                "attempt {} is settled with other members than were registered",
                settlement.attempt
            ))));
        }
        open.insert(settlement.attempt.0);
    }
    Ok(open)
}

/// Settles one open attempt; answers how many of its receipts were duplicates.
async fn settle_one(
    transaction: &Transaction<'_>,
    sql: &Sql,
    exchange: &Exchange,
    settlement: &Settlement,
    now: Option<Moment>,
) -> Result<u64, ExchangeError> {
    let db = |error| error::exchange(&error);
    let destination = exchange.destination.0;
    let late = false;
    let settle = Settle::of(std::slice::from_ref(settlement)).ok_or_else(|| {
        refused(format!(
            "attempt {} names a position twice",
            settlement.attempt
        ))
    })?;
    let members = &settle.members;
    transaction
        .query_typed(
            &sql.finish,
            params![
                exchange.session.0,
                destination,
                members.attempts,
                settle.acknowledged,
                settle.exceptions,
                members.runs.starts,
                members.runs.lengths,
                members.from,
                members.to,
                now
            ],
        )
        .await
        .map_err(db)?;
    let mut acknowledged = BTreeMap::new();
    for member in &settlement.members {
        if let SettledAs::Acknowledged(receipt) = &member.next {
            acknowledged.insert(member.position, receipt.pack());
        }
    }
    let positions: Vec<i64> = acknowledged.keys().map(|position| position.0).collect();
    let closed = transaction
        .query_typed(&sql.acknowledge_each, params![destination, positions])
        .await
        .map_err(db)?;
    let mut primary = Vec::new();
    let mut were_quarantined = Vec::new();
    for row in &closed {
        let position = read::position(row, "position")?;
        if let Some(packed) = acknowledged.remove(&position) {
            primary.push((settlement.attempt, position, packed));
        }
        if get::<i16>(row, "state")? == 2 {
            were_quarantined.push(position.0);
        }
    }
    keep_receipts(transaction, sql, destination, primary, now, late)
        .await
        .map_err(db)?;
    if !were_quarantined.is_empty() {
        transaction
            .query_typed(
                &sql.resolve_quarantine,
                params![destination, were_quarantined, now],
            )
            .await
            .map_err(db)?;
    }
    let taken = acknowledged.len();
    let duplicates = acknowledged
        .into_iter()
        .map(|(position, packed)| (settlement.attempt, position, packed));
    keep_duplicates(transaction, sql, destination, duplicates, now, late)
        .await
        .map_err(db)?;
    if !settle.outcomes.is_empty() {
        let outcomes = &settle.outcomes;
        transaction
            .query_typed(&sql.outcomes, &outcomes.params(&destination, &now))
            .await
            .map_err(db)?;
    }
    Ok(u64::try_from(taken).unwrap_or(u64::MAX))
}

pub(crate) async fn keep_receipts(
    transaction: &Transaction<'_>,
    sql: &Sql,
    destination: i32,
    receipts: impl IntoIterator<Item = (AttemptId, Position, Packed)>,
    now: Option<Moment>,
    late: bool,
) -> Result<(), tokio_postgres::Error> {
    let receipts = Receipts::of(receipts);
    if receipts.is_empty() {
        return Ok(());
    }
    transaction
        .query_typed(&sql.receipts, &receipts.params(&destination, &now, &late))
        .await
        .map(drop)
}

pub(crate) async fn keep_duplicates(
    transaction: &Transaction<'_>,
    sql: &Sql,
    destination: i32,
    receipts: impl IntoIterator<Item = (AttemptId, Position, Packed)>,
    now: Option<Moment>,
    late: bool,
) -> Result<(), tokio_postgres::Error> {
    let mut attempts = Vec::new();
    let mut positions = Vec::new();
    let mut shared = Vec::new();
    let mut numbers = Vec::new();
    for (attempt, position, packed) in receipts {
        attempts.push(attempt.0);
        positions.push(position.0);
        shared.push(packed.shared);
        numbers.push(packed.number);
    }
    if attempts.is_empty() {
        return Ok(());
    }
    transaction
        .query_typed(
            &sql.duplicates,
            params![destination, attempts, positions, shared, numbers, now, late],
        )
        .await
        .map(drop)
}

/// Registers the attempts that are not registered yet.
async fn register_new(
    transaction: &Transaction<'_>,
    sql: &Sql,
    exchange: &Exchange,
    now: Option<Moment>,
) -> Result<(), ExchangeError> {
    let db = |error| error::exchange(&error);
    let asked: Vec<Uuid> = exchange.register.iter().map(|r| r.attempt.0).collect();
    let rows = transaction
        .query_typed(&sql.attempts_known, params![asked])
        .await
        .map_err(db)?;
    let mut known = BTreeSet::new();
    for row in &rows {
        known.insert(get::<Uuid>(row, "attempt_id")?);
    }
    let new: Vec<Registration> = exchange
        .register
        .iter()
        .filter(|registration| known.insert(registration.attempt.0))
        .cloned()
        .collect();
    if new.is_empty() {
        return Ok(());
    }
    let members = Members::of(&new);
    transaction
        .query_typed(
            &sql.register,
            params![
                exchange.session.0,
                exchange.destination.0,
                members.attempts,
                members.runs.starts,
                members.runs.lengths,
                members.from,
                members.to,
                now
            ],
        )
        .await
        .map(drop)
        .map_err(db)
}
