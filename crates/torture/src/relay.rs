//! Relay processes: the shipped program with a configuration of its own for each. Two of them are
//! started again whenever they end, as an init system would do; a fault can hold one down.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::Program;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::sleep,
};

/// How long a session lives without a heartbeat. Short, so that even a short run sees leases end.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// What a relay waits for one answer.
pub(crate) const SEND: Duration = Duration::from_millis(1_000);
/// Generous against a busy machine.
const STOP_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Short ones, so that every one of them is met in a run.
fn deadlines() -> String {
    let (send, lease) = (SEND.as_millis(), LEASE.as_millis());
    format!(
        "[relay]\n\
         batch_max = 100\n\
         poll_max = \"50ms\"\n\
         poll_max_with_doorbell = \"500ms\"\n\
         backoff_first = \"100ms\"\n\
         backoff_max = \"2s\"\n\
         breaker_first = \"100ms\"\n\
         breaker_max = \"1s\"\n\
         [relay.deadlines]\n\
         connect = \"700ms\"\n\
         send = \"{send}ms\"\n\
         hard = \"1500ms\"\n\
         settle_margin = \"500ms\"\n\
         lease = \"{lease}ms\"\n\
         heartbeat = \"1s\"\n\
         shutdown_grace = \"3s\"\n\
         [admin]\n\
         listen = \"off\"\n"
    )
}

/// How one relay reaches its database and its destinations.
#[derive(Debug)]
pub(crate) struct Configured {
    pub(crate) store_url: String,
    /// The tables of connections, destinations, event types and routes.
    pub(crate) rest: String,
}

/// One relay process, in a folder with its configuration and its log.
#[derive(Debug)]
pub(crate) struct Relay {
    binary: PathBuf,
    name: String,
    program: Program,
    /// Held by whoever starts, signals or holds it down.
    turn: Mutex<()>,
    ended_by_itself: AtomicU64,
}

impl Relay {
    pub(crate) fn new(binary: &Path, name: &str, configured: &Configured) -> Result<Self> {
        let program = Program::new(&format!("relay-{name}"))?;
        let Configured { store_url, rest } = configured;
        let deadlines = deadlines();
        let text = format!("[store]\nurl = \"{store_url}\"\n{deadlines}{rest}");
        std::fs::write(program.folder().join("postrider.toml"), text)?;
        Ok(Self {
            binary: binary.to_owned(),
            name: name.to_owned(),
            program,
            turn: Mutex::new(()),
            ended_by_itself: AtomicU64::new(0),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .current_dir(self.program.folder())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("USER", "torture");
        command
    }

    /// Runs another command of the program with this configuration, which must be done.
    pub(crate) async fn done(&self, arguments: &[&str]) -> Result<()> {
        let mut command = tokio::process::Command::from(self.command());
        let output = command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("starting {}", self.binary.display()))?;
        ensure!(
            output.status.success(),
            "postrider {arguments:?} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    pub(crate) fn start(&self) -> Result<()> {
        self.start_with(|_| ())
    }

    pub(crate) fn start_with(&self, prepare: impl FnOnce(&mut Command)) -> Result<()> {
        let mut command = self.command();
        let owner = format!("relay.owner={}", self.name);
        command.args(["run", "--set", &owner]);
        prepare(&mut command);
        self.program.spawn(command)
    }

    /// Starts it again whenever it is not running and nobody holds it down.
    pub(crate) async fn keep_running(&self) -> Result<()> {
        loop {
            {
                let _turn = self.turn.lock().await;
                if self.program.exited()?.is_some() {
                    self.ended_by_itself.fetch_add(1, Ordering::Relaxed);
                    self.start()?;
                }
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// While this is held, it is not started again. It runs when this returns.
    pub(crate) async fn hold(&self) -> Result<MutexGuard<'_, ()>> {
        let turn = self.turn.lock().await;
        if self.program.exited()?.is_some() {
            self.ended_by_itself.fetch_add(1, Ordering::Relaxed);
            self.start()?;
        }
        Ok(turn)
    }

    /// SIGTERM: it must finish what is in flight and end well.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.program.terminate()?;
        let status = self.program.wait(STOP_WITHIN).await?;
        ensure!(
            status.success(),
            "relay {} was told to stop and ended with {status}:\n{}",
            self.name,
            self.program.log_tail()
        );
        Ok(())
    }

    pub(crate) fn ended_by_itself(&self) -> u64 {
        self.ended_by_itself.load(Ordering::Relaxed)
    }
}
