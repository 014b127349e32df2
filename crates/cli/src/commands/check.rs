//! `check`: what is not ready, and why. Read-only everywhere.

use std::{io::Write, sync::Arc, time::Duration};

use postrider_core::DestinationId;
use postrider_relay::{Settings, TransportFactory};
use postrider_store::{
    Store,
    control::{RegisteredDestination, Registry},
    inspect::OldRows,
};
use postrider_transport::{Error, LOCKED, Problem, Severity};
use serde::Serialize;

use super::{failed, run::settings};
use crate::{
    args::Format,
    backend::{Factory, store},
    code::Code,
    config::Config,
    fault::{Exit, Failure, Fault, Outcome},
    names,
    output::{self, printable},
    plan,
};

/// A destination that does not answer must not keep the others from being looked at.
const PREFLIGHT_WITHIN: Duration = Duration::from_secs(20);

/// A snapshot that is held for longer is no ordinary query's.
const HELD_LONG: Duration = Duration::from_secs(300);

/// The same for what has no time, such as a replication slot.
const TRANSACTIONS_MANY: u64 = 1_000_000;

/// The newest sessions, among which those that live are looked for.
const SESSIONS_MAX: u32 = 1_000;

/// A write-ahead log over this many bytes is kept by a reader that does not end. SQLite's is cut
/// back to a quarter of it whenever nobody reads.
const LOG_BYTES_MANY: u64 = 64 << 20;

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    ok: bool,
    checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Serialize)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) ok: bool,
    pub(super) problems: Vec<Found>,
}

#[derive(Serialize)]
pub(super) struct Found {
    /// A stable word, such as `stream_missing`.
    code: String,
    /// `refused` keeps the relay from sending; `warning` names a risk, `note` neither.
    severity: &'static str,
    message: String,
    #[serde(skip)]
    fault: Option<Fault>,
}

impl Found {
    fn of_fault(fault: Fault) -> Self {
        Self {
            code: fault.code.number().to_owned(),
            severity: "refused",
            message: fault.what.clone(),
            fault: Some(fault),
        }
    }

    fn of_problem(problem: Problem) -> Self {
        Self {
            code: problem.code.to_owned(),
            severity: match problem.severity {
                Severity::Refused => "refused",
                Severity::Warning => "warning",
            },
            message: problem.message,
            fault: None,
        }
    }
}

impl Check {
    fn new(what: impl Into<String>, problems: Vec<Found>) -> Self {
        Self {
            what: what.into(),
            ok: problems.iter().all(|found| found.severity != "refused"),
            problems,
        }
    }

    fn describe(&self, out: &mut dyn Write) -> std::io::Result<()> {
        let word = if self.ok { "ok" } else { "NOT READY" };
        writeln!(out, "{}: {word}", self.what)?;
        for found in &self.problems {
            let message = printable(&found.message);
            writeln!(out, "  {} ({}): {message}", found.code, found.severity)?;
            if let Some(fault) = &found.fault {
                writeln!(out, "    fix: {}", printable(&fault.fix))?;
            }
        }
        Ok(())
    }
}

pub(super) async fn run(format: Format, config: Arc<Config>, out: &mut dyn Write) -> Outcome {
    let mut checks = Vec::new();
    let opened = match store::open(&config).await {
        Ok(opened) => {
            checks.push(Check::new(
                format!("database {}", store::shown(&config)),
                log(&opened).await?,
            ));
            Some(opened)
        }
        Err(fault) => {
            checks.push(Check::new(
                format!("database {}", store::shown(&config)),
                vec![Found::of_fault(fault)],
            ));
            None
        }
    };
    if let Some(store) = &opened {
        let registry = store.registry().await.map_err(failed)?;
        checks.push(registered(&config, &registry));
        checks.extend(destinations(&config, store, &registry).await?);
        let old_rows = store.old_rows().await.map_err(failed)?;
        checks.extend(old_rows.as_ref().map(snapshots));
    }
    let ok = checks.iter().all(|check| check.ok);
    if format.json {
        let report = Report {
            schema: "postrider.cli.check/1",
            ok,
            checks,
        };
        output::json(out, &report)?;
    } else {
        for check in &checks {
            check.describe(out)?;
        }
    }
    if opened.is_none() {
        // Nothing more could be found out.
        return Ok(Exit::CouldNot);
    }
    Ok(if ok { Exit::Done } else { Exit::No })
}

