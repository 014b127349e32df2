//! Relay processes under faults: builds the programs, finds the servers and runs
//! `postrider-torture`.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use postrider_testkit::env::name;

use crate::run::{line, run};
use crate::{tools, workspace};

/// One run, with the arguments of `postrider-torture`.
pub(crate) fn once(arguments: &[String]) -> Result<ExitCode> {
    let mut command = prepare()?;
    command.args(arguments);
    let line = line(&command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("starting {line}"))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Every world for as long as each commit can wait, with the faults of this commit.
pub(crate) fn gate(head: &str) -> Result<()> {
    for (world, minutes) in [("postgres-jetstream", "2"), ("sqlite-webhook", "1")] {
        run(prepare()?.args([world, "--seed", head, "--minutes", minutes]))?;
    }
    Ok(())
}

/// The program that runs a world. Built with all others, so that what they share is built once.
fn prepare() -> Result<Command> {
    let tools = tools::ensure()?;
    let mut build = Command::new("cargo");
    build
        .args(["build", "--workspace", "--bins", "--locked", "--quiet"])
        .current_dir(workspace::root()?);
    run(&mut build)?;
    let here = std::env::current_exe().context("finding this program")?;
    let mut command = Command::new(here.with_file_name("postrider-torture"));
    command.env(name::NATS_SERVER_CURRENT, tools.nats_current);
    Ok(command)
}
