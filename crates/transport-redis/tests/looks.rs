//! What is said of a server before and after sending: preflight, probe, positions.

mod support;

use std::{sync::Arc, time::Duration};

use postrider_conformance::transport::{Harness as _, fixture};
use postrider_contract::destination::{Durability, OnUnknown};
use postrider_core::Outcome;
use postrider_transport::{
    ConsumerPosition, Error, Probed, Problem, Provisioning, Severity, Transport, Usage,
};
use postrider_transport_redis::RedisStreams;
use serde_json::{Value, json};
use support::{
    Forgets, Harness, Memory, Remembers, connection,
    judge::{Fate, Judge},
    make, number, stored, unique, usage,
};

const AMPLE: Duration = Duration::from_secs(20);

fn codes(problems: &[Problem]) -> Vec<(&'static str, Severity)> {
    problems
        .iter()
        .map(|problem| (problem.code, problem.severity))
        .collect()
}

#[tokio::test]
async fn each_problem_is_named_with_its_values() {
    use Severity::{Refused, Warning};
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let stream = harness.stream.as_str();
    let plain = harness.destination();
    let durable = |durability| {
        let mut destination = plain.clone();
        destination.durability = durability;
        destination
    };
    let none = || json!({});
    let check = async |destination: &_, settings: Value, expect: &[(&str, Severity, &str)]| {
        let transport = harness.transport_with(destination, &settings);
        let problems = transport
            .preflight(&usage())
            .await
            .expect("it can be asked");
        let found = codes(&problems);
        let wanted: Vec<_> = expect
            .iter()
            .map(|(code, severity, _)| (*code, *severity))
            .collect();
        assert_eq!(found, wanted, "{problems:?}");
        for (problem, (_, _, says)) in problems.iter().zip(expect) {
            assert!(
                problem.message.contains(says),
                "{says}: {}",
                problem.message
            );
        }
    };
    let set = |name: &str, value: &str| {
        harness.ask(&["CONFIG", "SET", name, value]);
    };
    let unnamed = ("cluster_unnamed", Warning, "\"test\"");
    check(
        &plain,
        none(),
        &[unnamed, ("stream_missing", Refused, stream)],
    )
    .await;
    make(&harness.transport(&plain)).await;
    check(&plain, none(), &[]).await;

    set("maxmemory-policy", "volatile-lru");
    check(&plain, none(), &[("eviction", Warning, "\"volatile-lru\"")]).await;
    set("maxmemory-policy", "allkeys-lru");
    check(&plain, none(), &[("eviction", Warning, "maxmemory 0")]).await;
    set("maxmemory", "1000000000");
    check(
        &plain,
        none(),
        &[("eviction", Refused, "maxmemory 1000000000")],
    )
    .await;
    set("maxmemory-policy", "noeviction");

    let everysec = ("not_synced", Refused, "\"everysec\"");
    check(&durable(Durability::Synced), none(), &[everysec]).await;
    set("appendfsync", "always");
    check(&durable(Durability::Synced), none(), &[]).await;
    set("appendonly", "no");
    check(
        &durable(Durability::Synced),
        none(),
        &[("not_synced", Refused, "appendonly")],
    )
    .await;
    check(
        &plain,
        none(),
        &[("persistence_off", Warning, "save is empty")],
    )
    .await;
    set("save", "3600 1");
    check(&plain, none(), &[("snapshots_only", Warning, "3600 1")]).await;
    set("appendonly", "yes");
    let alone = (
        "replicas_too_few",
        Refused,
        "2 replicas (replicas_min), and 0",
    );
    check(
        &durable(Durability::Replicated),
        json!({ "replicas_min": 2 }),
        &[alone],
    )
    .await;

    check(
        &plain,
        json!({ "groups": ["g"] }),
        &[("group_missing", Warning, "\"g\"")],
    )
    .await;
    let capped = json!({ "groups": ["g"], "length_max": 2 });
    check(
        &plain,
        capped.clone(),
        &[("group_missing", Refused, "\"g\"")],
    )
    .await;
    let open_end = json!({ "length_max": 2 });
    check(
        &plain,
        open_end,
        &[("trim_unprotected", Refused, "length_max is 2")],
    )
    .await;
    make(&harness.transport_with(&plain, &capped)).await;
    let transport = harness.open(&plain);
    fixture::send_until_acknowledged(&transport, &fixture::messages(&plain, 3), AMPLE, 1).await;
    check(&plain, capped, &[("group_behind", Warning, "3 entries")]).await;
    let short = json!({ "dedup_window_ms": 59_000 });
    check(&plain, short, &[("dedup_window_short", Warning, "59s")]).await;
    harness.ask(&["PEXPIRE", stream, "1000000"]);
    check(&plain, none(), &[("stream_expires", Refused, "PERSIST")]).await;
    harness.ask(&["PERSIST", stream]);
    let other = unique("other");
    harness.ask(&["SET", &other, "x"]);
    let wrong = support::destination(&other);
    check(
        &wrong,
        none(),
        &[unnamed, ("wrong_type", Refused, "string")],
    )
    .await;

    set("proto-max-bulk-len", "1048576");
    let large = Usage {
        message_bytes_max: 2_000_000,
        ..usage()
    };
    let problems = harness.transport(&plain).preflight(&large).await.unwrap();
    assert_eq!(codes(&problems), [("size_limit", Warning)]);
    for number in ["2000000", "1048576"] {
        assert!(problems[0].message.contains(number), "{problems:?}");
    }
    // What the server refuses of a batch now, it refuses of the rehearsal too.
    set("maxmemory", "1");
    let refused = harness.transport(&plain).preflight(&usage()).await;
    assert!(
        matches!(
            refused,
            Err(Error::Unavailable {
                code: "out_of_memory",
                ..
            })
        ),
        "{refused:?}"
    );
    set("maxmemory", "0");
    harness.ask(&["SET", &format!("{{{stream}}}:postrider:cluster"), "other"]);
    let refused = harness.transport(&plain).preflight(&usage()).await;
    let Err(Error::Misconfigured {
        code: "wrong_cluster",
        message,
    }) = refused
    else {
        panic!("{refused:?}")
    };
    assert!(
        message.contains("\"other\"") && message.contains("\"test\""),
        "{message}"
    );
    // The server's own id is as good as a name.
    let info = harness.ask(&["INFO", "server"]).to_string();
    let (_, run_id) = info.split_once("run_id:").unwrap();
    let mut by_id = plain.clone();
    by_id.cluster = run_id[..40].to_owned();
    check(&by_id, none(), &[]).await;
}

