//! What each cause comes to, against the real broker; field cases are named after them.

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use lapin::{
    ExchangeKind,
    options::{BasicGetOptions, ExchangeDeleteOptions},
    types::AMQPValue,
};
use postrider_conformance::transport::{Harness as _, fixture};
use postrider_contract::{Receipt, destination::Ordering};
use postrider_core::{Class, Outcome};
use postrider_testkit::{
    FaultProxy, env, eventually,
    proxy::{Direction, Flow},
};
use postrider_transport::{
    Error, Message, ProbeStrength, Probed, Provisioning, Severity, Transport,
};
use postrider_transport_rabbitmq::{Connection, RabbitMq};
use support::{Admin, Harness, Stream, destination, port_of, settings, short, text, unique, usage};
use tokio::time::timeout;

const AMPLE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(500);
const WITHIN: Duration = Duration::from_secs(30);

/// A code for each outcome, or "ack".
fn codes(outcomes: &[Outcome]) -> Vec<&'static str> {
    let code = |outcome: &Outcome| match outcome {
        Outcome::Acknowledged(_) => "ack",
        Outcome::Retryable { code, .. }
        | Outcome::Rejected { code, .. }
        | Outcome::Unknown { code, .. } => code,
    };
    outcomes.iter().map(code).collect()
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

fn port() -> u16 {
    port_of(&env::rabbitmq_url())
}

fn with(change: impl FnOnce(&mut serde_json::Value)) -> Connection {
    let mut settings = settings(port(), &[]);
    change(&mut settings);
    serde_json::from_value(settings).expect("valid settings")
}

fn open(
    destination: &postrider_contract::Destination,
    connection: Connection,
) -> Arc<dyn Transport> {
    Arc::new(RabbitMq::open(destination, connection).expect("it opens"))
}

/// Messages of one event type, by which a topic exchange tells them apart.
fn typed(destination: &postrider_contract::Destination, event_type: &str) -> Message {
    let mut event = fixture::new_event("1", "{}");
    event.event_type = event_type.to_owned();
    fixture::message_of(destination, &event)
}

#[tokio::test]
async fn rmq_1_what_reaches_no_queue_is_not_acknowledged() {
    let admin = Admin::shared().await;
    let (exchange, queue) = (unique("x"), unique("q"));
    admin.exchange(&exchange, ExchangeKind::Topic).await;
    admin.queue(&queue, &[]).await;
    admin.bind(&queue, &exchange, "here.#").await;

    // Of many routing keys one lacks its binding: a refusal of those messages alone.
    let many = destination(Some(&exchange), "{event_type}");
    let transport = open(&many, with(|_| {}));
    let sent: Vec<Message> = ["here.a", "there.a", "here.b", "there.b", "here.c"]
        .iter()
        .map(|event_type| typed(&many, event_type))
        .collect();
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    let expected = ["ack", "unroutable", "ack", "unroutable", "ack"];
    assert_eq!(codes(&outcomes), expected, "{outcomes:?}");
    let Outcome::Retryable { class, detail, .. } = &outcomes[1] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(*class, Class::Refusal);
    assert!(
        detail.contains("NO_ROUTE") && detail.contains("there.a"),
        "{detail}"
    );
    assert_eq!(admin.take_all(&queue).await.len(), 3);

    // One routing key, or one queue by its name: the destination as a whole.
    let one = destination(Some(&exchange), "there");
    let nowhere = destination(None, &unique("nowhere"));
    for destination in [one, nowhere] {
        let transport = open(&destination, with(|_| {}));
        let outcomes = fixture::send(&transport, &fixture::messages(&destination, 3), AMPLE).await;
        assert!(outcomes.iter().all(is_outage), "{outcomes:?}");
        assert_eq!(codes(&outcomes), ["unroutable"; 3]);
    }

    // What an alternate exchange catches never comes back.
    let catching = unique("x");
    let mut arguments = lapin::types::FieldTable::default();
    arguments.insert(short("alternate-exchange"), text("amq.fanout"));
    admin
        .channel
        .exchange_declare(
            short(&catching),
            ExchangeKind::Topic,
            Default::default(),
            arguments,
        )
        .await
        .unwrap();
    let bound_nowhere = destination(Some(&catching), "k");
    let transport = open(&bound_nowhere, with(|_| {}));
    let sent = fixture::messages(&bound_nowhere, 1);
    let outcome = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(
        codes(&[outcome]),
        ["unroutable"],
        "amq.fanout has no queue either"
    );
    let caught = unique("q");
    admin.queue(&caught, &[]).await;
    admin.bind(&caught, "amq.fanout", "").await;
    let outcome = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(codes(&[outcome]), ["ack"], "as the page says");
    admin.delete_queue(&caught).await;
}

