//! `dead-letter list`, `show` and `replay`: deliveries that wait for a person.

use std::{io::Write, sync::Arc};

use postrider_contract::{Envelope, EventId, Timestamp};
use postrider_core::DestinationId;
use postrider_schema::LASTING_CODES;
use postrider_store::{
    Store,
    control::Registry,
    inspect::{Count, QuarantineRow, ReplaySelection},
};
use serde::Serialize;

use super::{
    audit,
    deliveries::{Cursor, cursor, resume_at, write_cursor},
    event_id,
    events::{Shown, say_next},
    failed, not_confirmed, open,
    why::no_such_event,
};
use crate::{
    args::{DeadLetter, DeadLetterList, DeadLetterShow, Replay, Selection},
    code::Code,
    config::Config,
    fault::{Exit, Failure, Fault, Outcome},
    names,
    output::{self, List, Table},
    why::{count, counted},
};

pub(super) async fn run(command: DeadLetter, config: &Config, out: &mut dyn Write) -> Outcome {
    match command {
        DeadLetter::List(args) => list(&args, config, out).await,
        DeadLetter::Show(args) => show(&args, config, out).await,
        DeadLetter::Replay(args) => replay(&args, config, out).await,
    }
}

/// One quarantined delivery.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    event_id: EventId,
    destination: String,
    position: i64,
    tenant: Option<String>,
    event_type: Option<String>,
    schema_version: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    attempts_charged: u32,
    code: String,
    detail: String,
    since: Timestamp,
    /// Deliveries of its key behind it at this destination.
    #[serde(serialize_with = "count")]
    waiting: Count,
    /// A later delivery of its key was acknowledged: replaying it sends out of order.
    overtaken: bool,
}

impl Row {
    fn of(row: &QuarantineRow, registry: &Registry) -> Self {
        // What cannot be read may be why it is in quarantine.
        let envelope = Envelope::from_stored(&row.envelope).ok();
        let of = |field: fn(&Envelope) -> &String| envelope.as_ref().map(field).cloned();
        Self {
            event_id: row.event_id,
            destination: names::label(registry, row.destination),
            position: row.position.0,
            tenant: of(|envelope| &envelope.tenant),
            event_type: of(|envelope| &envelope.event_type),
            schema_version: of(|envelope| &envelope.schema_version),
            aggregate_type: of(|envelope| &envelope.aggregate.kind),
            aggregate_id: of(|envelope| &envelope.aggregate.id),
            attempts_charged: row.attempts_charged,
            code: row.reason.code.clone(),
            detail: row.reason.detail.clone(),
            since: row.reason.since,
            waiting: row.tail,
            overtaken: row.overtaken,
        }
    }
}

/// One selection of the store per destination that is meant, by ascending id.
fn selections(selection: &Selection, registry: &Registry) -> Result<Vec<ReplaySelection>, Fault> {
    let events: Vec<EventId> = selection
        .event_id
        .iter()
        .map(|text| event_id(text))
        .collect::<Result<_, _>>()?;
    let mut destinations: Vec<Option<DestinationId>> = match &selection.destination {
        None => vec![None],
        Some(name) => names::resolve(registry, name)?
            .into_iter()
            .map(|row| Some(row.id))
            .collect(),
    };
    destinations.sort();
    Ok(destinations
        .into_iter()
        .map(|destination| ReplaySelection {
            events: (!events.is_empty()).then(|| events.clone()),
            destination,
            code: selection.code.clone(),
        })
        .collect())
}

/// What is quarantined, and whether there is more.
async fn quarantined(
    store: &Arc<dyn Store>,
    selections: &[ReplaySelection],
    after: Option<Cursor>,
    limit: u32,
) -> Result<(Vec<QuarantineRow>, bool), Failure> {
    let mut found = Vec::new();
    for selection in selections {
        let Some(after) = resume_at(after, selection.destination) else {
            continue;
        };
        let left = limit - u32::try_from(found.len()).unwrap_or(limit);
        if left == 0 {
            return Ok((found, true));
        }
        let page = store
            .quarantined(selection, after, left)
            .await
            .map_err(failed)?;
        found.extend(page.rows);
        if page.more {
            return Ok((found, true));
        }
    }
    Ok((found, false))
}