/// Who keeps the database from clearing away what the outbox deleted. An old snapshot anywhere in
/// the database does, and every read of the queue then steps over more dead rows.
fn snapshots(rows: &OldRows) -> Check {
    let mut found = Vec::new();
    if let Some(holder) = &rows.holder {
        let is_long = match holder.held_for {
            Some(held_for) => held_for >= HELD_LONG,
            None => holder.transactions >= TRANSACTIONS_MANY,
        };
        let pid = holder
            .pid
            .map_or(String::new(), |pid| format!("pid {pid}, "));
        let held_for = holder
            .held_for
            .map_or(String::new(), |time| format!(" for {}s", time.as_secs()));
        let fix = if is_long {
            "; end it if nobody needs it"
        } else {
            ""
        };
        found.push(Found {
            code: "oldest_snapshot".to_owned(),
            severity: if is_long { "warning" } else { "note" },
            message: format!(
                "{} {:?} ({pid}{}) has held the oldest snapshot{held_for}, while {} transactions began; dead rows in the outbox: {}{fix}",
                holder.kind, holder.name, holder.state, holder.transactions, rows.dead
            ),
            fault: None,
        });
    }
    if !rows.all_seen {
        found.push(Found {
            code: "snapshots_hidden".to_owned(),
            severity: "note",
            message: "there may be an older one of another role: grant pg_monitor to this role to see them all".to_owned(),
            fault: None,
        });
    }
    Check::new("snapshots", found)
}

/// The log that an open reader keeps from shrinking.
async fn log(store: &Arc<dyn Store>) -> Result<Vec<Found>, Failure> {
    let bytes = store.log_bytes().await.map_err(failed)?;
    let many = bytes.filter(|bytes| *bytes > LOG_BYTES_MANY);
    Ok(many
        .map(|bytes| Found {
            code: "log_large".to_owned(),
            severity: "warning",
            message: format!(
                "the write-ahead log has {bytes} bytes: some program keeps a read transaction \
                 open; end it, then `postrider maintain` empties the log"
            ),
            fault: None,
        })
        .into_iter()
        .collect())
}

/// The registry against the file.
fn registered(config: &Config, registry: &Registry) -> Check {
    let found = match plan::compute(config, registry) {
        Err(faults) => faults.into_iter().map(Found::of_fault).collect(),
        Ok(plan) if plan.changes.is_empty() => Vec::new(),
        Ok(plan) => {
            let count = plan.changes.len();
            vec![Found::of_fault(Fault::new(
                Code::NotApplied,
                format!("the file has {count} changes that are not registered"),
                "",
                "`postrider plan` shows them, `postrider apply --yes` registers them",
            ))]
        }
    };
    Check::new("registry", found)
}

/// Every destination that events go to now, and every earlier one that still has deliveries.
async fn destinations(
    config: &Arc<Config>,
    store: &Arc<dyn Store>,
    registry: &Registry,
) -> Result<Vec<Check>, Failure> {
    let backlog = store.backlog().await.map_err(failed)?;
    let settings = settings(config);
    let mut checks = Vec::new();
    for row in &registry.destinations {
        let figures = backlog.iter().find(|figures| figures.destination == row.id);
        let waits =
            figures.is_some_and(|figures| figures.pending.value > 0 || figures.unknown.value > 0);
        if !row.current && !waits {
            continue;
        }
        let mut found = Vec::new();
        if let Some(suspension) = &row.suspended {
            found.push(Found::of_fault(Fault::new(
                Code::DestinationNotReady,
                format!(
                    "suspended since {}: {} {}",
                    suspension.since, suspension.code, suspension.detail
                ),
                "",
                format!(
                    "settle the cause, then `postrider destination resume {}`",
                    names::label_of(row)
                ),
            )));
        }
        found.extend(preflight(config, &settings, store, row).await?);
        checks.push(Check::new(
            format!("destination {}", names::label_of(row)),
            found,
        ));
    }
    Ok(checks)
}

