//! Real relay processes, databases and destinations under faults from a seed, and an audit of what
//! became of every event. It never touches a server that it did not start.

mod audit;
mod clock;
mod consumer;
mod digest;
mod evidence;
mod fault;
mod journal;
mod made;
mod receiver;
mod relay;
mod report;
mod run;
mod schedule;
mod world;
mod writer;

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser};

use crate::{
    journal::Journal,
    report::Report,
    world::{Given, postgres_jetstream::PostgresJetStream, sqlite_webhook::SqliteWebhook},
};

/// Relay processes under faults, and an audit of every event.
///
/// Exit status: 0 all good, 1 a promise is broken or a fault did not strike, 2 could not.
#[derive(Debug, Parser)]
enum Arguments {
    /// PostgreSQL, JetStream and a consumer
    PostgresJetstream(Run),
    /// SQLite and a webhook receiver
    SqliteWebhook(Run),
    /// A consumer process of such a run
    #[command(hide = true)]
    Consume(consumer::Consume),
    /// A receiver process of such a run
    #[command(hide = true)]
    Receive(receiver::Receive),
}

#[derive(Debug, Args)]
struct Run {
    /// Gives the same faults at the same times: a number, or the hash of a commit [default: a
    /// random one, which is printed]
    #[arg(long, value_parser = seed)]
    seed: Option<u64>,
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Only this kind of fault, at its times; may be given more than once, and `none` is none
    #[arg(long, value_name = "KIND")]
    only: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// The program under test [default: the one beside this program]
    #[arg(long)]
    postrider: Option<PathBuf>,
    /// The nats-server program
    #[arg(
        long,
        env = postrider_testkit::env::name::NATS_SERVER_CURRENT,
        hide_env_values = true,
        default_value = "nats-server"
    )]
    nats_server: PathBuf,
}

/// A commit's hash gives fresh faults to each commit, and the same ones to whoever looks again.
fn seed(text: &str) -> Result<u64, String> {
    if text.len() >= 40 {
        let head = text.get(..12).unwrap_or(text);
        return u64::from_str_radix(head, 16).map_err(|error| error.to_string());
    }
    text.parse::<u64>().map_err(|error| error.to_string())
}

impl Run {
    fn given(&self) -> Result<Given> {
        ensure!(
            (0.1..=24.0 * 60.0).contains(&self.minutes),
            "--minutes {}: give some, up to a day",
            self.minutes
        );
        let postrider = match &self.postrider {
            Some(postrider) => std::path::absolute(postrider)?,
            None => std::env::current_exe()?.with_file_name("postrider"),
        };
        ensure!(
            postrider.is_file(),
            "{} is not there: build it with `cargo build -p postrider-cli`, or name it with --postrider",
            postrider.display()
        );
        Ok(Given {
            seed: self.seed.unwrap_or_else(rand::random),
            time: Duration::from_secs_f64(self.minutes * 60.0),
            only: self.only.clone(),
            postrider,
            nats_server: self.nats_server.clone(),
            journal: Arc::new(Journal::default()),
        })
    }
}

fn main() -> ExitCode {
    match answer(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            fail(&error);
            ExitCode::from(2)
        }
    }
}

fn answer(arguments: Arguments) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        match arguments {
            Arguments::PostgresJetstream(run) => print(
                &run::run::<PostgresJetStream>(&run.given()?).await?,
                run.json,
            ),
            Arguments::SqliteWebhook(run) => {
                print(&run::run::<SqliteWebhook>(&run.given()?).await?, run.json)
            }
            Arguments::Receive(receive) => {
                receiver::receive(&receive).await?;
                Ok(ExitCode::SUCCESS)
            }
            Arguments::Consume(consume) => {
                consumer::consume(&consume).await?;
                Ok(ExitCode::SUCCESS)
            }
        }
    })
}

#[expect(clippy::print_stdout, reason = "the report is its product")]
fn print(report: &Report, json: bool) -> Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else {
        print!("{report}");
    }
    Ok(if report.passes() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[expect(clippy::print_stderr, reason = "a terminal program")]
fn fail(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
