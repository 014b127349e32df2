//! A Redis server of a test's own, behind a proxy that can fail.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

pub mod judge;

use std::{marker::PhantomData, sync::Arc, time::Duration};

use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::{Destination, Receipt};
use postrider_core::{Class, Outcome};
use postrider_testkit::{
    FaultProxy, Redis, env,
    proxy::{Direction, Flow},
};
use postrider_transport::{Provisioning, Transport, Usage};
use postrider_transport_redis::{Connection, RedisStreams};
use serde_json::{Value, json};
use uuid::Uuid;

/// The least that a server can be told.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Whether the server is to remember ids.
pub trait Memory: Send + Sync + 'static {
    const WINDOW_MS: u64;
    const CANNOT: &'static [Capability];
}

#[derive(Debug)]
pub struct Remembers;

#[derive(Debug)]
pub struct Forgets;

impl Memory for Remembers {
    const WINDOW_MS: u64 = 600_000;
    const CANNOT: &'static [Capability] = &[Capability::ProveAbsence];
}

impl Memory for Forgets {
    const WINDOW_MS: u64 = 0;
    const CANNOT: &'static [Capability] = &[Capability::ProveAbsence, Capability::Dedup];
}

pub struct Harness<M> {
    pub server: Redis,
    pub proxy: FaultProxy,
    pub stream: String,
    memory: PhantomData<M>,
}

/// Settings for a server at this port.
pub fn connection(port: u16, window_ms: u64) -> Connection {
    connection_with(port, &json!({ "dedup_window_ms": window_ms }))
}

/// The same with more settings.
pub fn connection_with(port: u16, more: &Value) -> Connection {
    let mut settings = json!({
        "servers": [format!("redis://127.0.0.1:{port}")],
        "connect_timeout_ms": 10_000,
        "api_timeout_ms": 10_000,
    });
    for (name, value) in more.as_object().expect("an object") {
        settings[name] = value.clone();
    }
    serde_json::from_value(settings).expect("valid settings")
}

/// A destination in a stream of its own.
pub fn destination(stream: &str) -> Destination {
    let mut destination = fixture::destination(
        postrider_transport_redis::KIND,
        postrider_transport_redis::RECEIPT_TYPE,
    );
    destination.target = stream.to_owned();
    destination
}

pub fn unique(prefix: &str) -> String {
    format!("{prefix}:{}", Uuid::new_v4().simple())
}

pub fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::from_secs(60),
    }
}

/// A command by a client that is not ours; an error answer is `Err`.
pub fn ask(port: u16, command: &[&str]) -> Result<Value, String> {
    let mut client = std::process::Command::new(env::redis_cli());
    client.args(["-e", "--json", "-p", &port.to_string()]);
    let output = client.args(command).output().expect("redis-cli runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if !output.status.success() {
        return Err(text(&output.stdout) + &text(&output.stderr));
    }
    let answer = text(&output.stdout);
    Ok(serde_json::from_str(&answer).unwrap_or(Value::String(answer)))
}

pub fn number(port: u16, command: &[&str]) -> i64 {
    let answer = ask(port, command).expect("it answers");
    answer
        .as_i64()
        .unwrap_or_else(|| panic!("a number: {answer}"))
}

pub async fn make(transport: &RedisStreams) {
    transport
        .provision(&usage(), Provisioning::Make)
        .await
        .expect("the stream is made");
}

impl<M: Memory> Harness<M> {
    pub async fn with_config(config: &[&str]) -> Self {
        let server = Redis::start_with(&env::redis_server(), config)
            .await
            .expect("the server starts");
        let proxy = FaultProxy::to_port(server.port())
            .await
            .expect("the proxy starts");
        Self {
            server,
            proxy,
            stream: unique("orders"),
            memory: PhantomData,
        }
    }

    pub fn ask(&self, command: &[&str]) -> Value {
        ask(self.server.port(), command).expect("it answers")
    }

    pub fn transport(&self, destination: &Destination) -> RedisStreams {
        self.transport_with(destination, &json!({ "dedup_window_ms": M::WINDOW_MS }))
    }

    pub fn transport_with(&self, destination: &Destination, more: &Value) -> RedisStreams {
        RedisStreams::open(destination, connection_with(self.proxy.port(), more)).expect("it opens")
    }
}

/// The entries of a stream, oldest first.
pub fn stored(port: u16, stream: &str) -> Vec<(String, Received)> {
    let answer = ask(port, &["XRANGE", stream, "-", "+"]).expect("it answers");
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let entries = answer.as_array().expect("entries").iter().map(|entry| {
        let mut received = Received {
            event_id: String::new(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        for pair in entry[1].as_array().expect("fields").chunks(2) {
            let (name, value) = (text(&pair[0]), text(&pair[1]));
            match name.as_str() {
                "postrider-event-id" => received.event_id = value,
                "postrider-body" => received.body = value.into_bytes(),
                _ => received.headers.push((name, value)),
            }
        }
        (text(&entry[0]), received)
    });
    entries.collect()
}

impl<M: Memory> transport::Harness for Harness<M> {
    const CANNOT: &'static [Capability] = M::CANNOT;
    const DOCS: &'static str = include_str!("../../../../docs/transports/redis.md");
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    async fn start() -> Self {
        let harness = Self::with_config(&["proto-max-bulk-len 1mb"]).await;
        make(&harness.transport(&harness.destination())).await;
        harness
    }

    fn destination(&self) -> Destination {
        destination(&self.stream)
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(self.transport(destination))
    }

    fn missing(&self) -> Destination {
        destination(&unique("missing"))
    }

    async fn received(&self) -> Vec<Received> {
        let entries = stored(self.server.port(), &self.stream);
        entries.into_iter().map(|(_, received)| received).collect()
    }

    async fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Refuse => {
                self.ask(&["CONFIG", "SET", "maxmemory", "1"]);
            }
            Fault::Down => self.server.kill().await.expect("it was running"),
            Fault::Silent => self.proxy.set(Direction::ClientToServer, Flow::Swallow),
            Fault::Deaf => self.proxy.set(Direction::ServerToClient, Flow::Swallow),
        }
    }

    async fn heal(&self) {
        self.proxy.heal().await.expect("the proxy listens");
        if ask(self.server.port(), &["PING"]).is_err() {
            self.server.restart().await.expect("it starts again");
        }
        self.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    }
}

/// What an outcome is, and its code.
pub fn kind(outcome: &Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Acknowledged(_) => ("acknowledged", ""),
        Outcome::Retryable { class, code, .. } => match class {
            Class::Outage => ("outage", code),
            Class::Refusal => ("refusal", code),
            Class::Held => ("held", code),
        },
        Outcome::Rejected { code, .. } => ("rejected", code),
        Outcome::Unknown { code, .. } => ("unknown", code),
    }
}

pub fn entry(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Acknowledged(Receipt::Redis { entry_id, .. }) => entry_id,
        Outcome::Acknowledged(_)
        | Outcome::Retryable { .. }
        | Outcome::Rejected { .. }
        | Outcome::Unknown { .. } => panic!("not acknowledged: {outcome:?}"),
    }
}
