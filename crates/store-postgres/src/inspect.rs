//! What people and metrics may ask, and what a person decides.

use postrider_contract::EventId;
use postrider_core::{DestinationId, Position, SessionId, delivery::State};
use postrider_store::{
    StoreError,
    control::Audit,
    inspect::{
        ATTEMPTS_SHOWN_MAX, AttemptRow, Backlog, BreakerRow, COUNT_MAX, Count, DeliveryDetail,
        DeliveryFilter, DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow, OldRows,
        Page, QuarantineReason, QuarantineRow, ReceiptRow, ReplaySelection, Replayed, SessionRow,
        SnapshotHolder,
    },
};
use tokio_postgres::Row;
use uuid::Uuid;

use crate::{
    PostgresStore,
    client::begin,
    control::write_audit,
    error,
    param::{Param, params},
    read::{self, get},
};

impl PostgresStore {
    /// Asks one question.
    pub(crate) async fn ask(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        self.connections
            .ask(&self.sql.bounds_read, sql, params)
            .await
    }

    pub(crate) async fn read_backlog(&self) -> Result<Vec<Backlog>, StoreError> {
        let now = self.now_parameter();
        let rows = self
            .ask(&self.sql.backlog, params![count_max(), now])
            .await?;
        rows.iter()
            .map(|row| {
                let breaker = match get::<Option<Uuid>>(row, "session_id")? {
                    None => None,
                    Some(session) => Some(BreakerRow {
                        session: SessionId(session),
                        since: read::time(row, "since")?,
                        code: get(row, "code")?,
                        detail: get(row, "detail")?,
                        next_probe_at: read::time(row, "next_probe_at")?,
                        refused: get(row, "refused")?,
                    }),
                };
                Ok(Backlog {
                    destination: read::destination(row)?,
                    pending: count(get(row, "pending")?)?,
                    unknown: count(get(row, "unknown")?)?,
                    quarantined: count(get(row, "quarantined")?)?,
                    oldest_pending: get::<Option<i64>>(row, "oldest_pending_us")?.map(read::micros),
                    breaker,
                    lanes: read::number(i64::from(get::<i32>(row, "lanes")?), "lanes")?,
                    lanes_held: read::number(get(row, "lanes_held")?, "lanes")?,
                })
            })
            .collect()
    }

    pub(crate) async fn read_old_rows(&self) -> Result<OldRows, StoreError> {
        let rows = self.ask(&self.sql.old_snapshot, params![]).await?;
        let row = rows
            .first()
            .ok_or_else(|| error::corrupt("the statistics of the database have no row"))?;
        let holder = match get::<Option<String>>(row, "kind")? {
            None => None,
            Some(kind) => Some(SnapshotHolder {
                kind,
                name: get(row, "name")?,
                pid: get(row, "pid")?,
                state: get(row, "state")?,
                transactions: read::number(
                    i64::from(get::<i32>(row, "transactions")?),
                    "transactions",
                )?,
                held_for: get::<Option<i64>>(row, "held_us")?.map(read::micros),
            }),
        };
        Ok(OldRows {
            dead: read::number(get(row, "dead_rows")?, "dead rows")?,
            holder,
            all_seen: get(row, "all_seen")?,
        })
    }

