//! A private broker that speaks Kafka's protocol: nisshi, one node, its data in a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::condition::eventually_some;
use crate::port::Port;
use crate::program::Program;

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOP_WITHIN: Duration = Duration::from_secs(30);

/// A broker. Its topics survive [`Self::kill`] and [`Self::stop`], not the drop.
#[derive(Debug)]
pub struct Kafka {
    program: Program,
    binary: PathBuf,
    port: Port,
    advertised: AtomicU16,
}

impl Kafka {
    /// The id of the cluster that it is.
    pub const CLUSTER: &str = "test";

    /// Starts the program `binary`.
    pub async fn start(binary: &Path) -> Result<Self> {
        let broker = Self::prepare(binary)?;
        broker.restart().await?;
        Ok(broker)
    }

    /// Takes a port and a folder; [`Self::restart`] starts it.
    pub fn prepare(binary: &Path) -> Result<Self> {
        let program = Program::new("kafka")?;
        std::fs::create_dir(program.folder().join("data")).context("creating the data folder")?;
        let port = Port::take()?;
        Ok(Self {
            program,
            binary: binary.to_owned(),
            advertised: AtomicU16::new(port.number()),
            port,
        })
    }

    /// Names another port to its clients from the next start on: a proxy in front of it. Whatever
    /// address a client begins with, it goes on with this one.
    pub fn advertise(&self, port: u16) {
        self.advertised.store(port, Ordering::Relaxed);
    }

    /// Starts it, also after [`Self::stop`] or [`Self::kill`]: on the same port, with its topics.
    pub async fn restart(&self) -> Result<()> {
        let url = |port: u16| format!("tcp://127.0.0.1:{port}");
        let mut command = Command::new(&self.binary);
        command
            .arg("--silent")
            .args(["--cluster-id", Self::CLUSTER])
            .args(["--group-initial-rebalance-delay", "0s"])
            // The default is to listen on every address.
            .args(["--listener-url", &url(self.port())])
            .arg("--advertised-listener-url")
            .arg(url(self.advertised.load(Ordering::Relaxed)))
            .args(["--storage-engine", "sqlite://data/kafka.db"])
            .current_dir(self.program.folder());
        self.program.spawn(command)?;
        eventually_some(READY_WITHIN, "the Kafka broker to answer", || async {
            match self.program.exited() {
                Ok(None) => self.answers().await.ok().map(Ok),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("the broker ended: {status}"))),
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

    /// Whether it runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.program.pid().is_some()
    }

    /// The port, the same for the whole life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address for clients.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Asks which requests it knows, in the oldest way to ask.
    async fn answers(&self) -> Result<()> {
        /// ApiVersions 0, correlation id 7, no client id.
        const REQUEST: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 0xff, 0xff];
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).await?;
        stream.write_all(&REQUEST).await?;
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).await?;
        ensure!(
            answer[4..] == [0, 0, 0, 7],
            "not an answer of a Kafka broker"
        );
        Ok(())
    }
}
