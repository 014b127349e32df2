//! Evidence: a true acknowledgement is kept, however late; a false one changes nothing silently.

use postrider_contract::{Destination, Digest, EventId, destination::OnUnknown};
use postrider_core::{AttemptId, DestinationId, Position, delivery::State};
use postrider_store::evidence::{Evidence, Verdict};
use uuid::Uuid;

use super::{
    StoreHarness,
    exchange::everything,
    fixture::{
        LEASE, World, acknowledged, destination, event, quarantined, receipt, retry, unknown,
    },
};

pub async fn a_late_receipt_of_a_dead_session_wins_the_slot<H: StoreHarness>() {
    let holds = Destination {
        on_unknown: OnUnknown::Hold,
        ..destination("alpha")
    };
    let world = World::<H>::with(&[holds]).await;
    let appended = world.append_all(vec![event("a"), event("b")]).await;
    let dead = world.worker().await;
    let both = [appended[0].position, appended[1].position];
    let attempt = dead.register(world.destinations[0], &both).await;
    world.clock.advance(LEASE);
    // One before anybody noticed, one after the recovery made it unknown.
    let first = world
        .evidence(attempt, 0, appended[0].event_id, receipt(1))
        .await;
    assert_eq!(
        world.store.accept_receipts(&[first]).await.unwrap(),
        [Verdict::Primary]
    );
    world.store.recover_expired(10).await.unwrap();
    assert_eq!(
        world.delivery(appended[1].event_id, 0).await.state,
        State::Unknown
    );
    let second = world
        .evidence(attempt, 0, appended[1].event_id, receipt(2))
        .await;
    assert_eq!(
        world.store.accept_receipts(&[second]).await.unwrap(),
        [Verdict::Primary]
    );
    for (appended, sequence) in appended.iter().zip([1, 2]) {
        let delivery = world.delivery(appended.event_id, 0).await;
        assert_eq!(delivery.state, State::Acknowledged);
        let kept = delivery.receipt.unwrap();
        assert_eq!((kept.attempt, kept.receipt), (attempt, receipt(sequence)));
        assert_eq!((kept.late, kept.accepted_at), (true, world.clock.now()));
    }
}

pub async fn a_late_receipt_after_another_is_a_duplicate_kept_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let dead = world.worker().await;
    let lost = dead.register(alpha, &[appended.position]).await;
    world.clock.advance(LEASE);
    world.store.recover_expired(10).await.unwrap();
    let next = world.worker().await;
    let won = next
        .attempt(alpha, vec![acknowledged(appended.position)])
        .await;

    let late = world
        .evidence(lost, 0, appended.event_id, receipt(77))
        .await;
    for _ in 0..3 {
        world.clock.step_micros(1);
        let verdicts = world
            .store
            .accept_receipts(&[late.clone(), late.clone()])
            .await
            .unwrap();
        assert_eq!(verdicts, [Verdict::Duplicate, Verdict::Duplicate]);
    }
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(delivery.receipt.unwrap().attempt, won);
    assert_eq!(delivery.duplicates.len(), 1);
    let kept = &delivery.duplicates[0];
    assert_eq!(
        (kept.attempt, &kept.receipt, kept.late),
        (lost, &receipt(77), true)
    );
    // Other evidence of the same attempt is another copy, and kept too.
    let mut copy = late;
    copy.receipt = receipt(78);
    world.store.accept_receipts(&[copy]).await.unwrap();
    assert_eq!(
        world.delivery(appended.event_id, 0).await.duplicates.len(),
        2
    );
}

pub async fn the_primary_receipt_again_is_still_primary<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append_all(vec![event("a"), event("b")]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    // Settled and the answer lost; and handed in twice.
    let settled = worker
        .attempt(alpha, vec![acknowledged(appended[0].position)])
        .await;
    let sequence = u64::try_from(appended[0].position.0).unwrap();
    let by_settle = world
        .evidence(settled, 0, appended[0].event_id, receipt(sequence))
        .await;
    let open = worker.register(alpha, &[appended[1].position]).await;
    let by_evidence = world
        .evidence(open, 0, appended[1].event_id, receipt(9))
        .await;
    world
        .store
        .accept_receipts(std::slice::from_ref(&by_evidence))
        .await
        .unwrap();
    let before = everything(&world).await;
    world.clock.step_micros(1);
    let verdicts = world
        .store
        .accept_receipts(&[by_settle.clone(), by_evidence])
        .await
        .unwrap();
    assert_eq!(verdicts, [Verdict::Primary, Verdict::Primary]);
    assert_eq!(everything(&world).await, before);
    let mut other = by_settle;
    other.receipt = receipt(sequence + 1);
    assert_eq!(
        world.store.accept_receipts(&[other]).await.unwrap(),
        [Verdict::Duplicate]
    );
}

pub async fn evidence_closes_any_open_delivery<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let minute = std::time::Duration::from_secs(60);
    let outcomes: [fn(Position) -> postrider_store::dispatch::Settled; 3] =
        [unknown, quarantined, |position| {
            retry(position, 1, std::time::Duration::from_secs(60))
        }];
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let appended = world.append(event(&format!("key-{number}"))).await;
        let attempt = worker
            .attempt(alpha, vec![outcome(appended.position)])
            .await;
        let evidence = world
            .evidence(attempt, 0, appended.event_id, receipt(5))
            .await;
        assert_eq!(
            world.store.accept_receipts(&[evidence]).await.unwrap(),
            [Verdict::Primary]
        );
        let delivery = world.delivery(appended.event_id, 0).await;
        assert_eq!(
            (delivery.state, delivery.quarantine),
            (State::Acknowledged, None)
        );
        // The attempt's own outcome is history.
        assert_ne!(
            delivery.attempts[0].outcome.as_deref(),
            Some("acknowledged")
        );
    }
    world.clock.advance(minute / 4);
    assert!(worker.due(alpha).await.is_empty());
    let quarantined = postrider_store::inspect::ReplaySelection::default();
    assert_eq!(
        world
            .store
            .quarantined(&quarantined, None, 10)
            .await
            .unwrap()
            .rows,
        []
    );
}

