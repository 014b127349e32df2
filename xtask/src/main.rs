//! Repository tasks: `cargo xtask help` lists them. Only `fix` changes tracked files.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a terminal program"
)]

mod ci;
mod readme;
mod run;
mod services;
mod test;
mod tidy;
mod tools;
mod torture;
mod workspace;

use std::process::ExitCode;

use anyhow::{Result, bail};

const HELP: &str = "\
cargo xtask TASK

  test [ARGS]  run all tests against real servers: installs what is missing (Debian), starts
               private servers, runs everything, stops them. With ARGS, which go to the test
               runner, only the tests that they select
  services     start the same servers for development, print the variables that tests read, and
               stay until Ctrl-C, SIGTERM or the end of standard input
  torture WORLD [ARGS]
               run real relays under faults and audit every event: postgres-jetstream or
               sqlite-webhook, --seed, --minutes, --json
  tidy         check the rules that no compiler checks
  ci           format, tidy, clippy, docs, dependencies, simulator, torture, test: all that must pass; changes nothing
  fix          apply what clippy and the formatter can fix by themselves
";

/// The tasks, for the check of what the README tells people to run.
const TASKS: [&str; 6] = ["test", "services", "torture", "tidy", "ci", "fix"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<ExitCode> {
    let Some((task, rest)) = arguments.split_first() else {
        print!("{HELP}");
        return Ok(ExitCode::FAILURE);
    };
    if !["test", "torture"].contains(&task.as_str()) && !rest.is_empty() {
        bail!("`{task}` takes no arguments, but got: {}", rest.join(" "));
    }
    match task.as_str() {
        "test" => test::run(rest),
        "services" => services::run().map(|()| ExitCode::SUCCESS),
        "torture" => torture::once(rest),
        "tidy" => tidy::run().map(|()| ExitCode::SUCCESS),
        "ci" => ci::run_all(),
        "fix" => ci::fix().map(|()| ExitCode::SUCCESS),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        unknown => bail!("no task `{unknown}`; the tasks are: {}", TASKS.join(", ")),
    }
}
