//! The table of outcomes, row by row, against a cluster that answers as it is told: the client
//! library's own mock, which speaks the protocol over real connections.

mod support;

use std::{sync::Arc, time::Duration};

use postrider_conformance::transport::fixture::{
    message_of, messages, new_event, send, send_one, send_until_acknowledged,
};
use postrider_contract::{
    Destination,
    destination::{Ordering, Partitioner},
};
use postrider_core::{Class, Outcome};
use postrider_transport::{Message, Severity, Transport};
use postrider_transport_kafka::Kafka;
use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    producer::{BaseProducer, DefaultProducerContext, Producer},
    types::{RDKafkaApiKey, RDKafkaRespErr},
};
use support::{connection, destination, event_id, stored, unique, usage};

use RDKafkaRespErr::*;

const AMPLE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(1_500);
const TRIES: u32 = 40;

type Mock = MockCluster<'static, DefaultProducerContext>;

type Change<'a> = &'a dyn Fn(&mut Destination);

struct Bench {
    cluster: Mock,
    destination: Destination,
    transport: Arc<dyn Transport>,
}

/// A cluster with one topic, and a transport to it.
fn bench(partitions: i32, change: impl FnOnce(&mut Destination)) -> Bench {
    let cluster = MockCluster::new(1).expect("it starts");
    let topic = unique("orders");
    cluster
        .create_topic(&topic, partitions, 1)
        .expect("the topic is made");
    let client: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", cluster.bootstrap_servers())
        .create()
        .expect("a client");
    client
        .client()
        .fetch_metadata(Some(&topic), AMPLE)
        .expect("the cluster answers");
    let name = client
        .client()
        .fetch_cluster_id(AMPLE)
        .expect("it has a name");
    let mut destination = destination(&name, &topic);
    change(&mut destination);
    let connection = connection(&cluster.bootstrap_servers(), 1);
    let transport = Kafka::open(&destination, connection).expect("it opens");
    Bench {
        cluster,
        destination,
        transport: Arc::new(transport),
    }
}

impl Bench {
    fn fail(&self, errors: &[RDKafkaRespErr]) {
        self.cluster.request_errors(RDKafkaApiKey::Produce, errors);
    }

    /// What a send comes to whose first requests fail so.
    async fn after(&self, errors: &[RDKafkaRespErr], count: usize) -> Vec<Outcome> {
        self.fail(errors);
        // A key of its own: it may be held for a moment afterwards.
        let key = unique("key");
        let sent: Vec<Message> = (0..count)
            .map(|_| message_of(&self.destination, &new_event(&key, "{}")))
            .collect();
        let outcomes = send(&self.transport, &sent, SHORT).await;
        self.cluster.clear_request_errors(RDKafkaApiKey::Produce);
        outcomes
    }

    async fn ids(&self) -> Vec<String> {
        let topic = self.destination.target.split('/').next().expect("a topic");
        let stored = stored(&self.cluster.bootstrap_servers(), topic).await;
        stored.iter().map(event_id).collect()
    }
}