#[tokio::test]
async fn provision_shows_what_it_makes_and_makes_it_once() {
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let destination = harness.destination();
    let transport = harness.transport_with(&destination, &json!({ "groups": ["g"] }));
    let preview = transport
        .provision(&usage(), Provisioning::Preview)
        .await
        .unwrap();
    assert_eq!(preview.len(), 3, "{preview:?}");
    assert_eq!(number(harness.server.port(), &["DBSIZE"]), 0);
    let made = transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert_eq!(made, preview);
    let nothing: Vec<String> = Vec::new();
    let again = transport
        .provision(&usage(), Provisioning::Make)
        .await
        .unwrap();
    assert_eq!(again, nothing);
    let anew = harness.transport_with(&destination, &json!({ "groups": ["g"] }));
    assert_eq!(
        anew.provision(&usage(), Provisioning::Make).await.unwrap(),
        nothing
    );
    assert_eq!(number(harness.server.port(), &["XLEN", &harness.stream]), 0);
}

/// 200 sends whose acknowledgement is lost, half of them on the way there and half on the way back.
async fn probes_tell_the_truth<M: Memory>() {
    let harness = Harness::<M>::start().await;
    let judge = Judge::before(harness.server.port()).await;
    let mut destination = harness.destination();
    destination.on_unknown = OnUnknown::Probe;
    let settings = connection(judge.port, M::WINDOW_MS);
    let transport: Arc<dyn Transport> =
        Arc::new(RedisStreams::open(&destination, settings).unwrap());
    let mut sent = Vec::new();
    let mut random: u64 = 0x9E37_79B9_7F4A_7C15;
    for message in fixture::messages(&destination, 200) {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        // Exactly half and half in the end.
        let taken = sent.iter().filter(|(_, _, taken)| *taken).count();
        let lost = sent.len() - taken;
        let is_taken = lost >= 100 || (taken < 100 && random >> 63 == 1);
        let anchor = transport
            .anchor(&[Arc::new(message.clone())])
            .await
            .unwrap();
        judge.decide(if is_taken {
            Fate::TakenAndCut
        } else {
            Fate::Cut
        });
        let outcome = fixture::send_one(&transport, &message, AMPLE).await;
        assert!(
            matches!(
                outcome,
                Outcome::Unknown {
                    code: "connection_lost",
                    ..
                }
            ),
            "{outcome:?}"
        );
        sent.push((message, anchor, is_taken));
    }
    let entries = stored(harness.server.port(), &harness.stream);
    let (mut found, mut cannot_tell) = (0, 0);
    for (message, anchor, is_taken) in &sent {
        let probe = fixture::probe_of(message, &message.body, anchor.clone());
        match transport.probe(&probe).await.unwrap() {
            Probed::Found(receipt) => {
                assert!(is_taken, "found what was never taken");
                let id = message.event_id.to_string();
                let entry = entries.iter().find(|(_, one)| one.event_id == id).unwrap();
                assert!(format!("{receipt:?}").contains(&entry.0), "{receipt:?}");
                found += 1;
            }
            Probed::CannotTell { reason } => {
                assert!(!is_taken, "{reason}");
                cannot_tell += 1;
            }
            Probed::ProvenAbsent => panic!("nothing is proven absent here"),
        }
    }
    assert_eq!((found, cannot_tell), (100, 100));
    assert_eq!(entries.len(), 100);
}

