//! A NATS server of a test's own, behind a proxy that can fail.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

pub mod fake;

use std::{marker::PhantomData, path::PathBuf, sync::Arc, time::Duration};

use async_nats::jetstream;
use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::{
    Destination,
    cloudevents::{Binding, decode_header},
};
use postrider_testkit::{
    FaultProxy, Nats, env, nats,
    proxy::{Direction, Flow},
};
use postrider_transport::{Provisioning, Transport, Usage};
use postrider_transport_nats::{Connection, JetStream};
use uuid::Uuid;

pub const MAX_PAYLOAD: usize = 64 * 1024;

/// Which server program.
pub trait Version: Send + Sync + 'static {
    fn binary() -> PathBuf;
}

pub struct Oldest;
pub struct Current;

impl Version for Oldest {
    fn binary() -> PathBuf {
        env::nats_server_old()
    }
}

impl Version for Current {
    fn binary() -> PathBuf {
        env::nats_server_current()
    }
}

pub struct Harness<V> {
    pub server: Nats,
    pub proxy: FaultProxy,
    pub stream: String,
    version: PhantomData<V>,
}

/// Settings for a server at this port.
pub fn connection(port: u16) -> Connection {
    let settings = serde_json::json!({
        "servers": [format!("nats://127.0.0.1:{port}")],
        "connect_timeout_ms": 500,
        "api_timeout_ms": 2_000,
    });
    serde_json::from_value(settings).expect("valid settings")
}

/// A destination on a stream of its own.
pub fn destination(stream: &str) -> Destination {
    let mut destination = fixture::destination(
        postrider_transport_nats::KIND,
        postrider_transport_nats::RECEIPT_TYPE,
    );
    destination.target = format!("{stream}.{{event_type}}");
    destination.container = Some(stream.to_owned());
    destination
}

pub fn unique(prefix: &str) -> String {
    format!("{prefix}_{}", Uuid::new_v4().simple())
}

pub fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::from_secs(60),
    }
}

impl<V: Version> Harness<V> {
    pub async fn with_config(config: &[&str]) -> Self {
        let mut options = nats::Options::new(V::binary());
        options.max_payload = Some(MAX_PAYLOAD);
        options.config = config.iter().map(|line| (*line).to_owned()).collect();
        let server = Nats::start_with(&options).await.expect("the server starts");
        let proxy = FaultProxy::to_port(server.port())
            .await
            .expect("the proxy starts");
        Self {
            server,
            proxy,
            stream: unique("S"),
            version: PhantomData,
        }
    }

    /// A client that goes past the proxy.
    pub async fn admin(&self) -> jetstream::Context {
        let client = async_nats::connect(self.server.url())
            .await
            .expect("the server is up");
        jetstream::new(client)
    }

    pub fn transport(&self, destination: &Destination) -> JetStream {
        JetStream::open(destination, connection(self.proxy.port())).expect("it opens")
    }

    pub async fn alter(&self, change: impl FnOnce(&mut jetstream::stream::Config)) {
        let admin = self.admin().await;
        let mut stream = admin
            .get_stream(&self.stream)
            .await
            .expect("the stream is there");
        let mut config = stream.info().await.expect("it answers").config.clone();
        change(&mut config);
        admin
            .update_stream(config)
            .await
            .expect("it can be altered");
    }
}

/// The messages of a stream, oldest first.
pub async fn stored(admin: &jetstream::Context, stream: &str) -> Vec<Received> {
    let mut stream = admin.get_stream(stream).await.expect("the stream is there");
    let state = stream.info().await.expect("it answers").state.clone();
    let mut received = Vec::new();
    for sequence in state.first_sequence.max(1)..=state.last_sequence {
        let message = stream.get_raw_message(sequence).await.expect("it is there");
        let mut event_id = String::new();
        let mut headers = Vec::new();
        for (name, values) in message.headers.iter() {
            let name: &str = name.as_ref();
            for value in values {
                if name == "Nats-Msg-Id" {
                    event_id = value.to_string();
                } else if !name.starts_with("Nats-") {
                    let plain = if name == Binding::NATS.content_type {
                        "content-type"
                    } else {
                        name
                    };
                    let value = decode_header(name, value.as_str()).expect("it is UTF-8");
                    headers.push((plain.to_owned(), value.into_owned()));
                }
            }
        }
        received.push(Received {
            event_id,
            headers,
            body: message.payload.to_vec(),
        });
    }
    received
}

impl<V: Version> transport::Harness for Harness<V> {
    const CANNOT: &'static [Capability] = &[Capability::ProveAbsence];
    const DOCS: &'static str = include_str!("../../../../docs/transports/nats.md");
    const MESSAGE_BYTES_MAX: usize = MAX_PAYLOAD;

    async fn start() -> Self {
        let harness = Self::with_config(&["server_name: test"]).await;
        let transport = harness.transport(&harness.destination());
        transport
            .provision(&usage(), Provisioning::Make)
            .await
            .expect("the stream is made");
        harness
    }

    fn destination(&self) -> Destination {
        destination(&self.stream)
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(self.transport(destination))
    }

    fn missing(&self) -> Destination {
        destination(&unique("MISSING"))
    }

    async fn received(&self) -> Vec<Received> {
        stored(&self.admin().await, &self.stream).await
    }

    async fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Refuse => {
                self.alter(|config| {
                    config.max_bytes = 1;
                    config.discard = jetstream::stream::DiscardPolicy::New;
                })
                .await;
            }
            Fault::Down => self.server.kill().await.expect("it was running"),
            Fault::Silent => self.proxy.set(Direction::ClientToServer, Flow::Swallow),
            Fault::Deaf => self.proxy.set(Direction::ServerToClient, Flow::Swallow),
        }
    }

    async fn heal(&self) {
        self.proxy.heal().await.expect("the proxy listens");
        if async_nats::connect(self.server.url()).await.is_err() {
            self.server.restart().await.expect("it starts again");
        }
        self.alter(|config| config.max_bytes = -1).await;
    }
}