    pub(crate) async fn list_sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        let rows = self
            .ask(&self.sql.sessions, params![i64::from(limit)])
            .await?;
        rows.iter()
            .map(|row| {
                let ended_at = read::time_opt(row, "ended_at")?;
                let reason: Option<String> = get(row, "ended_reason")?;
                Ok(SessionRow {
                    id: read::session_id(row)?,
                    owner: get(row, "owner")?,
                    version: get(row, "version")?,
                    exclusive: get(row, "exclusive")?,
                    opened_at: read::time(row, "opened_at")?,
                    expires_at: read::time(row, "expires_at")?,
                    ended: ended_at.zip(reason),
                    lanes: read::number(get(row, "lanes")?, "lanes")?,
                })
            })
            .collect()
    }

    pub(crate) async fn list_lanes(&self) -> Result<Vec<LaneRow>, StoreError> {
        let rows = self.ask(&self.sql.lanes, &[]).await?;
        rows.iter()
            .map(|row| {
                Ok(LaneRow {
                    destination: read::destination(row)?,
                    lane: read::lane(row)?,
                    session: get::<Option<Uuid>>(row, "session_id")?.map(SessionId),
                    owner: get(row, "owner")?,
                    since: read::time_opt(row, "since")?,
                })
            })
            .collect()
    }

    pub(crate) async fn list_events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        let rows = self
            .ask(
                &self.sql.events,
                params![
                    after.0,
                    one_more(limit),
                    filter.event_type,
                    filter.tenant,
                    filter.aggregate_type,
                    filter.aggregate_id,
                    filter.partition_key
                ],
            )
            .await?;
        page(rows, limit, |row| {
            Ok(EventRow {
                position: read::position(row, "position")?,
                event_id: read::event_id(row)?,
                envelope: get(row, "envelope")?,
                appended_at: read::time(row, "appended_at")?,
                open: read::number(get(row, "open")?, "open deliveries")?,
            })
        })
    }

    pub(crate) async fn read_event(
        &self,
        event: EventId,
    ) -> Result<Option<EventDetail>, StoreError> {
        let rows = self.ask(&self.sql.event, params![event.0]).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let position = read::position(row, "position")?;
        // Receipts after open rows: a delivery that is closed in between shows both ways, never
        // neither.
        let deliveries = self
            .ask(&self.sql.event_deliveries, params![event.0])
            .await?;
        let shown = i64::from(ATTEMPTS_SHOWN_MAX);
        let attempts = self
            .ask(&self.sql.event_attempts, params![position.0, shown])
            .await?;
        let receipts = self
            .ask(&self.sql.event_receipts, params![position.0])
            .await?;
        let duplicates = self
            .ask(&self.sql.event_duplicates, params![position.0])
            .await?;
        let mut detail = EventDetail {
            position,
            event: read::event(row)?,
            key_hash: get(row, "key_hash")?,
            deliveries: deliveries.iter().map(delivery).collect::<Result<_, _>>()?,
        };
        for delivery in &mut detail.deliveries {
            for row in of(&attempts, delivery.destination)? {
                delivery.attempts.push(attempt(row)?);
            }
            for row in of(&receipts, delivery.destination)? {
                delivery.receipt = Some(receipt(row)?);
            }
            for row in of(&duplicates, delivery.destination)? {
                delivery.duplicates.push(receipt(row)?);
            }
            delivery
                .duplicates
                .sort_by_key(|row| (row.accepted_at, row.attempt, row.receipt.pack()));
            match (&delivery.receipt, delivery.state) {
                (None, State::Acknowledged) => {
                    return Err(error::corrupt(format!(
                        "the delivery of event {event} to destination {} is neither open nor closed by a receipt",
                        delivery.destination
                    )));
                }
                // Closed while we asked.
                (Some(_), State::Pending | State::Unknown | State::Quarantined) => {
                    delivery.state = State::Acknowledged;
                    delivery.attempts_charged = 0;
                    delivery.available_at = None;
                    delivery.quarantine = None;
                }
                (Some(_), State::Acknowledged)
                | (None, State::Pending | State::Unknown | State::Quarantined) => {}
            }
        }
        Ok(Some(detail))
    }

    pub(crate) async fn list_deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        let state = match filter.state {
            None => None,
            Some(state) => match read::state_number(state) {
                Some(number) => Some(number),
                // Closed deliveries have no row.
                None => {
                    return Ok(Page {
                        rows: Vec::new(),
                        more: false,
                    });
                }
            },
        };
        let (destination, position) = start(after);
        let rows = self
            .ask(
                &self.sql.deliveries,
                params![
                    filter.destination.map(|id| id.0),
                    state,
                    filter.key_hash,
                    destination,
                    position,
                    one_more(limit)
                ],
            )
            .await?;
        page(rows, limit, |row| {
            Ok(DeliveryRow {
                destination: read::destination(row)?,
                position: read::position(row, "position")?,
                event_id: read::event_id(row)?,
                lane: read::lane(row)?,
                state: read::state(Some(get(row, "state")?))?,
                attempts_charged: charged(row)?,
                available_at: read::time(row, "available_at")?,
            })
        })
    }

    pub(crate) async fn holder(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError> {
        let now = self.now_parameter();
        let rows = self
            .ask(
                &self.sql.held_by,
                params![destination.0, position.0, count_max(), now],
            )
            .await?;
        rows.first()
            .map(|row| {
                Ok(HeldKey {
                    head: read::position(row, "position")?,
                    head_event: read::event_id(row)?,
                    head_state: read::state(Some(get(row, "state")?))?,
                    head_available_at: read::time(row, "available_at")?,
                    tail: tail(row)?,
                })
            })
            .transpose()
    }

    pub(crate) async fn list_quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError> {
        let (destination, position) = start(after);
        let rows = self
            .ask(
                &self.sql.quarantined,
                params![
                    ids(selection),
                    selection.destination.map(|id| id.0),
                    selection.code,
                    destination,
                    position,
                    one_more(limit),
                    count_max()
                ],
            )
            .await?;
        page(rows, limit, |row| {
            Ok(QuarantineRow {
                destination: read::destination(row)?,
                position: read::position(row, "position")?,
                event_id: read::event_id(row)?,
                envelope: get(row, "envelope")?,
                envelope_digest: read::jcs_digest(row, "envelope_digest")?,
                key_hash: get(row, "key_hash")?,
                attempts_charged: charged(row)?,
                reason: QuarantineReason {
                    code: get(row, "code")?,
                    detail: get(row, "detail")?,
                    since: read::time(row, "since")?,
                },
                tail: tail(row)?,
                overtaken: get(row, "overtaken")?,
            })
        })
    }

    pub(crate) async fn replay_quarantined(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let selection = selection.clone();
        let audit = audit.clone();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let db = |error| error::store(&error);
                    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
                    let rows = transaction
                        .query_typed(
                            &sql.replay,
                            params![
                                ids(&selection),
                                selection.destination.map(|id| id.0),
                                selection.code,
                                i64::from(limit),
                                now,
                                audit.actor
                            ],
                        )
                        .await
                        .map_err(db)?;
                    let mut replayed = Replayed::default();
                    for row in &rows {
                        replayed.deliveries.push((
                            read::destination(row)?,
                            read::position(row, "position")?,
                            read::event_id(row)?,
                        ));
                    }
                    if !replayed.deliveries.is_empty() {
                        let changed = i64::try_from(rows.len()).unwrap_or(i64::MAX);
                        let subject =
                            format!(
                                "events {}, destination {}, code {}",
                                selection.events.as_ref().map_or(
                                    "any".to_owned(),
                                    |events| format!("{} given", events.len())
                                ),
                                selection
                                    .destination
                                    .map_or("any".to_owned(), |id| id.to_string()),
                                selection.code.as_deref().unwrap_or("any")
                            );
                        write_audit(&transaction, &sql, &audit, "replay", changed, &subject, now)
                            .await?;
                    }
                    transaction.commit().await.map_err(db)?;
                    Ok(replayed)
                })
            })
            .await
    }
}

