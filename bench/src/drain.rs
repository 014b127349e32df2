//! A backlog drained to a JetStream file stream: the limit and the relay, on the same servers.

use std::{process::Stdio, time::Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_contract::destination::Ordering;
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
    #[arg(long, default_value_t = 1_000)]
    batch_max: u32,
}

pub(crate) async fn run(args: &Args) -> Result<()> {
    let server = env::postgres();
    let nats = env::nats_url();
    let mut ratios = Vec::new();
    println!("round  limit/s  relay/s  ratio  relay peak MB  relay CPU us/event");
    for round in 1..=args.rounds {
        let url = server.create_database().await?;
        let unique = uuid::Uuid::now_v7().simple().to_string();
        let (raw, name) = (format!("LIMIT{unique}"), format!("RELAY{unique}"));
        let destination = setup::destination(&name, Ordering::Key);
        let store = setup::database(&url, vec![destination]).await?;
        setup::backlog(&store, args.events, args.payload_bytes).await?;
        let context = setup::stream(&nats, &raw).await?;
        setup::stream(&nats, &name).await?;
        let events = u64::try_from(args.events)?;
        for statement in ["vacuum analyze", "checkpoint"] {
            postrider_testkit::postgres::execute(&url, statement).await?;
        }

        let took = limit::run(&url, &nats, &raw).await?;
        ensure!(
            setup::stored(&context, &raw).await? == events,
            "the limit lost events"
        );
        let limit = args.events as f64 / took.as_secs_f64();
        context.delete_stream(&raw).await?;

        let started = Instant::now();
        let child = Command::new(std::env::current_exe()?)
            .args([
                "relay",
                "--until-empty",
                "--database",
                &url,
                "--nats",
                &nats,
            ])
            .args(["--batch-max", &args.batch_max.to_string()])
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()?
            .wait_with_output()
            .await?;
        let took = started.elapsed();
        ensure!(child.status.success(), "the relay failed");
        ensure!(
            setup::stored(&context, &name).await? == events,
            "the relay lost events"
        );
        context.delete_stream(&name).await?;
        let report: serde_json::Value = serde_json::from_slice(&child.stdout)?;
        let peak = report["peakResidentKib"].as_u64().context("no peak")? as f64 / 1024.0;
        let cpu = report["cpuMs"].as_u64().context("no CPU time")? as f64 * 1e3;
        let cpu = cpu / args.events as f64;
        let relay = args.events as f64 / took.as_secs_f64();
        let ratio = relay / limit;
        ratios.push(ratio);
        println!("{round:>5}  {limit:>7.0}  {relay:>7.0}  {ratio:>5.2}  {peak:>13.0}  {cpu:>18.1}");
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[ratios.len() / 2]);
    Ok(())
}