#[tokio::test]
async fn a_full_queue_that_refuses_is_an_outage_and_drains() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    let full = [
        ("x-max-length", AMQPValue::LongInt(3)),
        ("x-overflow", text("reject-publish")),
    ];
    admin.queue(&queue, &full).await;
    let destination = destination(None, &queue);
    let transport = open(&destination, with(|_| {}));
    let sent = fixture::messages(&destination, 8);
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(codes(&outcomes)[..3], ["ack"; 3]);
    assert_eq!(codes(&outcomes)[4..], ["nacked"; 4], "{outcomes:?}");
    assert!(outcomes[4..].iter().all(is_outage), "no attempt is charged");
    let acknowledged = codes(&outcomes)
        .iter()
        .filter(|code| **code == "ack")
        .count();
    let mut received = admin.take_all(&queue).await;
    assert_eq!(received.len(), acknowledged, "nacked is not there");
    let mut open: Vec<Message> = sent[acknowledged..].to_vec();
    while !open.is_empty() {
        let outcomes = fixture::send(&transport, &open, AMPLE).await;
        let mut outcomes = outcomes.iter();
        open.retain(|_| !matches!(outcomes.next(), Some(Outcome::Acknowledged(_))));
        received.extend(admin.take_all(&queue).await);
    }
    assert_eq!(received.len(), 8);
}

/// A size that only the broker refuses closes the channel in the middle of a batch.
#[tokio::test]
async fn what_the_broker_finds_too_large_is_rejected_and_takes_no_neighbour_with_it() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    admin.queue(&queue, &[]).await;
    let destination = destination(None, &queue);
    let transport = open(
        &destination,
        with(|settings| {
            settings["publish_bytes_max"] = 4_000_000.into();
        }),
    );
    let large = fixture::message_of_size(&destination, 300_000);
    let small = fixture::messages(&destination, 6);
    let mut sent = small.clone();
    sent.insert(3, large.clone());
    assert!(transport.check(&large).is_ok(), "nothing is known yet");
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(codes(&outcomes)[3], "message_too_large", "{outcomes:?}");
    assert!(matches!(outcomes[3], Outcome::Rejected { .. }));
    for (at, code) in codes(&outcomes).into_iter().enumerate() {
        let expected: &[&str] = match at {
            0 => &["ack"],
            1 | 2 => &["ack", "channel_closed"],
            3 => &["message_too_large"],
            // Written behind it and not read, or left for the next channel.
            _ => &["ack", "channel_closed"],
        };
        assert!(expected.contains(&code), "{at}: {outcomes:?}");
    }
    assert!(
        outcomes[4..]
            .iter()
            .all(|outcome| !matches!(outcome, Outcome::Unknown { .. }))
    );
    fixture::send_until_acknowledged(&transport, &small, AMPLE, 5).await;
    let received: BTreeSet<String> = admin
        .take_all(&queue)
        .await
        .into_iter()
        .map(|one| one.event_id)
        .collect();
    let expected = small.iter().map(|message| message.event_id.to_string());
    assert_eq!(received, expected.collect());

    // Learnt, until somebody asks whether it still holds.
    let Err(Outcome::Rejected { detail, .. }) = transport.check(&large) else {
        panic!("it is known now");
    };
    assert!(detail.contains("262144"), "{detail}");
    transport.look_again().await;
    assert!(transport.check(&large).is_ok());
    let outcome = fixture::send_one(&transport, &large, AMPLE).await;
    assert!(matches!(outcome, Outcome::Rejected { .. }), "{outcome:?}");
}

