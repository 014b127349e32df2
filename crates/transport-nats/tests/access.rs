//! Who may do what, and which server is the right one: credentials, TLS, permissions, identity,
//! and what the preflight says of a stream.

mod support;

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::stream::{DiscardPolicy, RetentionPolicy, StorageType};
use postrider_conformance::transport::{Harness as _, fixture};
use postrider_contract::destination::{Durability, OnQuarantine, Ordering};
use postrider_core::{Class, Outcome};
use postrider_transport::{Error, Problem, Provisioning, Severity, Transport, Usage};
use postrider_transport_nats::{Connection, JetStream};
use serde_json::json;
use support::{Current, Harness, MAX_PAYLOAD, Oldest, connection, destination, usage};

const AMPLE: Duration = Duration::from_secs(20);

fn settings(value: serde_json::Value) -> Connection {
    serde_json::from_value(value).expect("valid settings")
}

fn code(outcome: &Outcome) -> (&'static str, &'static str) {
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

async fn send_one(transport: JetStream, stream: &str) -> Outcome {
    let transport: Arc<dyn Transport> = Arc::new(transport);
    fixture::send_one(
        &transport,
        &fixture::messages(&destination(stream), 1)[0],
        AMPLE,
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_credentials_is_accepted() {
    // A key pair from the NATS documentation.
    let seed = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY";
    let public = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
    let nkey = format!("authorization {{ users: [ {{ nkey: {public} }} ] }}");
    let cases = [
        ("authorization { token: abc }", json!({ "token": "abc" })),
        (
            "authorization { user: u, password: p }",
            json!({ "user_password": { "user": "u", "password": "p" } }),
        ),
        (nkey.as_str(), json!({ "nkey_seed": seed })),
    ];
    for (config, credentials) in cases {
        let harness = Harness::<Oldest>::with_config(&["server_name: test", config]).await;
        let settings = settings(json!({
            "servers": [harness.server.url()],
            "credentials": credentials,
        }));
        let transport = JetStream::open(&destination("S"), settings).unwrap();
        transport
            .provision(&usage(), Provisioning::Make)
            .await
            .unwrap();
        assert_eq!(
            code(&send_one(transport, "S").await).0,
            "acknowledged",
            "{config}"
        );

        let anonymous = JetStream::open(&destination("S"), connection(harness.server.port()));
        let anonymous = anonymous.unwrap();
        let error = anonymous.preflight(&usage()).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Misconfigured {
                    code: "not_authorized",
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(
            code(&send_one(anonymous, "S").await),
            ("outage", "not_authorized")
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_works_with_a_private_authority_and_refuses_a_stranger() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let tls = format!(
        "tls {{ cert_file: \"{folder}/server.pem\", key_file: \"{folder}/server.key\", timeout: 5 }}"
    );
    let harness = Harness::<Current>::with_config(&["server_name: test", &tls]).await;
    let url = format!("tls://localhost:{}", harness.server.port());
    let trusting = settings(json!({
        "servers": [url],
        "tls": { "required": true, "ca_file": format!("{folder}/ca.pem") },
    }));
    let transport = JetStream::open(&destination("S"), trusting).unwrap();
    transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert_eq!(code(&send_one(transport, "S").await).0, "acknowledged");

    let stranger = settings(json!({ "servers": [url], "tls": { "required": true } }));
    let stranger = JetStream::open(&destination("S"), stranger).unwrap();
    assert_eq!(code(&send_one(stranger, "S").await).0, "outage");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forbidden_subject_is_an_outage_and_an_allowed_one_goes_through() {
    let users = "authorization { users: [
        { user: admin, password: a }
        { user: relay, password: p, permissions: {
            publish: [ \"S.order.>\", \"$JS.API.STREAM.INFO.S\", \"$JS.API.STREAM.MSG.GET.S\" ]
            subscribe: [ \"_MINE.>\" ] } }
    ] }";
    let harness = Harness::<Oldest>::with_config(&["server_name: test", users]).await;
    let as_user = |user: &str, password: &str| {
        settings(json!({
            "servers": [harness.server.url()],
            "inbox_prefix": "_MINE",
            "credentials": { "user_password": { "user": user, "password": password } },
        }))
    };
    let admin = JetStream::open(&destination("S"), as_user("admin", "a")).unwrap();
    admin.provision(&usage(), Provisioning::Make).await.unwrap();

    let relay = JetStream::open(&destination("S"), as_user("relay", "p")).unwrap();
    let problems = relay.preflight(&usage()).await.unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let relay: Arc<dyn Transport> = Arc::new(relay);
    let allowed = fixture::message_of(&destination("S"), &fixture::new_event("1", "{}"));
    let mut event = fixture::new_event("1", "{}");
    event.event_type = "secret.thing".to_owned();
    let forbidden = fixture::message_of(&destination("S"), &event);
    // Before anything was acknowledged, the refusal is certain.
    let outcome = fixture::send_one(&relay, &forbidden, AMPLE).await;
    assert_eq!(
        code(&outcome),
        ("outage", "permission_denied"),
        "{outcome:?}"
    );
    let both = [forbidden.clone(), allowed.clone()];
    let outcomes = fixture::send(&relay, &both, AMPLE).await;
    assert_eq!(
        code(&outcomes[0]),
        ("outage", "permission_denied"),
        "{outcomes:?}"
    );
    assert_eq!(code(&outcomes[1]).0, "acknowledged", "{outcomes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused_and_an_unnamed_one_warned_of() {
    let harness = Harness::<Oldest>::start().await;
    let mut elsewhere = harness.destination();
    elsewhere.cluster = "production".to_owned();
    let transport = harness.transport(&elsewhere);
    let error = transport.preflight(&usage()).await.unwrap_err();
    assert!(matches!(
        error,
        Error::Misconfigured {
            code: "wrong_cluster",
            ..
        }
    ));
    let text = error.to_string();
    assert!(
        text.contains("\"test\"") && text.contains("\"production\""),
        "{text}"
    );
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let message = fixture::messages(&elsewhere, 1).remove(0);
    let outcome = fixture::send_one(&transport, &message, AMPLE).await;
    assert_eq!(code(&outcome), ("outage", "wrong_cluster"));
    assert!(harness.received().await.is_empty());

    let unnamed = Harness::<Oldest>::with_config(&[]).await;
    let transport = unnamed.transport(&unnamed.destination());
    transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    let problems = transport.preflight(&usage()).await.unwrap();
    assert!(
        problems
            .iter()
            .any(|p| p.code == "cluster_unnamed" && p.severity == Severity::Warning)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jetstream_that_is_off_is_refused_and_an_outage() {
    let mut options =
        postrider_testkit::nats::Options::new(postrider_testkit::env::nats_server_old());
    options.config = vec![
        "server_name: test".to_owned(),
        "accounts { A: { users: [ { user: a, password: a } ] } }".to_owned(),
        "no_auth_user: a".to_owned(),
    ];
    let server = postrider_testkit::Nats::start_with(&options).await.unwrap();
    let transport = JetStream::open(&destination("S"), connection(server.port())).unwrap();
    let refused = match transport.preflight(&usage()).await {
        Ok(problems) => problems.iter().any(|p| p.severity == Severity::Refused),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(code(&send_one(transport, "S").await).0, "outage");
}

/// The problems of a stream after a change.
async fn problems_after(
    harness: &Harness<Current>,
    change: impl FnOnce(&mut async_nats::jetstream::stream::Config),
    usage: &Usage,
    durability: Durability,
) -> Vec<Problem> {
    harness.alter(change).await;
    let mut destination = harness.destination();
    destination.durability = durability;
    harness
        .transport(&destination)
        .preflight(usage)
        .await
        .unwrap()
}

fn has(problems: &[Problem], code: &str, severity: Severity) -> bool {
    problems
        .iter()
        .any(|problem| problem.code == code && problem.severity == severity)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_preflight_names_what_does_not_fit() {
    use Severity::{Refused, Warning};
    let stored = Durability::Stored;
    let harness = Harness::<Current>::start().await;
    let clean = problems_after(&harness, |_| {}, &usage(), stored).await;
    assert!(clean.is_empty(), "{clean:?}");

    let large = Usage {
        message_bytes_max: 1 << 20,
        resend_span: Duration::ZERO,
    };
    let problems = problems_after(&harness, |c| c.max_message_size = 500, &large, stored).await;
    assert!(has(&problems, "size_limit", Warning));
    let text = problems
        .iter()
        .map(|p| p.message.as_str())
        .collect::<String>();
    assert!(
        text.contains("500") && text.contains(&MAX_PAYLOAD.to_string()),
        "{text}"
    );
    assert!(text.contains("1048576"), "{text}");

    let change = |c: &mut async_nats::jetstream::stream::Config| {
        c.max_message_size = -1;
        c.max_messages = 1000;
        c.discard = DiscardPolicy::Old;
        c.max_messages_per_subject = 1;
        c.max_age = Duration::from_secs(300);
    };
    let problems = problems_after(&harness, change, &usage(), Durability::Replicated).await;
    assert!(has(&problems, "discard_old", Warning), "{problems:?}");
    assert!(has(&problems, "max_msgs_per_subject", Warning));
    assert!(has(&problems, "max_age_short", Warning));
    assert!(has(&problems, "replicas_too_few", Refused));
    let problems = problems_after(&harness, |_| {}, &usage(), Durability::Synced).await;
    assert!(has(&problems, "sync_not_visible", Warning));

    let subjects = vec!["elsewhere".to_owned()];
    let problems = problems_after(&harness, |c| c.subjects = subjects, &usage(), stored).await;
    assert!(
        has(&problems, "subjects_not_covered", Refused),
        "{problems:?}"
    );
    let subjects = vec![format!("{}.order.*", harness.stream)];
    let problems = problems_after(&harness, |c| c.subjects = subjects, &usage(), stored).await;
    assert!(
        has(&problems, "subjects_partly_covered", Warning),
        "{problems:?}"
    );

    // Provisioning repairs what it may, says what it did, and does it once.
    let transport = harness.transport(&harness.destination());
    let preview = transport.provision(&usage(), Provisioning::Preview).await;
    let preview = preview.unwrap();
    assert!(preview[0].contains("add the subjects"), "{preview:?}");
    let done = transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert_eq!(done, preview, "what was shown is done, and was not before");
    let again = transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert!(again.is_empty(), "{again:?}");
    let problems = problems_after(&harness, |_| {}, &usage(), stored).await;
    assert!(
        !has(&problems, "subjects_partly_covered", Warning),
        "{problems:?}"
    );
    assert!(
        has(&problems, "discard_old", Warning),
        "somebody's choice is left alone"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_preflight_sees_streams_of_another_kind() {
    let harness = Harness::<Current>::start().await;
    let admin = harness.admin().await;
    let make = |name: &str, storage, retention, no_ack| async_nats::jetstream::stream::Config {
        name: name.to_owned(),
        subjects: vec![format!("{name}.>")],
        storage,
        retention,
        no_ack,
        ..Default::default()
    };
    let file = StorageType::File;
    for (name, config) in [
        (
            "M",
            make("M", StorageType::Memory, RetentionPolicy::Limits, false),
        ),
        ("I", make("I", file, RetentionPolicy::Interest, false)),
        ("W", make("W", file, RetentionPolicy::WorkQueue, false)),
        ("N", make("N", file, RetentionPolicy::Limits, true)),
    ] {
        admin.create_stream(config).await.unwrap();
        let problems = harness
            .transport(&destination(name))
            .preflight(&usage())
            .await
            .unwrap();
        let expect = match name {
            "M" => ("storage_memory", Severity::Warning),
            "I" => ("retention_interest", Severity::Warning),
            "W" => ("retention_workqueue", Severity::Warning),
            _ => ("stream_no_ack", Severity::Refused),
        };
        assert!(has(&problems, expect.0, expect.1), "{name}: {problems:?}");
    }
    let missing = harness
        .transport(&harness.missing())
        .preflight(&usage())
        .await
        .unwrap();
    assert!(
        has(&missing, "stream_missing", Severity::Refused),
        "{missing:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_message_holds_the_later_ones_of_its_key_only() {
    let harness = Harness::<Oldest>::start().await;
    let mut destination = harness.destination();
    destination.ordering = Ordering::Key;
    for on_quarantine in [OnQuarantine::Hold, OnQuarantine::Pass] {
        destination.on_quarantine = on_quarantine;
        let transport = harness.open(&destination);
        fixture::send(&transport, &fixture::messages(&destination, 1), AMPLE).await;
        let of = |key: &str| fixture::message_of(&destination, &fixture::new_event(key, "{}"));
        let large = fixture::message_of_size(&destination, MAX_PAYLOAD);
        let outcomes = fixture::send(&transport, &[of("1"), large, of("1"), of("2")], AMPLE).await;
        let codes: Vec<_> = outcomes.iter().map(|outcome| code(outcome).0).collect();
        let third = match on_quarantine {
            OnQuarantine::Hold => "held",
            OnQuarantine::Pass => "acknowledged",
        };
        assert_eq!(codes, ["acknowledged", "rejected", third, "acknowledged"]);
    }
}

#[test]
fn a_definition_that_does_not_fit_is_refused_at_open() {
    let open = |change: &dyn Fn(&mut postrider_contract::Destination)| {
        let mut destination = destination("S");
        change(&mut destination);
        JetStream::open(&destination, connection(4222))
    };
    assert!(open(&|_| {}).is_ok());
    for change in [
        &(|d: &mut postrider_contract::Destination| d.kind = "http".to_owned())
            as &dyn Fn(&mut postrider_contract::Destination),
        &|d| d.receipt_type = "kafka.offset/1".to_owned(),
        &|d| d.container = None,
        &|d| d.container = Some("a.b".to_owned()),
        &|d| d.target = "orders.{nope}".to_owned(),
        &|d| d.target = "orders.*".to_owned(),
        &|d| d.target = "orders..x".to_owned(),
        &|d| d.target = "$JS.x".to_owned(),
        &|d| d.target = "a b".to_owned(),
    ] {
        assert!(matches!(open(change), Err(Error::Misconfigured { .. })));
    }
}
