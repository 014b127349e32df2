//! The relay as a process of its own: this program, executed again.

use std::{fs::OpenOptions, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::setup::{Place, unusable};
use crate::{
    code::Code,
    config::layers::PREFIX,
    fault::{Failure, Fault},
};

/// How long a graceful stop may take before it counts as stuck.
const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A running relay. Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Relay {
    child: Child,
}

impl Relay {
    /// Starts `postrider run` on the demo's configuration; it logs into the demo's folder.
    pub(super) fn start(place: &Place) -> Result<Self, Failure> {
        let path = place.folder.join("relay.log");
        let log = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&path)
                .map_err(|error| unusable(&path, &error))
        };
        let program = std::env::current_exe()
            .map_err(|error| broken(&format!("this program cannot be found: {error}")))?;
        let mut command = Command::new(program);
        // The caller's variables are for another database.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(PREFIX) {
                command.env_remove(name);
            }
        }
        let child = command
            .arg("--config")
            .arg(place.config())
            .arg("run")
            .stdin(Stdio::null())
            .stdout(log()?)
            .stderr(log()?)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| broken(&error.to_string()))?;
        Ok(Self { child })
    }

    /// SIGKILL: no handler runs, nothing is written down.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child
            .kill()
            .await
            .map_err(|error| broken(&error.to_string()))
    }

    /// SIGTERM; answers whether it ended well.
    pub(super) async fn stop(mut self) -> Result<bool, Failure> {
        let pid = self
            .child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(broken("it has ended by itself; see relay.log"));
        };
        kill_process(pid, Signal::TERM).map_err(|error| broken(&error.to_string()))?;
        match tokio::time::timeout(STOP_WITHIN, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status.success()),
            Ok(Err(error)) => Err(broken(&error.to_string())),
            Err(_) => Err(broken("it did not stop on SIGTERM; see relay.log")),
        }
    }

    /// An error if it has ended by itself.
    pub(super) fn see_that_it_runs(&mut self) -> Result<(), Failure> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(broken(&format!("it has ended: {status}; see relay.log"))),
            Err(error) => Err(broken(&error.to_string())),
        }
    }
}

fn broken(why: &str) -> Failure {
    Fault::new(
        Code::RelayFailed,
        format!("the demo's relay: {why}"),
        "",
        "read relay.log in the demo's folder",
    )
    .into()
}