fn word(outcome: &Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Acknowledged(_) => ("acknowledged", ""),
        Outcome::Retryable {
            class: Class::Outage,
            code,
            ..
        } => ("outage", code),
        Outcome::Retryable {
            class: Class::Refusal,
            code,
            ..
        } => ("refusal", code),
        Outcome::Retryable {
            class: Class::Held,
            code,
            ..
        } => ("held", code),
        Outcome::Rejected { code, .. } => ("rejected", code),
        Outcome::Unknown { code, .. } => ("unknown", code),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_answer_of_a_broker_has_its_row() {
    let bench = bench(1, |_| {});
    let first = send(&bench.transport, &messages(&bench.destination, 1), AMPLE).await;
    assert_eq!(word(&first[0]), ("acknowledged", ""), "{first:?}");
    for (error, row) in [
        (
            RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            ("outage", "not_authorized"),
        ),
        (
            RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED,
            ("outage", "not_authorized"),
        ),
        (
            RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
            ("refusal", "policy_violation"),
        ),
        (RD_KAFKA_RESP_ERR_UNKNOWN, ("unknown", "broker_error")),
        (
            RD_KAFKA_RESP_ERR_INVALID_REQUIRED_ACKS,
            ("unknown", "broker_error"),
        ),
    ] {
        let outcomes = bench.after(&[error], 1).await;
        assert_eq!(word(&outcomes[0]), row, "{error:?}: {outcomes:?}");
        // Whatever it was, the next send finds a producer that works.
        let next = messages(&bench.destination, 2);
        send_until_acknowledged(&bench.transport, &next, AMPLE, TRIES).await;
    }
}

/// What passes is tried again by the library within the send timeout, and costs nobody anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_passes_within_the_send_timeout_is_acknowledged() {
    let bench = bench(1, |_| {});
    for error in [
        RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR,
    ] {
        bench.fail(&[error]);
        let outcome = send_one(&bench.transport, &messages(&bench.destination, 1)[0], AMPLE).await;
        assert_eq!(
            word(&outcome),
            ("acknowledged", ""),
            "{error:?}: {outcome:?}"
        );
    }
    assert_eq!(bench.ids().await.len(), 3);
}

/// Refused each time until the send timeout: it is surely not there, which is an outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_until_the_send_timeout_is_an_outage() {
    let bench = bench(1, |_| {});
    let outcomes = bench
        .after(&[RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 200], 3)
        .await;
    for outcome in &outcomes {
        assert_eq!(word(outcome), ("outage", "not_sent"), "{outcomes:?}");
    }
    assert_eq!(bench.ids().await, [] as [String; 0]);
}

/// One refusal that the broker may have given after it appended is never forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_appended_stays_unknown() {
    let bench = bench(1, |_| {});
    let mut errors = vec![RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND];
    errors.extend([RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 200]);
    let outcomes = bench.after(&errors, 2).await;
    for outcome in &outcomes {
        assert_eq!(word(outcome), ("unknown", "ack_timeout"), "{outcomes:?}");
    }
}

/// "Known already" is reported as success by the library; here nothing is there, so nothing is
/// acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_follows_a_duplicate_is_read_back() {
    let bench = bench(1, |_| {});
    let before = messages(&bench.destination, 3);
    send_until_acknowledged(&bench.transport, &before, AMPLE, TRIES).await;
    let outcomes = bench
        .after(&[RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER], 3)
        .await;
    assert!(
        outcomes
            .iter()
            .any(|o| word(o) == ("unknown", "receipt_unverified")),
        "{outcomes:?}"
    );
    let ids = bench.ids().await;
    let sent = bench.destination.target.clone();
    for outcome in &outcomes {
        if let Outcome::Acknowledged(receipt) = outcome {
            let number = receipt.pack().number.expect("an offset");
            assert!(number >= 3, "{sent}: {outcome:?} of {}", ids.len());
        }
    }
}

