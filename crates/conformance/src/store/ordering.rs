//! Order of a key, and what must never wait for it (I15, I18).

use std::time::Duration;

use postrider_contract::{
    Destination,
    destination::{OnQuarantine, Ordering},
    key,
};
use postrider_core::{Position, delivery::State};
use postrider_store::dispatch::{Fetch, Settled};

use super::{
    CallerTransaction, StoreHarness,
    fixture::{
        Worker, World, acknowledged, destination, event, positions, quarantined, receipt, retry,
        unknown,
    },
};

const MINUTE: Duration = Duration::from_secs(60);

fn ordered(ordering: Ordering, on_quarantine: OnQuarantine) -> Destination {
    Destination {
        ordering,
        on_quarantine,
        ..destination("alpha")
    }
}

/// K, L, K, L: the first K gets `outcome`; answers what is due then, as indices.
async fn due_after<H: StoreHarness>(
    destination: Destination,
    outcome: impl Fn(Position) -> Settled,
) -> Vec<usize> {
    let world = World::<H>::with(&[destination]).await;
    let sent = world.append_keys(&["K", "L", "K", "L"]).await;
    let worker = world.worker().await;
    worker
        .attempt(world.destinations[0], vec![outcome(sent[0])])
        .await;
    let due = worker.due(world.destinations[0]).await;
    due.iter()
        .map(|due| sent.iter().position(|sent| sent == due).unwrap())
        .collect()
}

pub async fn a_waiting_delivery_holds_the_later_ones_of_its_key<H: StoreHarness>() {
    let wait = |position| retry(position, 0, MINUTE);
    for ordering in [Ordering::Key, Ordering::Strict] {
        assert_eq!(
            due_after::<H>(ordered(ordering, OnQuarantine::Hold), wait).await,
            [1, 3]
        );
    }
    let none = ordered(Ordering::None, OnQuarantine::Hold);
    assert_eq!(due_after::<H>(none, wait).await, [1, 2, 3]);
}

pub async fn an_unknown_delivery_holds_the_later_ones_of_its_key<H: StoreHarness>() {
    for ordering in [Ordering::Key, Ordering::Strict] {
        assert_eq!(
            due_after::<H>(ordered(ordering, OnQuarantine::Pass), unknown).await,
            [1, 3]
        );
    }
    let none = ordered(Ordering::None, OnQuarantine::Hold);
    assert_eq!(due_after::<H>(none, unknown).await, [1, 2, 3]);
}

pub async fn a_quarantined_delivery_holds_its_key_where_the_destination_says_so<H: StoreHarness>() {
    for ordering in [Ordering::Key, Ordering::Strict] {
        let hold = ordered(ordering, OnQuarantine::Hold);
        assert_eq!(due_after::<H>(hold, quarantined).await, [1, 3]);
        let pass = ordered(ordering, OnQuarantine::Pass);
        assert_eq!(due_after::<H>(pass, quarantined).await, [1, 2, 3]);
    }
    let none = ordered(Ordering::None, OnQuarantine::Hold);
    assert_eq!(due_after::<H>(none, quarantined).await, [1, 2, 3]);
}

pub async fn a_quarantined_delivery_below_the_scan_lets_its_key_pass<H: StoreHarness>() {
    let world = World::<H>::with(&[ordered(Ordering::Key, OnQuarantine::Pass)]).await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "K"]).await;
    let worker = world.worker().await;
    worker.attempt(alpha, vec![quarantined(sent[0])]).await;
    let fetch = Fetch {
        after: sent[0],
        ..worker.front(alpha)
    };
    let answer = worker.fetch_with(alpha, fetch).await;
    assert_eq!(positions(&answer.fetched), sent[1..]);
}

pub async fn a_held_key_holds_nothing_at_another_destination<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["K", "K"]).await;
    let worker = world.worker().await;
    worker
        .attempt(world.destinations[0], vec![unknown(sent[0])])
        .await;
    assert!(worker.due(world.destinations[0]).await.is_empty());
    assert_eq!(worker.due(world.destinations[1]).await, sent);
}

pub async fn what_holds_a_key_is_shown_with_its_tail<H: StoreHarness>() {
    let world = World::<H>::with(&[
        destination("alpha"),
        Destination {
            ordering: Ordering::None,
            ..destination("beta")
        },
    ])
    .await;
    let events = vec![event("K"), event("L"), event("K"), event("K")];
    let appended = world.append_all(events).await;
    let at = |n: usize| appended[n].position;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let held = async |position| world.store.held_by(alpha, position).await.unwrap();
    assert_eq!(held(at(2)).await, None);
    worker.attempt(alpha, vec![retry(at(0), 1, MINUTE)]).await;
    for n in [0, 2, 3] {
        let held = held(at(n)).await.unwrap();
        assert_eq!((held.head, held.head_event), (at(0), appended[0].event_id));
        assert_eq!((held.head_state, held.tail.value), (State::Pending, 2));
        let wait = held.head_available_at.unix_micros() - world.clock.now().unix_micros();
        assert_eq!(wait, 60_000_000);
    }
    assert_eq!(held(at(1)).await, None);
    assert_eq!(held(Position(at(3).0 + 1000)).await, None);
    world.clock.advance(MINUTE / 4);
    worker.attempt(alpha, vec![quarantined(at(0))]).await;
    assert_eq!(held(at(2)).await.unwrap().head_state, State::Quarantined);
    worker
        .attempt(world.destinations[1], vec![unknown(at(0))])
        .await;
    let unordered = world
        .store
        .held_by(world.destinations[1], at(2))
        .await
        .unwrap();
    assert_eq!(unordered, None);
}

