//! One test per row of the table of outcomes, by the real server wherever it can be made to.

mod support;

use std::{sync::Arc, time::Duration};

use postrider_conformance::transport::{Harness as _, fixture};
use postrider_contract::{NewEvent, destination::Ordering};
use postrider_core::Outcome;
use postrider_testkit::{
    Port, Redis, env,
    proxy::{Direction, Flow},
};
use postrider_transport::{Earlier, Message, Transport};
use postrider_transport_redis::RedisStreams;
use serde_json::json;
use support::{
    Forgets, Harness, Remembers, ask, connection, connection_with, destination, entry,
    judge::{Fate, Judge},
    kind, make, number, stored, unique,
};

const AMPLE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(700);

fn kinds(outcomes: &[Outcome]) -> Vec<(&'static str, &'static str)> {
    outcomes.iter().map(kind).collect()
}

/// A server, its stream, and a transport that goes through a judge.
async fn judged() -> (Harness<Remembers>, Judge, Arc<dyn Transport>) {
    let harness = Harness::<Remembers>::start().await;
    let judge = Judge::before(harness.server.port()).await;
    let settings = connection(judge.port, 600_000);
    let transport = RedisStreams::open(&harness.destination(), settings).expect("it opens");
    (harness, judge, Arc::new(transport))
}

#[tokio::test]
async fn each_error_answer_has_its_row_and_appends_nothing() {
    let (harness, judge, transport) = judged().await;
    let sent = fixture::messages(&harness.destination(), 2);
    for (error, code) in [
        ("LOADING Redis is loading the dataset in memory", "loading"),
        ("MASTERDOWN Link with MASTER is down", "master_down"),
        (
            "MISCONF Redis is configured to save RDB snapshots",
            "misconf",
        ),
        (
            "READONLY You can't write against a read only replica.",
            "read_only",
        ),
        ("OOM command not allowed", "out_of_memory"),
        ("CLUSTERDOWN The cluster is down", "cluster_down"),
        ("MOVED 3999 127.0.0.1:1", "moved"),
        ("BUSY Redis is busy running a script", "server_busy"),
        ("NOAUTH Authentication required.", "not_authorized"),
    ] {
        judge.decide(Fate::Answer(format!("-{error}\r\n")));
        let outcomes = fixture::send(&transport, &sent, AMPLE).await;
        assert_eq!(kinds(&outcomes), [("outage", code); 2], "{error}");
    }
    judge.decide(Fate::Answer("-SOMETHING new\r\n".to_owned()));
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(kinds(&outcomes), [("refusal", "refused"); 2]);
    assert_eq!(harness.received().await, []);
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 1).await;
}

#[tokio::test]
async fn an_answer_that_never_came_or_cannot_be_read_is_unknown() {
    let (harness, judge, transport) = judged().await;
    let sent = fixture::messages(&harness.destination(), 2);
    let one_of_two = "*1\r\n$4\r\nA1-0\r\n".to_owned();
    for (fate, patience, code) in [
        (Fate::Cut, AMPLE, "connection_lost"),
        (Fate::Ignored, SHORT, "answer_timeout"),
        (
            Fate::Answer("+OK\r\n".to_owned()),
            AMPLE,
            "answer_unreadable",
        ),
        (Fate::Answer(one_of_two), AMPLE, "answer_unreadable"),
        (
            Fate::Answer("HTTP/1.1 400\r\n".to_owned()),
            AMPLE,
            "connection_lost",
        ),
        (Fate::TakenAndCut, AMPLE, "connection_lost"),
    ] {
        judge.decide(fate.clone());
        let outcomes = fixture::send(&transport, &sent, patience).await;
        assert_eq!(kinds(&outcomes), [("unknown", code); 2], "{fate:?}");
    }
    // The last one was taken: what is sent again is that first copy.
    let again = fixture::send(&transport, &sent, AMPLE).await;
    let entries = stored(harness.server.port(), &harness.stream);
    let ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(again.iter().map(entry).collect::<Vec<_>>(), ids);
}

#[tokio::test]
async fn a_server_killed_between_taking_and_answering_has_each_message_once() {
    let harness = Harness::<Remembers>::start().await;
    let transport = harness.open(&harness.destination());
    let sent = fixture::messages(&harness.destination(), 3);
    fixture::send_until_acknowledged(&transport, &sent[..1], AMPLE, 1).await;
    harness.proxy.set(Direction::ServerToClient, Flow::Hold);
    let sending = tokio::spawn({
        let (transport, sent) = (Arc::clone(&transport), sent.clone());
        async move { fixture::send(&transport, &sent[1..], AMPLE).await }
    });
    postrider_testkit::eventually(AMPLE, "both to be appended", || async {
        number(harness.server.port(), &["XLEN", &harness.stream]) == 3
    })
    .await
    .unwrap();
    harness.server.kill().await.unwrap();
    harness.proxy.reset().await;
    assert_eq!(
        kinds(&sending.await.unwrap()),
        [("unknown", "connection_lost"); 2]
    );
    harness.proxy.heal().await.unwrap();
    harness.server.restart().await.unwrap();
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 40).await;
    assert_eq!(harness.received().await.len(), 3);
}

