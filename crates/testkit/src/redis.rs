//! A private Redis server with an append-only file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::condition::eventually_some;
use crate::port::Port;
use crate::program::Program;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A running server. Its data survives [`Self::kill`] and [`Self::stop`], not the drop.
#[derive(Debug)]
pub struct Redis {
    program: Program,
    binary: PathBuf,
    port: Port,
    /// Of a cluster's bus: the server's own choice could be anybody's.
    bus: Port,
}

impl Redis {
    /// Starts the server program `binary`.
    pub async fn start(binary: &Path) -> Result<Self> {
        Self::start_with(binary, &[]).await
    }

    /// Starts it with more lines for the configuration file.
    pub async fn start_with(binary: &Path, config: &[&str]) -> Result<Self> {
        let server = Self {
            program: Program::new("redis")?,
            binary: binary.to_owned(),
            port: Port::take()?,
            bus: Port::take()?,
        };
        let mut text = format!(
            "bind 127.0.0.1\nport {}\ncluster-port {}\ndir {}\nappendonly yes\nsave \"\"\n\
             repl-diskless-sync-delay 0\n",
            server.port(),
            server.bus.number(),
            server.program.folder().display()
        );
        for line in config {
            text.push_str(line);
            text.push('\n');
        }
        std::fs::write(server.config(), text).context("writing redis.conf")?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts it again after [`Self::stop`] or [`Self::kill`], on the same port with its data.
    pub async fn restart(&self) -> Result<()> {
        let mut command = Command::new(&self.binary);
        command
            .arg(self.config())
            .current_dir(self.program.folder());
        self.program.spawn(command)?;
        eventually_some(READY_WITHIN, "Redis to answer", || async {
            match self.program.exited() {
                Ok(None) => self.answers().await.ok().filter(|&yes| yes).map(|_| Ok(())),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("Redis ended: {status}"))),
                Err(error) => Some(Err(error)),
            }
        })
        .await
        .and_then(|started| started)
        .with_context(|| format!("its output:\n{}", self.log()))
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

    /// The port of the cluster's bus.
    #[must_use]
    pub fn bus(&self) -> u16 {
        self.bus.number()
    }

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// All that it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.program
            .stdout()
            .unwrap_or_else(|error| format!("(no log: {error:#})"))
    }

    /// Whether its data is loaded. A server that asks for a password first has loaded it, too.
    async fn answers(&self) -> Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).await?;
        Ok(line.starts_with("+PONG") || line.starts_with("-NOAUTH"))
    }

    fn config(&self) -> PathBuf {
        self.program.folder().join("redis.conf")
    }
}
