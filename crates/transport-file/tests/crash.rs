//! What a crash, a full disk or a second process leaves, and what becomes of it.

mod support;

use std::{io::Write, process::Command, sync::Arc, time::Duration};

use postrider_conformance::transport::fixture;
use postrider_contract::{Receipt, destination::Serializer};
use postrider_core::{Class, Outcome};
use postrider_transport::{
    Anchor, Earlier, Error, Probed, Provisioning, Severity, Transport, Usage,
};
use postrider_transport_file::JsonLines;
use support::{Harness, destination};

const AMPLE: Duration = Duration::from_secs(20);

fn at(outcome: &Outcome) -> (u64, bool) {
    match outcome {
        Outcome::Acknowledged(Receipt::File {
            offset, duplicate, ..
        }) => (*offset, *duplicate),
        Outcome::Acknowledged(_)
        | Outcome::Retryable { .. }
        | Outcome::Rejected { .. }
        | Outcome::Unknown { .. } => panic!("not acknowledged: {outcome:?}"),
    }
}

fn is_outage(outcome: &Outcome, expected: &str) -> bool {
    matches!(outcome, Outcome::Retryable { class: Class::Outage, code, .. } if *code == expected)
}

fn usage() -> Usage {
    Usage {
        message_bytes_max: 0,
        resend_span: Duration::ZERO,
    }
}

#[tokio::test]
async fn a_torn_last_line_is_cut_off_and_the_rest_is_known_again() {
    let harness = Harness::new();
    let destination = destination();
    let sent = fixture::messages(&destination, 3);
    let transport = harness.transport(&destination);
    let first = fixture::send(&transport, &sent[..2], AMPLE).await;
    drop(transport);
    let whole = std::fs::read(harness.path()).unwrap();
    for torn in [
        &b"{\"id\":\"0189"[..],
        b"{}",
        b"\0\0\0\0",
        b"{\"id\":\"x\",\"body\":\"\xff",
    ] {
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(harness.path())
            .unwrap();
        file.write_all(torn).unwrap();
        let transport = harness.transport(&destination);
        let again = fixture::send(&transport, &sent[..2], AMPLE).await;
        for (first, again) in first.iter().zip(&again) {
            assert_eq!(at(again), (at(first).0, true));
        }
        drop(transport);
        assert_eq!(std::fs::read(harness.path()).unwrap(), whole);
    }
    let transport = harness.transport(&destination);
    let third = fixture::send_one(&transport, &sent[2], AMPLE).await;
    assert_eq!(at(&third), (whole.len() as u64, false));
    assert_eq!(harness.lines().len(), 3);
}

#[tokio::test]
async fn foreign_lines_stay_and_are_told_of() {
    let harness = Harness::new();
    std::fs::write(harness.path(), "hello\n{\"id\":1}\n\n").unwrap();
    let transport = harness.transport(&destination());
    let problems = transport.preflight(&usage()).await.unwrap();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].code == "foreign_lines" && problems[0].message.starts_with("3 lines"));
    let sent = fixture::messages(&destination(), 1).remove(0);
    let outcome = fixture::send_one(&transport, &sent, AMPLE).await;
    assert_eq!(at(&outcome), (16, false));
    let text = std::fs::read_to_string(harness.path()).unwrap();
    assert!(
        text.starts_with("hello\n{\"id\":1}\n\n{\"id\":\""),
        "{text}"
    );
}

#[tokio::test]
async fn only_one_has_the_file_and_the_next_one_waits() {
    let harness = Harness::new();
    let (one, two) = (
        harness.transport(&destination()),
        harness.transport(&destination()),
    );
    let sent = fixture::messages(&destination(), 2);
    at(&fixture::send_one(&one, &sent[0], AMPLE).await);
    let outcome = fixture::send_one(&two, &sent[1], AMPLE).await;
    assert!(is_outage(&outcome, "locked"), "{outcome:?}");
    assert!(matches!(
        two.preflight(&usage()).await,
        Err(Error::Unavailable { code: "locked", .. })
    ));
    let probe = fixture::probe_of(&sent[1], b"{\"n\":1}", None);
    assert!(
        two.probe(&probe).await.is_err(),
        "without the lock nothing is proven"
    );
    one.close().await;
    at(&fixture::send_one(&two, &sent[1], AMPLE).await);
}

#[tokio::test]
async fn a_missing_folder_is_an_outage_until_it_is_provisioned() {
    let harness = Harness::new();
    let mut connection = harness.connection();
    connection.folder = harness.folder.path().join("deep/er");
    let transport: Arc<dyn Transport> =
        Arc::new(JsonLines::open(&destination(), connection).unwrap());
    let sent = fixture::messages(&destination(), 1).remove(0);
    let outcome = fixture::send_one(&transport, &sent, AMPLE).await;
    assert!(is_outage(&outcome, "folder_missing"), "{outcome:?}");
    let problems = transport.preflight(&usage()).await.unwrap();
    let missing = problems
        .iter()
        .find(|p| p.code == "folder_missing")
        .unwrap();
    assert_eq!(missing.severity, Severity::Refused);
    for says in ["deep/er", "postrider provision"] {
        assert!(missing.message.contains(says), "{}", missing.message);
    }
    transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert_eq!(transport.preflight(&usage()).await.unwrap(), []);
    at(&fixture::send_one(&transport, &sent, AMPLE).await);
}