#[tokio::test]
async fn a_connection_half_closed_by_the_server_is_unknown_and_made_anew() {
    let harness = Harness::<Remembers>::start().await;
    let transport = harness.open(&harness.destination());
    let sent = fixture::messages(&harness.destination(), 3);
    fixture::send_until_acknowledged(&transport, &sent[..1], AMPLE, 1).await;
    harness.proxy.half_close(Direction::ServerToClient);
    let outcomes = fixture::send(&transport, &sent[1..], AMPLE).await;
    assert_eq!(kinds(&outcomes), [("unknown", "connection_lost"); 2]);
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 40).await;
    assert_eq!(harness.received().await.len(), 3);
}

#[tokio::test]
async fn a_command_that_never_left_whole_is_an_outage_and_is_never_carried_out() {
    let harness = Harness::<Remembers>::start().await;
    let transport = harness.open(&harness.destination());
    let destination = harness.destination();
    fixture::send_until_acknowledged(&transport, &fixture::messages(&destination, 1), AMPLE, 1)
        .await;
    harness.proxy.set(Direction::ClientToServer, Flow::Hold);
    // More than all buffers on the way hold.
    let large: Vec<Message> = (0..40)
        .map(|_| fixture::message_of_size(&destination, 700_000))
        .collect();
    let outcomes = fixture::send(&transport, &large, SHORT).await;
    assert_eq!(kinds(&outcomes), [("outage", "not_connected"); 40]);
    harness.proxy.heal().await.unwrap();
    fixture::send_until_acknowledged(&transport, &large[..2], AMPLE, 40).await;
    assert_eq!(harness.received().await.len(), 3);
}

#[tokio::test]
async fn a_limit_lowered_under_a_connection_refuses_a_batch_and_is_learnt() {
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let destination = harness.destination();
    make(&harness.transport(&destination)).await;
    let transport = harness.open(&destination);
    let small = fixture::messages(&destination, 2);
    fixture::send_until_acknowledged(&transport, &small[..1], AMPLE, 1).await;
    harness.ask(&["CONFIG", "SET", "proto-max-bulk-len", "1048576"]);
    let large = fixture::message_of_size(&destination, 2 << 20);
    let sent = [small[1].clone(), large.clone()];
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    // Refused by its protocol, or gone before that was said: nothing was appended either way.
    for outcome in &outcomes {
        assert!(
            matches!(
                kind(outcome),
                ("outage", "protocol_error" | "not_connected") | ("unknown", "connection_lost")
            ),
            "{outcome:?}"
        );
    }
    assert_eq!(harness.received().await.len(), 1);
    transport.look_again().await;
    let outcomes = fixture::send(&transport, &sent, AMPLE).await;
    assert_eq!(kind(&outcomes[1]), ("rejected", "message_too_large"));
    assert_eq!(harness.received().await.len(), 2);
}

