//! `deliveries list`: the open ones. A closed delivery is its receipt, see `events show`.

use std::io::Write;

use postrider_contract::{EventId, Timestamp, key};
use postrider_core::{DestinationId, Position, delivery::State};
use postrider_store::inspect::DeliveryFilter;
use serde::Serialize;

use super::{
    events::{bad_cursor, say_next},
    failed, open,
};
use crate::{
    args::{Deliveries, DeliveriesList, OpenState},
    config::Config,
    fault::{Exit, Fault, Outcome},
    names,
    output::{self, List, Table},
};

/// Where a list of deliveries goes on.
pub(super) type Cursor = (DestinationId, Position);

/// Reads `3:1234`.
pub(super) fn cursor(text: Option<&str>) -> Result<Option<Cursor>, Fault> {
    let Some(text) = text else {
        return Ok(None);
    };
    let parsed = text.split_once(':').and_then(|(destination, position)| {
        let destination = destination.parse().ok()?;
        let position = position.parse().ok()?;
        Some((DestinationId(destination), Position(position)))
    });
    parsed.map(Some).ok_or_else(|| bad_cursor(text))
}

pub(super) fn write_cursor((destination, position): Cursor) -> String {
    format!("{destination}:{position}")
}

/// Where to go on in one destination of a list that goes through several, by ascending id:
/// `None` if the cursor is past it.
pub(super) fn resume_at(
    after: Option<Cursor>,
    destination: Option<DestinationId>,
) -> Option<Option<Cursor>> {
    match (after, destination) {
        (Some(cursor), Some(destination)) if cursor.0 > destination => None,
        (Some(cursor), Some(destination)) if cursor.0 < destination => Some(None),
        (after, _) => Some(after),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    destination: String,
    position: i64,
    event_id: EventId,
    lane: u16,
    state: &'static str,
    attempts_charged: u32,
    available_at: Timestamp,
}

pub(super) async fn run(command: Deliveries, config: &Config, out: &mut dyn Write) -> Outcome {
    match command {
        Deliveries::List(args) => list(&args, config, out).await,
    }
}

async fn list(args: &DeliveriesList, config: &Config, out: &mut dyn Write) -> Outcome {
    let after = cursor(args.page.after.as_deref())?;
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let mut destinations: Vec<Option<DestinationId>> = match &args.destination {
        None => vec![None],
        Some(name) => names::resolve(&registry, name)?
            .into_iter()
            .map(|row| Some(row.id))
            .collect(),
    };
    destinations.sort();
    let mut found = Vec::new();
    let mut more = false;
    for destination in destinations {
        let Some(after) = resume_at(after, destination) else {
            continue;
        };
        let limit = args.page.limit - u32::try_from(found.len()).unwrap_or(args.page.limit);
        if limit == 0 {
            more = true;
            break;
        }
        let filter = DeliveryFilter {
            destination,
            state: args.state.map(state),
            key_hash: args.partition_key.as_deref().map(key::hash),
        };
        let page = store
            .deliveries(&filter, after, limit)
            .await
            .map_err(failed)?;
        more = page.more;
        found.extend(page.rows);
        if more {
            break;
        }
    }
    let next = match (more, found.last()) {
        (true, Some(last)) => Some(write_cursor((last.destination, last.position))),
        (_, _) => None,
    };
    let rows: Vec<Row> = found
        .into_iter()
        .map(|row| Row {
            destination: names::label(&registry, row.destination),
            position: row.position.0,
            event_id: row.event_id,
            lane: row.lane.0,
            state: row.state.word(),
            attempts_charged: row.attempts_charged,
            available_at: row.available_at,
        })
        .collect();
    if args.format.json {
        let list = List {
            schema: "postrider.cli.deliveries/1",
            rows,
            next,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["DESTINATION", "EVENT", "STATE", "ATTEMPTS", "LANE", "DUE"]);
    for row in rows {
        table.row([
            row.destination,
            row.event_id.to_string(),
            row.state.to_owned(),
            row.attempts_charged.to_string(),
            row.lane.to_string(),
            row.available_at.to_string(),
        ]);
    }
    table.print(out, "no open deliveries")?;
    say_next(next.as_deref());
    Ok(Exit::Done)
}

fn state(state: OpenState) -> State {
    match state {
        OpenState::Pending => State::Pending,
        OpenState::Unknown => State::Unknown,
        OpenState::Quarantined => State::Quarantined,
    }
}
