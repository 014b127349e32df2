//! All that continuous integration runs, in the order in which faults are cheapest to find.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::run::{read, run, succeeds};
use crate::{test, tidy, torture, workspace};

/// Every check. Changes no tracked file, and fails if one changed.
pub(crate) fn run_all() -> Result<ExitCode> {
    let before = tree()?;
    step("format", || run(cargo()?.args(["fmt", "--all", "--check"])))?;
    step("tidy", tidy::run)?;
    step("clippy", || {
        let arguments = [
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
        ];
        run(cargo()?.args(arguments).args(["--", "-D", "warnings"]))
    })?;
    step("docs", || {
        let mut doc = cargo()?;
        doc.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
        run(doc.env("RUSTDOCFLAGS", "-D warnings"))
    })?;
    step("dependencies", dependencies)?;
    step("simulator", simulator)?;
    step("torture", || torture::gate(&head()?))?;
    let mut code = ExitCode::SUCCESS;
    step("test", || {
        code = test::run(&[])?;
        Ok(())
    })?;
    let after = tree()?;
    ensure!(
        before == after,
        "the checks changed the tree; before:\n{before}after:\n{after}"
    );
    Ok(code)
}

/// What can be repaired without a decision.
pub(crate) fn fix() -> Result<()> {
    let arguments = ["clippy", "--workspace", "--all-targets", "--fix"];
    run(cargo()?
        .args(arguments)
        .args(["--allow-dirty", "--allow-staged"]))?;
    run(cargo()?.args(["fmt", "--all"]))
}

/// Fresh seeds for each commit, and every deliberate bug of the mutation table.
fn simulator() -> Result<()> {
    /// About a minute on two cores.
    const TRAJECTORIES: &str = "50000";
    let simulator = ["run", "--package", "postrider-sim", "--locked", "--quiet"];
    run(cargo()?
        .args(simulator)
        .args(["--", "gate", "--trajectories", TRAJECTORIES])
        .args(["--from", &head()?]))?;
    run(cargo()?
        .args(simulator)
        .args(["--features", "mutations", "--", "mutations"]))?;
    let shrinking = ["test", "--package", "postrider-sim", "--locked", "--quiet"];
    run(cargo()?
        .args(shrinking)
        .args(["--features", "mutations", "--test", "mutations"]))
}

/// The hash of the commit that is checked.
fn head() -> Result<String> {
    let mut head = Command::new("git");
    let head = read(
        head.args(["rev-parse", "HEAD"])
            .current_dir(workspace::root()?),
    )?;
    Ok(head.trim().to_owned())
}

/// Licences, sources and duplicates of what we depend on. Advisories need a database that not
/// every network can fetch, so they are not part of this.
fn dependencies() -> Result<()> {
    if !succeeds(Command::new("cargo").args(["deny", "--version"])) {
        eprintln!("cargo-deny is not installed: licences, bans and sources are not checked here");
        return Ok(());
    }
    run(cargo()?.args(["deny", "--offline", "check", "licenses", "bans", "sources"]))
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    eprintln!("== {name}");
    let start = Instant::now();
    work().with_context(|| format!("{name} failed"))?;
    // The test runner's summary stays the last thing on the screen.
    if name != "test" {
        eprintln!("== {name}: good, {} s", start.elapsed().as_secs());
    }
    Ok(())
}

fn tree() -> Result<String> {
    let mut status = Command::new("git");
    read(
        status
            .args(["status", "--porcelain"])
            .current_dir(workspace::root()?),
    )
}

fn cargo() -> Result<Command> {
    let mut command = Command::new("cargo");
    command.current_dir(workspace::root()?);
    Ok(command)
}
