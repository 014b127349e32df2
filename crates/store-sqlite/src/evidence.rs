//! The evidence path: a true acknowledgement is kept, whoever brings it and whenever (I5, I6, I7).

use postrider_contract::{Envelope, Timestamp};
use postrider_core::{DestinationId, Position, outcome::bounded_detail};
use postrider_store::{
    evidence::{DIGEST_CONFLICT, Evidence, Mismatch, Registered, Verdict, compare},
    inspect::ReceiptRow,
};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    column::{self, read},
    control::execute,
    exchange::{close_run, keep_duplicate, keep_receipts},
    fault::Fault,
    runs::Run,
    sql,
};

pub(crate) fn accept(
    connection: &Connection,
    evidence: &Evidence,
    now: Timestamp,
) -> Result<Verdict, Fault> {
    let found = find(connection, evidence)?;
    let registered = found.as_ref().map(|found| &found.registered);
    let mismatch = compare(evidence, registered).err();
    let (Some(found), None) = (&found, &mismatch) else {
        let ordered = found.as_ref().is_some_and(|found| found.ordered);
        return refute(connection, evidence, mismatch, ordered, now);
    };
    let at = (evidence.destination, evidence.position);
    let packed = evidence.receipt.pack();
    let run = Run {
        first: evidence.position.0,
        length: 1,
        number: None,
    };
    if let Some(closed) = close_run(connection, evidence.destination, run, now)?.pop() {
        if closed.waited && found.ordered {
            keep_order(connection, at, closed.key_hash)?;
        }
        let receipts = [(evidence.position, &packed)];
        keep_receipts(
            connection,
            evidence.destination,
            found.attempt,
            &receipts,
            (now, true),
        )?;
        return Ok(Verdict::Primary);
    }
    let primary = receipt_at(connection, at)?;
    if primary.is_some_and(|primary| {
        primary.attempt == evidence.attempt && primary.receipt == evidence.receipt
    }) {
        return Ok(Verdict::Primary);
    }
    keep_duplicate(connection, at, found.attempt, &packed, (now, true))?;
    Ok(Verdict::Duplicate)
}

struct Found {
    attempt: i64,
    registered: Registered,
    ordered: bool,
}

fn find(connection: &Connection, evidence: &Evidence) -> Result<Option<Found>, Fault> {
    let mut statement = connection.prepare_cached(sql::EVIDENCE_FIND)?;
    let mut rows = statement.query(params![
        evidence.attempt.to_string(),
        evidence.destination.0,
        evidence.position.0
    ])?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let text: String = read(row, 2)?;
    let envelope = Envelope::from_stored(&text)
        .map_err(|error| Fault::corrupt(format!("envelope {text:?}: {error}")))?;
    Ok(Some(Found {
        attempt: read(row, 0)?,
        registered: Registered {
            event_id: column::event_id(row, 1)?,
            generation: envelope.generation,
            payload_digest: envelope.payload.digest,
            destination_digest: column::digest(row, 3)?,
        },
        ordered: read::<String>(row, 4)? != "none",
    }))
}

fn refute(
    connection: &Connection,
    evidence: &Evidence,
    mismatch: Option<Mismatch>,
    ordered: bool,
    now: Timestamp,
) -> Result<Verdict, Fault> {
    let mismatch = mismatch.ok_or_else(|| {
        Fault::corrupt("evidence was compared with nothing and found true".to_owned())
    })?;
    execute(
        connection,
        sql::FINDING_UPSERT,
        params![
            mismatch.code,
            evidence.destination.0,
            evidence.position.0,
            evidence.attempt.to_string(),
            evidence.event_id.to_string(),
            mismatch.finding,
            now.unix_micros()
        ],
    )?;
    if mismatch.quarantines {
        quarantine(connection, evidence, &mismatch.finding, ordered, now)?;
    }
    Ok(Verdict::Mismatch {
        finding: mismatch.finding,
    })
}

fn quarantine(
    connection: &Connection,
    evidence: &Evidence,
    finding: &str,
    ordered: bool,
    now: Timestamp,
) -> Result<(), Fault> {
    let (destination, position) = (evidence.destination, evidence.position);
    let key_hash: Option<i64> = connection
        .prepare_cached(sql::CONFLICT_QUARANTINE)?
        .query_row(params![destination.0, position.0], |row| row.get(0))
        .optional()?;
    let Some(key_hash) = key_hash else {
        return Ok(());
    };
    execute(
        connection,
        sql::CONFLICT_RECORD,
        params![
            destination.0,
            position.0,
            DIGEST_CONFLICT,
            bounded_detail(finding),
            now.unix_micros()
        ],
    )?;
    if ordered {
        keep_order(connection, (destination, position), key_hash)?;
    }
    Ok(())
}

fn keep_order(
    connection: &Connection,
    (destination, position): (DestinationId, Position),
    key_hash: i64,
) -> Result<(), Fault> {
    execute(
        connection,
        sql::DELIVERY_KEEP_ORDER,
        params![destination.0, position.0, key_hash],
    )?;
    Ok(())
}

/// The primary receipt of a delivery.
pub(crate) fn receipt_at(
    connection: &Connection,
    (destination, position): (DestinationId, Position),
) -> Result<Option<ReceiptRow>, Fault> {
    let mut statement = connection.prepare_cached(sql::RECEIPT_FIND)?;
    let mut rows = statement.query(params![destination.0, position.0])?;
    rows.next()?.map(receipt_row).transpose()
}

/// From attempt, time, shared part, number and lateness.
pub(crate) fn receipt_row(row: &rusqlite::Row<'_>) -> Result<ReceiptRow, Fault> {
    Ok(ReceiptRow {
        attempt: column::attempt_id(row, 0)?,
        accepted_at: column::time(row, 1)?,
        receipt: column::receipt(row, 2)?,
        late: read(row, 4)?,
    })
}
