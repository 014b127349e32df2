//! What went wrong elsewhere, and what this transport alone promises, against a real broker.

mod support;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use postrider_conformance::transport::{
    Harness as _,
    fixture::{message_of, messages, new_event, probe_of, send, send_one, send_until_acknowledged},
};
use postrider_contract::{
    Receipt,
    destination::{Key, Ordering},
    media,
};
use postrider_core::{Class, Outcome};
use postrider_testkit::{
    Kafka as Broker, eventually,
    proxy::{Direction, Flow},
};
use postrider_transport::{
    Batch, Error, Message, Probed, Provisioning, Severity, Transport, Usage,
};
use postrider_transport_kafka::Kafka;
use rdkafka::{
    ClientConfig, Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer},
    producer::{BaseProducer, BaseRecord, Producer},
};
use support::{Harness, connection, destination, event_id, header, stored, unique, usage};
use tokio::sync::mpsc;

const AMPLE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);
const TRIES: u32 = 40;

fn offset(outcome: &Outcome) -> (u32, u64) {
    let Outcome::Acknowledged(Receipt::Kafka {
        partition, offset, ..
    }) = outcome
    else {
        panic!("not acknowledged by an offset: {outcome:?}")
    };
    (*partition, *offset)
}

fn is_outage(outcome: &Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Retryable {
            class: Class::Outage,
            ..
        }
    )
}

/// Field case KAF-1: keys go where the Java client puts them, and the empty key is a key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_1_keys_go_to_the_partitions_of_the_java_client() {
    let harness = Harness::with_partitions(15).await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let mut sent = Vec::new();
    // murmur2 of the empty key is 275646681, of TT0124 its published partition of 15 is 10.
    for (key, partition) in [("TT0124", 10), ("", 275_646_681 % 15)] {
        let mut event = new_event("1", "{}");
        event.partition_key = Some(key.to_owned());
        let mut message = message_of(&destination, &event);
        message.partition_key = key.to_owned();
        let outcome = send_one(&transport, &message, AMPLE).await;
        assert_eq!(offset(&outcome).0, partition, "{key:?}");
        sent.push((message, Some(key)));
    }
    let mut keyless = destination.clone();
    keyless.key = Key::None;
    let message = message_of(&keyless, &new_event("1", "{}"));
    let outcome = send_one(&harness.open(&keyless), &message, AMPLE).await;
    assert!(matches!(outcome, Outcome::Acknowledged(_)), "{outcome:?}");
    sent.push((message, None));
    let stored = harness.stored().await;
    for (message, key) in sent {
        let id = message.event_id.to_string();
        let found = stored
            .iter()
            .find(|stored| event_id(stored) == id)
            .expect("it is there");
        assert_eq!(found.key(), key.map(str::as_bytes));
    }
}

/// Field case KAF-5: only an explicit tombstone has no value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kaf_5_tombstone_null_and_nothing_are_three_things() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let cases = [
        (media::TOMBSTONE, "", None),
        ("application/json", "null", Some("null")),
        ("text/plain", "", Some("")),
    ];
    let mut probes = Vec::new();
    for (content_type, payload, _) in cases {
        let mut event = new_event("1", payload);
        event.content_type = Some(content_type.to_owned());
        let message = message_of(&destination, &event);
        let anchor = transport
            .anchor(&[Arc::new(message.clone())])
            .await
            .expect("it is up");
        let outcome = send_one(&transport, &message, AMPLE).await;
        probes.push((
            probe_of(&message, payload.as_bytes(), anchor),
            offset(&outcome),
        ));
    }
    let stored = harness.stored().await;
    for (stored, (content_type, _, value)) in stored.iter().zip(cases) {
        assert_eq!(stored.payload(), value.map(str::as_bytes), "{content_type}");
        assert_eq!(header(stored, "content-type"), Some(content_type));
    }
    for (probe, at) in probes {
        let Ok(Probed::Found(receipt)) = transport.probe(&probe).await else {
            panic!("{probe:?}")
        };
        assert_eq!(offset(&Outcome::Acknowledged(receipt)), at);
    }
}