#[tokio::test]
async fn an_exchange_that_goes_away_is_an_outage_and_everything_comes_through_when_it_is_back() {
    let admin = Admin::shared().await;
    let (exchange, queue) = (unique("x"), unique("q"));
    admin.queue(&queue, &[]).await;
    admin.exchange(&exchange, ExchangeKind::Fanout).await;
    admin.bind(&queue, &exchange, "").await;
    let destination = destination(Some(&exchange), "k");
    let transport = open(&destination, with(|_| {}));
    let sent = fixture::messages(&destination, 6);
    let first = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(codes(&[first]), ["ack"]);
    admin
        .channel
        .exchange_delete(short(&exchange), ExchangeDeleteOptions::default())
        .await
        .unwrap();
    // Several at once: which of them closed the channel is not said.
    let outcomes = fixture::send(&transport, &sent[1..], AMPLE).await;
    for code in codes(&outcomes) {
        assert!(
            ["channel_closed", "exchange_missing"].contains(&code),
            "{outcomes:?}"
        );
    }
    // One at a time it is.
    let outcomes = fixture::send(&transport, &sent[1..], AMPLE).await;
    assert_eq!(codes(&outcomes), ["exchange_missing"; 5], "{outcomes:?}");
    assert!(outcomes.iter().all(is_outage));
    let problems = transport.preflight(&usage()).await.unwrap();
    assert_eq!(problems[0].code, "exchange_missing");
    assert_eq!(problems[0].severity, Severity::Refused);
    admin.exchange(&exchange, ExchangeKind::Fanout).await;
    admin.bind(&queue, &exchange, "").await;
    fixture::send_until_acknowledged(&transport, &sent[1..], AMPLE, 5).await;
    assert_eq!(
        admin.take_all(&queue).await.len(),
        6,
        "nothing twice: none was ever accepted"
    );
}

#[tokio::test]
async fn a_half_closed_connection_is_over_at_once() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    admin.queue(&queue, &[]).await;
    let proxy = FaultProxy::to_port(port()).await.unwrap();
    let destination = destination(None, &queue);
    let transport = open(&destination, support::connection(proxy.port(), &[]));
    for direction in [Direction::ServerToClient, Direction::ClientToServer] {
        let first = fixture::messages(&destination, 1);
        fixture::send_until_acknowledged(&transport, &first, AMPLE, 20).await;
        // Written, and the confirms never come.
        proxy.set(Direction::ServerToClient, Flow::Hold);
        let sent = fixture::messages(&destination, 20);
        let sending = tokio::spawn({
            let (transport, sent) = (Arc::clone(&transport), sent.clone());
            async move { fixture::send(&transport, &sent, AMPLE).await }
        });
        let before = proxy.counts().server_received;
        eventually(WITHIN, "the batch to be on its way", || async {
            proxy.counts().server_received > before
        })
        .await
        .unwrap();
        proxy.half_close(direction);
        if direction == Direction::ClientToServer {
            // The server reads the end and closes; that must come through.
            proxy.set(Direction::ServerToClient, Flow::Pass);
        }
        let outcomes = timeout(AMPLE / 2, sending)
            .await
            .expect("far before the send timeout");
        for code in codes(&outcomes.unwrap()) {
            assert!(
                ["ack", "connection_lost", "not_connected"].contains(&code),
                "{code}"
            );
        }
        proxy.heal().await.unwrap();
        fixture::send_until_acknowledged(&transport, &sent, AMPLE, 20).await;
    }
}

#[tokio::test]
async fn a_confirm_after_the_send_timeout_is_a_late_receipt() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    admin.queue(&queue, &[]).await;
    let proxy = FaultProxy::to_port(port()).await.unwrap();
    let destination = destination(None, &queue);
    let transport = open(&destination, support::connection(proxy.port(), &[]));
    let mut late = transport.late().expect("it hears late confirms");
    let first = fixture::messages(&destination, 1);
    fixture::send_until_acknowledged(&transport, &first, AMPLE, 3).await;
    proxy.set(Direction::ServerToClient, Flow::Hold);
    let sent = fixture::messages(&destination, 5);
    let outcomes = fixture::send(&transport, &sent, SHORT).await;
    assert_eq!(codes(&outcomes), ["confirm_timeout"; 5]);
    proxy.set(Direction::ServerToClient, Flow::Pass);
    for (at, message) in sent.iter().enumerate() {
        let heard = timeout(WITHIN, late.recv())
            .await
            .expect("it comes")
            .expect("open");
        assert_eq!(heard.event_id, message.event_id);
        let expected = Receipt::Amqp {
            exchange: String::new(),
            routing_key: queue.clone(),
            delivery_tag: at as u64 + 2,
        };
        assert_eq!(heard.receipt, expected);
    }
    // The window is free again, on the same connection.
    assert_eq!(proxy.counts().accepted, 1);
    fixture::send_until_acknowledged(&transport, &fixture::messages(&destination, 5), AMPLE, 1)
        .await;
}