async fn list(args: &DeadLetterList, config: &Config, out: &mut dyn Write) -> Outcome {
    let after = cursor(args.page.after.as_deref())?;
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let selections = selections(&args.selection, &registry)?;
    let (found, more) = quarantined(&store, &selections, after, args.page.limit).await?;
    let next = match (more, found.last()) {
        (true, Some(last)) => Some(write_cursor((last.destination, last.position))),
        (_, _) => None,
    };
    let rows: Vec<Row> = found.iter().map(|row| Row::of(row, &registry)).collect();
    if args.format.json {
        let list = List {
            schema: "postrider.cli.dead-letters/1",
            rows,
            next,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    table(&rows).print(out, "no deliveries in quarantine")?;
    say_next(next.as_deref());
    Ok(Exit::Done)
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new([
        "EVENT",
        "DESTINATION",
        "TYPE",
        "CODE",
        "SINCE",
        "ATTEMPTS",
        "WAITING",
    ]);
    for row in rows {
        table.row([
            row.event_id.to_string(),
            row.destination.clone(),
            row.event_type.clone().unwrap_or_else(|| "-".to_owned()),
            row.code.clone(),
            row.since.to_string(),
            row.attempts_charged.to_string(),
            counted(&row.waiting),
        ]);
    }
    table
}

async fn show(args: &DeadLetterShow, config: &Config, out: &mut dyn Write) -> Outcome {
    let id = event_id(&args.event_id)?;
    let store = open(config).await?;
    let Some(event) = store.event(id).await.map_err(failed)? else {
        return Err(no_such_event(&id.to_string()).into());
    };
    let registry = store.registry().await.map_err(failed)?;
    let mut shown = Shown::of(event, &registry, false);
    shown.keep(|delivery| delivery.state == "quarantined");
    if shown.is_without_deliveries() {
        return Err(Fault::new(
            Code::NoSuchEvent,
            format!("event {id} has no delivery in quarantine"),
            "",
            "`postrider why` says where its deliveries are",
        )
        .into());
    }
    if args.format.json {
        output::json(out, &shown)?;
    } else {
        shown.describe(out)?;
    }
    Ok(Exit::Done)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replays {
    schema: &'static str,
    /// `false`: a preview, nothing was changed.
    replayed: bool,
    count: usize,
    /// In the order in which they will be sent.
    deliveries: Vec<Replayed>,
    warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Replayed {
    event_id: EventId,
    destination: String,
    position: i64,
}

async fn replay(args: &Replay, config: &Config, out: &mut dyn Write) -> Outcome {
    let selection = &args.selection;
    let narrowed = !selection.event_id.is_empty()
        || selection.destination.is_some()
        || selection.code.is_some();
    if !narrowed && !args.all {
        return Err(Fault::new(
            Code::BadArgument,
            "which deliveries to replay was not said",
            "Nothing was changed.",
            "give --event-id, --destination or --code, or --all",
        )
        .into());
    }
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let selections = selections(selection, &registry)?;
    let (found, more) = quarantined(&store, &selections, None, args.limit).await?;
    let warnings = warnings(&found, &registry);

    if !args.change.yes {
        preview(args, &found, warnings, &registry, out)?;
        if more {
            output::say(&format!("only the first {} are meant: --limit", args.limit));
        }
        if found.is_empty() {
            return Ok(Exit::No);
        }
        return Err(not_confirmed(&format!(
            "{} would be sent again",
            deliveries_of(found.len())
        )));
    }

    let mut deliveries = Vec::new();
    for selection in &selections {
        let limit = args.limit - u32::try_from(deliveries.len()).unwrap_or(args.limit);
        if limit == 0 {
            break;
        }
        let replayed = store
            .replay(selection, limit, &audit(&args.change))
            .await
            .map_err(failed)?;
        for (destination, position, event_id) in replayed.deliveries {
            deliveries.push(Replayed {
                event_id,
                destination: names::label(&registry, destination),
                position: position.0,
            });
        }
    }
    let none = deliveries.is_empty();
    report(args, true, deliveries, warnings, out)?;
    Ok(if none { Exit::No } else { Exit::Done })
}

/// What an operator should know before replaying these.
fn warnings(found: &[QuarantineRow], registry: &Registry) -> Vec<String> {
    let mut warnings = Vec::new();
    for row in found {
        let place = format!(
            "event {} at {}",
            row.event_id,
            names::label(registry, row.destination)
        );
        if LASTING_CODES.contains(&row.reason.code.as_str()) {
            warnings.push(format!(
                "{place}: its payload violates the schema that it was committed with, which a replay does not change; it will be quarantined again, and the application must append a right one as a new event"
            ));
        }
        if row.overtaken {
            warnings.push(format!(
                "{place}: later events of its key were delivered already; the consumer will see it out of order"
            ));
        }
    }
    warnings
}

fn preview(
    args: &Replay,
    found: &[QuarantineRow],
    warnings: Vec<String>,
    registry: &Registry,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if args.format.json {
        let deliveries = found
            .iter()
            .map(|row| Replayed {
                event_id: row.event_id,
                destination: names::label(registry, row.destination),
                position: row.position.0,
            })
            .collect();
        return report(args, false, deliveries, warnings, out);
    }
    let rows: Vec<Row> = found.iter().map(|row| Row::of(row, registry)).collect();
    table(&rows).print(out, "no delivery in quarantine matches")?;
    for warning in warnings {
        output::say(&format!("warning: {warning}"));
    }
    Ok(())
}

fn report(
    args: &Replay,
    replayed: bool,
    deliveries: Vec<Replayed>,
    warnings: Vec<String>,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if args.format.json {
        let replays = Replays {
            schema: "postrider.cli.replay/1",
            replayed,
            count: deliveries.len(),
            deliveries,
            warnings,
        };
        return output::json(out, &replays);
    }
    for warning in warnings {
        output::say(&format!("warning: {warning}"));
    }
    if deliveries.is_empty() {
        return writeln!(out, "no delivery in quarantine matches");
    }
    for delivery in &deliveries {
        writeln!(out, "{} at {}", delivery.event_id, delivery.destination)?;
    }
    writeln!(out, "pending again: {}", deliveries_of(deliveries.len()))
}

fn deliveries_of(count: usize) -> String {
    match count {
        1 => "1 delivery".to_owned(),
        count => format!("{count} deliveries"),
    }
}

#[cfg(test)]
mod tests {
    use postrider_contract::Digest;
    use postrider_core::Position;
    use postrider_store::inspect::QuarantineReason;

    use super::*;

    #[test]
    fn what_a_replay_cannot_mend_is_said_before_it() {
        let row = |code: &str, overtaken| QuarantineRow {
            destination: DestinationId(7),
            position: Position(1),
            event_id: "01980000-0000-7000-8000-000000000001".parse().unwrap(),
            envelope: "{}".to_owned(),
            envelope_digest: Digest::of_canonical("{}"),
            key_hash: 0,
            attempts_charged: 0,
            reason: QuarantineReason {
                code: code.to_owned(),
                detail: String::new(),
                since: Timestamp::from_unix_micros(0).unwrap(),
            },
            tail: Count::default(),
            overtaken,
        };
        let said = |row: QuarantineRow| warnings(&[row], &Registry::default()).join("\n");
        assert_eq!(said(row("rejected", false)), "");
        assert!(said(row("rejected", true)).contains("out of order"));
        for code in LASTING_CODES {
            let said = said(row(code, true));
            assert!(said.contains("will be quarantined again"), "{said}");
            assert!(said.contains("out of order"), "{said}");
        }
    }
}
