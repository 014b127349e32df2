//! Field cases, named after them.

mod support;

use std::{
    io::Write,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use postrider_conformance::transport::fixture;
use postrider_contract::{Digest, Receipt};
use postrider_core::{Class, Outcome};
use postrider_transport::{Error, Secret, Severity, Transport, Usage};
use postrider_transport_http::{
    CONSUMER_RECEIPT_TYPE, Clock, Connection, Webhook,
    signature::{self, Key, TOLERANCE},
};
use serde_json::json;
use support::{Receiver, Reply, SECRET, connection, destination, from_json};

const AMPLE: Duration = Duration::from_secs(20);
const OTHER_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

fn open(connection: Connection) -> Arc<dyn Transport> {
    Arc::new(Webhook::open(&destination(), connection).expect("it opens"))
}

async fn receiver() -> (Receiver, u16) {
    let receiver = Receiver::default();
    let port = receiver.start().await;
    (receiver, port)
}

fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::ZERO,
    }
}

fn is_outage(outcome: &Outcome, expected: &str) -> bool {
    matches!(outcome, Outcome::Retryable { class: Class::Outage, code, .. } if *code == expected)
}

#[tokio::test]
async fn whk_1_no_redirect_is_success_or_followed() {
    let (elsewhere, other_port) = receiver().await;
    let (receiver, port) = receiver().await;
    let transport = open(connection(port));
    let other = format!("http://127.0.0.1:{other_port}/S3CRET?t=S3CRET");
    let own = format!("http://127.0.0.1:{port}/loop");
    let cases = [301, 302, 303, 300, 304, 307, 308].map(|status| (status, "/final"));
    let cases = cases
        .into_iter()
        .chain([(307, other.as_str()), (302, own.as_str())]);
    for (sent, (status, location)) in cases.enumerate() {
        receiver.script([Reply::status(status).header("location", location)]);
        let message = fixture::messages(&destination(), 1).remove(0);
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(is_outage(&outcome, "redirected"), "{status}: {outcome:?}");
        let Outcome::Retryable { detail, .. } = outcome else {
            unreachable!()
        };
        assert!(detail.contains(&status.to_string()), "{detail}");
        assert!(detail.contains("http://127.0.0.1:"), "{detail}");
        assert!(
            !detail.contains("S3CRET") && !detail.contains("/final"),
            "{detail}"
        );
        assert_eq!(
            receiver.seen().len(),
            sent + 1,
            "one request for one attempt"
        );
    }
    assert!(elsewhere.seen().is_empty(), "nothing went to another host");
    assert!(receiver.seen().iter().all(|seen| seen.method == "POST"));
}

#[tokio::test]
async fn whk_3_gone_suspends_and_not_found_does_not() {
    let (receiver, port) = receiver().await;
    let transport = open(connection(port));
    receiver.script([Reply::status(410), Reply::status(404)]);
    let messages = fixture::messages(&destination(), 2);
    let gone = fixture::send_one(&transport, &messages[0], AMPLE).await;
    assert!(
        matches!(
            gone,
            Outcome::Rejected {
                code: "gone",
                suspends: true,
                ..
            }
        ),
        "{gone:?}"
    );
    let missing = fixture::send_one(&transport, &messages[1], AMPLE).await;
    assert!(
        matches!(
            missing,
            Outcome::Retryable {
                class: Class::Refusal,
                code: "not_found",
                ..
            }
        ),
        "{missing:?}"
    );
    assert_eq!(receiver.seen().len(), 2);
}

/// A clock that a test moves.
fn clock() -> (Clock, Arc<AtomicU64>) {
    let seconds = Arc::new(AtomicU64::new(1_700_000_000));
    let own = Arc::clone(&seconds);
    let clock: Clock =
        Arc::new(move || SystemTime::UNIX_EPOCH + Duration::from_secs(own.load(Ordering::SeqCst)));
    (clock, seconds)
}

fn key(secret: &str) -> Key {
    Key::parse(&Secret::new(secret)).expect("a signing secret")
}

