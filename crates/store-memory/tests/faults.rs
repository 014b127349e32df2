//! Faults on request: a call fails before its commit or after it, and the difference is there.

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
};

use postrider_conformance::store::{
    StoreHarness,
    fixture::{World, acknowledged, event},
    memory::Memory,
};
use postrider_core::delivery::State;
use postrider_store::{
    AppendError, Clock, ExchangeError, Store, StoreError, clock::ManualClock, dispatch::Settlement,
};
use postrider_store_memory::{
    MemoryStore,
    faults::{Call, Fate},
};

/// Gives these fates to the calls of one kind, in order; everything else proceeds.
fn script(store: &MemoryStore, call: Call, fates: &[Fate]) -> Arc<Mutex<Vec<Call>>> {
    let mut fates: VecDeque<Fate> = fates.iter().copied().collect();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    store.set_faults(move |made| {
        log.lock().unwrap().push(made);
        if made == call {
            return fates.pop_front().unwrap_or(Fate::Proceed);
        }
        Fate::Proceed
    });
    seen
}

fn is_unavailable(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { .. })
}

#[tokio::test]
async fn a_failed_append_happened_or_not_and_is_asked_again() {
    let world = World::<Memory>::new().await;
    let store = world.harness.memory();
    for (fate, already) in [(Fate::FailBefore, false), (Fate::FailAfter, true)] {
        script(&store, Call::Append, &[fate]);
        let given = event("k");
        match store.append(vec![given.clone()]).await {
            Err(AppendError::Store(error)) => assert!(is_unavailable(&error), "{error}"),
            other => panic!("{fate:?} gave {other:?}"),
        }
        assert_eq!(world.append(given).await.already, already, "{fate:?}");
    }
}

#[tokio::test]
async fn a_settlement_with_a_lost_answer_is_sent_again() {
    let world = World::<Memory>::new().await;
    let store = world.harness.memory();
    let appended = world.append(event("k")).await;
    let worker = world.worker().await;
    let attempt = worker
        .register(world.destinations[0], &[appended.position])
        .await;
    let mut exchange = worker.exchange(world.destinations[0]);
    exchange.settle = vec![Settlement {
        attempt,
        members: vec![acknowledged(appended.position)],
    }];
    let seen = script(&store, Call::Exchange, &[Fate::FailBefore, Fate::FailAfter]);
    for committed in [State::Pending, State::Acknowledged] {
        match store.exchange(&exchange).await {
            Err(ExchangeError::Store(error)) => assert!(is_unavailable(&error), "{error}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.delivery(appended.event_id, 0).await.state, committed);
    }
    assert_eq!(worker.run(&exchange).await.duplicates, 0);
    let exchanges = seen
        .lock()
        .unwrap()
        .iter()
        .filter(|call| **call == Call::Exchange)
        .count();
    assert_eq!(exchanges, 3);

    store.clear_faults();
    assert_eq!(world.delivery(appended.event_id, 0).await.duplicates, []);
}

#[tokio::test]
async fn a_commit_with_a_lost_answer_is_there() {
    let world = World::<Memory>::new().await;
    let store = world.harness.memory();
    for (fate, there) in [(Fate::FailBefore, false), (Fate::FailAfter, true)] {
        let given = event("k");
        let id = given.event_id.unwrap();
        let transaction = store.begin();
        transaction.append(&[given]).unwrap();
        transaction.put_row(&id.to_string(), "placed").unwrap();
        script(&store, Call::Commit, &[fate]);
        let error = transaction.commit().unwrap_err();
        assert!(is_unavailable(&error), "{error}");
        assert_eq!(store.event(id).await.unwrap().is_some(), there, "{fate:?}");
        assert_eq!(
            world.harness.business_row(&id.to_string()).await.is_some(),
            there
        );
    }
}

#[test]
fn futures_complete_at_once_without_a_runtime() {
    let clock = ManualClock::at("2026-01-31T09:30:00Z".parse().unwrap());
    let store = MemoryStore::new(Clock::Manual(clock));
    let mut context = Context::from_waker(Waker::noop());
    let mut append = pin!(store.append(vec![event("k")]));
    let Poll::Ready(refused) = append.as_mut().poll(&mut context) else {
        panic!("it waits for something");
    };
    assert!(matches!(refused, Err(AppendError::NoActiveDeliverySet)));
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(Mutex<u32>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

#[tokio::test]
async fn the_doorbell_is_silent_while_nobody_sleeps() {
    let world = World::<Memory>::new().await;
    let store = world.harness.memory();
    let worker = world.worker().await;
    let mut listener = store.listen().await.unwrap().unwrap();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(woken.clone());
    let mut rung = listener.rung();
    assert!(
        rung.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    world.append(event("k")).await;
    assert_eq!(*woken.0.lock().unwrap(), 0);
    store.set_asleep(worker.session, true).await.unwrap();
    world.append(event("k")).await;
    assert_eq!(*woken.0.lock().unwrap(), 1);
    assert!(
        rung.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready()
    );
    drop(rung);

    // A session that is dead sleeps no more.
    world
        .clock
        .advance(postrider_conformance::store::fixture::LEASE);
    let mut rung = listener.rung();
    world.append(event("k")).await;
    assert!(
        rung.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
}
