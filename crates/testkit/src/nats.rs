//! A private NATS server with JetStream on disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

use crate::condition::eventually_some;
use crate::port::Port;
use crate::program::Program;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// Which server to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The server program; [`crate::env::nats_server_old`] and [`crate::env::nats_server_current`]
    /// name both ends of the supported range.
    pub binary: PathBuf,
    /// Largest payload in bytes; the server's own default (1 MiB) if not set.
    pub max_payload: Option<usize>,
    /// Where streams are kept; a folder of the server's own if not set.
    pub store: Option<PathBuf>,
    /// More lines for the configuration file.
    pub config: Vec<String>,
}

impl Options {
    /// The given server program with its own defaults.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            max_payload: None,
            store: None,
            config: Vec::new(),
        }
    }
}

/// A running server. Streams survive [`Self::kill`] and [`Self::stop`], not the drop.
#[derive(Debug)]
pub struct Nats {
    program: Program,
    binary: PathBuf,
    port: Port,
}

/// By itself a server takes three quarters of what is free on its disk when it starts, which is less
/// after each start: one that has stored much would refuse to store more.
const STORE_MAX: &str = "8GB";

impl Nats {
    /// Starts the server program `binary`.
    pub async fn start(binary: &Path) -> Result<Self> {
        Self::start_with(&Options::new(binary)).await
    }

    /// Starts a server as `options` say.
    pub async fn start_with(options: &Options) -> Result<Self> {
        let server = Self {
            program: Program::new("nats")?,
            binary: options.binary.clone(),
            port: Port::take()?,
        };
        server.configure(options)?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts it again after [`Self::stop`] or [`Self::kill`], on the same port with its streams.
    pub async fn restart(&self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .arg("-c")
            .arg(self.config())
            .current_dir(self.program.folder());
        self.program.spawn(command)?;
        eventually_some(READY_WITHIN, "NATS to offer JetStream", || async {
            match self.program.exited() {
                Ok(None) => self
                    .offers_jetstream()
                    .await
                    .ok()
                    .filter(|&yes| yes)
                    .map(|_| Ok(())),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("NATS ended: {status}"))),
                Err(error) => Some(Err(error)),
            }
        })
        .await
        .and_then(|started| started)
        .with_context(|| format!("last lines of its log:\n{}", self.program.log_tail()))
    }

    /// SIGTERM and wait: an orderly shutdown.
    pub async fn stop(&self) -> Result<()> {
        self.program.terminate()?;
        self.program.wait(STOP_WITHIN).await?;
        Ok(())
    }

    /// SIGKILL: a crash.
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

    /// The port, the same for the whole life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port())
    }

    /// All that it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.program
            .stderr()
            .unwrap_or_else(|error| format!("(no log: {error:#})"))
    }

    /// Asks by the first line that the server sends to each client.
    async fn offers_jetstream(&self) -> Result<bool> {
        let stream = TcpStream::connect(("127.0.0.1", self.port())).await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok(line.starts_with("INFO ") && line.contains("\"jetstream\":true"))
    }

    fn configure(&self, options: &Options) -> Result<()> {
        let own = || self.program.folder().join("jetstream");
        let store = options.store.clone().unwrap_or_else(own);
        let mut config = format!(
            "host: 127.0.0.1\nport: {}\n\
             jetstream {{ store_dir: \"{}\", max_file_store: {STORE_MAX} }}\n",
            self.port(),
            store.display()
        );
        if let Some(bytes) = options.max_payload {
            config.push_str(&format!("max_payload: {bytes}\n"));
        }
        for line in &options.config {
            config.push_str(line);
            config.push('\n');
        }
        std::fs::write(self.config(), config).context("writing nats.conf")
    }

    fn config(&self) -> PathBuf {
        self.program.folder().join("nats.conf")
    }
}