#[tokio::test]
async fn what_the_server_itself_refuses_is_named() {
    let harness =
        Harness::<Remembers>::with_config(&["user relay on >S3CRET ~* +@all -evalsha"]).await;
    let port = harness.server.port();
    let destination = harness.destination();
    make(&harness.transport(&destination)).await;
    let sent = fixture::messages(&destination, 2);
    let open = |destination: &_, more: serde_json::Value| -> Arc<dyn Transport> {
        Arc::new(harness.transport_with(destination, &more))
    };
    let check = async |transport: &Arc<dyn Transport>, code: &str| {
        let outcomes = fixture::send(transport, &sent, AMPLE).await;
        assert_eq!(kinds(&outcomes), [("outage", code); 2], "{outcomes:?}");
        assert!(!format!("{outcomes:?} {transport:?}").contains("S3CRET"));
    };
    // Another type under the stream's key.
    let other = unique("other");
    harness.ask(&["SET", &other, "x"]);
    check(
        &open(&support::destination(&other), json!({})),
        "wrong_type",
    )
    .await;
    check(
        &open(&support::destination(&unique("none")), json!({})),
        "stream_missing",
    )
    .await;
    let login = |password: &str| json!({ "user": "relay", "password": password });
    check(&open(&destination, login("no-S3CRET")), "not_authorized").await;
    check(&open(&destination, login("S3CRET")), "permission_denied").await;
    check(
        &open(&destination, json!({ "database": 1_000 })),
        "database_missing",
    )
    .await;
    // Another server's data.
    let marker = format!("{{{}}}:postrider:cluster", harness.stream);
    harness.ask(&["SET", &marker, "staging"]);
    check(&open(&destination, json!({})), "wrong_cluster").await;
    harness.ask(&["SET", &marker, "test"]);
    harness.ask(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    check(&open(&destination, json!({})), "replicas_missing").await;
    harness.ask(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    // A password that is asked for after the connection was made.
    let transport = open(&destination, json!({}));
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 1).await;
    // The script is gone from the server's cache: it is given again, and nothing is noticed.
    harness.ask(&["SCRIPT", "FLUSH"]);
    let more = fixture::messages(&destination, 2);
    fixture::send_until_acknowledged(&transport, &more, AMPLE, 1).await;
    assert_eq!(number(port, &["XLEN", &harness.stream]), 4);
    // Demoted under a connection.
    ask(port, &["REPLICAOF", "127.0.0.1", "1"]).unwrap();
    let outcomes = fixture::send(&transport, &fixture::messages(&destination, 1), AMPLE).await;
    assert!(
        matches!(
            kind(&outcomes[0]),
            ("outage", "read_only" | "not_connected") | ("unknown", "connection_lost")
        ),
        "{outcomes:?}"
    );
    check(&open(&destination, json!({})), "read_only").await;
    assert_eq!(number(port, &["XLEN", &harness.stream]), 4);
}

#[tokio::test]
async fn no_later_message_of_a_key_overtakes_one_that_was_not_accepted() {
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let mut by_type = destination(&format!("{}:{{event_type}}", harness.stream));
    by_type.ordering = Ordering::Key;
    let transport = harness.open(&by_type);
    let message = |event_type: &str, key: &str| {
        let event = NewEvent::new(event_type, "1", "order", key, "{}");
        fixture::message_of(&by_type, &event)
    };
    let there = format!("{}:there", harness.stream);
    harness.ask(&["XGROUP", "CREATE", &there, "g", "$", "MKSTREAM"]);
    let first = [
        message("missing", "a"),
        message("there", "a"),
        message("there", "b"),
    ];
    // Handed over before the first is answered.
    let second = [message("there", "a"), message("there", "c")];
    let (one, two) = tokio::join!(
        fixture::send(&transport, &first, AMPLE),
        fixture::send(&transport, &second, AMPLE),
    );
    let ok = ("acknowledged", "");
    assert_eq!(
        kinds(&one),
        [("outage", "stream_missing"), ("held", "held"), ok]
    );
    assert_eq!(kinds(&two), [("held", "held"), ok]);
    let missing = format!("{}:missing", harness.stream);
    harness.ask(&["XGROUP", "CREATE", &missing, "g", "$", "MKSTREAM"]);
    assert_eq!(
        kinds(&fixture::send(&transport, &first[..2], AMPLE).await),
        [ok, ok]
    );
    assert_eq!(
        kinds(&fixture::send(&transport, &second[..1], AMPLE).await),
        [ok]
    );
    let order: Vec<String> = stored(harness.server.port(), &there)
        .into_iter()
        .map(|(_, received)| received.event_id)
        .collect();
    let expect = [&first[2], &second[1], &first[1], &second[0]];
    assert_eq!(order, expect.map(|message| message.event_id.to_string()));
}

fn earlier(message: &Message, ago: Duration) -> Message {
    let mut message = message.clone();
    message.earlier = Some(Earlier {
        first_sent_ago: ago,
        anchor: None,
    });
    message
}

#[tokio::test]
async fn a_retry_that_the_server_may_have_forgotten_is_looked_up_and_not_stored_again() {
    let harness = Harness::<Remembers>::start().await;
    let destination = harness.destination();
    let port = harness.server.port();
    let open = |more: serde_json::Value| -> Arc<dyn Transport> {
        Arc::new(harness.transport_with(&destination, &more))
    };
    let transport = open(json!({ "dedup_window_ms": 200 }));
    let sent = fixture::messages(&destination, 3);
    let first = fixture::send(&transport, &sent, AMPLE).await;
    let memory = |name: &str| format!("{{{}}}:postrider:{name}", harness.stream);
    let (ids, before) = (memory("ids"), memory("ids-before"));
    postrider_testkit::eventually(AMPLE, "the ids to be forgotten", || async {
        number(port, &["EXISTS", &ids, &before]) == 0
    })
    .await
    .unwrap();
    let late = Duration::from_secs(3_600);
    let never = earlier(&fixture::messages(&destination, 1)[0], late);
    let again = [earlier(&sent[1], late), never];
    let second = fixture::send(&transport, &again, AMPLE).await;
    assert_eq!(entry(&second[0]), entry(&first[1]), "found where it was");
    assert_eq!(
        kind(&second[1]).0,
        "acknowledged",
        "not found, so it was sent"
    );
    assert_eq!(number(port, &["XLEN", &harness.stream]), 4);
    // The same id with another body is no copy.
    let mut other = earlier(&sent[0], late);
    other.body = "{}".into();
    let outcome = fixture::send_one(&transport, &other, AMPLE).await;
    assert_eq!(kind(&outcome), ("rejected", "digest_conflict"));

    // The memory is bounded in ids, too; what fell out of it is looked for.
    let transport = open(json!({ "dedup_ids_max": 20 }));
    let many = fixture::messages(&destination, 60);
    let mut first = Vec::new();
    for part in many.chunks(6) {
        first.extend(fixture::send(&transport, part, AMPLE).await);
        let held = number(port, &["HLEN", &ids]) + number(port, &["HLEN", &before]);
        assert!(held <= 20 + 2 * 6 + 2, "{held} ids are remembered");
    }
    let length = number(port, &["XLEN", &harness.stream]);
    let again: Vec<Message> = many.iter().map(|one| earlier(one, late)).collect();
    let second = fixture::send(&transport, &again, AMPLE).await;
    assert_eq!(
        second.iter().map(entry).collect::<Vec<_>>(),
        first.iter().map(entry).collect::<Vec<_>>()
    );
    assert_eq!(number(port, &["XLEN", &harness.stream]), length);
}

#[tokio::test]
async fn red_1_nothing_is_trimmed_that_a_group_has_not_confirmed() {
    let harness = Harness::<Forgets>::with_config(&[]).await;
    let port = harness.server.port();
    let destination = harness.destination();
    let settings = json!({ "groups": ["slow"], "length_max": 150 });
    let transport = harness.transport_with(&destination, &settings);
    make(&transport).await;
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let stream = harness.stream.as_str();
    let length = || number(port, &["XLEN", stream]);
    let send = async |count| {
        let sent = fixture::messages(&destination, count);
        fixture::send_until_acknowledged(&transport, &sent, AMPLE, 1).await;
    };
    send(500).await;
    assert_eq!(length(), 500, "nobody has read any");
    let read = [
        "XREADGROUP",
        "GROUP",
        "slow",
        "c",
        "COUNT",
        "450",
        "STREAMS",
        stream,
        ">",
    ];
    harness.ask(&read);
    send(1).await;
    assert_eq!(length(), 501, "read is not confirmed");
    let ids: Vec<String> = stored(port, stream).into_iter().map(|(id, _)| id).collect();
    // Everything that was read but the 221st.
    let mut confirm = vec!["XACK", stream, "slow"];
    confirm.extend(
        ids[..450]
            .iter()
            .map(String::as_str)
            .filter(|id| *id != ids[220]),
    );
    harness.ask(&confirm);
    send(1).await;
    let left: Vec<String> = stored(port, stream).into_iter().map(|(id, _)| id).collect();
    assert!(left.len() < 502, "what is confirmed goes");
    assert!(left.contains(&ids[220]), "what is pending stays");
    assert!(
        left.ends_with(&ids[450..]) || left.len() > 52,
        "what is not read stays"
    );
    harness.ask(&["XACK", stream, "slow", &ids[220]]);
    send(1).await;
    let left = length();
    assert!(
        (150..300).contains(&left),
        "{left} are left, whole nodes of 100 at a time"
    );
    // A group that must be there and is not: nothing is known of what it has read.
    harness.ask(&["XGROUP", "DESTROY", stream, "slow"]);
    send(300).await;
    assert_eq!(length(), left + 300);
}

#[tokio::test]
async fn an_acknowledgement_waits_for_the_replicas_that_were_asked_for() {
    use postrider_contract::destination::Durability::Replicated;
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let mut destination = harness.destination();
    destination.durability = Replicated;
    make(&harness.transport(&destination)).await;
    let follow = format!("replicaof 127.0.0.1 {}", harness.server.port());
    let replica = Redis::start_with(&env::redis_server(), &[&follow])
        .await
        .unwrap();
    let transport = harness.open(&destination);
    let sent = fixture::messages(&destination, 3);
    fixture::send_until_acknowledged(&transport, &sent[..1], AMPLE, 40).await;
    assert_eq!(number(replica.port(), &["XLEN", &harness.stream]), 1);
    // Silent, and still connected.
    replica.pause().unwrap();
    let missing = ("unknown", "replicas_missing");
    for _ in 0..2 {
        // The second time the first copy is known, which says nothing of the replica either.
        let outcomes = fixture::send(&transport, &sent[1..], Duration::from_secs(2)).await;
        assert_eq!(kinds(&outcomes), [missing; 2]);
    }
    let anew = harness.open(&destination);
    let outcomes = fixture::send(&anew, &sent[1..], Duration::from_secs(2)).await;
    assert_eq!(
        kinds(&outcomes),
        [missing; 2],
        "nor by a connection that wrote nothing"
    );
    let payload = b"{\"n\":1}";
    let probe = fixture::probe_of(&sent[1], payload, None);
    let probed = transport.probe(&probe).await.unwrap();
    assert!(
        format!("{probed:?}").contains("not shown to be at 1 replicas"),
        "{probed:?}"
    );
    replica.resume().unwrap();
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 40).await;
    let probed = transport.probe(&probe).await.unwrap();
    assert!(format!("{probed:?}").starts_with("Found"), "{probed:?}");
    assert_eq!(number(replica.port(), &["XLEN", &harness.stream]), 3);
}

