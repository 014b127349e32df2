//! Sessions and lanes.

use std::time::Duration;

use postrider_core::{DestinationId, Lane, SessionId, outcome::bounded_detail};
use postrider_store::{
    OpenError, SessionError, StoreError,
    sessions::{BreakerReport, NewSession, Recovered, Share},
};
use tokio_postgres::{Client, Transaction};

use crate::{
    PostgresStore,
    client::{Pipeline, begin},
    error::{self, refused},
    exchange::sql_lane,
    param::{Moment, params},
    read::{self, get},
    settle::delay_us,
    sql::Sql,
};

/// Why a session ended whose lease was over.
const LEASE_OVER: &str = "lease_expired";

/// Rounds of finding out why an exclusive session could not open, and trying again.
const OPEN_ATTEMPTS_MAX: u32 = 8;

impl PostgresStore {
    pub(crate) async fn open(&self, new: &NewSession) -> Result<(), OpenError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let new = new.clone();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    // Each round either opens, or finds a reason, or sees it disappear.
                    for _ in 0..OPEN_ATTEMPTS_MAX {
                        if try_open(client, &sql, &new, now).await? {
                            return Ok(());
                        }
                    }
                    Err(OpenError::Store(error::unavailable(
                        "other exclusive sessions came and went; try again",
                    )))
                })
            })
            .await
    }

    pub(crate) async fn beat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let breakers = breakers.to_vec();
        self.connections
            .call(move |client| {
                Box::pin(async move { beat(client, &sql, session, lease, &breakers, now).await })
            })
            .await
    }

    pub(crate) async fn claim(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let wanted = wanted.to_vec();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let destinations: Vec<i32> = wanted.iter().map(|(id, _)| id.0).collect();
                    let counts: Vec<i32> =
                        wanted.iter().map(|(_, count)| i32::from(*count)).collect();
                    let mut pipeline = Pipeline::new(&sql.bounds);
                    pipeline.add(&sql.fence, params![session.0, now]);
                    let claimed = pipeline.add(
                        &sql.claim_lanes,
                        params![session.0, destinations, counts, now],
                    );
                    let rows = pipeline
                        .run(client)
                        .await
                        .map_err(|error| error::session(&error))?;
                    let mut taken = Vec::new();
                    for row in &rows[claimed] {
                        taken.push((read::destination(row)?, read::lane(row)?));
                    }
                    taken.sort_unstable();
                    let of = |id: DestinationId| {
                        let lanes = taken.iter().filter(move |(other, _)| *other == id);
                        lanes.map(|(_, lane)| *lane).collect()
                    };
                    Ok(wanted.iter().map(|(id, _)| (*id, of(*id))).collect())
                })
            })
            .await
    }

    pub(crate) async fn release(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let lanes: Vec<i16> = lanes.iter().copied().filter_map(sql_lane).collect();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let mut pipeline = Pipeline::new(&sql.bounds);
                    pipeline.add(&sql.fence, params![session.0, now]);
                    pipeline.add(&sql.release_lanes, params![session.0, destination.0, lanes]);
                    pipeline
                        .run(client)
                        .await
                        .map(drop)
                        .map_err(|error| error::session(&error))
                })
            })
            .await
    }

    pub(crate) async fn end(&self, session: SessionId, reason: &str) -> Result<(), StoreError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let reason = reason.to_owned();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    end(client, &sql, session, &reason, false, now)
                        .await
                        .map(drop)
                })
            })
            .await
    }

    pub(crate) async fn recover(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let sessions_max = i64::from(sessions_max);
        let expired = self
            .ask(&sql.expired_sessions, params![now, sessions_max])
            .await?;
        let mut recovered = Vec::new();
        for row in &expired {
            let session = read::session_id(row)?;
            let sql = sql.clone();
            let ended = self
                .connections
                .call(move |client| {
                    Box::pin(async move { end(client, &sql, session, LEASE_OVER, true, now).await })
                })
                .await?;
            recovered.extend(ended);
        }
        Ok(recovered)
    }

    pub(crate) async fn sleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError> {
        let sql = self.sql.clone();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let mut pipeline = Pipeline::new(&sql.bounds);
                    pipeline.add(&sql.set_asleep, params![session.0, asleep]);
                    pipeline
                        .run(client)
                        .await
                        .map(drop)
                        .map_err(|error| error::store(&error))
                })
            })
            .await
    }
}