#[tokio::test]
async fn whk_5_each_attempt_is_signed_afresh_and_both_secrets_sign_during_a_rotation() {
    let (receiver, port) = receiver().await;
    let (clock, seconds) = clock();
    let mut settings = connection(port);
    let open = |settings: &Connection| -> Arc<dyn Transport> {
        let clock = Arc::clone(&clock);
        Arc::new(Webhook::open_with_clock(&destination(), settings.clone(), clock).unwrap())
    };
    receiver.script([Reply::status(503), Reply::status(503)]);
    let message = fixture::messages(&destination(), 1).remove(0);
    let transport = open(&settings);
    for wait in [0, 30] {
        seconds.fetch_add(wait, Ordering::SeqCst);
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(is_outage(&outcome, "unavailable"), "{outcome:?}");
    }
    settings.signing_secrets = vec![Secret::new(OTHER_SECRET), Secret::new(SECRET)];
    let transport = open(&settings);
    seconds.fetch_add(370, Ordering::SeqCst);
    let outcome = fixture::send_one(&transport, &message, AMPLE).await;
    assert!(matches!(outcome, Outcome::Acknowledged(_)), "{outcome:?}");

    let seen = receiver.seen();
    let stamps: Vec<&str> = seen
        .iter()
        .map(|seen| seen.header("webhook-timestamp"))
        .collect();
    assert_eq!(stamps, ["1700000000", "1700000030", "1700000400"]);
    for seen in &seen {
        assert_eq!(seen.header("webhook-id"), message.event_id.to_string());
        assert_eq!(seen.header("idempotency-key"), message.event_id.to_string());
        assert_eq!(seen.body, message.body);
    }
    let verify = |attempt: usize, secret: &str, now: i64| {
        let seen = &seen[attempt];
        let header = |name: &'static str| seen.headers.get(name).and_then(|v| v.to_str().ok());
        signature::verify(&[key(secret)], header, &seen.body, now, TOLERANCE)
    };
    let now = 1_700_000_400;
    assert_eq!(
        verify(2, SECRET, now),
        Ok(()),
        "a receiver with the old secret"
    );
    assert_eq!(
        verify(2, OTHER_SECRET, now),
        Ok(()),
        "a receiver with the new one"
    );
    assert_eq!(verify(0, SECRET, now), Err(signature::Refused::TooOld));
    assert_eq!(
        verify(1, OTHER_SECRET, 1_700_000_030),
        Err(signature::Refused::NoMatch)
    );
}

#[tokio::test]
async fn ssr_1_no_spelling_reaches_an_address_that_is_not_allowed() {
    let hosts = [
        "169.254.169.254",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "[::]",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[fd00::1]",
        "10.0.0.1",
        "100.64.0.1",
        "[64:ff9b::a00:1]",
    ];
    let settings = |url: String, networks: &[&str]| {
        from_json(json!({ "url": url, "allow_plain_http": true, "allow_networks": networks }))
    };
    for host in hosts {
        let refused = Webhook::open(&destination(), settings(format!("http://{host}/"), &[]));
        let error = refused.expect_err(host);
        assert!(
            matches!(
                error,
                Error::Misconfigured {
                    code: "address_refused",
                    ..
                }
            ),
            "{host}"
        );
        let everywhere = settings(format!("http://{host}/"), &["0.0.0.0/0", "::/0"]);
        let never = ["169.254.169.254", "0", "[::]"].contains(&host);
        assert_eq!(
            Webhook::open(&destination(), everywhere).is_err(),
            never,
            "{host}"
        );
    }
    for url in [
        "file:///etc/passwd",
        "gopher://h.example/",
        "ftp://h.example/",
        "h.example/x",
        "https://user:pass@h.example/",
        "https://user@h.example/",
        "https://",
    ] {
        let error = Webhook::open(&destination(), settings(url.to_owned(), &[])).expect_err(url);
        assert!(
            matches!(error, Error::Misconfigured { .. }),
            "{url}: {error}"
        );
        assert!(!error.to_string().contains("pass@"), "{error}");
    }

    // A name is checked by what it resolves to: by the preflight, by a delivery, by a replay.
    let (receiver, port) = receiver().await;
    for name in ["localhost", "LOCALHOST"] {
        let transport = open(settings(format!("http://{name}:{port}/"), &["10.0.0.0/8"]));
        let problems = transport.preflight(&usage()).await.unwrap();
        assert!(
            problems
                .iter()
                .any(|p| p.code == "address_refused" && p.severity == Severity::Refused)
        );
        let message = fixture::messages(&destination(), 1).remove(0);
        for _ in 0..2 {
            let outcome = fixture::send_one(&transport, &message, AMPLE).await;
            assert!(is_outage(&outcome, "address_refused"), "{outcome:?}");
            let Outcome::Retryable { detail, .. } = outcome else {
                unreachable!()
            };
            assert!(
                detail.contains("allow_networks"),
                "the rule is named: {detail}"
            );
            assert!(
                !detail.contains("127.0.0.1"),
                "what was found is not: {detail}"
            );
        }
    }
    // Not every system resolves this spelling; one that does finds the same address.
    let transport = open(settings(format!("http://localhost.:{port}/"), &[]));
    let message = fixture::messages(&destination(), 1).remove(0);
    let outcome = fixture::send_one(&transport, &message, AMPLE).await;
    assert!(
        is_outage(&outcome, "address_refused") || is_outage(&outcome, "not_connected"),
        "{outcome:?}"
    );
    assert!(receiver.seen().is_empty());
    let allowed = settings(format!("http://localhost:{port}/"), &["127.0.0.0/8", "::1"]);
    let message = fixture::messages(&destination(), 1).remove(0);
    let outcome = fixture::send_one(&open(allowed), &message, AMPLE).await;
    assert!(matches!(outcome, Outcome::Acknowledged(_)), "{outcome:?}");
}