/// The answer is lost and the connection with it; the library sends again, the broker knows the
/// set already. Whatever the library then says, the receipt names the record's own offset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_after_a_resend_names_the_right_offset() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    for round in 0..3 {
        let before = messages(&destination, 2);
        send_until_acknowledged(&transport, &before, AMPLE, TRIES).await;
        let known = harness.stored().await.len();
        harness.proxy.set(Direction::ServerToClient, Flow::Swallow);
        let sent = messages(&destination, 20);
        let sending = tokio::spawn({
            let (transport, sent) = (Arc::clone(&transport), sent.clone());
            async move { send(&transport, &sent, AMPLE).await }
        });
        // The broker has what was sent; its answers go nowhere.
        let arrived = harness.proxy.counts().server_received;
        eventually(AMPLE, "the set to arrive", || async {
            harness.proxy.counts().server_received > arrived + 2_000
                && harness.proxy.counts().server_received == harness.proxy.counts().client_sent
        })
        .await
        .expect("it arrives");
        harness.proxy.reset().await;
        harness.proxy.heal().await.expect("the proxy listens");
        let outcomes = sending.await.expect("it does not panic");
        let stored = harness.stored().await;
        assert!(stored.len() >= known, "round {round}");
        for (message, outcome) in sent.iter().zip(&outcomes) {
            if let Outcome::Acknowledged(_) = outcome {
                let (_, at) = offset(outcome);
                let at = usize::try_from(at).expect("fits");
                assert_eq!(
                    event_id(&stored[at]),
                    message.event_id.to_string(),
                    "round {round}"
                );
            }
        }
        let acknowledged = outcomes
            .iter()
            .filter(|o| matches!(o, Outcome::Acknowledged(_)));
        assert_eq!(
            acknowledged.count(),
            sent.len(),
            "round {round}: {outcomes:?}"
        );
        assert_eq!(
            stored.len(),
            known + sent.len(),
            "round {round}: nothing is there twice"
        );
    }
}

/// Killed with everything under way: nothing is called refused that is there, everything that is
/// acknowledged is there, and all of it converges.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_killed_between_accepting_and_answering_loses_nothing() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let first = messages(&destination, 1);
    send_until_acknowledged(&transport, &first, AMPLE, TRIES).await;
    harness.proxy.set(Direction::ServerToClient, Flow::Hold);
    let arrived = harness.proxy.counts().server_received;
    let sent = messages(&destination, 50);
    let sending = tokio::spawn({
        let (transport, sent) = (Arc::clone(&transport), sent.clone());
        async move { send(&transport, &sent, Duration::from_secs(3)).await }
    });
    eventually(AMPLE, "the set to arrive", || async {
        harness.proxy.counts().server_received > arrived + 2_000
    })
    .await
    .expect("it arrives");
    harness.broker.kill().await.expect("it was running");
    harness.proxy.reset().await;
    let outcomes = sending.await.expect("it does not panic");
    harness.heal().await;
    let there: Vec<String> = harness.stored().await.iter().map(event_id).collect();
    for (message, outcome) in sent.iter().zip(&outcomes) {
        let is_there = there.contains(&message.event_id.to_string());
        match outcome {
            Outcome::Acknowledged(_) => assert!(is_there, "{outcome:?}"),
            Outcome::Retryable { .. } => assert!(!is_there, "called not accepted: {outcome:?}"),
            Outcome::Unknown { .. } => {}
            Outcome::Rejected { .. } => panic!("{outcome:?}"),
        }
    }
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
}

/// A connection that is closed in one direction is a broken one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_closed_connection_is_made_anew() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    for direction in [Direction::ServerToClient, Direction::ClientToServer] {
        send_until_acknowledged(&transport, &messages(&destination, 2), AMPLE, TRIES).await;
        harness.proxy.half_close(direction);
        let sent = messages(&destination, 2);
        send_until_acknowledged(&transport, &sent, Duration::from_secs(3), TRIES).await;
    }
}

