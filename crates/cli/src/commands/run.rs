//! `run` and `dispatch-once`: the relay.

use std::{io::Write, sync::Arc};

use postrider_relay::{Error, Meters, Relay, Report, Settings, Stop};
use postrider_store::Store;
use serde::Serialize;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::{info, warn};

use super::{failed, host, open};
use crate::{
    args::{DispatchOnce, Run},
    backend::{Factory, store},
    code::Code,
    config::Config,
    fault::{Exit, Failure, Fault, Outcome},
    log, names, output,
};

/// What a run came to, as JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ran {
    schema: &'static str,
    claimed: u64,
    acknowledged: u64,
    retried: u64,
    unknown: u64,
    quarantined: u64,
    duplicates: u64,
    shutdown_requested: bool,
    /// Another dispatcher holds the exclusive lease; nothing was claimed.
    exclusive_held_by: Option<String>,
}

/// The relay's settings as configured.
pub(super) fn settings(config: &Config) -> Settings {
    let relay = &config.relay;
    let owner = relay
        .owner
        .clone()
        .unwrap_or_else(|| format!("{}/{}", host(), std::process::id()));
    let mut settings = Settings::new(owner, relay.deadlines);
    env!("CARGO_PKG_VERSION").clone_into(&mut settings.version);
    settings.backoff = relay.backoff;
    settings.breaker = relay.breaker;
    settings.batch_max = relay.batch_max;
    settings.batch_bytes_max = relay.batch_bytes_max;
    settings.sending_max = relay.sending_max;
    settings.late_max = relay.late_max;
    settings.poll_min = relay.poll_min;
    settings.poll_max = relay.poll_max;
    settings.poll_max_with_doorbell = relay.poll_max_with_doorbell;
    settings.rescan = relay.rescan;
    settings.exclusive = relay.exclusive;
    settings
}

pub(super) async fn run(args: &Run, config: Arc<Config>, out: &mut dyn Write) -> Outcome {
    log::start(&config.log);
    let store = open(&config).await?;
    let mut settings = settings(&config);
    settings.exclusive |= args.exclusive;
    settings.iterations_max = args.iterations_max;
    let meters = Arc::new(Meters::new());
    let transports = Arc::new(Factory::new(Arc::clone(&config)));
    let owner = settings.owner.clone();
    let relay = Arc::new(Relay::new(
        Arc::clone(&store),
        transports,
        settings,
        Arc::clone(&meters),
    ));

    let (trigger, stop) = Stop::new();
    // Ready before the relay starts, so that no signal is missed.
    let signals = Signals::listen()?;
    let signals = tokio::spawn(signals.forward(trigger));
    let server = match config.admin_listen {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address)
                .await
                .map_err(|error| address_taken(&address.to_string(), &error))?;
            let admin = postrider_admin::Admin::new(Arc::clone(&relay), store, meters);
            Some(tokio::spawn(listen(listener, admin)))
        }
    };
    info!(owner, database = store::shown(&config), "relay started");
    let report = relay.run(stop).await;
    signals.abort();
    if let Some(server) = server {
        server.abort();
    }
    let report = report.map_err(|error| relay_fault(&error, &config))?;
    info!(
        claimed = report.claimed,
        acknowledged = report.acknowledged,
        "relay stopped"
    );
    print(args.format.json, report, out)?;
    Ok(Exit::Done)
}

async fn listen(listener: TcpListener, admin: postrider_admin::Admin) {
    match listener.local_addr() {
        Ok(address) => info!(%address, "serving /livez, /readyz and /metrics"),
        Err(error) => warn!(%error, "serving at an address that cannot be told"),
    }
    if let Err(error) = admin.serve(listener).await {
        warn!(%error, "the admin server ended; the relay goes on");
    }
}

pub(super) async fn dispatch_once(
    args: &DispatchOnce,
    config: Arc<Config>,
    out: &mut dyn Write,
) -> Outcome {
    log::start_quiet(&config.log);
    let store = open(&config).await?;
    let mut settings = settings(&config);
    settings.exclusive |= args.exclusive;
    let transports = Arc::new(Factory::new(Arc::clone(&config)));
    let relay = Relay::new(
        Arc::clone(&store),
        transports,
        settings,
        Arc::new(Meters::new()),
    );
    let report = relay
        .dispatch_once()
        .await
        .map_err(|error| relay_fault(&error, &config))?;
    let looked = report.exclusive_held_by.is_none();
    print(args.format.json, report, out)?;
    let faults = if looked {
        not_ready(&relay, &store).await?
    } else {
        Vec::new()
    };
    if faults.is_empty() {
        return Ok(Exit::Done);
    }
    let exit = Exit::NotReady;
    Err(Failure { exit, faults })
}

