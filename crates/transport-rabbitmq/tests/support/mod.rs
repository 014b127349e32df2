//! An exchange and a queue, or a stream, of a test's own at the shared server, behind a proxy that
//! can fail. What it looks with is another AMQP client than the one under test.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::{marker::PhantomData, sync::Arc, time::Duration};

use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, ConnectionProperties, ExchangeKind,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicGetOptions, BasicPublishOptions,
        BasicQosOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions,
        QueueDeclareOptions, QueueDeleteOptions,
    },
    types::{AMQPValue, FieldTable, LongString, ShortString},
};
use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::Destination;
use postrider_testkit::{
    FaultProxy, RabbitMq as Server, env,
    proxy::{Direction, Flow},
};
use postrider_transport::{Transport, Usage};
use postrider_transport_rabbitmq::{Connection, RabbitMq};
use tokio::{sync::Mutex, time::timeout};
use uuid::Uuid;

pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
const SOON: Duration = Duration::from_secs(20);

/// What messages end up in.
pub trait Kind: Send + Sync + 'static {
    const IS_STREAM: bool;
    const CANNOT: &'static [Capability];
}

/// A quorum queue bound to an exchange.
pub struct Queue;
/// A stream, reached by its name.
pub struct Stream;

impl Kind for Queue {
    const IS_STREAM: bool = false;
    const CANNOT: &'static [Capability] = &[
        Capability::Dedup,
        Capability::Find,
        Capability::ProveAbsence,
    ];
}

impl Kind for Stream {
    const IS_STREAM: bool = true;
    const CANNOT: &'static [Capability] = &[Capability::Dedup, Capability::ProveAbsence];
}

pub struct Harness<K> {
    pub proxy: FaultProxy,
    pub queue: String,
    pub exchange: String,
    /// What was taken out of the queue.
    seen: Mutex<Vec<Received>>,
    kind: PhantomData<K>,
}

pub fn port_of(url: &str) -> u16 {
    let (_, port) = url.rsplit_once(':').expect("a URL with a port");
    port.parse().expect("a port")
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

/// Settings for a server at this port.
pub fn settings(port: u16, streams: &[&str]) -> serde_json::Value {
    serde_json::json!({
        "servers": [format!("amqp://127.0.0.1:{port}")],
        "connect_timeout_ms": 3_000,
        "api_timeout_ms": 5_000,
        "publish_bytes_max": MESSAGE_BYTES_MAX,
        "streams": streams,
    })
}

pub fn connection(port: u16, streams: &[&str]) -> Connection {
    serde_json::from_value(settings(port, streams)).expect("valid settings")
}

/// A destination on an exchange, or on the default one.
pub fn destination(exchange: Option<&str>, target: &str) -> Destination {
    let mut destination = fixture::destination(
        postrider_transport_rabbitmq::KIND,
        postrider_transport_rabbitmq::RECEIPT_TYPE,
    );
    destination.target = target.to_owned();
    destination.container = exchange.map(str::to_owned);
    destination
}

/// A client that goes past the proxy.
pub struct Admin {
    /// Ends with this value.
    _connection: lapin::Connection,
    pub channel: Channel,
}

impl Admin {
    pub async fn to(url: &str) -> Self {
        let url = url.replace("amqp://", "amqp://guest:guest@");
        let connection = lapin::Connection::connect(&url, ConnectionProperties::default())
            .await
            .expect("the server is up");
        let channel = connection.create_channel().await.expect("a channel");
        Self {
            _connection: connection,
            channel,
        }
    }

    pub async fn shared() -> Self {
        Self::to(&env::rabbitmq_url()).await
    }

    pub async fn exchange(&self, name: &str, kind: ExchangeKind) {
        let options = ExchangeDeclareOptions {
            durable: true,
            ..ExchangeDeclareOptions::default()
        };
        self.channel
            .exchange_declare(short(name), kind, options, FieldTable::default())
            .await
            .expect("the exchange is made");
    }

    pub async fn queue(&self, name: &str, arguments: &[(&str, AMQPValue)]) {
        let options = QueueDeclareOptions {
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            table.insert(short(name), value.clone());
        }
        self.channel
            .queue_declare(short(name), options, table)
            .await
            .expect("the queue is made");
    }

    pub async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        self.channel
            .queue_bind(
                short(queue),
                short(exchange),
                short(key),
                QueueBindOptions::default(),
                FieldTable::default(),
            )
            .await
            .expect("it is bound");
    }

    pub async fn unbind(&self, queue: &str, exchange: &str, key: &str) {
        self.channel
            .queue_unbind(
                short(queue),
                short(exchange),
                short(key),
                FieldTable::default(),
            )
            .await
            .expect("it is unbound");
    }

    /// Takes everything out of a queue, in order.
    pub async fn take_all(&self, queue: &str) -> Vec<Received> {
        let mut received = Vec::new();
        loop {
            let got = self
                .channel
                .basic_get(short(queue), BasicGetOptions { no_ack: true })
                .await
                .expect("the queue is there");
            match got {
                Some(message) => {
                    let message = message.delivery;
                    received.push(read(&message.properties, message.data));
                }
                None => return received,
            }
        }
    }

    /// Reads a stream from its beginning to a mark that is put at its end.
    pub async fn read_stream(&self, queue: &str) -> Vec<Received> {
        let mark = unique("MARK");
        self.publish(queue, &mark, b"").await;
        self.channel
            .basic_qos(200, BasicQosOptions::default())
            .await
            .expect("qos");
        let mut arguments = FieldTable::default();
        arguments.insert(short("x-stream-offset"), text("first"));
        let mut consumer = self
            .channel
            .basic_consume(
                short(queue),
                short(""),
                BasicConsumeOptions::default(),
                arguments,
            )
            .await
            .expect("it can be read");
        let mut received = Vec::new();
        loop {
            let delivery = timeout(SOON, consumer.next()).await.expect("it comes");
            let delivery = delivery.expect("a delivery").expect("without an error");
            delivery
                .ack(BasicAckOptions::default())
                .await
                .expect("acknowledged");
            let one = read(&delivery.properties, delivery.data);
            if one.event_id == mark {
                return received;
            }
            if !one.event_id.starts_with("MARK_") {
                received.push(one);
            }
        }
    }

    /// Publishes to a queue by its name, and waits for the confirm.
    pub async fn publish(&self, queue: &str, id: &str, body: &[u8]) {
        self.channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .expect("confirms");
        let properties = BasicProperties::default().with_message_id(short(id));
        let confirm = self
            .channel
            .basic_publish(
                short(""),
                short(queue),
                BasicPublishOptions::default(),
                body,
                properties,
            )
            .await
            .expect("published");
        confirm.await.expect("confirmed");
    }

    pub async fn delete_queue(&self, queue: &str) {
        self.channel
            .queue_delete(short(queue), QueueDeleteOptions::default())
            .await
            .expect("deleted");
    }

    pub async fn has_queue(&self, queue: &str) -> bool {
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        self.channel
            .queue_declare(short(queue), options, FieldTable::default())
            .await
            .is_ok()
    }
}