pub async fn a_retry_below_the_scan_holds_its_key<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "L", "K", "L"]).await;
    let worker = world.worker().await;
    worker.attempt(alpha, vec![retry(sent[0], 1, MINUTE)]).await;
    world.clock.advance(MINUTE / 4);
    worker.attempt(alpha, vec![acknowledged(sent[1])]).await;
    let scan = async |after: Position, exclude: &[Position]| {
        let fetch = Fetch {
            after,
            exclude: exclude.to_vec(),
            ..worker.front(alpha)
        };
        positions(&worker.fetch_with(alpha, fetch).await.fetched)
    };
    // Waiting, then due again: a scan that starts above it must not overtake it.
    assert_eq!(scan(sent[1], &[]).await, [sent[3]]);
    // In hand though it waits, after a clock stepped back: what follows it is read behind it.
    assert_eq!(scan(Position::START, &sent[..1]).await, [sent[2], sent[3]]);
    let beat = world.store.heartbeat(worker.session, 2 * MINUTE, &[]).await;
    beat.unwrap();
    world.clock.advance(MINUTE);
    assert_eq!(scan(sent[1], &[]).await, [sent[3]]);
    // Being sent again: the rest may follow it.
    assert_eq!(scan(sent[1], &sent[..1]).await, [sent[2], sent[3]]);
    assert_eq!(
        scan(Position::START, &[]).await,
        [sent[0], sent[2], sent[3]]
    );
    worker.attempt(alpha, vec![acknowledged(sent[0])]).await;
    assert_eq!(scan(sent[1], &[]).await, [sent[2], sent[3]]);
}

pub async fn a_replayed_head_below_the_scan_holds_its_key<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "K"]).await;
    let worker = world.worker().await;
    worker.attempt(alpha, vec![quarantined(sent[0])]).await;
    let selection = postrider_store::inspect::ReplaySelection::default();
    world
        .store
        .replay(&selection, 10, &super::fixture::audit("fixed"))
        .await
        .unwrap();
    let new = world.append_keys(&["K"]).await;
    let fetch = Fetch {
        after: sent[1],
        ..worker.front(alpha)
    };
    assert!(worker.fetch_with(alpha, fetch).await.fetched.is_empty());
    assert_eq!(worker.drain(alpha).await, [sent[0], sent[1], new[0]]);
}

pub async fn a_tail_released_by_evidence_leaves_in_order<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let head = world.append(event("K")).await;
    let tail = world.append_keys(&["K", "K"]).await;
    let worker = world.worker().await;
    let attempt = worker.attempt(alpha, vec![unknown(head.position)]).await;
    let evidence = world.evidence(attempt, 0, head.event_id, receipt(1)).await;
    world.store.accept_receipts(&[evidence]).await.unwrap();
    let new = world.append_keys(&["K"]).await;
    // The worker's scan had passed the tail while it was held.
    let above = Fetch {
        after: tail[1],
        ..worker.front(alpha)
    };
    assert!(
        worker
            .fetch_with(alpha, above.clone())
            .await
            .fetched
            .is_empty()
    );
    let front = worker.due(alpha).await;
    assert_eq!(front, [tail[0], tail[1], new[0]]);
    let in_flight = Fetch {
        exclude: front,
        ..above
    };
    assert!(worker.fetch_with(alpha, in_flight).await.fetched.is_empty());
}

pub async fn ord_1_what_commits_late_is_still_sent<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let mut early = world.harness.begin().await;
    let first = early.append(vec![event("a")]).await.unwrap()[0];
    if !H::CONCURRENT_WRITERS {
        // The second writer waits, so there is no hole: positions appear in order.
        let other = world.harness.another_handle().await;
        let second = tokio::spawn(async move { other.append(vec![event("b")]).await });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        early.commit().await;
        let second = second.await.unwrap().unwrap()[0];
        assert!(second.position > first.position);
        assert_eq!(worker.drain(alpha).await, [first.position, second.position]);
        return;
    }
    let second = world.append(event("b")).await;
    assert!(second.position > first.position);
    assert_eq!(worker.drain(alpha).await, [second.position]);
    early.commit().await;
    // The next pass from the front finds it, once; and it does not wait for anybody.
    assert_eq!(worker.drain(alpha).await, [first.position]);
    assert_eq!(
        world.delivery(first.event_id, 0).await.state,
        State::Acknowledged
    );
    assert_eq!(
        world.delivery(second.event_id, 0).await.state,
        State::Acknowledged
    );
}