/// I15 at a queue that refuses some and takes the next, while it is drained.
#[tokio::test]
async fn a_key_keeps_its_order_at_a_queue_that_refuses_now_and_then() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    let small = [
        ("x-max-length", AMQPValue::LongInt(2)),
        ("x-overflow", text("reject-publish")),
    ];
    admin.queue(&queue, &small).await;
    let mut destination = destination(None, &queue);
    destination.ordering = Ordering::Key;
    let transport = open(&destination, with(|_| {}));
    let message = |n: usize| {
        let event = fixture::new_event(&format!("{}", n % 3), &format!("{{\"n\":{n}}}"));
        fixture::message_of(&destination, &event)
    };
    let sent: Vec<Message> = (0..60).map(message).collect();
    let key_of: BTreeMap<String, &str> = sent
        .iter()
        .map(|message| (message.event_id.to_string(), message.partition_key.as_str()))
        .collect();
    let draining = tokio::spawn({
        let queue = queue.clone();
        async move {
            let admin = Admin::shared().await;
            let mut received = Vec::new();
            while received.len() < 60 {
                received.extend(admin.take_all(&queue).await);
                tokio::task::yield_now().await;
            }
            received
        }
    });
    let mut open = sent.clone();
    let mut nacked = 0;
    while !open.is_empty() {
        let outcomes = fixture::send(&transport, &open, AMPLE).await;
        nacked += codes(&outcomes)
            .iter()
            .filter(|code| **code == "nacked")
            .count();
        let mut outcomes = outcomes.iter();
        open.retain(|_| !matches!(outcomes.next(), Some(Outcome::Acknowledged(_))));
    }
    assert!(
        nacked > 0,
        "the queue was never full: this test shows nothing"
    );
    let received = timeout(WITHIN, draining)
        .await
        .expect("all arrive")
        .unwrap();
    for key in key_of.values().collect::<BTreeSet<_>>() {
        let of_key = |id: &String| key_of[id] == *key;
        let got: Vec<String> = received
            .iter()
            .map(|one| one.event_id.clone())
            .filter(of_key)
            .collect();
        let expected: Vec<String> = sent
            .iter()
            .map(|message| message.event_id.to_string())
            .filter(of_key)
            .collect();
        assert_eq!(got, expected, "key {key}");
    }
}

#[tokio::test]
async fn priority_and_expiration_come_from_the_event_or_else_from_the_settings() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    admin
        .queue(&queue, &[("x-max-priority", AMQPValue::LongInt(10))])
        .await;
    let destination = destination(None, &queue);
    let transport = open(
        &destination,
        with(|settings| {
            settings["priority"] = 3.into();
            settings["expiration_ms"] = 3_600_000.into();
        }),
    );
    let mut event = fixture::new_event("1", "{}");
    event.headers = vec![
        ("amqp-expiration".to_owned(), "7200000".to_owned()),
        ("amqp-priority".to_owned(), "9".to_owned()),
    ];
    let sent = [
        fixture::message_of(&destination, &fixture::new_event("1", "{}")),
        fixture::message_of(&destination, &event),
    ];
    assert_eq!(
        codes(&fixture::send(&transport, &sent, AMPLE).await),
        ["ack"; 2]
    );
    // The higher priority comes first.
    for (message, priority, expiration) in [(&sent[1], 9, "7200000"), (&sent[0], 3, "3600000")] {
        let got = admin
            .channel
            .basic_get(short(&queue), BasicGetOptions { no_ack: true })
            .await
            .unwrap()
            .expect("it is there");
        let properties = &got.delivery.properties;
        let id = properties.message_id().as_ref().map(ToString::to_string);
        assert_eq!(id, Some(message.event_id.to_string()));
        assert_eq!(*properties.priority(), Some(priority));
        let own = properties.expiration().as_ref().map(ToString::to_string);
        assert_eq!(own.as_deref(), Some(expiration));
        assert_eq!(*properties.delivery_mode(), Some(2));
        assert_eq!(
            properties
                .content_type()
                .as_ref()
                .map(ToString::to_string)
                .as_deref(),
            Some("application/json")
        );
    }
}