/// The destinations that nothing could be sent to, of those that events go to now or that have
/// some left.
async fn not_ready(relay: &Relay, store: &Arc<dyn Store>) -> Result<Vec<Fault>, Failure> {
    let registry = store.registry().await.map_err(failed)?;
    let backlog = store.backlog().await.map_err(failed)?;
    let mut faults = Vec::new();
    for status in relay.status().destinations {
        let is_current = names::find(&registry, status.id).is_some_and(|row| row.current);
        let has_some = backlog
            .iter()
            .any(|row| row.destination == status.id && row.pending.value > 0);
        if let Some(problem) = status.refusal()
            && !status.is_left_to_others()
            && (is_current || has_some)
        {
            faults.push(Fault::new(
                Code::DestinationNotReady,
                format!(
                    "{}#{}: {}: {}",
                    status.name, status.generation, problem.code, problem.message
                ),
                "Nothing was sent there.",
                "settle what the message says; `postrider check` looks again",
            ));
        }
    }
    Ok(faults)
}

fn print(json: bool, report: Report, out: &mut dyn Write) -> std::io::Result<()> {
    if json {
        let ran = Ran {
            schema: "postrider.cli.run/1",
            claimed: report.claimed,
            acknowledged: report.acknowledged,
            retried: report.retried,
            unknown: report.unknown,
            quarantined: report.quarantined,
            duplicates: report.duplicates,
            shutdown_requested: report.shutdown_requested,
            exclusive_held_by: report.exclusive_held_by,
        };
        return output::json(out, &ran);
    }
    if let Some(owner) = &report.exclusive_held_by {
        let owner = output::printable(owner);
        writeln!(out, "{owner} holds the exclusive lease")?;
    }
    writeln!(
        out,
        "claimed {}, acknowledged {}, retried {}, unknown {}, quarantined {}, duplicates {}",
        report.claimed,
        report.acknowledged,
        report.retried,
        report.unknown,
        report.quarantined,
        report.duplicates
    )
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::from(Fault::new(
                Code::RelayFailed,
                format!("signals cannot be listened for: {error}"),
                "The relay did not start: it could not be stopped gracefully.",
                "start it where the system allows signal handlers",
            ))
        };
        Ok(Self {
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
        })
    }

    /// The first signal asks the relay to stop; the second one leaves at once, which is a crash
    /// and therefore safe.
    async fn forward(mut self, trigger: watch::Sender<bool>) {
        self.next().await;
        info!("stopping: finishing what is in flight; a second signal leaves at once");
        trigger.send_replace(true);
        self.next().await;
        warn!("leaving at once");
        std::process::exit(LEFT_AT_ONCE);
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// As a shell reports a process that SIGINT ended: nothing was found out, and nothing is lost.
const LEFT_AT_ONCE: i32 = 130;

fn relay_fault(error: &Error, config: &Config) -> Failure {
    match error {
        Error::Store(error) => store::fault(error).into(),
        Error::Schema(status) => match store::schema_fault(status, config) {
            Some(fault) => fault.into(),
            None => stopped(&error.to_string()),
        },
        Error::Registry(_) => stopped(&error.to_string()),
    }
}

fn stopped(why: &str) -> Failure {
    Fault::new(
        Code::RelayFailed,
        format!("the relay stopped: {why}"),
        "What was in flight is found by the next session; nothing is lost.",
        "settle what the message says, and start it again",
    )
    .into()
}

fn address_taken(address: &str, error: &std::io::Error) -> Failure {
    Fault::new(
        Code::AddressTaken,
        format!("admin.listen: {address} cannot be listened on: {error}"),
        "The relay did not start, so that nobody believes it to be watched.",
        "give this relay an address of its own, such as 127.0.0.1:0, or \"off\"",
    )
    .into()
}