pub async fn evidence_that_overtakes_a_live_attempt_makes_its_receipt_a_duplicate<
    H: StoreHarness,
>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let first = worker.attempt(
        alpha,
        vec![retry(appended.position, 0, std::time::Duration::ZERO)],
    );
    let first = first.await;
    let second = worker.register(alpha, &[appended.position]).await;
    let late = world
        .evidence(first, 0, appended.event_id, receipt(1))
        .await;
    world.store.accept_receipts(&[late]).await.unwrap();
    let answer = worker
        .settle(alpha, second, vec![acknowledged(appended.position)])
        .await;
    assert_eq!(answer.duplicates, 1);
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(delivery.receipt.unwrap().attempt, first);
    assert_eq!(delivery.duplicates[0].attempt, second);
}

pub async fn evidence_for_something_else_is_a_finding<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let appended = world.append_all(vec![event("a"), event("b")]).await;
    let worker = world.worker().await;
    let attempt = worker
        .register(world.destinations[0], &[appended[0].position])
        .await;
    let good = world
        .evidence(attempt, 0, appended[0].event_id, receipt(1))
        .await;
    let cases: Vec<(&str, Evidence)> = vec![
        (
            "receipt_without_attempt",
            Evidence {
                attempt: AttemptId(Uuid::new_v4()),
                ..good.clone()
            },
        ),
        (
            "receipt_without_attempt",
            world
                .evidence(attempt, 0, appended[1].event_id, receipt(1))
                .await,
        ),
        (
            "receipt_without_attempt",
            world
                .evidence(attempt, 1, appended[0].event_id, receipt(1))
                .await,
        ),
        (
            "receipt_without_attempt",
            Evidence {
                destination: DestinationId(99),
                ..good.clone()
            },
        ),
        (
            "receipt_without_attempt",
            Evidence {
                position: Position(i64::MAX),
                ..good.clone()
            },
        ),
        (
            "receipt_other_event",
            Evidence {
                event_id: EventId(Uuid::new_v4()),
                ..good.clone()
            },
        ),
        (
            "receipt_other_generation",
            Evidence {
                generation: 2,
                ..good.clone()
            },
        ),
    ];
    let before = everything(&world).await;
    for (code, evidence) in cases {
        let known = world.harness.findings().await.len();
        for _ in 0..2 {
            let verdicts = world
                .store
                .accept_receipts(std::slice::from_ref(&evidence))
                .await;
            let [Verdict::Mismatch { finding }] = &verdicts.unwrap()[..] else {
                panic!("{evidence:?} was accepted");
            };
            let findings = world.harness.findings().await;
            assert_eq!(findings.len(), known + 1, "the same finding is kept once");
            let last = findings.last().unwrap();
            assert_eq!((last.code.as_str(), &last.detail), (code, finding));
        }
    }
    assert_eq!(everything(&world).await, before);
    assert_eq!(
        world.store.accept_receipts(&[good]).await.unwrap(),
        [Verdict::Primary]
    );
}

pub async fn evidence_with_another_digest_quarantines<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world
        .append_all(vec![event("a"), event("b"), event("a")])
        .await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let members: Vec<Position> = appended.iter().map(|appended| appended.position).collect();
    let attempt = worker.register(alpha, &members[..2]).await;
    let other = Digest::of_bytes(b"another payload");
    let payload = Evidence {
        payload_digest: other,
        ..world
            .evidence(attempt, 0, appended[0].event_id, receipt(1))
            .await
    };
    let destination = Evidence {
        destination_digest: Digest::of_canonical("{}"),
        ..world
            .evidence(attempt, 0, appended[1].event_id, receipt(2))
            .await
    };
    let verdicts = world
        .store
        .accept_receipts(&[payload.clone(), destination])
        .await
        .unwrap();
    assert!(
        verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Mismatch { .. }))
    );
    let codes: Vec<String> = world
        .harness
        .findings()
        .await
        .into_iter()
        .map(|finding| finding.code)
        .collect();
    assert_eq!(
        codes,
        ["receipt_other_payload", "receipt_other_destination"]
    );
    for appended in &appended[..2] {
        let delivery = world.delivery(appended.event_id, 0).await;
        assert_eq!(delivery.state, State::Quarantined);
        let reason = delivery.quarantine.unwrap();
        assert_eq!(
            (reason.code.as_str(), reason.since),
            ("digest_conflict", world.clock.now())
        );
        assert!(!reason.detail.is_empty());
    }
    // It holds its key, and a true receipt still closes it.
    assert!(worker.due(alpha).await.is_empty());
    let settled = vec![acknowledged(members[0]), acknowledged(members[1])];
    assert_eq!(worker.settle(alpha, attempt, settled).await.duplicates, 0);
    assert_eq!(worker.due(alpha).await, members[2..]);

    // About a closed delivery it is a finding, and nothing else.
    let before = everything(&world).await;
    world.store.accept_receipts(&[payload]).await.unwrap();
    assert_eq!(everything(&world).await, before);
    assert_eq!(world.harness.findings().await.len(), 2);
}
