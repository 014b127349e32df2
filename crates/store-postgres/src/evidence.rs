//! The evidence path: true acknowledgements of any session, however late.

use std::collections::BTreeMap;

use postrider_contract::{Digest, EventId};
use postrider_core::outcome::bounded_detail;
use postrider_store::{
    StoreError,
    evidence::{DIGEST_CONFLICT, Evidence, Mismatch, Registered, Verdict, compare},
};
use tokio_postgres::{Row, Transaction};

use crate::{
    PostgresStore,
    client::begin,
    error::{self, corrupt},
    exchange::{keep_duplicates, keep_receipts},
    param::{Moment, params},
    read::{self, get},
    sql::Sql,
};

/// Heads of keys, by destination, that were taken away from outside the session that sends there.
type Released = BTreeMap<i32, (Vec<i64>, Vec<i64>)>;

impl PostgresStore {
    pub(crate) async fn accept(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError> {
        if evidence.is_empty() {
            return Ok(Vec::new());
        }
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let evidence = evidence.to_vec();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let db = |error| error::store(&error);
                    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
                    let registered = facts(&transaction, &sql, &evidence).await?;
                    let mut released = Released::new();
                    let mut verdicts = Vec::with_capacity(evidence.len());
                    for (piece, registered) in evidence.iter().zip(&registered) {
                        verdicts.push(match compare(piece, registered.as_ref()) {
                            Ok(()) => keep(&transaction, &sql, piece, now, &mut released).await?,
                            Err(mismatch) => {
                                refute(&transaction, &sql, piece, mismatch, now, &mut released)
                                    .await?
                            }
                        });
                    }
                    for (destination, (keys, positions)) in &released {
                        transaction
                            .query_typed(&sql.mark_next, params![*destination, *keys, *positions])
                            .await
                            .map_err(db)?;
                    }
                    transaction.commit().await.map_err(db)?;
                    Ok(verdicts)
                })
            })
            .await
    }
}

/// What is registered where each piece points. Locks the open rows first, in one order for all
/// callers.
async fn facts(
    transaction: &Transaction<'_>,
    sql: &Sql,
    evidence: &[Evidence],
) -> Result<Vec<Option<Registered>>, StoreError> {
    let db = |error| error::store(&error);
    let attempts: Vec<uuid::Uuid> = evidence.iter().map(|e| e.attempt.0).collect();
    let destinations: Vec<i32> = evidence.iter().map(|e| e.destination.0).collect();
    let positions: Vec<i64> = evidence.iter().map(|e| e.position.0).collect();
    transaction
        .query_typed(&sql.evidence_lock, params![destinations, positions])
        .await
        .map_err(db)?;
    let rows = transaction
        .query_typed(
            &sql.evidence_facts,
            params![attempts, destinations, positions],
        )
        .await
        .map_err(db)?;
    let mut registered = vec![None; evidence.len()];
    for row in &rows {
        let n: usize = read::number(get(row, "n")?, "evidence")?;
        let place = n
            .checked_sub(1)
            .and_then(|n| registered.get_mut(n))
            .ok_or_else(|| corrupt(format!("evidence {n}")))?;
        *place = Some(fact(row)?);
    }
    Ok(registered)
}

fn fact(row: &Row) -> Result<Registered, StoreError> {
    let payload_digest: &str = get(row, "payload_digest")?;
    Ok(Registered {
        event_id: EventId(get(row, "event_id")?),
        generation: read::number(get(row, "generation")?, "generation")?,
        payload_digest: payload_digest.parse::<Digest>().map_err(corrupt)?,
        destination_digest: read::jcs_digest(row, "destination_digest")?,
    })
}

/// Claims the publish slot, or keeps a duplicate.
async fn keep(
    transaction: &Transaction<'_>,
    sql: &Sql,
    piece: &Evidence,
    now: Option<Moment>,
    released: &mut Released,
) -> Result<Verdict, StoreError> {
    let db = |error| error::store(&error);
    let late = true;
    let destination = piece.destination.0;
    let packed = piece.receipt.pack();
    let claimed = transaction
        .query_typed_opt(
            &sql.evidence_claim,
            params![destination, piece.position.0, now],
        )
        .await
        .map_err(db)?;
    let receipt = [(piece.attempt, piece.position, packed.clone())];
    if let Some(row) = claimed {
        if get(&row, "waited")? {
            release(released, piece, get(&row, "key_hash")?);
        }
        keep_receipts(transaction, sql, destination, receipt, now, late)
            .await
            .map_err(db)?;
        return Ok(Verdict::Primary);
    }
    let is_primary = transaction
        .query_typed_one(
            &sql.evidence_primary,
            params![
                destination,
                piece.position.0,
                piece.attempt.0,
                packed.shared,
                packed.number
            ],
        )
        .await
        .map_err(db)?;
    if get(&is_primary, "exists")? {
        return Ok(Verdict::Primary);
    }
    keep_duplicates(transaction, sql, destination, receipt, now, late)
        .await
        .map_err(db)?;
    Ok(Verdict::Duplicate)
}

/// Records what does not match.
async fn refute(
    transaction: &Transaction<'_>,
    sql: &Sql,
    piece: &Evidence,
    mismatch: Mismatch,
    now: Option<Moment>,
    released: &mut Released,
) -> Result<Verdict, StoreError> {
    let db = |error| error::store(&error);
    let destination = piece.destination.0;
    transaction
        .query_typed(
            &sql.finding,
            params![
                mismatch.code,
                destination,
                piece.position.0,
                mismatch.finding,
                now
            ],
        )
        .await
        .map_err(db)?;
    if mismatch.quarantines {
        let quarantined = transaction
            .query_typed_opt(
                &sql.evidence_quarantine,
                params![
                    destination,
                    piece.position.0,
                    DIGEST_CONFLICT,
                    bounded_detail(&mismatch.finding),
                    now
                ],
            )
            .await
            .map_err(db)?;
        if let Some(row) = quarantined {
            release(released, piece, get(&row, "key_hash")?);
        }
    }
    Ok(Verdict::Mismatch {
        finding: mismatch.finding,
    })
}

fn release(released: &mut Released, piece: &Evidence, key_hash: i64) {
    let (keys, positions) = released.entry(piece.destination.0).or_default();
    keys.push(key_hash);
    positions.push(piece.position.0);
}
