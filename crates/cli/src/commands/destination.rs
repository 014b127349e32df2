//! `destination list` and `destination resume`.

use std::{io::Write, time::Duration};

use postrider_contract::Timestamp;
use postrider_store::inspect::{Backlog, Count};
use serde::Serialize;

use super::{audit, failed, not_confirmed, open};
use crate::{
    args::{DestinationCommand, Format, Resume},
    config::{Config, duration},
    fault::{Exit, Outcome},
    names,
    output::{self, List, Table},
    why::{count, counted},
};

pub(super) async fn run(
    command: DestinationCommand,
    config: &Config,
    out: &mut dyn Write,
) -> Outcome {
    match command {
        DestinationCommand::List(format) => list(format, config, out).await,
        DestinationCommand::Resume(args) => resume(&args, config, out).await,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    destination: String,
    name: String,
    generation: u64,
    current: bool,
    kind: String,
    cluster: String,
    digest: String,
    #[serde(serialize_with = "count")]
    pending: Count,
    #[serde(serialize_with = "count")]
    unknown: Count,
    #[serde(serialize_with = "count")]
    quarantined: Count,
    oldest_pending_seconds: Option<f64>,
    lanes: u16,
    lanes_held: u16,
    suspended: Option<Stopped>,
    breaker_open: Option<Stopped>,
}

#[derive(Serialize)]
struct Stopped {
    since: Timestamp,
    code: String,
    detail: String,
}

async fn list(format: Format, config: &Config, out: &mut dyn Write) -> Outcome {
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let backlog = store.backlog().await.map_err(failed)?;
    let mut rows = Vec::new();
    let mut ages = Vec::new();
    for registered in &registry.destinations {
        let figures: Option<&Backlog> = backlog.iter().find(|row| row.destination == registered.id);
        let destination = &registered.destination;
        let oldest: Option<Duration> = figures.and_then(|row| row.oldest_pending);
        ages.push(oldest);
        rows.push(Row {
            destination: names::label_of(registered),
            name: destination.name.clone(),
            generation: destination.generation,
            current: registered.current,
            kind: destination.kind.clone(),
            cluster: destination.cluster.clone(),
            digest: registered.digest.to_string(),
            pending: figures.map(|row| row.pending).unwrap_or_default(),
            unknown: figures.map(|row| row.unknown).unwrap_or_default(),
            quarantined: figures.map(|row| row.quarantined).unwrap_or_default(),
            oldest_pending_seconds: oldest.map(|age| age.as_secs_f64()),
            lanes: destination.lanes,
            lanes_held: figures.map_or(0, |row| row.lanes_held),
            suspended: registered.suspended.as_ref().map(|suspension| Stopped {
                since: suspension.since,
                code: suspension.code.clone(),
                detail: suspension.detail.clone(),
            }),
            breaker_open: figures
                .and_then(|row| row.breaker.as_ref())
                .map(|breaker| Stopped {
                    since: breaker.since,
                    code: breaker.code.clone(),
                    detail: breaker.detail.clone(),
                }),
        });
    }
    if format.json {
        let list = List {
            schema: "postrider.cli.destinations/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        "DESTINATION",
        "KIND",
        "PENDING",
        "OLDEST",
        "UNKNOWN",
        "QUARANTINED",
        "LANES HELD",
        "STATE",
    ]);
    for (row, age) in rows.into_iter().zip(ages) {
        let state = match (&row.suspended, &row.breaker_open, row.current) {
            (Some(stopped), _, _) => format!("suspended: {}", stopped.code),
            (None, Some(stopped), _) => format!("breaker open: {}", stopped.code),
            (None, None, true) => "current".to_owned(),
            (None, None, false) => "earlier generation".to_owned(),
        };
        table.row([
            row.destination,
            row.kind,
            counted(&row.pending),
            age.map_or("-".to_owned(), |age| {
                duration::write(Duration::from_secs(age.as_secs()))
            }),
            counted(&row.unknown),
            counted(&row.quarantined),
            format!("{}/{}", row.lanes_held, row.lanes),
            state,
        ]);
    }
    table.print(out, "no destination is registered")?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Resumed {
    schema: &'static str,
    destination: String,
    resumed: bool,
}

async fn resume(args: &Resume, config: &Config, out: &mut dyn Write) -> Outcome {
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    // By name alone the newest is meant: it is the one that events are routed to.
    let named = names::resolve(&registry, &args.destination)?;
    let Some(registered) = named.last() else {
        return Ok(Exit::No);
    };
    let label = names::label_of(registered);
    let Some(suspension) = &registered.suspended else {
        report(args, &label, false, out)?;
        return Ok(Exit::Done);
    };
    if !args.change.yes {
        return Err(not_confirmed(&format!(
            "{label} is suspended since {} ({}: {})",
            suspension.since, suspension.code, suspension.detail
        )));
    }
    let resumed = store
        .resume_destination(registered.id, &audit(&args.change))
        .await
        .map_err(failed)?;
    report(args, &label, resumed, out)?;
    Ok(Exit::Done)
}

fn report(args: &Resume, label: &str, resumed: bool, out: &mut dyn Write) -> std::io::Result<()> {
    if args.format.json {
        let resumed = Resumed {
            schema: "postrider.cli.destination-resume/1",
            destination: label.to_owned(),
            resumed,
        };
        return output::json(out, &resumed);
    }
    let words = if resumed {
        "runs again"
    } else {
        "was not suspended"
    };
    writeln!(out, "{label} {words}")
}
