//! A private PostgreSQL server with one superuser, `postgres`, and no passwords.
//!
//! Its defaults are hostile where a careless query would lean on them: text sorts by a human
//! language (ICU en-US) instead of by bytes, and sessions start in a time zone that is neither UTC
//! nor a whole hour off it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::account::Account;
use crate::condition::eventually_some;
use crate::port::Port;
use crate::program::Program;

/// Where Debian puts each major version.
const DEBIAN_FOLDER: &str = "/usr/lib/postgresql";
/// Covers crash recovery of everything a test writes.
const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(60);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// A running server. Data survives [`Self::kill`] and [`Self::stop`], not the drop.
#[derive(Debug)]
pub struct Postgres {
    program: Program,
    account: Account,
    binaries: PathBuf,
    port: Port,
}

impl Postgres {
    /// Starts a server with fsync on, 200 connections and loopback only.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with more lines of postgresql.conf, which override the defaults.
    pub async fn start_with(config: &[&str]) -> Result<Self> {
        let account = Account::unprivileged()?;
        let (binaries, major) = find_binaries()?;
        let server = Self {
            program: Program::new("postgres")?,
            account,
            binaries,
            port: Port::take()?,
        };
        account.own(server.program.folder())?;
        server.initialise(major)?;
        server.configure(config)?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts it again after [`Self::stop`] or [`Self::kill`], on the same port with its data.
    pub async fn restart(&self) -> Result<()> {
        let mut command = self.account.command(&self.binaries.join("postgres"));
        command
            .arg("-D")
            .arg(self.data())
            .current_dir(self.program.folder());
        self.program.spawn(command)?;
        let url = self.url("postgres");
        eventually_some(READY_WITHIN, "PostgreSQL to accept queries", || async {
            match self.program.exited() {
                Ok(None) => execute(&url, "SELECT 1").await.ok().map(Ok),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("PostgreSQL ended: {status}"))),
                Err(error) => Some(Err(error)),
            }
        })
        .await
        .and_then(|started| started)
        .with_context(|| format!("last lines of its log:\n{}", self.program.log_tail()))
    }

    /// Fast shutdown: open transactions are rolled back, connections closed.
    pub async fn stop(&self) -> Result<()> {
        self.program.interrupt()?;
        let status = self.program.wait(STOP_WITHIN).await?;
        ensure!(
            status.success(),
            "PostgreSQL stopped with {status}\n{}",
            self.program.log_tail()
        );
        Ok(())
    }

    /// Immediate shutdown, as `pg_ctl -m immediate`: it drops every connection in the middle of
    /// whatever it does, and recovers from its log at the next start.
    pub async fn stop_immediately(&self) -> Result<()> {
        self.program.quit()?;
        self.program.wait(STOP_WITHIN).await?;
        Ok(())
    }

    /// SIGKILL to the server and every backend: a crash, after which it recovers from its log.
    pub async fn kill(&self) -> Result<()> {
        self.program.kill().await
    }

    /// SIGSTOP to the server and every backend: connections stay open and silent.
    pub fn pause(&self) -> Result<()> {
        self.program.pause()
    }

    /// Ends a [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.program.resume()
    }

    /// The port, the same for the whole life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The superuser's URL of a database; `postgres` always exists.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// Creates an empty database with a name never used before; returns its superuser URL.
    pub async fn create_database(&self) -> Result<String> {
        let name = create_database(&self.url("postgres")).await?;
        Ok(self.url(&name))
    }

    fn initialise(&self, major: u32) -> Result<()> {
        let mut command = self.account.command(&self.binaries.join("initdb"));
        command
            .arg("-D")
            .arg(self.data())
            .args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ])
            // A test server must survive its own death, not the machine's.
            .args(["--no-sync", "--no-instructions"])
            .current_dir(self.program.folder());
        // Before 15 a database could not have an ICU default.
        if major >= 15 {
            command.args(["--locale-provider=icu", "--icu-locale=en-US"]);
        }
        run(command)
    }

    fn configure(&self, config: &[&str]) -> Result<()> {
        let path = self.data().join("postgresql.conf");
        let port = self.port();
        let mut lines = std::fs::read_to_string(&path).context("reading postgresql.conf")?;
        lines.push_str(&format!(
            "\nlisten_addresses = '127.0.0.1'\n\
             port = {port}\n\
             unix_socket_directories = ''\n\
             max_connections = 200\n\
             fsync = on\n\
             timezone = 'Asia/Kathmandu'\n\
             log_line_prefix = '%m [%p] %d '\n"
        ));
        for line in config {
            lines.push_str(line);
            lines.push('\n');
        }
        std::fs::write(&path, lines).context("writing postgresql.conf")
    }

    fn data(&self) -> PathBuf {
        self.program.folder().join("data")
    }
}

/// Creates a database through the server at `admin_url`; returns its name.
pub(crate) async fn create_database(admin_url: &str) -> Result<String> {
    let name = database_name();
    // template0 accepts no connections, so a concurrent creation never finds it in use.
    execute(
        admin_url,
        &format!("CREATE DATABASE {name} TEMPLATE template0"),
    )
    .await?;
    Ok(name)
}

/// A name that carries the second of its creation, so that leftovers on a long-lived server can be
/// told from databases in use. Safe as an SQL identifier without quotes.
fn database_name() -> String {
    format!("test_{}", uuid::Uuid::now_v7().simple())
}

/// Runs statements that return nothing of interest on a connection of their own.
pub async fn execute(url: &str, statements: &str) -> Result<()> {
    simple_query(url, statements).await.map(|_| ())
}

/// Runs one query on a connection of its own; returns the first column as text, without nulls.
pub async fn query_column(url: &str, query: &str) -> Result<Vec<String>> {
    let mut values = Vec::new();
    for message in simple_query(url, query).await? {
        if let SimpleQueryMessage::Row(row) = message {
            values.extend(row.try_get(0)?.map(ToOwned::to_owned));
        }
    }
    Ok(values)
}

async fn simple_query(url: &str, statements: &str) -> Result<Vec<SimpleQueryMessage>> {
    let connect = tokio_postgres::connect(url, NoTls);
    let (client, connection) = tokio::time::timeout(CONNECT_WITHIN, connect)
        .await
        .context("connecting took too long")?
        .with_context(|| format!("connecting to {url}"))?;
    let connection = tokio::spawn(connection);
    let result = client.simple_query(statements).await;
    drop(client);
    connection
        .await
        .context("the connection's task panicked")?
        .context("connection lost")?;
    result.with_context(|| format!("running: {statements}"))
}

/// The folder of the newest installed version and its major number.
fn find_binaries() -> Result<(PathBuf, u32)> {
    let entries = match std::fs::read_dir(DEBIAN_FOLDER) {
        Ok(entries) => entries,
        Err(error) => {
            bail!("no PostgreSQL under {DEBIAN_FOLDER} ({error}): run `apt-get install postgresql`")
        }
    };
    let mut newest: Option<(PathBuf, u32)> = None;
    for entry in entries {
        let path = entry.context("listing the PostgreSQL versions")?.path();
        let Some(major) = major(&path) else { continue };
        let binaries = path.join("bin");
        if binaries.join("postgres").exists() && newest.as_ref().is_none_or(|&(_, n)| n < major) {
            newest = Some((binaries, major));
        }
    }
    newest.with_context(|| {
        format!("no PostgreSQL server under {DEBIAN_FOLDER}: run `apt-get install postgresql`")
    })
}

fn major(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.parse().ok()
}

fn run(mut command: Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("running {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{:?} failed with {}:\n{}",
        command.get_program(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}