fn count_max() -> i64 {
    i64::try_from(COUNT_MAX).unwrap_or(i64::MAX)
}

fn count(found: i64) -> Result<Count, StoreError> {
    let found: u64 = read::number(found, "count")?;
    Ok(Count {
        value: found.min(COUNT_MAX),
        capped: found > COUNT_MAX,
    })
}

fn tail(row: &Row) -> Result<Count, StoreError> {
    Ok(Count {
        value: read::number(get(row, "tail")?, "tail")?,
        capped: get(row, "capped")?,
    })
}

fn charged(row: &Row) -> Result<u32, StoreError> {
    read::number(i64::from(get::<i32>(row, "attempts")?), "attempts")
}

/// One row more than the page shows whether there is more.
fn one_more(limit: u32) -> i64 {
    i64::from(limit) + 1
}

/// Before every destination and position if nothing is given.
fn start(after: Option<(DestinationId, Position)>) -> (i32, i64) {
    after.map_or((0, 0), |(destination, position)| {
        (destination.0, position.0)
    })
}

fn ids(selection: &ReplaySelection) -> Option<Vec<Uuid>> {
    let events = selection.events.as_ref()?;
    Some(events.iter().map(|id| id.0).collect())
}

fn page<T>(
    rows: Vec<Row>,
    limit: u32,
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Page<T>, StoreError> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    Ok(Page {
        more: rows.len() > limit,
        rows: rows
            .iter()
            .take(limit)
            .map(read)
            .collect::<Result<_, _>>()?,
    })
}

/// The rows of one destination.
fn of(rows: &[Row], destination: DestinationId) -> Result<Vec<&Row>, StoreError> {
    let mut found = Vec::new();
    for row in rows {
        if read::destination(row)? == destination {
            found.push(row);
        }
    }
    Ok(found)
}

fn delivery(row: &Row) -> Result<DeliveryDetail, StoreError> {
    let code: Option<String> = get(row, "code")?;
    let quarantine = match code {
        None => None,
        Some(code) => Some(QuarantineReason {
            code,
            detail: get(row, "detail")?,
            since: read::time(row, "since")?,
        }),
    };
    let attempts: Option<i32> = get(row, "attempts")?;
    Ok(DeliveryDetail {
        destination: read::destination(row)?,
        lane: read::lane(row)?,
        state: read::state(get(row, "state")?)?,
        attempts_charged: read::number(i64::from(attempts.unwrap_or(0)), "attempts")?,
        available_at: read::time_opt(row, "available_at")?,
        attempts: Vec::new(),
        receipt: None,
        duplicates: Vec::new(),
        quarantine,
    })
}

fn attempt(row: &Row) -> Result<AttemptRow, StoreError> {
    let finished_at = read::time_opt(row, "finished_at")?;
    let code: Option<String> = get(row, "code")?;
    let detail: Option<String> = get(row, "detail")?;
    Ok(AttemptRow {
        attempt: read::attempt_id(row)?,
        session: read::session_id(row)?,
        owner: get(row, "owner")?,
        registered_at: read::time(row, "registered_at")?,
        finished_at,
        outcome: finished_at.map(|_| code.unwrap_or_else(|| State::Acknowledged.word().to_owned())),
        detail: detail.filter(|detail| !detail.is_empty()),
        lease_until: read::time(row, "lease_until")?,
    })
}

fn receipt(row: &Row) -> Result<ReceiptRow, StoreError> {
    Ok(ReceiptRow {
        attempt: read::attempt_id(row)?,
        accepted_at: read::time(row, "accepted_at")?,
        receipt: read::receipt(get(row, "shared")?, get(row, "number")?)?,
        late: get(row, "late")?,
    })
}
