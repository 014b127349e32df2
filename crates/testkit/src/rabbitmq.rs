//! A private RabbitMQ server, alone in its cluster, with a name service (epmd), a cookie and ports
//! of its own on loopback. User `guest`, password `guest`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::condition::{eventually, eventually_some};
use crate::port::Port;
use crate::program::Program;

/// The programs without the wrappers of Debian, which insist on one account and one data folder.
const FOLDER: &str = "/usr/lib/rabbitmq/bin";
const NAME_SERVICE: &str = "/usr/bin/epmd";
/// Erlang alone takes seconds, and this machine may be starting several.
const READY_WITHIN: Duration = Duration::from_secs(120);
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// What a client says first.
const PROTOCOL: &[u8; 8] = b"AMQP\0\0\x09\x01";

/// How to run it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More lines for rabbitmq.conf.
    pub config: Vec<String>,
}

/// A running server. Durable queues survive [`Self::kill`] and [`Self::stop`], not the drop.
#[derive(Debug)]
pub struct RabbitMq {
    // The node goes before the service that knows its name.
    node: Program,
    names: Program,
    port: Port,
    names_port: Port,
    cluster_port: Port,
}

impl RabbitMq {
    /// The name of the cluster that each server is.
    pub const CLUSTER: &'static str = "test";
    /// The largest message body, in bytes: far below the default, so that a test reaches it.
    pub const BODY_BYTES_MAX: usize = 256 * 1024;

    /// Whether the server's programs are installed.
    #[must_use]
    pub fn is_installed() -> bool {
        Self::program("rabbitmq-server").exists() && Path::new(NAME_SERVICE).exists()
    }

    /// Starts a server with its own defaults.
    pub async fn start() -> Result<Self> {
        Self::start_with(&Options::default()).await
    }

    /// Starts a server as `options` say.
    pub async fn start_with(options: &Options) -> Result<Self> {
        let server = Self {
            node: Program::new("rabbitmq")?,
            names: Program::new("epmd")?,
            port: Port::take()?,
            names_port: Port::take()?,
            cluster_port: Port::take()?,
        };
        server.configure(options)?;
        let mut names = Command::new(NAME_SERVICE);
        names
            .arg("-port")
            .arg(server.names_port.number().to_string())
            .args(["-address", "127.0.0.1"])
            .current_dir(server.names.folder());
        server.names.spawn(names)?;
        let port = server.names_port.number();
        eventually(READY_WITHIN, "epmd to listen", || async {
            TcpStream::connect(("127.0.0.1", port)).await.is_ok()
        })
        .await
        .with_context(|| format!("last lines of its log:\n{}", server.names.log_tail()))?;
        server.restart().await?;
        Ok(server)
    }

    /// Starts it again after [`Self::stop`] or [`Self::kill`], on the same port with its queues.
    pub async fn restart(&self) -> Result<()> {
        self.node.spawn(self.command("rabbitmq-server"))?;
        eventually_some(READY_WITHIN, "RabbitMQ to greet a client", || async {
            match self.node.exited() {
                Ok(None) => self.greets().await.ok().filter(|&yes| yes).map(|_| Ok(())),
                Ok(Some(status)) => Some(Err(anyhow::anyhow!("RabbitMQ ended: {status}"))),
                Err(error) => Some(Err(error)),
            }
        })
        .await
        .and_then(|started| started)
        .with_context(|| format!("last lines of its log:\n{}", self.node.log_tail()))
    }

    /// SIGTERM and wait: an orderly shutdown.
    pub async fn stop(&self) -> Result<()> {
        self.node.terminate()?;
        self.node.wait(STOP_WITHIN).await?;
        Ok(())
    }

    /// SIGKILL: a crash.
    pub async fn kill(&self) -> Result<()> {
        self.node.kill().await
    }

    /// SIGSTOP: connections stay open and silent.
    pub fn pause(&self) -> Result<()> {
        self.node.pause()
    }

    /// Ends a [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.node.resume()
    }

    /// Runs `rabbitmqctl` with these arguments and waits for it; it takes a second or two.
    pub async fn control(&self, arguments: &[&str]) -> Result<()> {
        let mut command = tokio::process::Command::from(self.command("rabbitmqctl"));
        let output = command
            .args(arguments)
            .output()
            .await
            .context("running rabbitmqctl")?;
        ensure!(
            output.status.success(),
            "rabbitmqctl {arguments:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// The port, the same for the whole life of this value.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The URL for clients, without the user.
    #[must_use]
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port())
    }

    /// The last lines that it logged.
    #[must_use]
    pub fn log_tail(&self) -> String {
        self.node.log_tail()
    }

    /// It listens before it can serve; the first frame comes from a server that can.
    async fn greets(&self) -> Result<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port())).await?;
        stream.write_all(PROTOCOL).await?;
        let mut first = [0; 1];
        stream.read_exact(&mut first).await?;
        Ok(first == [1])
    }

    fn configure(&self, options: &Options) -> Result<()> {
        let mut config = format!(
            "listeners.tcp.1 = 127.0.0.1:{}\n\
             cluster_name = {}\n\
             max_message_size = {}\n\
             log.file = false\n\
             log.console = true\n\
             disk_free_limit.absolute = 1MB\n",
            self.port(),
            Self::CLUSTER,
            Self::BODY_BYTES_MAX
        );
        for line in &options.config {
            config.push_str(line);
            config.push('\n');
        }
        let folder = self.node.folder();
        std::fs::write(folder.join("rabbitmq.conf"), config).context("writing rabbitmq.conf")?;
        std::fs::write(folder.join("plugins"), "[].").context("writing the list of plugins")?;
        std::fs::write(folder.join("env.conf"), "").context("writing env.conf")
    }

    /// A program with an environment that keeps it to this folder and these ports.
    fn command(&self, name: &str) -> Command {
        let folder = self.node.folder();
        let mut command = Command::new(Self::program(name));
        command
            .current_dir(folder)
            // The cookie is made in the home folder.
            .env("HOME", folder)
            .env("ERL_EPMD_PORT", self.names_port.number().to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", "rabbit@localhost")
            .env(
                "RABBITMQ_DIST_PORT",
                self.cluster_port.number().to_string(),
            )
            .env("RABBITMQ_CONF_ENV_FILE", folder.join("env.conf"))
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder)
            .env("RABBITMQ_LOGS", "-")
            // Schedulers that sleep instead of spinning: tests share few cores.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
            )
            // Its signals go to the server itself, and not to a shell that waits for it.
            .env("RUNNING_UNDER_SYSTEMD", "true")
            .env_remove("NOTIFY_SOCKET");
        command
    }

    fn program(name: &str) -> PathBuf {
        Path::new(FOLDER).join(name)
    }
}
