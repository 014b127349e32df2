//! Field cases, named after them.

mod support;

use std::{sync::Arc, time::Duration};

use postrider_conformance::transport::{Harness as _, fixture};
use postrider_contract::Receipt;
use postrider_core::{Class, Outcome};
use postrider_testkit::proxy::Flow;
use postrider_transport::{
    Anchor, Batch, Earlier, Error, Late, Message, Provisioning, Severity, Transport, Usage,
};
use postrider_transport_nats::{Connection, JetStream};
use support::{Harness, Oldest, connection, destination, fake::Fake, usage};
use tokio::sync::mpsc;

const AMPLE: Duration = Duration::from_secs(20);

fn sequence(outcome: &Outcome) -> (u64, bool) {
    match outcome {
        Outcome::Acknowledged(Receipt::JetStream {
            sequence,
            duplicate,
            ..
        }) => (*sequence, *duplicate),
        Outcome::Acknowledged(_)
        | Outcome::Retryable { .. }
        | Outcome::Rejected { .. }
        | Outcome::Unknown { .. } => panic!("not acknowledged: {outcome:?}"),
    }
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown { .. })
}

fn start_sending(
    transport: &Arc<dyn Transport>,
    messages: &[Message],
    send_timeout: Duration,
) -> tokio::task::JoinHandle<Vec<Outcome>> {
    let (transport, messages) = (Arc::clone(transport), messages.to_vec());
    tokio::spawn(async move { fixture::send(&transport, &messages, send_timeout).await })
}

#[tokio::test]
async fn nat_1_acks_lost_in_a_reconnect_settle_as_unknown_and_new_ones_flow() {
    let mut server = Fake::start("S").await;
    let transport: Arc<dyn Transport> =
        Arc::new(JetStream::open(&destination("S"), connection(server.port)).unwrap());
    let mut late = transport.late().expect("it hears late acknowledgements");
    let old = fixture::messages(&destination("S"), 50);
    let sending = start_sending(&transport, &old, AMPLE);
    let first = server.take(50).await;
    server.cut(0).await;
    // Far earlier than the send timeout: the connection's end is the answer.
    let outcomes = sending.await.unwrap();
    assert!(outcomes.iter().all(is_unknown), "{outcomes:?}");

    let new = fixture::messages(&destination("S"), 50);
    let sending = start_sending(&transport, &new, AMPLE);
    for (n, publish) in server.take(50).await.iter().enumerate() {
        assert_eq!(publish.connection, 1);
        server.ack(1, &publish.reply, "S", n as u64 + 1).await;
    }
    let outcomes = sending.await.unwrap();
    assert_eq!(outcomes.iter().map(|o| sequence(o).0).max(), Some(50));

    // Sent again under another token; then the first send's acknowledgement comes after all.
    let again = start_sending(&transport, &old[7..8], Duration::from_millis(500));
    let second = server.take(1).await;
    assert_ne!(second[0].reply, first[7].reply);
    server.ack(1, &first[7].reply, "S", 8).await;
    let Late { event_id, receipt } = late.recv().await.expect("the late one is reported");
    assert_eq!(event_id, old[7].event_id);
    assert!(matches!(receipt, Receipt::JetStream { sequence: 8, .. }));
    assert!(
        again.await.unwrap().iter().all(is_unknown),
        "its own send was not acknowledged"
    );
    // Nothing was kept and sent later: 50 + 50 + 1 publishes in all.
    assert!(server.publishes.try_recv().is_err());
}

#[tokio::test]
async fn nat_1_acks_that_never_come_settle_by_their_deadline_and_clog_no_window() {
    let mut server = Fake::start("S").await;
    let mut settings = connection(server.port);
    settings.in_flight_max = 50;
    let transport: Arc<dyn Transport> =
        Arc::new(JetStream::open(&destination("S"), settings).unwrap());
    let mut late = transport.late().expect("it hears late acknowledgements");
    let old = fixture::messages(&destination("S"), 50);
    let sending = start_sending(&transport, &old, Duration::from_millis(300));
    let first = server.take(50).await;
    assert!(sending.await.unwrap().iter().all(is_unknown));
    let new = fixture::messages(&destination("S"), 50);
    let sending = start_sending(&transport, &new, AMPLE);
    for publish in server.take(50).await {
        assert_eq!(
            publish.connection, 0,
            "silence alone does not end a connection"
        );
        assert!(
            publish.headers.contains("Nats-Expected-Stream: S\r\n"),
            "{}",
            publish.headers
        );
        server.ack(0, &publish.reply, "S", 9).await;
    }
    assert!(
        sending
            .await
            .unwrap()
            .iter()
            .all(|outcome| sequence(outcome).0 == 9)
    );
    server.ack(0, &first[0].reply, "S", 1).await;
    assert_eq!(
        late.recv().await.map(|late| late.event_id),
        Some(old[0].event_id)
    );
}

