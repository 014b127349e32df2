//! A private PgBouncer in transaction mode in front of a PostgreSQL server: the pooler behind
//! which session state, named prepared statements and LISTEN quietly break.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::account::Account;
use crate::condition::eventually_some;
use crate::port::Port;
use crate::postgres::{Postgres, create_database, execute};
use crate::program::Program;

const BINARIES: [&str; 3] = [
    "/usr/sbin/pgbouncer",
    "/usr/bin/pgbouncer",
    "/usr/local/bin/pgbouncer",
];
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Two would already show state that leaks from one client to another; three lets a relay, an
/// application and a test's own look work at the same time.
const POOL_SIZE: u32 = 3;

/// A running pooler for every database and every role of one server.
#[derive(Debug)]
pub struct PgBouncer {
    program: Program,
    account: Account,
    binary: PathBuf,
    port: Port,
    server_url: String,
}

impl PgBouncer {
    /// Starts a pooler in front of `server`.
    pub async fn start(server: &Postgres) -> Result<Self> {
        let account = Account::unprivileged()?;
        let pooler = Self {
            program: Program::new("pgbouncer")?,
            account,
            binary: find_binary()?,
            port: Port::take()?,
            server_url: server.url("postgres"),
        };
        account.own(pooler.program.folder())?;
        pooler.configure(server.port())?;
        pooler.restart().await?;
        Ok(pooler)
    }

    /// Starts it again after [`Self::kill`], on the same port.
    pub async fn restart(&self) -> Result<()> {
        let mut command = self.account.command(&self.binary);
        command
            .arg(self.config())
            .current_dir(self.program.folder());
        self.program.spawn(command)?;
        let url = self.url("postgres");
        eventually_some(READY_WITHIN, "PgBouncer to pass queries", || async {
            match self.program.exited() {
                Ok(None) => execute(&url, "SELECT 1").await.ok().map(Ok),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("PgBouncer ended: {status}"))),
                Err(error) => Some(Err(error)),
            }
        })
        .await
        .and_then(|started| started)
        .with_context(|| format!("last lines of its log:\n{}", self.program.log_tail()))
    }

    /// SIGKILL: every connection on both sides is gone.
    pub async fn kill(&self) -> Result<()> {
        self.program.kill().await
    }

    /// SIGSTOP: connections stay open and silent.
    pub fn pause(&self) -> Result<()> {
        self.program.pause()
    }

    /// Ends a [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.program.resume()
    }

    /// The superuser's URL of a database through the pooler.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!(
            "postgresql://postgres@127.0.0.1:{}/{database}",
            self.port.number()
        )
    }

    /// Creates an empty database on the server; returns its URL through the pooler.
    pub async fn create_database(&self) -> Result<String> {
        let name = create_database(&self.server_url).await?;
        Ok(self.url(&name))
    }

    fn configure(&self, server_port: u16) -> Result<()> {
        let users = self.program.folder().join("users.txt");
        std::fs::write(&users, "\"postgres\" \"\"\n").context("writing users.txt")?;
        let port = self.port.number();
        let users = users.display();
        // auth_query lets in every role that the server knows, so that tests of roles and grants
        // can go through the pooler too.
        let config = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={server_port} auth_user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = trust\n\
             auth_file = {users}\n\
             auth_query = SELECT rolname, '' FROM pg_catalog.pg_roles WHERE rolname = $1\n\
             pool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\n\
             max_client_conn = 500\n\
             server_idle_timeout = 10\n\
             ignore_startup_parameters = extra_float_digits\n"
        );
        std::fs::write(self.config(), config).context("writing pgbouncer.ini")
    }

    fn config(&self) -> PathBuf {
        self.program.folder().join("pgbouncer.ini")
    }
}

fn find_binary() -> Result<PathBuf> {
    BINARIES
        .iter()
        .map(Path::new)
        .find(|path| path.exists())
        .map(Path::to_path_buf)
        .context("no PgBouncer found: run `apt-get install pgbouncer`")
}