/// Field case KAF-3, for a limit that only the broker knows: the set is refused, each of its
/// messages is sent alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_3_a_refused_set_is_sent_one_by_one() {
    for ordering in [Ordering::None, Ordering::Key] {
        let bench = bench(1, |destination| destination.ordering = ordering);
        let first = messages(&bench.destination, 1);
        send_until_acknowledged(&bench.transport, &first, AMPLE, TRIES).await;
        bench.fail(&[RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
        let sent = messages(&bench.destination, 3);
        send_until_acknowledged(&bench.transport, &sent, AMPLE, TRIES).await;
        let ids: Vec<String> = sent.iter().map(|m| m.event_id.to_string()).collect();
        assert_eq!(bench.ids().await[1..], ids);
        // Twice: alone it is refused again, and that is its own fault.
        let outcomes = bench
            .after(&[RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE; 2], 1)
            .await;
        assert_eq!(
            word(&outcomes[0]),
            ("rejected", "message_too_large"),
            "{outcomes:?}"
        );
        let outcomes = bench.after(&[RD_KAFKA_RESP_ERR_INVALID_RECORD; 2], 1).await;
        assert_eq!(
            word(&outcomes[0]),
            ("rejected", "record_refused"),
            "{outcomes:?}"
        );
    }
}

/// A producer that cannot go on is replaced, and nothing in flight is called refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fatal_error_makes_a_new_producer() {
    let bench = bench(1, |_| {});
    let first = messages(&bench.destination, 1);
    send_until_acknowledged(&bench.transport, &first, AMPLE, TRIES).await;
    for error in [
        RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
        RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
    ] {
        let outcomes = bench.after(&[error], 5).await;
        let known = [
            ("acknowledged", ""),
            ("outage", "producer_ended"),
            ("outage", "not_sent"),
            ("unknown", "producer_ended_unknown"),
            ("unknown", "ack_timeout"),
        ];
        assert!(
            outcomes.iter().all(|o| known.contains(&word(o))),
            "{error:?}: {outcomes:?}"
        );
        let next = messages(&bench.destination, 5);
        send_until_acknowledged(&bench.transport, &next, AMPLE, TRIES).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_gets_nothing() {
    let bench = bench(1, |destination| {
        destination.cluster = "elsewhere".to_owned()
    });
    let outcome = send_one(&bench.transport, &messages(&bench.destination, 1)[0], SHORT).await;
    assert_eq!(word(&outcome), ("outage", "wrong_cluster"), "{outcome:?}");
    let problems = bench
        .transport
        .preflight(&usage())
        .await
        .expect("it answers");
    let [problem] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert_eq!(
        (problem.code, problem.severity),
        ("wrong_cluster", Severity::Refused)
    );
    assert!(
        problem.message.contains("\"elsewhere\""),
        "{}",
        problem.message
    );
    assert_eq!(bench.ids().await, [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_is_named_and_must_be_there() {
    let bench = bench(3, |destination| {
        destination.partitioner = Partitioner::Explicit;
        destination.target = format!("{}/2", destination.target);
    });
    let sent = messages(&bench.destination, 4);
    for outcome in send(&bench.transport, &sent, AMPLE).await {
        let Outcome::Acknowledged(receipt) = &outcome else {
            panic!("{outcome:?}")
        };
        assert!(
            receipt.pack().shared.contains("\"partition\":2"),
            "{outcome:?}"
        );
    }
    let mut missing = bench.destination.clone();
    missing.target = missing.target.replace("/2", "/3");
    let connection = connection(&bench.cluster.bootstrap_servers(), 1);
    let transport: Arc<dyn Transport> =
        Arc::new(Kafka::open(&missing, connection).expect("it opens"));
    let outcome = send_one(&transport, &messages(&missing, 1)[0], AMPLE).await;
    assert_eq!(
        word(&outcome),
        ("outage", "partition_missing"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn definitions_that_cannot_work_are_refused() {
    let open = |change: &dyn Fn(&mut Destination)| {
        let mut destination = destination("test", "orders");
        change(&mut destination);
        Kafka::open(&destination, connection("127.0.0.1:1", 1))
            .map(drop)
            .map_err(|e| e.to_string())
    };
    assert_eq!(open(&|_| {}), Ok(()));
    let cases: [(Change<'_>, &str); 7] = [
        (&|d| d.kind = "http".into(), "kind"),
        (
            &|d| d.receipt_type = "http.response/1".into(),
            "kafka.offset/1",
        ),
        (&|d| d.target = "a/b".into(), "cannot be a topic"),
        (&|d| d.target = "{nope}".into(), "{event_type}"),
        (
            &|d| d.partitioner = Partitioner::Explicit,
            "names no partition",
        ),
        (
            &|d| {
                d.partitioner = Partitioner::Explicit;
                d.target = "orders/x".into();
            },
            "number of a partition",
        ),
        (
            &|d| {
                d.partitioner = Partitioner::None;
                d.ordering = Ordering::Key;
            },
            "orders by key",
        ),
    ];
    for (change, expect) in cases {
        let error = open(change).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }
}