#[tokio::test]
async fn in_a_cluster_the_server_that_has_the_slot_is_found() {
    let start =
        || async { Redis::start_with(&env::redis_server(), &["cluster-enabled yes"]).await };
    let (one, two) = (start().await.unwrap(), start().await.unwrap());
    let (a, b) = (one.port(), two.port());
    ask(a, &["CLUSTER", "ADDSLOTSRANGE", "0", "8191"]).unwrap();
    ask(b, &["CLUSTER", "ADDSLOTSRANGE", "8192", "16383"]).unwrap();
    let (port, bus) = (b.to_string(), two.bus().to_string());
    ask(a, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).unwrap();
    postrider_testkit::eventually(AMPLE, "the cluster", || async {
        [a, b].iter().all(|port| {
            let info = ask(*port, &["CLUSTER", "INFO"]).unwrap_or_default();
            let info = info.to_string();
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2")
        })
    })
    .await
    .unwrap();
    for _ in 0..4 {
        // Some of these are at the one, some at the other.
        let destination = destination(&unique("orders"));
        let settings = connection_with(a, &json!({ "groups": ["g"], "length_max": 5 }));
        let transport = RedisStreams::open(&destination, settings).unwrap();
        make(&transport).await;
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let sent = fixture::messages(&destination, 3);
        let first = fixture::send(&transport, &sent, AMPLE).await;
        let again = fixture::send(&transport, &sent, AMPLE).await;
        assert_eq!(
            first.iter().map(entry).collect::<Vec<_>>(),
            again.iter().map(entry).collect::<Vec<_>>()
        );
    }
    let scattered = destination("orders:{event_type}");
    let transport: Arc<dyn Transport> =
        Arc::new(RedisStreams::open(&scattered, connection(a, 0)).unwrap());
    let outcome = fixture::send_one(&transport, &fixture::messages(&scattered, 1)[0], AMPLE).await;
    assert_eq!(kind(&outcome), ("outage", "cluster_many_slots"));
}

#[tokio::test]
async fn tls_works_with_a_private_authority_and_refuses_a_stranger() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls");
    let port = Port::take().unwrap();
    let harness = Harness::<Remembers>::with_config(&[
        &format!("tls-port {}", port.number()),
        &format!("tls-cert-file {folder}/server.pem"),
        &format!("tls-key-file {folder}/server.key"),
        &format!("tls-ca-cert-file {folder}/ca.pem"),
        "tls-auth-clients no",
    ])
    .await;
    let destination = harness.destination();
    make(&harness.transport(&destination)).await;
    let servers = [format!("rediss://localhost:{}", port.number())];
    let trusted = json!({ "servers": servers, "tls": { "ca_file": format!("{folder}/ca.pem") } });
    let transport: Arc<dyn Transport> = Arc::new(harness.transport_with(&destination, &trusted));
    let sent = fixture::messages(&destination, 2);
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 1).await;
    let stranger = json!({ "servers": servers });
    let transport: Arc<dyn Transport> = Arc::new(harness.transport_with(&destination, &stranger));
    let outcome = fixture::send_one(&transport, &sent[0], AMPLE).await;
    assert_eq!(kind(&outcome), ("outage", "tls"));
}