/// `false`: something was in the way that is gone now.
async fn try_open(
    client: &mut Client,
    sql: &Sql,
    new: &NewSession,
    now: Option<Moment>,
) -> Result<bool, OpenError> {
    let db = |error| OpenError::Store(error::store(&error));
    let serves: Vec<i32> = new.serves.iter().map(|id| id.0).collect();
    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
    let missing = transaction
        .query_typed_opt(&sql.destinations_missing, params![serves])
        .await
        .map_err(db)?;
    if let Some(row) = missing {
        let id: i32 = get(&row, "id")?;
        return Err(OpenError::Store(refused(format!(
            "destination {id} is not registered"
        ))));
    }
    let opened = transaction
        .query_typed_opt(
            &sql.open_session,
            params![
                new.id.0,
                new.owner,
                new.version,
                new.exclusive,
                serves,
                delay_us(new.lease),
                now
            ],
        )
        .await
        .map_err(db)?;
    if opened.is_some() {
        transaction.commit().await.map_err(db)?;
        return Ok(true);
    }
    let known = transaction
        .query_typed_opt(&sql.session_known, params![new.id.0])
        .await
        .map_err(db)?;
    if let Some(row) = known {
        if get::<bool>(&row, "ended")? {
            return Err(OpenError::Ended);
        }
        return Ok(true);
    }
    let holder = transaction
        .query_typed_opt(&sql.exclusive_open, params![now])
        .await
        .map_err(db)?;
    let Some(holder) = holder else {
        return Ok(false);
    };
    if !get::<bool>(&holder, "expired")? {
        return Err(OpenError::ExclusiveHeld {
            owner: get(&holder, "owner")?,
        });
    }
    let holder = read::session_id(&holder)?;
    transaction.rollback().await.map_err(db)?;
    end(client, sql, holder, LEASE_OVER, true, now).await?;
    Ok(false)
}

async fn beat(
    client: &mut Client,
    sql: &Sql,
    session: SessionId,
    lease: Duration,
    breakers: &[BreakerReport],
    now: Option<Moment>,
) -> Result<Vec<Share>, SessionError> {
    let lease = delay_us(lease);
    let destinations: Vec<i32> = breakers.iter().map(|b| b.destination.0).collect();
    let open = |b: &BreakerReport| b.open.clone();
    let codes: Vec<Option<String>> = breakers
        .iter()
        .map(|b| open(b).map(|open| open.code))
        .collect();
    let details: Vec<String> = breakers
        .iter()
        .map(|b| open(b).map_or(String::new(), |open| bounded_detail(&open.detail)))
        .collect();
    let probes: Vec<i64> = breakers
        .iter()
        .map(|b| open(b).map_or(0, |open| delay_us(open.next_probe_in)))
        .collect();
    let refused: Vec<bool> = breakers
        .iter()
        .map(|b| open(b).is_some_and(|open| open.refused))
        .collect();
    let mut pipeline = Pipeline::new(&sql.bounds);
    // The fence also makes this wait for an end that is under way, instead of deadlocking with it.
    pipeline.add(&sql.fence, params![session.0, now]);
    pipeline.add(&sql.heartbeat, params![session.0, lease, now]);
    if !breakers.is_empty() {
        pipeline.add(
            &sql.breakers_report,
            params![
                session.0,
                destinations,
                codes,
                details,
                probes,
                refused,
                now
            ],
        );
    }
    let shares = pipeline.add(&sql.shares, params![session.0, now]);
    let rows = pipeline
        .run(client)
        .await
        .map_err(|error| error::session(&error))?;
    let read = |row| -> Result<Share, StoreError> {
        let held: Vec<i16> = get(row, "held")?;
        Ok(Share {
            destination: read::destination(row)?,
            lanes: read::number(i64::from(get::<i32>(row, "lanes")?), "lanes")?,
            sessions: read::number(get(row, "sessions")?, "sessions")?,
            held: held
                .into_iter()
                .map(read::lane_of)
                .collect::<Result<_, _>>()?,
            free: read::number(get(row, "free")?, "free lanes")?,
            suspended: get(row, "suspended")?,
        })
    };
    Ok(rows[shares].iter().map(read).collect::<Result<_, _>>()?)
}

/// Ends a session and settles what it left, in one transaction. `None`: it had ended, never was,
/// or (with `expired_only`) is live.
async fn end(
    client: &mut Client,
    sql: &Sql,
    session: SessionId,
    reason: &str,
    expired_only: bool,
    now: Option<Moment>,
) -> Result<Option<Recovered>, StoreError> {
    let db = |error| error::store(&error);
    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
    let locked = transaction
        .query_typed_opt(&sql.end_lock, params![session.0, expired_only, now])
        .await
        .map_err(db)?;
    let Some(locked) = locked else {
        return Ok(None);
    };
    let owner: String = get(&locked, "owner")?;
    let recovered = settle_left(&transaction, sql, session, reason, owner, now).await?;
    transaction.commit().await.map_err(db)?;
    Ok(Some(recovered))
}

async fn settle_left(
    transaction: &Transaction<'_>,
    sql: &Sql,
    session: SessionId,
    reason: &str,
    owner: String,
    now: Option<Moment>,
) -> Result<Recovered, StoreError> {
    let db = |error| error::store(&error);
    let left = transaction
        .query_typed_one(&sql.abandon, params![session.0, now])
        .await
        .map_err(db)?;
    let ended = transaction
        .query_typed_one(&sql.end_session, params![session.0, reason, now])
        .await
        .map_err(db)?;
    Ok(Recovered {
        session,
        owner,
        attempts: read::number(get(&left, "attempts")?, "attempts")?,
        deliveries: read::number(get(&left, "deliveries")?, "deliveries")?,
        lanes: read::number(get(&ended, "lanes")?, "lanes")?,
    })
}