#[tokio::test]
async fn provision_makes_what_is_missing_says_so_before_and_does_it_once() {
    let admin = Admin::shared().await;
    let check = async |destination: &postrider_contract::Destination,
                       connection: Connection,
                       missing: &str,
                       says: &str| {
        let transport = open(destination, connection);
        let codes: Vec<_> = transport
            .preflight(&usage())
            .await
            .unwrap()
            .into_iter()
            .map(|problem| problem.code)
            .collect();
        assert_eq!(codes, [missing]);
        for how in [Provisioning::Preview, Provisioning::Make] {
            let lines = transport.provision(&usage(), how).await.unwrap();
            assert!(lines.len() == 1 && lines[0].contains(says), "{lines:?}");
        }
        for how in [Provisioning::Preview, Provisioning::Make] {
            assert!(transport.provision(&usage(), how).await.unwrap().is_empty());
        }
        assert_eq!(transport.preflight(&usage()).await.unwrap(), []);
    };
    let (exchange, queue, stream) = (unique("x"), unique("q"), unique("s"));
    let plain = || with(|_| {});
    check(
        &destination(Some(&exchange), "{event_type}"),
        plain(),
        "exchange_missing",
        "topic, durable",
    )
    .await;
    check(
        &destination(None, &queue),
        plain(),
        "queue_missing",
        "quorum",
    )
    .await;
    let streams = || support::connection(port(), &[&stream]);
    check(
        &destination(None, &stream),
        streams(),
        "queue_missing",
        "stream",
    )
    .await;
    assert!(admin.has_queue(&queue).await);

    // A queue that is taken for a stream loses nothing by it.
    admin.publish(&queue, "mine", b"").await;
    let mistaken = open(
        &destination(None, &queue),
        support::connection(port(), &[&queue]),
    );
    let problems = mistaken.preflight(&usage()).await.unwrap();
    assert_eq!(problems[0].code, "not_a_stream");
    let error = mistaken.anchor(&[]).await.unwrap_err();
    assert!(error.to_string().contains("x-stream-offset"), "{error}");
    assert_eq!(admin.take_all(&queue).await.len(), 1);
}

