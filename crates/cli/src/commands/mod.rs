//! The commands. Each one reads its configuration whole before it touches anything.

mod append;
mod apply;
mod check;
mod configuration;
mod dead_letter;
mod deliveries;
mod destination;
mod events;
mod explain;
mod init;
mod lanes;
mod maintain;
mod migrate;
mod provision;
pub(crate) mod run;
mod sessions;
mod why;

use std::{io::Write, sync::Arc};

use clap::CommandFactory;
use postrider_store::{Store, control::Audit};

use crate::{
    args::{Change, Cli, Command},
    backend::store,
    code::Code,
    config::{self, Config, Sources},
    demo,
    fault::{Exit, Failure, Fault, Outcome},
};

/// Carries out one command line.
pub(crate) async fn execute(cli: Cli, out: &mut dyn Write) -> Outcome {
    let sources = Sources {
        file: cli.config,
        assignments: cli.set,
        alone: false,
    };
    match cli.command {
        Command::Demo(args) => demo::run(&args, out).await,
        Command::Init(args) => init::run(&args, out),
        Command::Config(command) => configuration::run(&command, &sources, out),
        Command::Migrate(args) => migrate::run(&args, &load(&sources)?, out).await,
        Command::Maintain(format) => maintain::run(format, &load(&sources)?, out).await,
        Command::Plan(format) => apply::plan(format, Arc::new(load(&sources)?), out).await,
        Command::Apply(args) => apply::apply(&args, Arc::new(load(&sources)?), out).await,
        Command::Provision(args) => provision::run(&args, Arc::new(load(&sources)?), out).await,
        Command::Check(format) => check::run(format, Arc::new(load(&sources)?), out).await,
        Command::Run(args) => run::run(&args, Arc::new(load(&sources)?), out).await,
        Command::DispatchOnce(args) => {
            run::dispatch_once(&args, Arc::new(load(&sources)?), out).await
        }
        Command::Append(args) => append::run(*args, &load(&sources)?, out).await,
        Command::Events(command) => events::run(command, &load(&sources)?, out).await,
        Command::Deliveries(command) => deliveries::run(command, &load(&sources)?, out).await,
        Command::DeadLetter(command) => dead_letter::run(command, &load(&sources)?, out).await,
        Command::Destination(command) => destination::run(command, &load(&sources)?, out).await,
        Command::Sessions(args) => sessions::run(&args, &load(&sources)?, out).await,
        Command::Lanes(format) => lanes::run(format, &load(&sources)?, out).await,
        Command::Why(args) => why::run(&args, &load(&sources)?, out).await,
        Command::Explain(args) => explain::run(&args, out),
        Command::Completions(args) => {
            // It panics where its output cannot be written, and a closed pipe is no reason to.
            let mut script = Vec::new();
            clap_complete::generate(args.shell, &mut Cli::command(), "postrider", &mut script);
            out.write_all(&script)?;
            Ok(Exit::Done)
        }
    }
}

fn load(sources: &Sources) -> Result<Config, Failure> {
    config::load(sources).map_err(Failure::of)
}

/// The database of a command, with a schema that this program knows.
async fn open(config: &Config) -> Result<Arc<dyn Store>, Failure> {
    Ok(store::open(config).await?)
}

/// For `map_err` after a store's call.
fn failed(error: postrider_store::StoreError) -> Failure {
    store::fault(&error).into()
}

/// Who changes something and why, for the audit log.
fn audit(change: &Change) -> Audit {
    Audit {
        actor: change.actor.clone().unwrap_or_else(whoami),
        reason: change
            .reason
            .clone()
            .unwrap_or_else(|| "no reason given".to_owned()),
    }
}

/// `user@host`.
fn whoami() -> String {
    let user = ["USER", "LOGNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
        .unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    format!("{user}@{}", host())
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// The end of a changing command without `--yes`.
fn not_confirmed(what: &str) -> Failure {
    Fault::new(
        Code::NotConfirmed,
        format!("{what}, and --yes was not given"),
        "Nothing was changed.",
        "repeat the command with --yes, and say why with --reason",
    )
    .into()
}

/// An event id as people type it.
fn event_id(text: &str) -> Result<postrider_contract::EventId, Fault> {
    text.parse().map_err(|error| {
        Fault::new(
            Code::BadArgument,
            format!("{error}"),
            "",
            "give the event's UUID, such as 01980a53-7c4d-7000-8000-000000000001",
        )
    })
}