#[tokio::test]
async fn an_ack_from_another_stream_is_no_evidence() {
    let mut server = Fake::start("S").await;
    let transport: Arc<dyn Transport> =
        Arc::new(JetStream::open(&destination("S"), connection(server.port)).unwrap());
    let sending = start_sending(&transport, &fixture::messages(&destination("S"), 1), AMPLE);
    let publish = server.take(1).await.remove(0);
    server.ack(0, &publish.reply, "T", 1).await;
    assert!(matches!(
        sending.await.unwrap()[0],
        Outcome::Unknown {
            code: "ack_of_another_stream",
            ..
        }
    ));
}

/// A stream with a short duplicate window, and its transport.
async fn short_window() -> (Harness<Oldest>, Arc<dyn Transport>) {
    let harness = Harness::<Oldest>::start().await;
    harness
        .alter(|config| config.duplicate_window = Duration::from_secs(1))
        .await;
    let transport = harness.open(&harness.destination());
    (harness, transport)
}

/// Waits until the server has forgotten every id that was published before this call.
async fn window_over(harness: &Harness<Oldest>) {
    let admin = harness.admin().await;
    let subject = format!("{}.witness", harness.stream);
    let publish = async || {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", "witness");
        let ack = admin
            .publish_with_headers(subject.clone(), headers, "".into())
            .await
            .unwrap();
        ack.await.unwrap().duplicate
    };
    assert!(!publish().await);
    let forgotten = || async { !publish().await };
    postrider_testkit::eventually(AMPLE, "the window to pass", forgotten)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_a_retry_beyond_the_window_is_looked_up_and_not_stored_again() {
    for anchored in [true, false] {
        let (harness, transport) = short_window().await;
        let destination = harness.destination();
        fixture::send(&transport, &fixture::messages(&destination, 5), AMPLE).await;
        let anchor = transport.anchor(&[]).await.unwrap();
        assert_eq!(anchor, Some(Anchor::number(6)));
        let mut message = fixture::messages(&destination, 1).remove(0);
        let first = fixture::send_one(&transport, &message, AMPLE).await;
        assert_eq!(sequence(&first), (6, false));
        let inside = fixture::send_one(&transport, &message, AMPLE).await;
        assert_eq!(
            sequence(&inside),
            (6, true),
            "within the window the server answers"
        );
        window_over(&harness).await;
        let anchor = anchor.filter(|_| anchored);
        message.earlier = Some(Earlier {
            first_sent_ago: Duration::from_millis(2_200),
            anchor,
        });
        let beyond = fixture::send_one(&transport, &message, AMPLE).await;
        assert_eq!(
            sequence(&beyond),
            (6, false),
            "found, with its own position"
        );
        let copies = harness.received().await;
        let own = message.event_id.to_string();
        assert_eq!(
            copies
                .iter()
                .filter(|received| received.event_id == own)
                .count(),
            1
        );
        // The case itself: without the look-up, a second copy is stored.
        message.earlier = None;
        let blind = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(sequence(&blind).0 > 6);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_a_look_up_that_finds_nothing_is_followed_by_the_send() {
    let (harness, transport) = short_window().await;
    let destination = harness.destination();
    let mut sent = fixture::messages(&destination, 3);
    for (message, anchor) in sent
        .iter_mut()
        .zip([Some(1), Some(1_000), None].map(|at| at.map(Anchor::number)))
    {
        message.earlier = Some(Earlier {
            first_sent_ago: Duration::from_secs(9),
            anchor,
        });
    }
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(
        outcomes.iter().map(|o| sequence(o).0).collect::<Vec<_>>(),
        [1, 2, 3]
    );
    let again = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(
        again.iter().map(sequence).collect::<Vec<_>>(),
        [(1, false), (2, false), (3, false)]
    );
    // The id is there, with another body: nothing that may be acknowledged.
    sent[0].body = "other".into();
    let outcome = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert!(
        matches!(
            outcome,
            Outcome::Rejected {
                code: "digest_conflict",
                ..
            }
        ),
        "{outcome:?}"
    );
}

/// More was stored since than can be read within one send timeout: each try goes on where the one
/// before it stopped, also when it looks for another event, as in a backlog that waits for retries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_look_ups_longer_than_the_send_timeout_come_to_their_end() {
    const STORED: usize = 200;
    let (harness, transport) = short_window().await;
    let destination = harness.destination();
    fixture::send(&transport, &fixture::messages(&destination, STORED), AMPLE).await;
    let mut waiting = fixture::messages(&destination, STORED);
    let first = fixture::send(&transport, &waiting, AMPLE).await;
    window_over(&harness).await;
    for message in &mut waiting {
        message.earlier = Some(Earlier {
            first_sent_ago: Duration::from_secs(9),
            anchor: Some(Anchor::number(1)),
        });
    }
    // There and back twice as long as a tenth of the send timeout.
    harness
        .proxy
        .set_both(Flow::Delay(Duration::from_millis(50)));
    let mut unfinished = 0;
    for (message, first) in waiting.iter().zip(&first) {
        let outcome = fixture::send_one(&transport, message, Duration::from_secs(1)).await;
        if let Outcome::Retryable { code, .. } = outcome {
            assert_eq!(code, "lookup_failed");
            unfinished += 1;
        } else {
            assert_eq!(sequence(&outcome), (sequence(first).0, false));
            break;
        }
        assert!(unfinished < STORED, "each try is to read on");
    }
    assert!(unfinished > 0, "it was to take more than one try");
    harness.proxy.set_both(Flow::Pass);
    // All of them: what was read serves for each.
    let outcomes = fixture::send(&transport, &waiting, AMPLE).await;
    for (outcome, first) in outcomes.iter().zip(&first) {
        assert_eq!(sequence(outcome), (sequence(first).0, false));
    }
}

/// Much was stored since on other subjects, and nothing on its own: one question tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_a_look_up_passes_over_what_is_not_of_its_subject() {
    const OTHERS: usize = 300;
    let (harness, transport) = short_window().await;
    let mut sent = fixture::messages(&harness.destination(), 2);
    let first = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(sequence(&first), (1, false));
    let admin = harness.admin().await;
    let mut acks = Vec::new();
    for _ in 0..OTHERS {
        let subject = format!("{}.other", harness.stream);
        acks.push(admin.publish(subject, "".into()).await.unwrap());
    }
    for ack in acks {
        ack.await.unwrap();
    }
    sent[1].earlier = Some(Earlier {
        first_sent_ago: Duration::from_secs(9),
        anchor: Some(Anchor::number(2)),
    });
    // A question for each of the others would take 30 times as long as the send may.
    harness
        .proxy
        .set_both(Flow::Delay(Duration::from_millis(300)));
    let outcome = fixture::send_one(&transport, &sent[1], Duration::from_secs(6)).await;
    assert_eq!(sequence(&outcome), (OTHERS as u64 + 2, false));
}

/// What was read is forgotten where it makes room for what a later look-up needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_a_look_up_past_the_bound_of_an_earlier_one_finds_its_event() {
    let (harness, _) = short_window().await;
    let destination = harness.destination();
    let mut settings = connection(harness.proxy.port());
    settings.lookup_messages_max = 4;
    let transport: Arc<dyn Transport> =
        Arc::new(JetStream::open(&destination, settings).expect("it opens"));
    let mut sent = fixture::messages(&destination, 12);
    let first = fixture::send(&transport, &sent, AMPLE).await;
    window_over(&harness).await;
    for (message, place) in sent.iter_mut().zip(1..) {
        message.earlier = Some(Earlier {
            first_sent_ago: Duration::from_secs(9),
            anchor: Some(Anchor::number(place)),
        });
    }
    for n in [0, 3, 6, 11, 2] {
        let outcome = fixture::send_one(&transport, &sent[n], AMPLE).await;
        assert_eq!(sequence(&outcome), (sequence(&first[n]).0, false), "{n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_the_preflight_names_the_window_and_the_span() {
    let (_harness, transport) = short_window().await;
    let span = Usage {
        message_bytes_max: 0,
        resend_span: Duration::from_secs(77),
    };
    let problems = transport.preflight(&span).await.unwrap();
    let problem = problems
        .iter()
        .find(|p| p.code == "duplicate_window_short")
        .expect("it warns");
    assert_eq!(problem.severity, Severity::Warning);
    assert!(
        problem.message.contains("1s") && problem.message.contains("77s"),
        "{problem:?}"
    );
    transport
        .provision(&span, Provisioning::Make)
        .await
        .unwrap();
    let problems = transport.preflight(&span).await.unwrap();
    assert!(
        problems.iter().all(|p| p.code != "duplicate_window_short"),
        "{problems:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raised_limit_is_known_after_another_look() {
    let harness = Harness::<Oldest>::start().await;
    let transport = harness.transport(&harness.destination());
    transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    let message = fixture::messages(&harness.destination(), 1).remove(0);
    harness.alter(|config| config.max_message_size = 10).await;
    transport.look_again().await;
    let refused = transport.check(&message).unwrap_err();
    assert!(matches!(
        refused,
        Outcome::Rejected {
            code: "message_too_large",
            ..
        }
    ));
    harness
        .alter(|config| config.max_message_size = 60_000)
        .await;
    assert!(
        transport.check(&message).is_err(),
        "it does not ask by itself"
    );
    transport.look_again().await;
    assert!(transport.check(&message).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sec_1_no_secret_is_shown_anywhere() {
    let mut settings = connection(1);
    settings.servers = vec!["nats://user:S3CRET1@127.0.0.1:4222".to_owned()];
    let error = JetStream::open(&destination("S"), settings).unwrap_err();
    assert!(matches!(error, Error::Misconfigured { .. }));
    assert!(!error.to_string().contains("S3CRET"), "{error}");

    let harness = Harness::<Oldest>::with_config(&[
        "server_name: test",
        "authorization { user: relay, password: right }",
    ])
    .await;
    for credentials in [
        serde_json::json!({ "user_password": { "user": "relay", "password": "S3CRET6" } }),
        serde_json::json!({ "token": "S3CRET6" }),
        serde_json::json!({ "nkey_seed": "S3CRET6" }),
        serde_json::json!({ "creds":
            "-----BEGIN NATS USER JWT-----\nS3CRET6\n-----BEGIN USER NKEY SEED-----\nS3CRET6\n" }),
    ] {
        let settings: Connection = serde_json::from_value(serde_json::json!({
            "servers": [harness.server.url()],
            "credentials": credentials,
        }))
        .unwrap();
        let shown = format!("{settings:?} {settings:#?}");
        let transport = JetStream::open(&destination("S"), settings).unwrap();
        let error = transport.preflight(&usage()).await.unwrap_err();
        let mut shown = format!("{shown} {transport:?} {error:?} {error}");
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let message = fixture::messages(&destination("S"), 1).remove(0);
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(
            matches!(
                outcome,
                Outcome::Retryable {
                    class: Class::Outage,
                    ..
                }
            ),
            "{outcome:?}"
        );
        shown += &format!("{outcome:?}");
        assert!(!shown.contains("S3CRET"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_future_hands_nothing_over_later() {
    let mut server = Fake::start("S").await;
    let mut settings = connection(server.port);
    settings.in_flight_max = 10;
    let transport: Arc<dyn Transport> =
        Arc::new(JetStream::open(&destination("S"), settings).unwrap());
    let (answers, mut outcomes) = mpsc::unbounded_channel();
    let batch = Batch {
        messages: fixture::messages(&destination("S"), 30)
            .into_iter()
            .map(Arc::new)
            .collect(),
        send_timeout: AMPLE,
    };
    let sending = tokio::spawn({
        let transport = Arc::clone(&transport);
        async move { transport.send(batch, answers).await }
    });
    // The window is full: ten are out, twenty wait.
    server.take(10).await;
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    let mut answered = 0;
    while let Some(answer) = outcomes.recv().await {
        assert!(is_unknown(&answer.outcome));
        answered += 1;
    }
    assert_eq!(
        answered, 10,
        "what was out is unknown; the rest has no answer and was never sent"
    );
    let sending = start_sending(&transport, &fixture::messages(&destination("S"), 1), AMPLE);
    let publish = server.take(1).await.remove(0);
    server.ack(0, &publish.reply, "S", 11).await;
    assert_eq!(sequence(&sending.await.unwrap()[0]).0, 11);
    assert!(server.publishes.try_recv().is_err());
    assert_eq!(server.connections(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_stream_proves_absence() {
    let harness = Harness::<Oldest>::start().await;
    let transport = harness.open(&harness.destination());
    let destination = harness.destination();
    fixture::send(&transport, &fixture::messages(&destination, 3), AMPLE).await;
    let never = fixture::messages(&destination, 1).remove(0);
    let probe = fixture::probe_of(&never, b"{\"n\":0}", Some(Anchor::number(2)));
    let probed = transport.probe(&probe).await.unwrap();
    assert!(
        matches!(probed, postrider_transport::Probed::CannotTell { .. }),
        "{probed:?}"
    );
    harness.alter(|config| config.sealed = true).await;
    let probed = transport.probe(&probe).await.unwrap();
    assert_eq!(probed, postrider_transport::Probed::ProvenAbsent);
    let problems = transport.preflight(&usage()).await.unwrap();
    assert!(
        problems
            .iter()
            .any(|p| p.code == "stream_sealed" && p.severity == Severity::Refused)
    );
    let outcome = fixture::send_one(&transport, &never, AMPLE).await;
    assert!(
        matches!(
            outcome,
            Outcome::Retryable {
                class: Class::Outage,
                code: "stream_sealed",
                ..
            }
        ),
        "{outcome:?}"
    );
}