/// 200 sends whose acknowledgement is lost, half of them accepted: every probe that finds is
/// right, and none claims absence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_of_a_probe_is_true() {
    let harness = Harness::with_partitions(3).await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let mut sent: Vec<(Message, String, Option<postrider_transport::Anchor>)> = Vec::new();
    for round in 0..10 {
        send_until_acknowledged(&transport, &messages(&destination, 1), AMPLE, TRIES).await;
        let batch: Vec<(Message, String)> = (0..20)
            .map(|n| {
                let payload = format!("{{\"n\":\"{round}-{n}\"}}");
                let message = message_of(&destination, &new_event(&n.to_string(), &payload));
                (message, payload)
            })
            .collect();
        let about: Vec<_> = batch
            .iter()
            .map(|(message, _)| Arc::new(message.clone()))
            .collect();
        let anchor = transport.anchor(&about).await.expect("it is up");
        // Half of the rounds arrive; of none an answer comes back.
        let lost = if round % 2 == 0 {
            Direction::ServerToClient
        } else {
            Direction::ClientToServer
        };
        harness.proxy.set(lost, Flow::Swallow);
        let only: Vec<Message> = batch.iter().map(|(message, _)| message.clone()).collect();
        let outcomes = send(&transport, &only, SHORT).await;
        assert!(
            outcomes
                .iter()
                .all(|o| matches!(o, Outcome::Unknown { .. }) || is_outage(o)),
            "{outcomes:?}"
        );
        harness.heal().await;
        sent.extend(
            batch
                .into_iter()
                .map(|(message, payload)| (message, payload, anchor.clone())),
        );
    }
    assert_eq!(sent.len(), 200);
    let there: BTreeMap<String, (i32, i64)> = harness
        .stored()
        .await
        .iter()
        .map(|stored| (event_id(stored), (stored.partition(), stored.offset())))
        .collect();
    let (mut found, mut not_found) = (0, 0);
    for (message, payload, anchor) in &sent {
        let probe = probe_of(message, payload.as_bytes(), anchor.clone());
        match transport.probe(&probe).await.expect("it answers") {
            Probed::Found(receipt) => {
                let (partition, offset) = offset(&Outcome::Acknowledged(receipt));
                let (own, at) = there[&message.event_id.to_string()];
                assert_eq!(
                    (i64::from(partition), i64::try_from(offset)),
                    (own.into(), Ok(at))
                );
                found += 1;
            }
            Probed::CannotTell { .. } => {
                assert!(!there.contains_key(&message.event_id.to_string()));
                not_found += 1;
            }
            Probed::ProvenAbsent => panic!("this transport cannot know that"),
        }
    }
    assert_eq!((found, not_found), (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_groups_say_how_far_they_have_come() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    send_until_acknowledged(&transport, &messages(&destination, 5), AMPLE, TRIES).await;
    let error = transport
        .positions("billing")
        .await
        .expect_err("nobody has that name");
    assert!(
        matches!(
            error,
            Error::Misconfigured {
                code: "consumer_unknown",
                ..
            }
        ),
        "{error}"
    );
    let (brokers, topic) = (harness.brokers(), harness.topic.clone());
    tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("group.id", "billing")
            .create()
            .expect("a consumer");
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&topic, 0, Offset::Offset(3))
            .expect("a list");
        consumer
            .commit(&list, CommitMode::Sync)
            .expect("it is committed");
        drop(list);
    })
    .await
    .expect("it does not panic");
    let positions = transport
        .positions("billing")
        .await
        .expect("it is known now");
    let [position] = &positions[..] else {
        panic!("{positions:?}")
    };
    assert_eq!(position.place, format!("{}/0", harness.topic));
    assert_eq!(position.confirmed.as_deref(), Some("2"));
    assert_eq!(position.waiting, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preflight_changes_nothing_and_provision_makes_the_topic_once() {
    let harness = Harness::start().await;
    let missing = harness.missing();
    let transport = harness.open(&missing);
    let problems = transport.preflight(&usage()).await.expect("it answers");
    let [problem] = &problems[..] else {
        panic!("{problems:?}")
    };
    assert_eq!(
        (problem.code, problem.severity),
        ("topic_missing", Severity::Refused)
    );
    assert!(
        problem.message.contains(&missing.target),
        "{}",
        problem.message
    );
    let outcome = send_one(&transport, &messages(&missing, 1)[0], AMPLE).await;
    assert!(
        matches!(
            outcome,
            Outcome::Retryable {
                code: "topic_missing",
                ..
            }
        ),
        "{outcome:?}"
    );
    let usage = Usage {
        message_bytes_max: 2_000,
        ..usage()
    };
    let preview = transport
        .provision(&usage, Provisioning::Preview)
        .await
        .expect("it answers");
    assert!(
        preview[0].starts_with(&format!("create topic {}", missing.target)),
        "{preview:?}"
    );
    let still = transport.preflight(&usage).await.expect("it answers");
    assert_eq!(still[0].code, "topic_missing", "neither of them made it");
    let made = transport
        .provision(&usage, Provisioning::Make)
        .await
        .expect("it is made");
    assert_eq!(made, preview);
    let again = transport
        .provision(&usage, Provisioning::Make)
        .await
        .expect("it is there");
    assert_eq!(again, [] as [String; 0]);
    let problems = transport.preflight(&usage).await.expect("it answers");
    assert!(
        problems.iter().all(|p| p.severity != Severity::Refused),
        "{problems:?}"
    );
    send_until_acknowledged(&transport, &messages(&missing, 2), AMPLE, TRIES).await;
}

/// Somebody else's records, whatever they look like, do not disturb a look-up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_up_reads_past_the_records_of_others() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let message = message_of(&destination, &new_event("1", "{}"));
    let anchor = transport
        .anchor(&[Arc::new(message.clone())])
        .await
        .expect("it is up");
    let (brokers, topic) = (harness.brokers(), harness.topic.clone());
    tokio::task::spawn_blocking(move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", brokers)
            .set("compression.type", "gzip")
            .create()
            .expect("a producer");
        for _ in 0..50 {
            producer
                .send(BaseRecord::to(&topic).key("").payload(&[0xff_u8; 300][..]))
                .expect("room");
        }
        producer.flush(AMPLE).expect("they are stored");
    })
    .await
    .expect("it does not panic");
    let outcome = send_one(&transport, &message, AMPLE).await;
    assert_eq!(offset(&outcome), (0, 50));
    let found = transport
        .probe(&probe_of(&message, b"{}", anchor))
        .await
        .expect("it answers");
    assert!(matches!(found, Probed::Found(_)), "{found:?}");
}

