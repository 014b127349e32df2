//! One relay between Postgres and JetStream, as a process of its own.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use postrider_core::deadline::{self, Deadlines};
use postrider_relay::{Meters, Relay, Settings, Stop, TransportFactory};
use postrider_store::{Store as _, control::RegisteredDestination, inspect::DeliveryFilter};
use postrider_store_postgres::{Options, PostgresStore};
use postrider_transport::Transport;
use postrider_transport_nats::{Connection, JetStream};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    database: String,
    #[arg(long)]
    nats: String,
    #[arg(long, default_value = "bench")]
    owner: String,
    /// Stop when nothing is pending.
    #[arg(long)]
    until_empty: bool,
    /// The session's lease; the other deadlines follow from it.
    #[arg(long, default_value_t = 30_000)]
    lease_ms: u64,
    #[arg(long, default_value_t = 2_000)]
    batch_max: u32,
}

#[derive(Debug)]
struct Factory {
    nats: String,
}

impl TransportFactory for Factory {
    fn kinds(&self) -> &[&'static str] {
        &["jetstream"]
    }

    fn open(
        &self,
        destination: &RegisteredDestination,
    ) -> Result<Arc<dyn Transport>, postrider_transport::Error> {
        let connection: Connection =
            serde_json::from_value(serde_json::json!({ "servers": [self.nats] }))
                .expect("a connection with defaults");
        Ok(Arc::new(JetStream::open(
            &destination.destination,
            connection,
        )?))
    }
}

pub(crate) async fn run(args: Args) -> Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let store = PostgresStore::new(Options::new(args.database.as_str()))?;
    let lease = Duration::from_millis(args.lease_ms);
    let deadlines = Deadlines::new(deadline::Settings {
        connect: lease / 20,
        send: lease / 6,
        hard: lease / 4,
        settle_margin: lease / 15,
        lease,
        heartbeat: lease / 6,
        shutdown_grace: lease / 2,
    })?;
    let mut settings = Settings::new(args.owner, deadlines);
    settings.batch_max = args.batch_max;
    let meters = Arc::new(Meters::new());
    let factory = Arc::new(Factory { nats: args.nats });
    let relay = Relay::new(Arc::new(store.clone()), factory, settings, meters);
    let (stop, stopped) = Stop::new();
    let until_empty = args.until_empty;
    tokio::spawn(async move {
        let mut terminate =
            tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let empty = async {
            while !until_empty || !is_empty(&store).await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            () = empty => {}
        }
        stop.send_replace(true);
        std::io::Result::Ok(())
    });
    let report = relay.run(stopped).await.context("the relay")?;
    println!(
        "{}",
        serde_json::json!({
            "acknowledged": report.acknowledged,
            "retried": report.retried,
            "unknown": report.unknown,
            "quarantined": report.quarantined,
            "duplicates": report.duplicates,
            "peakResidentKib": peak_resident_kib()?,
            "cpuMs": cpu_ms()?,
        })
    );
    Ok(())
}

async fn is_empty(store: &PostgresStore) -> bool {
    let all = DeliveryFilter::default();
    store
        .deliveries(&all, None, 1)
        .await
        .is_ok_and(|page| page.rows.is_empty())
}

/// The processor time that this process used, its kernel part included.
fn cpu_ms() -> Result<u64> {
    /// What the kernel tells programs that ask: always 100 on Linux.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program, in brackets, may hold spaces. After it, utime is the 12th field.
    let (_, fields) = stat
        .rsplit_once(')')
        .context("no name in /proc/self/stat")?;
    let ticks: u64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(str::parse::<u64>)
        .sum::<Result<_, _>>()?;
    Ok(ticks * 1000 / TICKS_PER_SECOND)
}

/// The most memory that this process ever had resident.
fn peak_resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .context("no VmHWM in /proc/self/status")
}
