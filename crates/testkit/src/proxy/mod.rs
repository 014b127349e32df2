//! A TCP proxy with a stable port that fails on command: slow, silent, half-closed or gone, in
//! each direction separately. It knows no protocol and never invents bytes.

mod pipe;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::port::Port;

const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// A direction through the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    ClientToServer,
    /// Answers.
    ServerToClient,
}

/// What happens to bytes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They go through.
    Pass,
    /// They go through, each this much later. Throughput is kept.
    Delay(Duration),
    /// They wait, and come through late when the flow passes again: a partition that heals. Once
    /// the buffers are full, the sender blocks.
    Hold,
    /// They are accepted and lost: a black hole. A connection that lost bytes is closed as soon as
    /// its flow passes again, since its stream has a hole.
    Swallow,
}

/// Bytes and connections seen since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections accepted from clients.
    pub accepted: u64,
    /// Bytes read from clients.
    pub client_sent: u64,
    /// Bytes written to the server.
    pub server_received: u64,
    /// Bytes read from the server.
    pub server_sent: u64,
    /// Bytes written to clients.
    pub client_received: u64,
}

/// A proxy in front of one server. It runs on a thread of its own, so a test that blocks its
/// runtime does not stop the traffic. Dropping it cuts everything.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
    runtime: Option<Runtime>,
    port: Port,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    requests: watch::Sender<Flow>,
    answers: watch::Sender<Flow>,
    half_closed: watch::Sender<Closed>,
    connections: Mutex<Vec<JoinHandle<()>>>,
    tally: Tally,
}

/// How often each direction was half-closed; a connection heeds those after its own start.
#[derive(Debug, Clone, Copy, Default)]
struct Closed {
    requests: u64,
    answers: u64,
}

#[derive(Debug, Default)]
struct Tally {
    accepted: AtomicU64,
    requests: Passed,
    answers: Passed,
}

#[derive(Debug, Default)]
struct Passed {
    read: AtomicU64,
    written: AtomicU64,
}

impl FaultProxy {
    /// Starts a proxy to `upstream`, which need not be up. Everything passes.
    pub async fn start(upstream: SocketAddr) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fault-proxy")
            .enable_all()
            .build()
            .context("starting the proxy's runtime")?;
        let proxy = Self {
            shared: Arc::new(Shared {
                upstream,
                requests: watch::Sender::new(Flow::Pass),
                answers: watch::Sender::new(Flow::Pass),
                half_closed: watch::Sender::new(Closed::default()),
                connections: Mutex::default(),
                tally: Tally::default(),
            }),
            acceptor: Mutex::new(None),
            runtime: Some(runtime),
            port: Port::take()?,
        };
        proxy.listen()?;
        Ok(proxy)
    }

    /// Starts a proxy to a port on this machine.
    pub async fn to_port(port: u16) -> Result<Self> {
        Self::start(SocketAddr::from(([127, 0, 0, 1], port))).await
    }

    /// Where clients connect; the same for the whole life of this value.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port.number()))
    }

    /// The port of [`Self::address`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Sets one direction, for open and new connections, at once.
    pub fn set(&self, direction: Direction, flow: Flow) {
        self.shared.flow(direction).send_replace(flow);
    }

    /// Sets both directions.
    pub fn set_both(&self, flow: Flow) {
        self.set(Direction::ClientToServer, flow);
        self.set(Direction::ServerToClient, flow);
    }

    /// Ends the stream of one direction in every open connection, as if that side had finished
    /// writing; the other direction goes on.
    pub fn half_close(&self, direction: Direction) {
        self.shared
            .half_closed
            .send_modify(|closed| match direction {
                Direction::ClientToServer => closed.requests += 1,
                Direction::ServerToClient => closed.answers += 1,
            });
    }

    /// Resets every open connection; the next ones are accepted.
    pub async fn reset(&self) {
        let connections = std::mem::take(&mut *self.shared.connections());
        for connection in connections {
            connection.abort();
            // Aborted or ended by itself: either way its sockets are closed now.
            drop(connection.await);
        }
    }

    /// Resets every open connection and refuses new ones until [`Self::heal`].
    pub async fn cut(&self) {
        let acceptor = self.acceptor().take();
        if let Some(acceptor) = acceptor {
            acceptor.abort();
            drop(acceptor.await);
        }
        self.reset().await;
    }

    /// Lets everything pass again, and accepts connections again after a [`Self::cut`].
    pub async fn heal(&self) -> Result<()> {
        self.set_both(Flow::Pass);
        if self.acceptor().is_none() {
            self.listen()?;
        }
        Ok(())
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Tally {
            accepted,
            requests,
            answers,
        } = &self.shared.tally;
        Counts {
            accepted: accepted.load(Ordering::SeqCst),
            client_sent: requests.read.load(Ordering::SeqCst),
            server_received: requests.written.load(Ordering::SeqCst),
            server_sent: answers.read.load(Ordering::SeqCst),
            client_received: answers.written.load(Ordering::SeqCst),
        }
    }

    fn listen(&self) -> Result<()> {
        let Some(runtime) = &self.runtime else {
            return Ok(());
        };
        let address = self.address();
        let socket = std::net::TcpListener::bind(address)
            .with_context(|| format!("listening on {address}"))?;
        socket.set_nonblocking(true)?;
        let listener = {
            let _guard = runtime.enter();
            TcpListener::from_std(socket)?
        };
        *self.acceptor() = Some(runtime.spawn(accept(listener, Arc::clone(&self.shared))));
        Ok(())
    }

    fn acceptor(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Allowed inside another runtime, unlike the ordinary drop; every socket is closed.
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn flow(&self, direction: Direction) -> &watch::Sender<Flow> {
        match direction {
            Direction::ClientToServer => &self.requests,
            Direction::ServerToClient => &self.answers,
        }
    }

    fn passed(&self, direction: Direction) -> &Passed {
        match direction {
            Direction::ClientToServer => &self.tally.requests,
            Direction::ServerToClient => &self.tally.answers,
        }
    }

    fn connections(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Closed {
    fn count(self, direction: Direction) -> u64 {
        match direction {
            Direction::ClientToServer => self.requests,
            Direction::ServerToClient => self.answers,
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of descriptors, or the client left before we came: neither ends the proxy, and
            // a pause keeps a lasting fault from starving the open connections.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        shared.tally.accepted.fetch_add(1, Ordering::SeqCst);
        let connection = tokio::spawn(connect(client, Arc::clone(&shared)));
        let mut connections = shared.connections();
        connections.retain(|open| !open.is_finished());
        connections.push(connection);
    }
}

/// Serves one client. A server that cannot be reached closes it, unless requests are silenced:
/// then it finds a connection that never answers, as in a real black hole.
async fn connect(client: TcpStream, shared: Arc<Shared>) {
    let mut requests = shared.requests.subscribe();
    let silent = |flow: &Flow| matches!(flow, Flow::Hold | Flow::Swallow);
    let server = loop {
        if let Ok(server) = TcpStream::connect(shared.upstream).await {
            break server;
        }
        if !silent(&requests.borrow_and_update()) || requests.changed().await.is_err() {
            return;
        }
    };
    pipe::both_ways(client, server, &shared).await;
}