pub fn short(text: &str) -> ShortString {
    ShortString::from(text)
}

pub fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// A message with its headers named as in CloudEvents over HTTP.
fn read(properties: &BasicProperties, body: Vec<u8>) -> Received {
    let mut headers = Vec::new();
    if let Some(content_type) = properties.content_type() {
        headers.push(("content-type".to_owned(), content_type.to_string()));
    }
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        if let AMQPValue::LongString(value) = value {
            let name = name.as_str();
            let plain = match name.strip_prefix("cloudEvents_") {
                Some(attribute) => format!("ce-{attribute}"),
                None => name.to_owned(),
            };
            headers.push((plain, value.to_string()));
        }
    }
    Received {
        event_id: properties
            .message_id()
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        headers,
        body,
    }
}

impl<K: Kind> Harness<K> {
    pub fn transport(&self, destination: &Destination) -> RabbitMq {
        let streams: &[&str] = if K::IS_STREAM {
            &[destination.target.as_str()]
        } else {
            &[]
        };
        let connection = connection(self.proxy.port(), streams);
        RabbitMq::open(destination, connection).expect("it opens")
    }
}

impl<K: Kind> transport::Harness for Harness<K> {
    const CANNOT: &'static [Capability] = K::CANNOT;
    const DOCS: &'static str = include_str!("../../../../docs/transports/rabbitmq.md");
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;

    async fn start() -> Self {
        let harness = Self {
            proxy: FaultProxy::to_port(port_of(&env::rabbitmq_url()))
                .await
                .expect("the proxy starts"),
            queue: unique("q"),
            exchange: unique("x"),
            seen: Mutex::default(),
            kind: PhantomData,
        };
        let admin = Admin::shared().await;
        admin.exchange(&harness.exchange, ExchangeKind::Topic).await;
        harness.heal().await;
        harness
    }

    fn destination(&self) -> Destination {
        if K::IS_STREAM {
            destination(None, &self.queue)
        } else {
            destination(Some(&self.exchange), "orders.{event_type}")
        }
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(self.transport(destination))
    }

    fn missing(&self) -> Destination {
        if K::IS_STREAM {
            destination(None, &unique("missing"))
        } else {
            destination(Some(&unique("missing")), "orders.{event_type}")
        }
    }

    async fn received(&self) -> Vec<Received> {
        let admin = Admin::shared().await;
        if !admin.has_queue(&self.queue).await {
            return Vec::new();
        }
        if K::IS_STREAM {
            return admin.read_stream(&self.queue).await;
        }
        let mut seen = self.seen.lock().await;
        seen.extend(admin.take_all(&self.queue).await);
        seen.clone()
    }

    async fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Refuse if K::IS_STREAM => {
                Admin::shared().await.delete_queue(&self.queue).await;
            }
            Fault::Refuse => {
                let admin = Admin::shared().await;
                admin.unbind(&self.queue, &self.exchange, "#").await;
            }
            Fault::Down => self.proxy.cut().await,
            Fault::Silent => self.proxy.set(Direction::ClientToServer, Flow::Swallow),
            Fault::Deaf => self.proxy.set(Direction::ServerToClient, Flow::Swallow),
        }
    }

    async fn heal(&self) {
        self.proxy.heal().await.expect("the proxy listens");
        let admin = Admin::shared().await;
        if K::IS_STREAM {
            admin
                .queue(&self.queue, &[("x-queue-type", text("stream"))])
                .await;
        } else {
            admin
                .queue(&self.queue, &[("x-queue-type", text("quorum"))])
                .await;
            admin.bind(&self.queue, &self.exchange, "#").await;
        }
    }
}

/// The server's own name, which every test server has.
pub const CLUSTER: &str = Server::CLUSTER;