#[tokio::test]
async fn an_id_beyond_the_index_is_looked_for_in_the_file() {
    let harness = Harness::new();
    let mut connection = harness.connection();
    connection.index_max = 2;
    let transport: Arc<dyn Transport> =
        Arc::new(JsonLines::open(&destination(), connection).unwrap());
    let sent = fixture::messages(&destination(), 5);
    let first = fixture::send(&transport, &sent, AMPLE).await;
    for n in 0..5 {
        let mut message = sent[n].clone();
        for anchor in [None, Some(Anchor::number(at(&first[n]).0))] {
            message.earlier = Some(Earlier {
                first_sent_ago: AMPLE,
                anchor,
            });
            let again = fixture::send_one(&transport, &message, AMPLE).await;
            assert_eq!(at(&again), (at(&first[n]).0, true));
        }
        let payload = format!("{{\"n\":{n}}}");
        let probed = transport
            .probe(&fixture::probe_of(&message, payload.as_bytes(), None))
            .await;
        assert!(matches!(probed, Ok(Probed::Found(_))), "{probed:?}");
    }
    let never = fixture::messages(&destination(), 1).remove(0);
    let probed = transport.probe(&fixture::probe_of(&never, b"", None)).await;
    assert!(matches!(probed, Ok(Probed::ProvenAbsent)), "{probed:?}");
    assert_eq!(harness.lines().len(), 5);
}

#[tokio::test]
async fn the_same_id_with_another_body_is_rejected() {
    let harness = Harness::new();
    let transport = harness.transport(&destination());
    let mut message = fixture::messages(&destination(), 1).remove(0);
    at(&fixture::send_one(&transport, &message, AMPLE).await);
    message.body = "other".into();
    let outcome = fixture::send_one(&transport, &message, AMPLE).await;
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
    let twice = fixture::messages(&destination(), 1).remove(0);
    let outcomes = fixture::send(&transport, &[twice.clone(), twice], AMPLE).await;
    assert_eq!(at(&outcomes[0]).0, at(&outcomes[1]).0);
    assert_eq!((at(&outcomes[0]).1, at(&outcomes[1]).1), (false, true));
}

#[tokio::test]
async fn payloads_with_line_breaks_and_bytes_stay_on_one_line() {
    let harness = Harness::new();
    let mut destination = destination();
    let payload = "{\"a\":\n1,\r\n\"b\":\"x\\ny\"}";
    for serializer in [Serializer::CloudeventsStructured, Serializer::Raw] {
        destination.serializer = serializer;
        let transport = harness.transport(&destination);
        let message = fixture::message_of(&destination, &fixture::new_event("1", payload));
        at(&fixture::send_one(&transport, &message, AMPLE).await);
        let probe = fixture::probe_of(&message, payload.as_bytes(), None);
        assert!(matches!(
            transport.probe(&probe).await,
            Ok(Probed::Found(_))
        ));
    }
    let mut event = fixture::new_event("1", "");
    event.payload = vec![0xff, 0x0a, 0x00];
    event.content_type = Some("application/octet-stream".to_owned());
    let transport = harness.transport(&destination);
    let message = fixture::message_of(&destination, &event);
    at(&fixture::send_one(&transport, &message, AMPLE).await);
    let probe = fixture::probe_of(&message, &event.payload, None);
    assert!(matches!(
        transport.probe(&probe).await,
        Ok(Probed::Found(_))
    ));
    let lines = harness.lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["data_base64"], "eyJhIjoKMSwNCiJiIjoieFxueSJ9");
    assert_eq!(lines[1]["body"], payload);
    assert_eq!(lines[2]["bodyBase64"], "/woA");
}

const LIMITED: &str = "POSTRIDER_TEST_FILE_SIZE_IS_LIMITED";

/// Runs the next test again in a process whose files may not grow beyond 4 KiB.
#[test]
fn a_full_disk_is_an_outage_and_leaves_no_half_line() {
    let own = std::env::current_exe().unwrap();
    let status = Command::new("bash")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -S -f 4; exec \"$0\" --exact on_a_full_disk",
        ])
        .arg(own)
        .env(LIMITED, "1")
        .status()
        .unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn on_a_full_disk() {
    let is_limited = std::env::var_os(LIMITED).is_some();
    let harness = Harness::new();
    let transport = harness.transport(&destination());
    let small = fixture::messages(&destination(), 1).remove(0);
    let large = [
        fixture::message_of_size(&destination(), 10),
        fixture::message_of_size(&destination(), 8 * 1024),
    ];
    at(&fixture::send_one(&transport, &small, AMPLE).await);
    let before = std::fs::read(harness.path()).unwrap();
    let outcomes = fixture::send(&transport, &large, AMPLE).await;
    if !is_limited {
        assert!(outcomes.iter().all(|outcome| !at(outcome).1));
        return;
    }
    assert!(
        outcomes
            .iter()
            .all(|outcome| is_outage(outcome, "no_space")),
        "{outcomes:?}"
    );
    assert_eq!(std::fs::read(harness.path()).unwrap(), before);
    // What fits goes through meanwhile, and is where it says.
    let outcome = fixture::send_one(&transport, &large[0], AMPLE).await;
    assert_eq!(at(&outcome), (before.len() as u64, false));
    assert_eq!(harness.lines().len(), 2);
}

#[test]
fn a_definition_that_does_not_fit_is_refused_at_open() {
    let harness = Harness::new();
    let open = |target: &str| {
        let mut destination = destination();
        destination.target = target.to_owned();
        JsonLines::open(&destination, harness.connection())
    };
    assert!(open("events.jsonl").is_ok());
    for target in [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        ".hidden",
        "a\\b",
        "{event_type}.jsonl",
        "a{",
    ] {
        assert!(open(target).is_err(), "{target}");
    }
}