#[tokio::test]
async fn ctr_1_attributes_cross_as_encoded_headers() {
    let (receiver, port) = receiver().await;
    let transport = open(connection(port));
    let cases = [
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("\"q\"", "%22q%22"),
        ("\u{e9}", "%C3%A9"),
        ("\u{1F600}", "%F0%9F%98%80"),
    ];
    for (text, encoded) in cases {
        let message = fixture::message_of(&destination(), &fixture::new_event(text, "{}"));
        fixture::send_one(&transport, &message, AMPLE).await;
        assert_eq!(
            receiver.seen().last().unwrap().header("ce-subject"),
            encoded
        );
    }
    // A line break never gets this far; if one does, it is encoded and makes no header.
    let mut message = fixture::messages(&destination(), 1).remove(0);
    message.headers.push("x-note", "a\r\nX-Evil: 1");
    fixture::send_one(&transport, &message, AMPLE).await;
    let seen = receiver.seen().pop().unwrap();
    assert_eq!(seen.header("x-note"), "a%0D%0AX-Evil:%201");
    assert!(!seen.headers.contains_key("x-evil"));
}

/// Everything that any crate logs, at every level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn sec_1_no_secret_is_shown_anywhere() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("trace")
        .with_writer(move || writer.clone())
        .finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let mut shown = String::new();
    let mut show = |text: String| shown.push_str(&text);

    let (receiver, port) = receiver().await;
    let at = |place: &str| {
        from_json(json!({
            "url": format!("{place}/services/S3CRET2?token=S3CRET3"),
            "authorization": "Bearer S3CRET5",
            "headers": { "x-api-key": "S3CRET8" },
            "allow_plain_http": true,
            "allow_networks": ["127.0.0.1"],
            "signing_secrets": [SECRET],
            "connect_timeout_ms": 500,
        }))
    };
    // Malformed, or holding what it must not.
    for url in [
        "https://user:S3CRET1@host/services/S3CRET2?token=S3CRET3#S3CRET4",
        "https://host/services/S3CRET2#S3CRET4",
        "ht!tp://S3CRET2",
        "http://[S3CRET2/",
    ] {
        let mut settings = at("http://127.0.0.1");
        settings.url = Secret::new(url);
        let error = Webhook::open(&destination(), settings).unwrap_err();
        show(format!("{error:?} {error}"));
    }
    let mut bad = at("http://127.0.0.1");
    bad.signing_secrets = vec![Secret::new("S3CRET7")];
    show(format!("{:?}", Webhook::open(&destination(), bad)));

    // Refused address, no such name, nobody listening, TLS with somebody who has none.
    let listens = format!("http://127.0.0.1:{port}");
    let tls = format!("https://127.0.0.1:{port}");
    let places = [
        "http://localhost",
        "http://name.invalid",
        "http://127.0.0.1:1",
        &tls,
        &listens,
    ];
    for place in places {
        let settings = at(place);
        show(format!("{settings:?}"));
        let transport = open(settings);
        show(format!(
            "{transport:?} {:?}",
            transport.preflight(&usage()).await
        ));
        receiver.script([
            Reply::status(400).body("token=S3CRET3 S3CRET5"),
            Reply::status(302).header("location", "https://u:S3CRET1@h/S3CRET2?S3CRET3#S3CRET4"),
            Reply::status(500).body("S3CRET2"),
            Reply {
                wait: Duration::from_secs(5),
                ..Reply::status(200)
            },
        ]);
        for _ in 0..4 {
            let message = fixture::messages(&destination(), 1).remove(0);
            let outcome = fixture::send_one(&transport, &message, Duration::from_millis(700)).await;
            assert!(!matches!(outcome, Outcome::Acknowledged(_)), "{outcome:?}");
            show(format!("{outcome:?}"));
        }
    }
    drop(guard);
    let seen = receiver.seen();
    assert!(
        seen.iter()
            .any(|seen| seen.header("authorization") == "Bearer S3CRET5")
    );
    assert!(
        seen.iter()
            .any(|seen| seen.uri == "/services/S3CRET2?token=S3CRET3")
    );
    for secret in ["S3CRET", SECRET, &SECRET[6..]] {
        assert!(!shown.contains(secret), "{shown}");
    }
    assert!(shown.contains("127.0.0.1"), "the host is shown");
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    // The receiver of this test logs in this process too, from axum: only lines of the sender count.
    let leak = log
        .lines()
        .find(|line| line.contains("S3CRET") || line.contains(SECRET));
    assert_eq!(leak, None);
}

