//! What a person decides: quarantine listed and replayed.

use postrider_contract::Timestamp;
use postrider_core::{DestinationId, Position};
use postrider_store::{
    control::Audit,
    inspect::{Page, QuarantineReason, QuarantineRow, ReplaySelection, Replayed},
};
use rusqlite::{Connection, params};

use crate::{
    column::{self, read},
    control::{audit, execute},
    fault::Fault,
    inspect::{one_more, page, tail},
    sql,
};

pub(crate) fn quarantined(
    connection: &Connection,
    selection: &ReplaySelection,
    after: Option<(DestinationId, Position)>,
    limit: u32,
) -> Result<Page<QuarantineRow>, Fault> {
    let (destination, position) = after.unwrap_or((DestinationId(0), Position::START));
    let mut statement = connection.prepare_cached(sql::QUARANTINED_PAGE)?;
    let mut rows = statement.query(params![
        destination.0,
        position.0,
        one_more(limit),
        selection.destination.map(|destination| destination.0),
        selection.code,
        selection.events.as_deref().map(column::json_ids),
    ])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (destination, position) = (column::destination(row, 0)?, column::position(row, 1)?);
        let key_hash = read(row, 4)?;
        found.push(QuarantineRow {
            destination,
            position,
            event_id: column::event_id(row, 2)?,
            envelope: read(row, 10)?,
            envelope_digest: column::envelope_digest(row, 3)?,
            key_hash,
            attempts_charged: read(row, 5)?,
            reason: QuarantineReason {
                code: read(row, 6)?,
                detail: read(row, 7)?,
                since: column::time(row, 8)?,
            },
            tail: tail(connection, destination, position, key_hash)?,
            overtaken: read(row, 9)?,
        });
    }
    Ok(page(found, limit))
}

pub(crate) fn replay(
    connection: &Connection,
    selection: &ReplaySelection,
    limit: u32,
    by: &Audit,
    now: Timestamp,
) -> Result<Replayed, Fault> {
    let mut deliveries = Vec::new();
    {
        let mut statement = connection.prepare_cached(sql::REPLAY_SELECT)?;
        let mut rows = statement.query(params![
            limit,
            selection.destination.map(|destination| destination.0),
            selection.code,
            selection.events.as_deref().map(column::json_ids),
        ])?;
        while let Some(row) = rows.next()? {
            let destination = column::destination(row, 0)?;
            deliveries.push((
                destination,
                column::position(row, 1)?,
                column::event_id(row, 2)?,
            ));
        }
    }
    for (destination, position, _) in &deliveries {
        let at = (destination.0, position.0);
        execute(
            connection,
            sql::DELIVERY_REPLAY,
            params![at.0, at.1, now.unix_micros()],
        )?;
        execute(
            connection,
            sql::QUARANTINE_RESOLVE,
            params![at.0, at.1, now.unix_micros(), by.actor],
        )?;
    }
    if !deliveries.is_empty() {
        let changed = i64::try_from(deliveries.len()).unwrap_or(i64::MAX);
        audit(connection, "replay", by, changed, now)?;
    }
    Ok(Replayed { deliveries })
}
