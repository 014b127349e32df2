//! `provision`: makes what destinations need. The only command that changes a broker.

use std::{io::Write, sync::Arc, time::Duration};

use postrider_relay::TransportFactory;
use postrider_store::control::RegisteredDestination;
use postrider_transport::{Error, Provisioning};
use serde::Serialize;

use super::{failed, not_confirmed, open, run::settings};
use crate::{
    args::Provision,
    backend::Factory,
    code::Code,
    config::{Config, keys},
    fault::{Exit, Failure, Fault, Outcome},
    names,
    output::{self, printable},
};

/// For one destination.
const WITHIN: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// `false`: a preview, nothing was changed.
    provisioned: bool,
    destinations: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    destination: String,
    /// In a preview what would be done, else what was done.
    lines: Vec<String>,
    error: Option<String>,
}

pub(super) async fn run(args: &Provision, config: Arc<Config>, out: &mut dyn Write) -> Outcome {
    let store = open(&config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let mut chosen: Vec<&RegisteredDestination> = Vec::new();
    for name in &args.destinations {
        chosen.extend(names::resolve(&registry, name)?.last());
    }
    if args.destinations.is_empty() {
        let known = |row: &&RegisteredDestination| {
            row.current && keys::KINDS.contains(&row.destination.kind.as_str())
        };
        chosen = registry.destinations.iter().filter(known).collect();
    }
    if chosen.is_empty() {
        return Err(Fault::new(
            Code::NoSuchDestination,
            "no destination is registered",
            "Nothing was changed.",
            "register destinations with `postrider apply`",
        )
        .into());
    }
    let factory = Factory::new(Arc::clone(&config));
    let settings = settings(&config);
    let mut rows = Vec::new();
    for row in chosen {
        let usage = settings.usage(&row.destination);
        let done = match factory.open(row) {
            Err(error) => Err(error),
            Ok(transport) => {
                let how = if args.change.yes {
                    Provisioning::Make
                } else {
                    Provisioning::Preview
                };
                let done = tokio::time::timeout(WITHIN, transport.provision(&usage, how)).await;
                transport.close().await;
                done.unwrap_or_else(|_| {
                    Err(Error::Unavailable {
                        code: "no_answer",
                        message: format!("no answer within {WITHIN:?}"),
                    })
                })
            }
        };
        let (lines, error) = match done {
            Ok(lines) => (lines, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        rows.push(Row {
            destination: names::label_of(row),
            lines,
            error,
        });
    }
    let failed = rows
        .iter()
        .find_map(|row| Some((row.destination.clone(), row.error.clone()?)));
    let something = rows.iter().any(|row| !row.lines.is_empty());
    print(args, rows, out)?;
    match failed {
        Some((destination, error)) => Err(unreachable(&destination, &error)),
        None if !args.change.yes && something => {
            Err(not_confirmed("there is something to provision"))
        }
        None => Ok(Exit::Done),
    }
}

fn print(args: &Provision, rows: Vec<Row>, out: &mut dyn Write) -> std::io::Result<()> {
    if args.format.json {
        let report = Report {
            schema: "postrider.cli.provision/1",
            provisioned: args.change.yes,
            destinations: rows,
        };
        return output::json(out, &report);
    }
    for row in rows {
        let word = match (&row.error, row.lines.is_empty(), args.change.yes) {
            (Some(_), _, _) => "could not",
            (None, true, _) => "nothing to do",
            (None, false, true) => "done",
            (None, false, false) => "to do",
        };
        writeln!(out, "{}: {word}", row.destination)?;
        for line in row.lines.iter().chain(&row.error) {
            writeln!(out, "  {}", printable(line))?;
        }
    }
    Ok(())
}

fn unreachable(destination: &str, error: &str) -> Failure {
    Fault::new(
        Code::DestinationUnreachable,
        format!("{destination}: {error}"),
        "What was done for other destinations is done.",
        "check the connection's settings and that the destination runs, and repeat",
    )
    .into()
}