#[tokio::test]
async fn a_typed_receipt_is_the_evidence_where_the_destination_asks_for_one() {
    let (receiver, port) = receiver().await;
    let mut destination = destination();
    destination.receipt_type = CONSUMER_RECEIPT_TYPE.to_owned();
    let transport: Arc<dyn Transport> =
        Arc::new(Webhook::open(&destination, connection(port)).unwrap());
    let receipt = Receipt::Consumer {
        consumer: "billing".to_owned(),
        receipt_type: "billing.invoice".to_owned(),
        receipt_schema_version: "1".to_owned(),
        receipt_digest: Digest::of_bytes(b"x"),
        committed_at: "2026-01-31T09:30:00.000001Z".parse().unwrap(),
    };
    receiver.script([
        Reply::status(200).body(serde_json::to_vec(&receipt).unwrap()),
        Reply::status(200).body("ok"),
        Reply::status(200).body("{\"type\":\"http.response/1\",\"status\":200}"),
        Reply::status(200).body(vec![b' '; 100_000]),
    ]);
    let message = fixture::messages(&destination, 1).remove(0);
    let outcome = fixture::send_one(&transport, &message, AMPLE).await;
    assert_eq!(outcome, Outcome::Acknowledged(receipt));
    for _ in 0..3 {
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(
            matches!(
                outcome,
                Outcome::Unknown {
                    code: "receipt_missing",
                    ..
                }
            ),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_response_is_read_within_its_bounds() {
    let (receiver, port) = receiver().await;
    let transport = open(connection(port));
    receiver.script([
        Reply::status(201).body("done"),
        Reply::status(200).body(vec![0; 1 << 20]),
    ]);
    let messages = fixture::messages(&destination(), 2);
    let short = fixture::send_one(&transport, &messages[0], AMPLE).await;
    let body_digest = Some(Digest::of_bytes(b"done"));
    assert_eq!(
        short,
        Outcome::Acknowledged(Receipt::Http {
            status: 201,
            body_digest
        })
    );
    let long = fixture::send_one(&transport, &messages[1], AMPLE).await;
    assert_eq!(
        long,
        Outcome::Acknowledged(Receipt::Http {
            status: 200,
            body_digest: None
        })
    );
}

#[tokio::test]
async fn requests_are_bounded_and_what_waits_too_long_was_never_sent() {
    let (receiver, port) = receiver().await;
    let mut settings = connection(port);
    settings.concurrency_max = 2;
    let transport = open(settings);
    assert_eq!(transport.traits().batch_max, 2);
    receiver.rule(Some(Reply {
        wait: Duration::from_secs(30),
        ..Reply::status(200)
    }));
    let messages = fixture::messages(&destination(), 4);
    let outcomes = fixture::send(&transport, &messages, Duration::from_millis(500)).await;
    let unknown = outcomes
        .iter()
        .filter(|o| matches!(o, Outcome::Unknown { .. }))
        .count();
    let waiting = outcomes
        .iter()
        .filter(|o| is_outage(o, "concurrency_full"))
        .count();
    assert_eq!(
        (unknown, waiting, receiver.seen().len()),
        (2, 2, 2),
        "{outcomes:?}"
    );
}

#[tokio::test]
async fn retry_after_reaches_the_relay_in_both_forms() {
    let (receiver, port) = receiver().await;
    let (clock, _) = clock();
    let transport: Arc<dyn Transport> =
        Arc::new(Webhook::open_with_clock(&destination(), connection(port), clock).unwrap());
    let date = "Tue, 14 Nov 2023 22:15:20 GMT";
    receiver.script([
        Reply::status(429).header("retry-after", "7"),
        Reply::status(503).header("retry-after", date),
        Reply::status(503),
    ]);
    for expected in [Some(7), Some(120), None] {
        let message = fixture::messages(&destination(), 1).remove(0);
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        let Outcome::Retryable { retry_after, .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(retry_after, expected.map(Duration::from_secs));
    }
}

#[tokio::test]
async fn the_target_is_added_to_the_url() {
    let (receiver, port) = receiver().await;
    let mut destination = destination();
    let mut settings = connection(port);
    settings.url = Secret::new(format!("http://127.0.0.1:{port}/hook/?k=v"));
    let mut event = fixture::new_event("a/../b c", "{}");
    event.event_type = "order.placed".to_owned();
    for (target, expected) in [
        ("/", "/hook/?k=v"),
        ("/e/{event_type}", "/hook/e/order.placed?k=v"),
        ("/{aggregate_id}", "/hook/a%2F%2E%2E%2Fb%20c?k=v"),
    ] {
        destination.target = target.to_owned();
        let transport: Arc<dyn Transport> =
            Arc::new(Webhook::open(&destination, settings.clone()).unwrap());
        let message = fixture::message_of(&destination, &event);
        fixture::send_one(&transport, &message, AMPLE).await;
        assert_eq!(receiver.seen().pop().unwrap().uri, expected);
    }
    for target in [
        "", "hook", "/../x", "/x?y", "/x#y", "/{nope}", "/a b", "/\u{e9}",
    ] {
        destination.target = target.to_owned();
        assert!(
            Webhook::open(&destination, settings.clone()).is_err(),
            "{target}"
        );
    }
}

#[test]
fn settings_that_do_not_fit_are_refused() {
    let refused = |settings: serde_json::Value| {
        serde_json::from_value::<Connection>(settings)
            .map_err(|_| ())
            .and_then(|settings| Webhook::open(&destination(), settings).map_err(|_| ()))
            .is_err()
    };
    let url = "https://h.example/";
    assert!(!refused(json!({ "url": url })));
    for (field, value) in [
        ("concurrency_max", json!(0)),
        ("response_bytes_max", json!(0)),
        ("request_bytes_max", json!(0)),
        ("connect_timeout_ms", json!(0)),
        ("concurrency_max", json!(100_000)),
        ("allow_networks", json!(["10.0.0.1/8"])),
        ("authorization", json!("a\r\nb")),
        ("headers", json!({ "host": "x" })),
        ("headers", json!({ "webhook-id": "x" })),
        ("headers", json!({ "a b": "x" })),
        ("ca_file", json!("/nonexistent.pem")),
        ("nonsense", json!(1)),
    ] {
        assert!(refused(json!({ "url": url, field: value })), "{field}");
    }
    assert!(
        refused(json!({ "url": "http://h.example/" })),
        "plain http must be allowed by name"
    );
}
