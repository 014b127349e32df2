//! Ends a server and removes its folder when the test process dies without dropping anything
//! (`kill -9`, abort).
//!
//! A shell reads our end of a pipe: each line is the pid to kill, 0 for none. End of file means
//! that we are gone. `PR_SET_PDEATHSIG` would be shorter, but it fires when the *thread* that
//! spawned the server ends, which for a runtime's worker thread is any time.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};

/// The parent is stopped before its children are listed, so that it cannot fork one that is missed.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
pid=0
while read -r line; do pid=$line; done
if [ "$pid" -gt 0 ]; then
    kill -STOP "$pid"
    victims=$pid
    for status in /proc/[0-9]*/status; do
        while read -r key value; do
            if [ "$key" = PPid: ] && [ "$value" = "$pid" ]; then
                child=${status%/status}
                victims="$victims ${child#/proc/}"
            fi
        done <"$status"
    done
    kill -KILL $victims
fi
case $1 in
    */postrider-test-*)
        # If it is a disk of its own.
        umount -l "$1" 2>/dev/null
        rm -rf -- "$1"
        ;;
esac
"#;

#[derive(Debug)]
pub(crate) struct Watchdog {
    shell: Child,
    pipe: ChildStdin,
}

impl Watchdog {
    pub(crate) fn over(folder: &Path) -> Result<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "postrider-watchdog"])
            .arg(folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: a signal to the tests' group must not end it before it has worked.
            .process_group(0)
            .spawn()
            .context("starting the watchdog shell")?;
        let pipe = shell
            .stdin
            .take()
            .context("the watchdog shell has no standard input")?;
        Ok(Self { shell, pipe })
    }

    pub(crate) fn watch(&mut self, pid: u32) -> Result<()> {
        writeln!(self.pipe, "{pid}").context("the watchdog shell is gone")
    }

    pub(crate) fn watch_nothing(&mut self) -> Result<()> {
        self.watch(0)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // The owner has killed the server already. A failure here means that the shell is gone.
        if self.shell.kill().is_ok() {
            drop(self.shell.wait());
        }
    }
}