/// The caller may go away at any time; what it leaves is neither lost nor in anybody's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_broker_costs_one_send_timeout() {
    let harness = Harness::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    send_until_acknowledged(&transport, &messages(&destination, 1), AMPLE, TRIES).await;
    harness.broker.pause().expect("it runs");
    let sent = messages(&destination, 100);
    let (answers, mut heard) = mpsc::unbounded_channel();
    let batch = Batch {
        messages: sent.iter().cloned().map(Arc::new).collect(),
        send_timeout: SHORT,
    };
    transport.send(batch, answers).await;
    let mut count = 0;
    while let Some(answer) = heard.recv().await {
        let outcome = &answer.outcome;
        assert!(
            matches!(outcome, Outcome::Unknown { .. }) || is_outage(outcome),
            "{outcome:?}"
        );
        count += 1;
    }
    assert_eq!(count, sent.len());
    harness.broker.resume().expect("it was paused");
    send_until_acknowledged(&transport, &sent, AMPLE, TRIES).await;
    let there: Vec<String> = stored(&harness.brokers(), &harness.topic)
        .await
        .iter()
        .map(event_id)
        .collect();
    assert!(
        sent.iter()
            .all(|message| there.contains(&message.event_id.to_string()))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_template_makes_topics_and_positions_of_each() {
    let harness = Harness::start().await;
    let prefix = unique("t");
    let mut whole = destination(Broker::CLUSTER, &format!("{prefix}.order.placed"));
    let made = Kafka::open(&whole, connection(&harness.brokers(), 2)).expect("it opens");
    made.provision(&usage(), Provisioning::Make)
        .await
        .expect("it is made");
    whole.target = format!("{prefix}.{{event_type}}");
    let transport = harness.open(&whole);
    let problems = transport.preflight(&usage()).await.expect("it answers");
    assert!(
        problems.iter().all(|p| p.severity != Severity::Refused),
        "{problems:?}"
    );
    let error = transport
        .provision(&usage(), Provisioning::Make)
        .await
        .expect_err("it cannot");
    assert!(
        matches!(
            error,
            Error::Misconfigured {
                code: "topics_not_made",
                ..
            }
        ),
        "{error}"
    );
    send_until_acknowledged(&transport, &messages(&whole, 3), AMPLE, TRIES).await;
    let stored = stored(&harness.brokers(), &format!("{prefix}.order.placed")).await;
    assert_eq!(stored.len(), 3);
}

/// As a relay sends: several batches on their way at once, each message again until it is
/// acknowledged, while connections are cut, answers are lost and the broker is killed. The first
/// copies of a key stand in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_keeps_its_order_whatever_fails() {
    let harness = Harness::with_partitions(3).await;
    let mut destination = harness.destination();
    destination.ordering = Ordering::Key;
    let transport = harness.open(&destination);
    let keys = ["a", "b", "c", "d", "e"];
    let sent: Vec<Message> = (0..300)
        .map(|n| {
            let event = new_event(keys[n % keys.len()], &format!("{{\"n\":{n}}}"));
            message_of(&destination, &event)
        })
        .collect();
    let mut open = sent.clone();
    for round in 0.. {
        assert!(round < 400, "{} messages are still open", open.len());
        let batches: Vec<&[Message]> = open.chunks(60).collect();
        let sends = batches
            .iter()
            .map(|batch| send(&transport, batch, Duration::from_secs(2)));
        let arrived = harness.proxy.counts().server_received;
        let fault = async {
            if round >= 3 {
                return;
            }
            if round == 1 {
                harness.proxy.set(Direction::ServerToClient, Flow::Swallow);
            }
            // In the middle of what is sent, if it is not over by then.
            let what = "something to arrive";
            drop(
                eventually(Duration::from_secs(2), what, || async {
                    harness.proxy.counts().server_received > arrived + 20_000
                })
                .await,
            );
            if round == 2 {
                harness.broker.kill().await.expect("it was running");
            }
            harness.proxy.reset().await;
            harness.heal().await;
        };
        let (outcomes, ()) = futures::join!(futures::future::join_all(sends), fault);
        open = open
            .iter()
            .zip(outcomes.into_iter().flatten())
            .filter(|(_, outcome)| !matches!(outcome, Outcome::Acknowledged(_)))
            .map(|(message, _)| message.clone())
            .collect();
        if open.is_empty() {
            break;
        }
        // As a relay that waits a little before it tries again.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut first = BTreeMap::new();
    for (place, stored) in harness.stored().await.iter().enumerate() {
        first.entry(event_id(stored)).or_insert(place);
    }
    for (at, key) in keys.iter().enumerate() {
        let own = sent.iter().skip(at).step_by(keys.len());
        let places: Vec<usize> = own
            .map(|message| first[&message.event_id.to_string()])
            .collect();
        assert!(places.is_sorted(), "{key}: {places:?}");
    }
}
