//! A broker of a test's own, behind a proxy that can fail.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses its own part"
)]

use std::{sync::Arc, time::Duration};

use postrider_conformance::transport::{self, Capability, Fault, Received, fixture};
use postrider_contract::{
    Destination,
    cloudevents::{Binding, RAW_ID},
    destination::Partitioner,
};
use postrider_testkit::{
    FaultProxy, Kafka as Broker, env,
    proxy::{Direction, Flow},
};
use postrider_transport::{Provisioning, Transport, Usage};
use postrider_transport_kafka::{Connection, KIND, Kafka, RECEIPT_TYPE};
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{Headers, OwnedMessage},
};
use uuid::Uuid;

pub const MESSAGE_MAX: usize = 64 * 1024;

/// Settings for a broker at this address.
pub fn connection(brokers: &str, partitions: u32) -> Connection {
    let settings = serde_json::json!({
        "brokers": brokers.split(',').collect::<Vec<_>>(),
        "connect_timeout_ms": 2_000,
        "api_timeout_ms": 10_000,
        "message_timeout_ms": 30_000,
        "message_bytes_max": MESSAGE_MAX,
        "provision": { "partitions": partitions },
    });
    serde_json::from_value(settings).expect("valid settings")
}

pub fn destination(cluster: &str, topic: &str) -> Destination {
    let mut destination = fixture::destination(KIND, RECEIPT_TYPE);
    destination.cluster = cluster.to_owned();
    destination.target = topic.to_owned();
    destination.partitioner = Partitioner::Murmur2;
    destination
}

pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", Uuid::new_v4().simple())
}

pub fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::from_secs(60),
    }
}

pub struct Harness {
    pub broker: Broker,
    pub proxy: FaultProxy,
    pub topic: String,
}

impl Harness {
    pub async fn with_partitions(partitions: u32) -> Self {
        let broker = Broker::prepare(&env::nisshi()).expect("a port is free");
        let proxy = FaultProxy::to_port(broker.port())
            .await
            .expect("the proxy starts");
        broker.advertise(proxy.port());
        broker.restart().await.expect("the broker starts");
        let harness = Self {
            broker,
            proxy,
            topic: unique("orders"),
        };
        let destination = destination(Broker::CLUSTER, &harness.topic);
        let connection = connection(&harness.brokers(), partitions);
        let transport = Kafka::open(&destination, connection).expect("it opens");
        transport
            .provision(&usage(), Provisioning::Make)
            .await
            .expect("the topic is made");
        harness
    }

    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.proxy.port())
    }

    pub fn transport(&self, destination: &Destination) -> Kafka {
        Kafka::open(destination, connection(&self.brokers(), 1)).expect("it opens")
    }

    pub async fn stored(&self) -> Vec<OwnedMessage> {
        stored(&self.brokers(), &self.topic).await
    }
}

/// Everything in a topic, by partition and offset.
pub async fn stored(brokers: &str, topic: &str) -> Vec<OwnedMessage> {
    let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
    tokio::task::spawn_blocking(move || read(&brokers, &topic))
        .await
        .expect("reading does not panic")
        .expect("the topic can be read")
}

fn read(brokers: &str, topic: &str) -> Result<Vec<OwnedMessage>, KafkaError> {
    let patience = Duration::from_secs(20);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "test-reader")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("fetch.wait.max.ms", "20")
        .create()?;
    let mut open = {
        let metadata = consumer.fetch_metadata(Some(topic), patience)?;
        let mut list = TopicPartitionList::new();
        let mut open = Vec::new();
        for partition in metadata.topics()[0].partitions() {
            list.add_partition_offset(topic, partition.id(), Offset::Beginning)?;
            open.push(partition.id());
        }
        consumer.assign(&list)?;
        open
    };
    let mut found = Vec::new();
    while !open.is_empty() {
        match consumer.poll(patience) {
            Some(Ok(message)) => found.push(message.detach()),
            Some(Err(KafkaError::PartitionEOF(partition))) => open.retain(|own| *own != partition),
            // A connection that was cut before is made anew by itself.
            Some(Err(_)) => {}
            None => panic!("the topic was not read to its end in {patience:?}"),
        }
    }
    found.sort_by_key(|message| (message.partition(), message.offset()));
    Ok(found)
}

pub fn header<'a>(message: &'a OwnedMessage, name: &str) -> Option<&'a str> {
    let headers = message.headers()?;
    let found = headers.iter().find(|header| header.key == name)?;
    std::str::from_utf8(found.value?).ok()
}

pub fn event_id(message: &OwnedMessage) -> String {
    let id = header(message, "ce_id").or_else(|| header(message, RAW_ID));
    id.unwrap_or_default().to_owned()
}

pub fn received(message: &OwnedMessage) -> Received {
    let mut headers = Vec::new();
    if let Some(own) = message.headers() {
        for header in own.iter() {
            let name = header.key.strip_prefix(Binding::KAFKA.prefix).map_or_else(
                || header.key.to_owned(),
                |attribute| format!("ce-{attribute}"),
            );
            let value = String::from_utf8(header.value.unwrap_or_default().to_vec());
            headers.push((name, value.expect("it is UTF-8")));
        }
    }
    Received {
        event_id: event_id(message),
        headers,
        body: message.payload().unwrap_or_default().to_vec(),
    }
}

impl transport::Harness for Harness {
    const CANNOT: &'static [Capability] = &[
        Capability::Dedup,
        Capability::ProveAbsence,
        Capability::Refusal,
    ];
    const DOCS: &'static str = include_str!("../../../../docs/transports/kafka.md");
    const MESSAGE_BYTES_MAX: usize = MESSAGE_MAX;

    async fn start() -> Self {
        Self::with_partitions(1).await
    }

    fn destination(&self) -> Destination {
        destination(Broker::CLUSTER, &self.topic)
    }

    fn open(&self, destination: &Destination) -> Arc<dyn Transport> {
        Arc::new(self.transport(destination))
    }

    fn missing(&self) -> Destination {
        destination(Broker::CLUSTER, &unique("missing"))
    }

    async fn received(&self) -> Vec<Received> {
        self.stored().await.iter().map(received).collect()
    }

    async fn inflict(&self, fault: Fault) {
        match fault {
            Fault::Refuse => unreachable!("not among what it can"),
            Fault::Down => self.broker.kill().await.expect("it was running"),
            Fault::Silent => self.proxy.set(Direction::ClientToServer, Flow::Swallow),
            Fault::Deaf => self.proxy.set(Direction::ServerToClient, Flow::Swallow),
        }
    }

    async fn heal(&self) {
        self.proxy.heal().await.expect("the proxy listens");
        if !self.broker.is_running() {
            self.broker.restart().await.expect("it starts again");
        }
    }
}
