//! All tests against real servers, with one line at the end that counts them.

pub(crate) mod count;

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{line, succeeds};
use crate::services::Services;
use crate::{readme, tools, workspace};
use count::{Count, Runner};

/// Runs everything, or only what `filter` selects, which goes to the test runner as it is.
pub(crate) fn run(filter: &[String]) -> Result<ExitCode> {
    let tools = tools::ensure()?;
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let services = runtime.block_on(Services::start(tools))?;
    let variables = services.variables();

    let mut total = Count::default();
    let mut all_ran = true;
    // The slow part comes last, so that its summary is what one sees.
    if filter.is_empty() {
        let mut doc_tests = doc_tests()?;
        doc_tests.envs(variables.clone());
        let (count, ended_well) = stream(&mut doc_tests, Runner::Libtest)?;
        total += count;
        all_ran &= ended_well;
        total += readme::check()?;
    }
    let (mut tests, runner) = tests(filter)?;
    tests.envs(variables);
    let (count, ended_well) = stream(&mut tests, runner)?;
    total += count;
    all_ran &= ended_well;
    drop(services);

    println!("{total}");
    if total.passed == 0 {
        bail!("no test ran");
    }
    // A runner can also fail before it counts anything, as when a test does not compile.
    Ok(if all_ran && total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn doc_tests() -> Result<Command> {
    let mut command = cargo()?;
    command.args(["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"]);
    Ok(command)
}

fn tests(filter: &[String]) -> Result<(Command, Runner)> {
    let mut command = cargo()?;
    let runner = if succeeds(Command::new("cargo").args(["nextest", "--version"])) {
        command.args(["nextest", "run"]);
        if in_ci() {
            command.args(["--profile", "ci"]);
        }
        Runner::Nextest
    } else {
        command.args(["test", "--no-fail-fast"]);
        if filter.is_empty() {
            // Doc tests have had their turn. Not with a filter: a package without a library
            // would be refused.
            command.args(["--lib", "--bins", "--tests"]);
        }
        Runner::Libtest
    };
    if filter.is_empty() {
        command.arg("--workspace");
    }
    command.args(filter);
    Ok((command, runner))
}

fn cargo() -> Result<Command> {
    let mut command = Command::new("cargo");
    command.current_dir(workspace::root()?);
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    Ok(command)
}

pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Runs a test command, shows its output as it comes and counts its tests; also whether it ended
/// well.
fn stream(command: &mut Command, runner: Runner) -> Result<(Count, bool)> {
    let line = line(command);
    eprintln!("$ {line}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {line}"))?;
    let stdout = child.stdout.take().context("no standard output")?;
    let stderr = child.stderr.take().context("no standard error")?;
    let (out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(|| show(stdout, &mut std::io::stdout(), runner));
        let err = scope.spawn(|| show(stderr, &mut std::io::stderr(), runner));
        (out.join(), err.join())
    });
    let (Ok(out), Ok(err)) = (out, err) else {
        bail!("reading the output of {line} panicked")
    };
    let status = child
        .wait()
        .with_context(|| format!("waiting for {line}"))?;
    let mut count = out?;
    count += err?;
    Ok((count, status.success()))
}

fn show(from: impl Read, to: &mut impl Write, runner: Runner) -> Result<Count> {
    let mut count = Count::default();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from
        .read_until(b'\n', &mut line)
        .context("reading a test runner's output")?
        > 0
    {
        to.write_all(&line)
            .context("showing a test runner's output")?;
        to.flush()?;
        count += Count::of_line(&String::from_utf8_lossy(&line), runner);
        line.clear();
    }
    Ok(count)
}