async fn preflight(
    config: &Arc<Config>,
    settings: &Settings,
    store: &Arc<dyn Store>,
    row: &RegisteredDestination,
) -> Result<Vec<Found>, Failure> {
    let factory = Factory::new(Arc::clone(config));
    let kind = &row.destination.kind;
    if !factory.kinds().contains(&kind.as_str()) {
        return Ok(vec![Found::of_fault(Fault::new(
            Code::KindUnknown,
            format!("this program does not know destinations of kind {kind:?}"),
            "Its deliveries wait, untouched.",
            "run a postrider that knows the kind",
        ))]);
    }
    let transport = match factory.open(row) {
        Ok(transport) => transport,
        Err(error) => return Ok(vec![of_error(&error)]),
    };
    let usage = settings.usage(&row.destination);
    let found = match tokio::time::timeout(PREFLIGHT_WITHIN, transport.preflight(&usage)).await {
        Ok(Ok(problems)) => problems.into_iter().map(Found::of_problem).collect(),
        Ok(Err(error)) => vec![match in_use(&error, store, row.id).await? {
            Some(found) => found,
            None => of_error(&error),
        }],
        Err(_) => vec![of_error(&Error::Unavailable {
            code: "no_answer",
            message: format!("no answer within {PREFLIGHT_WITHIN:?}"),
        })],
    };
    transport.close().await;
    Ok(found)
}

/// Another process has what only one may have. Where that is a relay of this database, all is well:
/// a session holds lanes only of what it can send to.
async fn in_use(
    error: &Error,
    store: &Arc<dyn Store>,
    destination: DestinationId,
) -> Result<Option<Found>, Failure> {
    if !matches!(error, Error::Unavailable { code, .. } if *code == LOCKED) {
        return Ok(None);
    }
    let now = store.now().await.map_err(failed)?;
    let sessions = store.sessions(SESSIONS_MAX).await.map_err(failed)?;
    let lanes = store.lanes().await.map_err(failed)?;
    let holder = sessions.iter().find(|session| {
        session.ended.is_none()
            && session.expires_at > now
            && lanes
                .iter()
                .any(|lane| lane.destination == destination && lane.session == Some(session.id))
    });
    Ok(holder.map(|session| Found {
        code: "in_use".to_owned(),
        severity: "note",
        message: format!(
            "the relay {} of this database has it open, so it was not looked at",
            session.owner
        ),
        fault: None,
    }))
}

fn of_error(error: &Error) -> Found {
    let (code, fix) = match error {
        Error::Unavailable { .. } => (
            Code::DestinationUnreachable,
            "check the connection's addresses and that the destination runs",
        ),
        Error::Misconfigured { .. } => (
            Code::DestinationNotReady,
            "correct the connection, or the destination and apply it",
        ),
    };
    Found::of_fault(Fault::new(code, error.to_string(), "", fix))
}

#[cfg(test)]
mod tests {
    use postrider_store::inspect::SnapshotHolder;

    use super::*;

    #[test]
    fn hlt_1_only_a_snapshot_that_is_held_long_is_a_warning() {
        let check = |held_for, transactions, expect: &str| {
            let rows = OldRows {
                dead: 7,
                holder: Some(SnapshotHolder {
                    kind: "session".to_owned(),
                    name: "report".to_owned(),
                    pid: Some(4711),
                    state: "idle in transaction".to_owned(),
                    transactions,
                    held_for,
                }),
                all_seen: true,
            };
            let check = snapshots(&rows);
            assert!(check.ok);
            let found = &check.problems[0];
            assert_eq!(found.severity, expect);
            assert!(
                found.message.contains("\"report\" (pid 4711, idle"),
                "{}",
                found.message
            );
        };
        check(Some(HELD_LONG), 1, "warning");
        check(Some(Duration::from_secs(1)), u64::MAX, "note");
        check(None, TRANSACTIONS_MANY, "warning");
        check(None, 1, "note");
    }
}