pub async fn ord_1_a_settled_run_does_not_swallow_a_late_commit<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    if !H::CONCURRENT_WRITERS {
        return; // no hole can open inside a run
    }
    let mut run = vec![world.append(event("a")).await.position];
    let mut early = world.harness.begin().await;
    let inside = early.append(vec![event("b")]).await.unwrap()[0];
    run.extend(world.append_keys(&["c", "d"]).await);
    let attempt = worker.register(alpha, &run).await;
    early.commit().await;
    worker
        .settle(
            alpha,
            attempt,
            run.iter().copied().map(acknowledged).collect(),
        )
        .await;
    assert_eq!(worker.due(alpha).await, [inside.position]);
    assert_eq!(world.delivery(inside.event_id, 0).await.receipt, None);
}

pub async fn ord_1_a_rolled_back_position_delays_nobody<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let mut early = world.harness.begin().await;
    early.append(vec![event("a")]).await.unwrap();
    if !H::CONCURRENT_WRITERS {
        early.roll_back().await;
        let second = world.append(event("b")).await;
        assert_eq!(worker.drain(alpha).await, [second.position]);
        return;
    }
    let second = world.append(event("b")).await;
    assert_eq!(worker.drain(alpha).await, [second.position]);
    early.roll_back().await;
    let third = world.append(event("c")).await;
    assert_eq!(worker.drain(alpha).await, [third.position]);
}

pub async fn ord_1_a_fetch_says_what_may_still_appear<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let horizon = async || {
        let fetch = worker.front(alpha);
        worker.fetch_with(alpha, fetch).await.horizon
    };
    let mut early = world.harness.begin().await;
    early.append(vec![event("a")]).await.unwrap();
    if !H::CONCURRENT_WRITERS {
        early.commit().await;
        assert_eq!(horizon().await, None, "positions appear in order");
        return;
    }
    let horizon = async || horizon().await.expect("positions appear out of order");
    let before = horizon().await;
    world.append(event("b")).await;
    let seen = horizon().await;
    assert!(before.number <= seen.number && before.over <= seen.over);
    assert!(seen.over < before.number, "{before:?} {seen:?}");
    early.commit().await;
    // Whatever else runs on that server counts too, until it ends.
    while horizon().await.over < seen.number {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn a_long_foreign_transaction_delays_nobody<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let foreign = world.harness.foreign_transaction().await;
    let appended = world.append(event("a")).await;
    let worker = world.worker().await;
    assert_eq!(
        worker.drain(world.destinations[0]).await,
        [appended.position]
    );
    assert_eq!(
        world.delivery(appended.event_id, 0).await.state,
        State::Acknowledged
    );
    drop(foreign);
}

pub async fn ord_3_a_second_worker_never_overtakes_a_key<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    // L in another lane than K, as two workers need.
    let lane_of = |key: &str| key::lane(key::hash(key), 4);
    let other_lane = (0..100)
        .map(|n| format!("L{n}"))
        .find(|key| lane_of(key) != lane_of("K"))
        .unwrap();
    let sent = world.append_keys(&["K", "K", &other_lane]).await;
    let holder_lane = postrider_core::Lane(lane_of("K"));

    let mut first = world.session("first").await;
    let mut second = world.session("second").await;
    first = first.claim_all(&world.destinations).await;
    let others: Vec<_> = first.lanes[&alpha]
        .iter()
        .copied()
        .filter(|lane| *lane != holder_lane)
        .collect();
    world
        .store
        .release_lanes(first.session, alpha, &others)
        .await
        .unwrap();
    first.lanes.insert(alpha, vec![holder_lane]);
    second = second.claim_all(&world.destinations).await;
    assert!(!second.lanes[&alpha].contains(&holder_lane));

    // The first one is sending K/1: the second gets L, never K/2.
    let in_publish = first.register(alpha, &sent[..1]).await;
    assert_eq!(second.due(alpha).await, sent[2..]);
    // K/1 fails once: K/2 waits with it, for everybody.
    first
        .settle(alpha, in_publish, vec![retry(sent[0], 1, MINUTE / 4)])
        .await;
    assert!(first.due(alpha).await.is_empty());
    assert_eq!(second.due(alpha).await, sent[2..]);
    world.clock.advance(MINUTE / 4);
    assert_eq!(first.due(alpha).await, sent[..2]);
    first.attempt(alpha, vec![acknowledged(sent[0])]).await;
    assert_eq!(first.due(alpha).await, [sent[1]]);
}

pub async fn a_lane_handed_over_keeps_its_order<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "K", "K"]).await;
    let first = world.worker().await;
    first.attempt(alpha, vec![acknowledged(sent[0])]).await;
    world
        .store
        .release_lanes(first.session, alpha, &first.lanes[&alpha])
        .await
        .unwrap();
    let second: Worker = world.worker().await;
    assert_eq!(second.drain(alpha).await, sent[1..]);
}
