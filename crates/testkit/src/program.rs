//! One program under test: its temporary folder, its output, and the signals a test sends it.
//! Always killed on drop, with its children.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::condition::eventually_some;
use crate::watchdog::Watchdog;

/// How long a killed process may need to leave the process table. The kernel frees its memory
/// first, which takes a moment for a large one.
const DEATH_WITHIN: Duration = Duration::from_secs(20);
/// Enough of a log to see why a server did not start, short enough for a test report.
const LOG_TAIL_LINES: usize = 40;

/// A program that a test starts, pauses, kills and starts again. Its output goes to files in its
/// folder, which outlive each start and go away with this value.
#[derive(Debug)]
pub struct Program {
    name: String,
    state: Mutex<State>,
    // Dropped after the child was killed.
    folder: TempDir,
}

#[derive(Debug)]
struct State {
    child: Option<Child>,
    watchdog: Watchdog,
}

impl Program {
    /// Prepares a folder; starts nothing yet.
    pub fn new(name: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix(&format!("postrider-test-{name}-"))
            .tempdir()
            .context("creating a temporary folder")?;
        let watchdog = Watchdog::over(folder.path())?;
        Ok(Self {
            name: name.to_owned(),
            state: Mutex::new(State {
                child: None,
                watchdog,
            }),
            folder,
        })
    }

    /// The program's own folder, for its configuration and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts `command`, with standard input closed and output appended to [`Self::stdout`] and
    /// [`Self::stderr`]. An error if it is running already.
    pub fn spawn(&self, mut command: Command) -> Result<()> {
        let mut state = self.state();
        if let Some(child) = &mut state.child
            && child.try_wait()?.is_none()
        {
            bail!(
                "{} is running already, as process {}",
                self.name,
                child.id()
            );
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(append(&self.stdout_path())?)
            .stderr(append(&self.stderr_path())?)
            // Its own group: Ctrl-C at the terminal must reach it through us, in our order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        state.watchdog.watch(child.id())?;
        state.child = Some(child);
        Ok(())
    }

    /// The process id while the program runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self.exited() {
            Ok(None) => self.state().child.as_ref().map(Child::id),
            Ok(Some(_)) | Err(_) => None,
        }
    }

    /// How it ended, once it has; nothing while it runs. An error if it was never started.
    pub fn exited(&self) -> Result<Option<ExitStatus>> {
        let mut state = self.state();
        let child = state.child.as_mut().with_context(|| self.not_started())?;
        let status = child.try_wait()?;
        if status.is_some() {
            state.watchdog.watch_nothing()?;
        }
        Ok(status)
    }

    /// Waits for it to end by itself.
    pub async fn wait(&self, within: Duration) -> Result<ExitStatus> {
        eventually_some(within, &format!("{} to end", self.name), || async {
            self.exited().transpose()
        })
        .await
        .and_then(|status| status)
        .with_context(|| format!("last lines of its log:\n{}", self.log_tail()))
    }

    /// SIGSTOP to it and its children: it does nothing, and holds every connection open.
    pub fn pause(&self) -> Result<()> {
        let pid = self.running()?;
        kill_process(pid, Signal::STOP)?;
        signal_all(&children(pid)?, Signal::STOP)
    }

    /// SIGCONT after [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        let pid = self.running()?;
        signal_all(&children(pid)?, Signal::CONT)?;
        kill_process(pid, Signal::CONT)?;
        Ok(())
    }

    /// SIGTERM, and nothing more.
    pub fn terminate(&self) -> Result<()> {
        Ok(kill_process(self.running()?, Signal::TERM)?)
    }

    /// SIGINT, and nothing more.
    pub fn interrupt(&self) -> Result<()> {
        Ok(kill_process(self.running()?, Signal::INT)?)
    }

    /// SIGQUIT, and nothing more.
    pub fn quit(&self) -> Result<()> {
        Ok(kill_process(self.running()?, Signal::QUIT)?)
    }

    /// SIGKILL to it and its children, and waits until none is left, so that it can be started
    /// again at once.
    pub async fn kill(&self) -> Result<()> {
        let victims = kill_tree(self.running()?)?;
        self.wait(DEATH_WITHIN).await?;
        let what = format!("the children of {} to end", self.name);
        eventually_some(DEATH_WITHIN, &what, || async {
            victims.iter().all(|&pid| !is_alive(pid)).then_some(())
        })
        .await
    }

    /// All that it wrote to standard output so far.
    pub fn stdout(&self) -> Result<String> {
        read(&self.stdout_path())
    }

    /// All that it wrote to standard error so far.
    pub fn stderr(&self) -> Result<String> {
        read(&self.stderr_path())
    }

    /// The last lines of both, for a report.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let log = match (self.stdout(), self.stderr()) {
            (Ok(stdout), Ok(stderr)) => stdout + &stderr,
            (Err(error), _) | (_, Err(error)) => return format!("(no log: {error:#})"),
        };
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n")
    }

    fn stdout_path(&self) -> PathBuf {
        self.folder().join("stdout.log")
    }

    fn stderr_path(&self) -> PathBuf {
        self.folder().join("stderr.log")
    }

    fn running(&self) -> Result<Pid> {
        if let Some(status) = self.exited()? {
            bail!(
                "{} has ended ({status}); last lines of its log:\n{}",
                self.name,
                self.log_tail()
            );
        }
        let state = self.state();
        let child = state.child.as_ref().with_context(|| self.not_started())?;
        Ok(Pid::from_child(child))
    }

    fn not_started(&self) -> String {
        format!("{} was not started", self.name)
    }

    /// The lock is never held across an await, and a panic while it is held leaves a state that
    /// is still true.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(child) = &mut state.child else {
            return;
        };
        if matches!(child.try_wait(), Ok(None)) {
            // Nobody is left to report to; a process that cannot be killed is already dead.
            drop(kill_tree(Pid::from_child(child)));
            drop(child.wait());
        }
    }
}

/// Kills a process and its direct children; returns the children. The parent is stopped first, so
/// that it cannot fork one that is missed.
fn kill_tree(pid: Pid) -> Result<Vec<Pid>> {
    kill_process(pid, Signal::STOP)?;
    let children = children(pid)?;
    kill_process(pid, Signal::KILL)?;
    signal_all(&children, Signal::KILL)?;
    Ok(children)
}

fn signal_all(pids: &[Pid], signal: Signal) -> Result<()> {
    for &pid in pids {
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(anyhow!(error).context("signalling a child process")),
        }
    }
    Ok(())
}

/// The direct children of `parent`. No kernel option is needed for this, unlike for
/// `/proc/PID/task/TID/children`.
fn children(parent: Pid) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry.context("listing /proc")?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        if let (Some(pid), Some((_, ppid))) = (Pid::from_raw(pid), stat(pid))
            && ppid == parent.as_raw_nonzero().get()
        {
            found.push(pid);
        }
    }
    Ok(found)
}

fn is_alive(pid: Pid) -> bool {
    stat(pid.as_raw_nonzero().get()).is_some_and(|(state, _)| state != "Z" && state != "X")
}

/// State letter and parent of a process, nothing if it is gone. The name in parentheses may hold
/// blanks and parentheses, so the fields are counted from the last one.
fn stat(pid: i32) -> Option<(String, i32)> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.to_owned();
    let parent = fields.next()?.parse().ok()?;
    Some((state, parent))
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("opening {}", path.display()))
}

fn read(path: &Path) -> Result<String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(anyhow!(error).context(format!("reading {}", path.display()))),
    }
}
