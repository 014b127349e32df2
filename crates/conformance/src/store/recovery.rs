//! What becomes of the work of a session that ended.

use std::time::Duration;

use postrider_contract::{Destination, destination::OnUnknown};
use postrider_core::delivery::State;
use postrider_store::{inspect::DeliveryFilter, sessions::Recovered};

use super::{
    StoreHarness,
    exchange::everything,
    fixture::{LEASE, World, acknowledged, destination, event, quarantined, receipt, unknown},
};

fn policies() -> [Destination; 3] {
    let with = |name: &str, on_unknown| Destination {
        on_unknown,
        ..destination(name)
    };
    [
        with("a-resends", OnUnknown::Resend),
        with("b-probes", OnUnknown::Probe),
        with("c-holds", OnUnknown::Hold),
    ]
}

pub async fn an_expired_session_leaves_each_destination_its_policy<H: StoreHarness>() {
    let world = World::<H>::with(&policies()).await;
    let appended = world.append(event("K")).await;
    let dead = world.worker().await;
    let mut attempts = Vec::new();
    for destination in &world.destinations {
        attempts.push(dead.register(*destination, &[appended.position]).await);
    }
    world.clock.advance(LEASE);
    let recovered = world.store.recover_expired(10).await.unwrap();
    assert_eq!(
        recovered,
        [Recovered {
            session: dead.session,
            owner: "worker".to_owned(),
            attempts: 3,
            deliveries: 3,
            lanes: 12,
        }]
    );
    let detail = world.event(appended.event_id).await;
    let states: Vec<State> = detail
        .deliveries
        .iter()
        .map(|delivery| delivery.state)
        .collect();
    assert_eq!(states, [State::Pending, State::Unknown, State::Unknown]);
    for (delivery, attempt) in detail.deliveries.iter().zip(attempts) {
        assert_eq!(delivery.attempts_charged, 0);
        let row = &delivery.attempts[0];
        assert_eq!(
            (row.attempt, row.finished_at),
            (attempt, Some(world.clock.now()))
        );
        assert_eq!(row.outcome.as_deref(), Some("lease_expired_unknown"));
        assert_eq!(row.lease_until, world.clock.now());
    }
    let sessions = world.store.sessions(10).await.unwrap();
    assert_eq!(sessions[0].ended.as_ref().unwrap().0, world.clock.now());

    // The lanes are free, and what is pending is due at once.
    let next = world.worker().await;
    let fetched = next.fetch(world.destinations[0]).await;
    assert_eq!(fetched[0].position, appended.position);
    assert_eq!(fetched[0].first_attempt_ago, Some(LEASE));
    assert!(next.due(world.destinations[1]).await.is_empty());
}

pub async fn an_ended_session_is_settled_as_an_expired_one<H: StoreHarness>() {
    let world = World::<H>::with(&policies()).await;
    let appended = world.append(event("K")).await;
    let worker = world.worker().await;
    for destination in &world.destinations {
        worker.register(*destination, &[appended.position]).await;
    }
    world.clock.step_micros(5);
    world
        .store
        .end_session(worker.session, "shutdown")
        .await
        .unwrap();
    let detail = world.event(appended.event_id).await;
    let states: Vec<State> = detail
        .deliveries
        .iter()
        .map(|delivery| delivery.state)
        .collect();
    assert_eq!(states, [State::Pending, State::Unknown, State::Unknown]);
    let row = &detail.deliveries[0].attempts[0];
    assert_eq!(row.outcome.as_deref(), Some("lease_expired_unknown"));
    assert_eq!(row.lease_until, world.clock.now());
    assert_eq!(world.store.recover_expired(10).await.unwrap(), []);
}

pub async fn recovery_happens_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b"]).await;
    let dead = world.worker().await;
    dead.register(world.destinations[0], &sent).await;
    world.clock.advance(LEASE);
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let handle = world.harness.another_handle().await;
        tasks.push(tokio::spawn(
            async move { handle.recover_expired(10).await },
        ));
    }
    let mut recovered = Vec::new();
    for task in tasks {
        recovered.extend(task.await.unwrap().unwrap());
    }
    assert_eq!(recovered.len(), 1);
    assert_eq!((recovered[0].attempts, recovered[0].deliveries), (1, 2));
    let after = everything(&world).await;
    world.clock.advance(LEASE);
    assert_eq!(world.store.recover_expired(10).await.unwrap(), []);
    assert_eq!(everything(&world).await, after);
}

pub async fn recovery_takes_the_longest_dead_first<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut order = Vec::new();
    for seconds in [2, 3, 1] {
        let mut session = world.new_session(&format!("{seconds}"));
        session.lease = Duration::from_secs(seconds);
        world.store.open_session(&session).await.unwrap();
        order.push((seconds, session.id));
    }
    world.clock.advance(Duration::from_secs(3));
    let first = world.store.recover_expired(2).await.unwrap();
    let owners: Vec<_> = first
        .iter()
        .map(|recovered| recovered.owner.as_str())
        .collect();
    assert_eq!(owners, ["1", "2"]);
    assert_eq!(
        world.store.recover_expired(2).await.unwrap()[0].session,
        order[1].1
    );
    assert_eq!(world.store.recover_expired(2).await.unwrap(), []);
}

pub async fn recovery_leaves_what_was_settled<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world
        .append_all(vec![event("a"), event("b"), event("c"), event("d")])
        .await;
    let at = |n: usize| appended[n].position;
    let alpha = world.destinations[0];
    let dead = world.worker().await;
    let settled = vec![acknowledged(at(0)), quarantined(at(1)), unknown(at(2))];
    dead.attempt(alpha, settled).await;
    // Unfinished, but its only member was closed by evidence in time.
    let open = dead.register(alpha, &[at(3)]).await;
    let evidence = world
        .evidence(open, 0, appended[3].event_id, receipt(4))
        .await;
    world.store.accept_receipts(&[evidence]).await.unwrap();
    let before = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    world.clock.advance(LEASE);
    let recovered = world.store.recover_expired(10).await.unwrap();
    assert_eq!((recovered[0].attempts, recovered[0].deliveries), (1, 0));
    let after = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(after, before);
    let delivery = world.delivery(appended[3].event_id, 0).await;
    assert_eq!(
        delivery.attempts[0].outcome.as_deref(),
        Some("acknowledged")
    );
    assert_eq!(delivery.attempts[0].finished_at, Some(world.clock.now()));
}
