//! A program under test is gone when its owner is, however the owner went.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use postrider_testkit::{Program, eventually, eventually_some};

const SOON: Duration = Duration::from_secs(20);
/// Set for the copy of this test that dies without dropping anything.
const VICTIM: &str = "POSTRIDER_TESTKIT_VICTIM";

/// A shell with a child of its own, like a server with its workers.
fn parent_and_child() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 1000 & echo child $!; wait"]);
    command
}

async fn child_of(program: &Program) -> Result<u32> {
    eventually_some(SOON, "the shell to name its child", || async {
        program
            .stdout()
            .ok()?
            .strip_prefix("child ")?
            .trim_end()
            .parse()
            .ok()
    })
    .await
}

/// Running, stopped and so on; nothing if the process is gone or waits to be reaped.
fn state_of(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (state != 'Z' && state != 'X').then_some(state)
}

#[tokio::test]
async fn kill_takes_the_children_along_and_a_second_start_is_possible() -> Result<()> {
    let program = Program::new("shell")?;
    program.spawn(parent_and_child())?;
    ensure!(program.spawn(parent_and_child()).is_err(), "started twice");
    let child = child_of(&program).await?;
    program.kill().await?;
    ensure!(state_of(child).is_none(), "the child lives on");
    ensure!(program.pid().is_none());
    program.spawn(parent_and_child())?;
    ensure!(program.pid().is_some());
    Ok(())
}

#[tokio::test]
async fn pause_stops_parent_and_child_until_resumed() -> Result<()> {
    let program = Program::new("shell")?;
    program.spawn(parent_and_child())?;
    let pids = [
        program.pid().context("not running")?,
        child_of(&program).await?,
    ];
    program.pause()?;
    eventually(SOON, "both to stop", || async {
        pids.iter().all(|&pid| state_of(pid) == Some('T'))
    })
    .await?;
    program.resume()?;
    eventually(SOON, "both to go on", || async {
        pids.iter()
            .all(|&pid| state_of(pid).is_some_and(|state| state != 'T'))
    })
    .await
}

#[tokio::test]
async fn drop_kills_and_removes() -> Result<()> {
    let program = Program::new("shell")?;
    program.spawn(parent_and_child())?;
    let pids = [
        program.pid().context("not running")?,
        child_of(&program).await?,
    ];
    let folder = program.folder().to_owned();
    drop(program);
    ensure!(!folder.exists());
    eventually(SOON, "both to end", || async {
        pids.iter().all(|&pid| state_of(pid).is_none())
    })
    .await
}

/// The copy: starts a program, says so in the file it was given, and waits to be killed.
#[tokio::test]
async fn victim() -> Result<()> {
    let Some(file) = std::env::var_os(VICTIM).map(PathBuf::from) else {
        return Ok(());
    };
    let program = Program::new("shell")?;
    program.spawn(parent_and_child())?;
    let child = child_of(&program).await?;
    let pid = program.pid().context("not running")?;
    let report = format!("{pid} {child} {}", program.folder().display());
    std::fs::write(file.with_extension("part"), report)?;
    std::fs::rename(file.with_extension("part"), file)?;
    program.wait(SOON * 10).await?;
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_when_the_test_process_is_killed() -> Result<()> {
    let outer = Program::new("owner")?;
    let report = outer.folder().join("report");
    let mut copy = Command::new(std::env::current_exe()?);
    copy.args(["--exact", "victim"]).env(VICTIM, &report);
    outer.spawn(copy)?;
    let report = eventually_some(SOON, "the copy to start its program", || async {
        std::fs::read_to_string(&report).ok()
    })
    .await
    .with_context(|| outer.log_tail())?;
    let mut words = report.splitn(3, ' ');
    let mut word = || words.next().context("the report is short");
    let pids: [u32; 2] = [word()?.parse()?, word()?.parse()?];
    let folder = Path::new(word()?);
    ensure!(
        folder.exists() && pids.iter().all(|&pid| state_of(pid).is_some()),
        "{report}"
    );

    // The whole of the copy dies at once: SIGKILL to it alone, so that nothing of it can clean up.
    let pid = outer.pid().context("the copy ended")?;
    ensure!(
        Command::new("/bin/sh")
            .args(["-c", &format!("kill -9 {pid}")])
            .status()?
            .success()
    );

    eventually(SOON, "program, child and folder to go", || async {
        !folder.exists() && pids.iter().all(|&pid| state_of(pid).is_none())
    })
    .await
}