#[tokio::test]
async fn two_hundred_probes_tell_the_truth_with_a_memory_of_ids() {
    probes_tell_the_truth::<Remembers>().await;
}

#[tokio::test]
async fn two_hundred_probes_tell_the_truth_by_reading_alone() {
    probes_tell_the_truth::<Forgets>().await;
}

#[tokio::test]
async fn positions_count_what_is_confirmed_and_not_what_was_handed_out() {
    let harness = Harness::<Remembers>::with_config(&[]).await;
    let destination = harness.destination();
    let transport = harness.transport_with(&destination, &json!({ "groups": ["g"] }));
    let missing = transport.positions("g").await;
    assert!(
        matches!(
            missing,
            Err(Error::Misconfigured {
                code: "stream_missing",
                ..
            })
        ),
        "{missing:?}"
    );
    make(&transport).await;
    let transport: Arc<dyn Transport> = Arc::new(transport);
    let stream = harness.stream.as_str();
    let at = async |confirmed: Option<&str>, waiting: u64| {
        let expect = ConsumerPosition {
            place: stream.to_owned(),
            confirmed: confirmed.map(str::to_owned),
            waiting: Some(waiting),
            exact: true,
        };
        assert_eq!(transport.positions("g").await.unwrap(), [expect]);
    };
    at(None, 0).await;
    let sent = fixture::messages(&destination, 6);
    fixture::send_until_acknowledged(&transport, &sent, AMPLE, 1).await;
    at(None, 6).await;
    let ids: Vec<String> = stored(harness.server.port(), stream)
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    harness.ask(&[
        "XREADGROUP",
        "GROUP",
        "g",
        "c",
        "COUNT",
        "5",
        "STREAMS",
        stream,
        ">",
    ]);
    at(None, 6).await;
    harness.ask(&["XACK", stream, "g", &ids[0], &ids[1], &ids[3]]);
    // The fourth is confirmed, and not with all before it.
    at(Some(&ids[1]), 3).await;
    harness.ask(&["XACK", stream, "g", &ids[2], &ids[4]]);
    at(Some(&ids[4]), 1).await;
    for (consumer, code) in [("nobody", "group_missing")] {
        let answer = transport.positions(consumer).await;
        let Err(Error::Misconfigured { code: found, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(found, code);
    }
    let several = harness.transport(&support::destination("orders:{event_type}"));
    let answer = several.positions("g").await;
    assert!(
        matches!(
            answer,
            Err(Error::Misconfigured {
                code: "positions_unknown",
                ..
            })
        ),
        "{answer:?}"
    );
}
