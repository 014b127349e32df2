//! A backlog drained to a JetStream file stream: the limit and the relay, on the same servers.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use async_nats::{HeaderMap, jetstream};
use postrider_contract::destination::{Ordering, Serializer};
use postrider_testkit::env;
use tokio::process::Command;

use crate::{limit, setup};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long, default_value_t = 200_000)]
    events: usize,
    #[arg(long, default_value_t = 1_024)]
    payload_bytes: usize,
    /// Measured this many times, the limit and the relay in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 2_000)]
    batch_max: u32,
    /// How the events are written as messages.
    #[arg(long, value_enum, default_value = "cloudevents-binary")]
    format: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    CloudeventsBinary,
    Raw,
}

impl From<Format> for Serializer {
    fn from(format: Format) -> Self {
        match format {
            Format::CloudeventsBinary => Self::CloudeventsBinary,
            Format::Raw => Self::Raw,
        }
    }
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let server = env::postgres();
    let nats = env::nats_url();
    let (mut of_bare, mut of_same) = (Vec::new(), Vec::new());
    println!(
        "round  bare limit/s  limit/s  relay/s  of bare  of limit  relay peak MB  relay CPU us/event"
    );
    for round in 1..=args.rounds {
        let url = server.create_database().await?;
        let unique = uuid::Uuid::now_v7().simple().to_string();
        let name = format!("RELAY{unique}");
        let mut destination = setup::destination(&name, Ordering::Key);
        destination.serializer = args.format.into();
        let store = setup::database(&url, vec![destination.clone()]).await?;
        setup::backlog(&store, args.events, args.payload_bytes).await?;
        let context = setup::stream(&nats, &name).await?;
        for statement in ["vacuum analyze", "checkpoint"] {
            postrider_testkit::postgres::execute(&url, statement).await?;
        }

        let same = limit::headers(&store, &destination).await?;
        let mut limits = [0.0; 2];
        for (limit, headers) in limits.iter_mut().zip([&HeaderMap::new(), &same]) {
            let raw = format!("LIMIT{unique}");
            setup::stream(&nats, &raw).await?;
            *limit = per_second(
                args,
                limit::run(&url, &nats, &raw, headers, args.batch_max.into()).await?,
            );
            all_there(args, &context, &raw).await?;
            context.delete_stream(&raw).await?;
        }
        let [bare, limit] = limits;

        let started = Instant::now();
        let report = relay(args, &url, &nats).await?;
        let relay = per_second(args, started.elapsed());
        all_there(args, &context, &name).await?;
        context.delete_stream(&name).await?;
        let peak = report["peakResidentKib"].as_u64().context("no peak")? as f64 / 1024.0;
        let cpu = report["cpuMs"].as_u64().context("no CPU time")? as f64 * 1e3;
        let cpu = cpu / args.events as f64;
        of_bare.push(relay / bare);
        of_same.push(relay / limit);
        println!(
            "{round:>5}  {bare:>12.0}  {limit:>7.0}  {relay:>7.0}  {:>7.2}  {:>8.2}  {peak:>13.0}  \
             {cpu:>18.1}",
            relay / bare,
            relay / limit,
        );
    }
    println!(
        "median ratios: {:.2} of the bare limit, {:.2} of the limit with the relay's messages",
        median(&mut of_bare),
        median(&mut of_same)
    );
    Ok(())
}

/// Runs one relay until nothing is pending; what it reports.
async fn relay(args: &Args, url: &str, nats: &str) -> Result<serde_json::Value> {
    let child = Command::new(std::env::current_exe()?)
        .args(["relay", "--until-empty", "--database", url, "--nats", nats])
        .args(["--batch-max", &args.batch_max.to_string()])
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()?
        .wait_with_output()
        .await?;
    ensure!(child.status.success(), "the relay failed");
    Ok(serde_json::from_slice(&child.stdout)?)
}

async fn all_there(args: &Args, context: &jetstream::Context, stream: &str) -> Result<()> {
    let stored = setup::stored(context, stream).await?;
    ensure!(
        stored == u64::try_from(args.events)?,
        "{stored} messages for {} events",
        args.events
    );
    Ok(())
}

fn per_second(args: &Args, took: Duration) -> f64 {
    args.events as f64 / took.as_secs_f64()
}

fn median(ratios: &mut [f64]) -> f64 {
    ratios.sort_by(f64::total_cmp);
    ratios[ratios.len() / 2]
}
