//! A receiver that does what the test says and remembers what it saw.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, Method, Response, Uri},
};
use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::{Destination, cloudevents::decode_header};
use postrider_testkit::{
    FaultProxy,
    proxy::{Direction, Flow},
};
use postrider_transport::Transport;
use postrider_transport_http::{Connection, KIND, RECEIPT_TYPE, Webhook};
use serde_json::json;

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
pub const REQUEST_BYTES_MAX: usize = 32 * 1024;

/// What to answer.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Before the answer.
    pub wait: Duration,
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: Vec::new(),
            wait: Duration::ZERO,
        }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub status: u16,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("ASCII"))
    }
}

#[derive(Clone, Default)]
pub struct Receiver {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    script: VecDeque<Reply>,
    rule: Option<Reply>,
    seen: Vec<Seen>,
}

impl Receiver {
    /// Starts it; its port.
    pub async fn start(&self) -> u16 {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let app = Router::new().fallback(take).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        port
    }

    /// The next answers, in order.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.inner.lock().unwrap().script.extend(replies);
    }

    /// The answer when there is no script; 200 by itself.
    pub fn rule(&self, rule: Option<Reply>) {
        self.inner.lock().unwrap().rule = rule;
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.inner.lock().unwrap().seen.clone()
    }
}

async fn take(
    State(receiver): State<Receiver>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let reply = {
        let mut inner = receiver.inner.lock().unwrap();
        let rule = inner.rule.clone();
        let reply = inner
            .script
            .pop_front()
            .or(rule)
            .unwrap_or_else(|| Reply::status(200));
        inner.seen.push(Seen {
            method,
            uri,
            headers,
            body,
            status: reply.status,
        });
        reply
    };
    tokio::time::sleep(reply.wait).await;
    let mut response = Response::builder().status(reply.status);
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response
        .body(Body::from(reply.body))
        .expect("a valid response")
}

pub fn destination() -> Destination {
    let mut destination = fixture::destination(KIND, RECEIPT_TYPE);
    destination.target = "/".to_owned();
    destination
}

/// Settings for a receiver on this machine.
pub fn connection(port: u16) -> Connection {
    from_json(json!({
        "url": format!("http://127.0.0.1:{port}/hook"),
        "allow_plain_http": true,
        "allow_networks": ["127.0.0.1"],
        "signing_secrets": [SECRET],
        "connect_timeout_ms": 500,
        "request_bytes_max": REQUEST_BYTES_MAX,
    }))
}

pub fn from_json(settings: serde_json::Value) -> Connection {
    serde_json::from_value(settings).expect("valid settings")
}

pub struct Harness {
    pub receiver: Receiver,
    pub proxy: FaultProxy,
}

impl transport::Harness for Harness {
    const CANNOT: &'static [Capability] = &[
        Capability::MissingTarget,
        Capability::Order,
        Capability::Dedup,
        Capability::Find,
        Capability::ProveAbsence,
    ];
    const DOCS: &'static str = include_str!("../../../../docs/transports/http.md");
    const MESSAGE_BYTES_MAX: usize = REQUEST_BYTES_MAX;

    async fn start() -> Self {
        let receiver = Receiver::default();
        let port = receiver.start().await;
        let proxy = FaultProxy::to_port(port).await.expect("the proxy starts");
        Self { receiver, proxy }
    }

    fn destination(&self) -> Destination {
        destination()
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(Webhook::open(destination, connection(self.proxy.port())).expect("it opens"))
    }

    fn missing(&self) -> Destination {
        destination()
    }

    async fn received(&self) -> Vec<Received> {
        let accepted = self
            .receiver
            .seen()
            .into_iter()
            .filter(|seen| seen.status < 300);
        accepted
            .map(|seen| Received {
                event_id: seen.header("webhook-id").to_owned(),
                headers: seen
                    .headers
                    .iter()
                    .map(|(name, value)| {
                        let value = value.to_str().expect("ASCII");
                        let value = decode_header(name.as_str(), value).expect("UTF-8");
                        (name.as_str().to_owned(), value.into_owned())
                    })
                    .collect(),
                body: seen.body.to_vec(),
            })
            .collect()
    }

    async fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Refuse => self.receiver.rule(Some(Reply::status(503))),
            Fault::Down => self.proxy.cut().await,
            Fault::Silent => self.proxy.set(Direction::ClientToServer, Flow::Swallow),
            Fault::Deaf => self.proxy.set(Direction::ServerToClient, Flow::Swallow),
        }
    }

    async fn heal(&self) {
        self.receiver.rule(None);
        self.proxy.heal().await.expect("the proxy listens");
    }
}