#[tokio::test]
async fn positions_count_what_waits_in_a_queue() {
    let admin = Admin::shared().await;
    let queue = unique("q");
    admin.queue(&queue, &[]).await;
    admin.publish(&queue, "one", b"").await;
    admin.publish(&queue, "two", b"").await;
    let by_name = open(&destination(None, &queue), with(|_| {}));
    let by_exchange = open(&destination(Some("amq.topic"), "k"), with(|_| {}));
    for (transport, consumer) in [(&by_name, "billing"), (&by_exchange, queue.as_str())] {
        let found = transport.positions(consumer).await.unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].place.as_str(), found[0].waiting),
            (queue.as_str(), Some(2))
        );
        assert!(!found[0].exact && found[0].confirmed.is_none());
    }
    let unknown = by_exchange.positions(&unique("nobody")).await;
    assert!(
        matches!(
            unknown,
            Err(Error::Misconfigured {
                code: "positions_unknown",
                ..
            })
        ),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn another_cluster_or_virtual_host_is_refused_before_anything_is_sent() {
    let mut elsewhere = destination(None, &unique("q"));
    elsewhere.cluster = "rabbit@prod".to_owned();
    let transport = open(&elsewhere, with(|_| {}));
    let outcomes = fixture::send(&transport, &fixture::messages(&elsewhere, 2), AMPLE).await;
    assert_eq!(codes(&outcomes), ["wrong_cluster"; 2]);
    assert!(outcomes.iter().all(is_outage));
    // Between two tries the last one's answer is given.
    let error = transport.preflight(&usage()).await.unwrap_err().to_string();
    assert!(
        error.contains("\"test\"") && error.contains("\"rabbit@prod\""),
        "{error}"
    );

    let here = destination(None, &unique("q"));
    for (change, code) in [
        (("vhost", serde_json::json!("/nowhere")), "vhost_missing"),
        (
            (
                "credentials",
                serde_json::json!({ "user_password": { "user": "guest", "password": "S3CRET" } }),
            ),
            "not_authorized",
        ),
    ] {
        let transport = open(&here, with(|settings| settings[change.0] = change.1));
        let error = transport.preflight(&usage()).await.unwrap_err();
        assert!(
            matches!(&error, Error::Misconfigured { code: own, .. } if *own == code),
            "{error}"
        );
        assert!(!error.to_string().contains("S3CRET"));
        assert!(!format!("{transport:?}").contains("S3CRET"));
    }
}

/// 200 sends whose confirms are lost, half of them after they were accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_probe_finds_what_was_accepted_and_never_claims_that_anything_is_absent() {
    let harness = Harness::<Stream>::start().await;
    let destination = harness.destination();
    let transport = harness.open(&destination);
    let mut asked = Vec::new();
    // Which of a pair of rounds is accepted changes with an id's random bits.
    for round in 0..20 {
        let first = fixture::messages(&destination, 1);
        fixture::send_until_acknowledged(&transport, &first, AMPLE, 40).await;
        let about: Vec<Message> = fixture::messages(&destination, 10);
        let anchor = transport.anchor(&[]).await.unwrap();
        let coin = about[0].event_id.0.as_u128() & 1 == 0;
        let accepted = if round % 2 == 0 {
            coin
        } else {
            !asked_last(&asked)
        };
        let direction = if accepted {
            Direction::ServerToClient
        } else {
            Direction::ClientToServer
        };
        harness.proxy.set(direction, Flow::Swallow);
        let outcomes = fixture::send(&transport, &about, SHORT / 2).await;
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, Outcome::Unknown { .. })),
            "{outcomes:?}"
        );
        harness.proxy.heal().await.unwrap();
        asked.extend(
            about
                .into_iter()
                .map(|message| (message, accepted, anchor.clone())),
        );
    }
    let there: BTreeSet<String> = harness
        .received()
        .await
        .into_iter()
        .map(|one| one.event_id)
        .collect();
    let probing = asked.chunks(20).map(|part| {
        let transport = harness.open(&destination);
        let there = &there;
        async move {
            let mut found = 0;
            for (message, _, anchor) in part {
                let id = message.event_id.to_string();
                // What the broker holds is the truth, whatever the proxy was told.
                let accepted = &there.contains(&id);
                let question = fixture::probe_of(message, &message.body, anchor.clone());
                match transport.probe(&question).await.unwrap() {
                    Probed::Found(Receipt::Amqp { delivery_tag, .. }) => {
                        assert!(*accepted, "{id} is not there");
                        assert!(delivery_tag > 1);
                        found += 1;
                    }
                    Probed::CannotTell { .. } => assert!(!*accepted, "{id} is there"),
                    Probed::Found(other) => panic!("{other:?}"),
                    Probed::ProvenAbsent => panic!("{id} may come yet"),
                }
            }
            found
        }
    });
    let found: usize = futures::future::join_all(probing).await.into_iter().sum();
    assert!(
        (80..=120).contains(&found),
        "half of them were accepted, not {found}"
    );

    // A queue cannot be looked into at all.
    let queue = open(&support::destination(Some("amq.topic"), "k"), with(|_| {}));
    assert_eq!(queue.traits().probe, ProbeStrength::None);
    let question = fixture::probe_of(&asked[0].0, &asked[0].0.body, None);
    let probed = queue.probe(&question).await.unwrap();
    assert!(matches!(probed, Probed::CannotTell { .. }), "{probed:?}");
}

/// Whether the last round was accepted.
fn asked_last<T>(asked: &[(Message, bool, T)]) -> bool {
    asked.last().is_some_and(|(_, accepted, _)| *accepted)
}
