//! What went wrong in the field with SQLite outboxes, and does not here. The other cases are
//! promises of the suite, under their names.

mod support;

use std::{
    collections::BTreeSet,
    fmt::Debug,
    sync::{Arc, Condvar, Mutex},
    time::Duration,
};

use postrider_conformance::store::{
    StoreHarness,
    fixture::{World, acknowledged, event},
};
use postrider_contract::EventId;
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId};
use postrider_store::{
    AppendError, Store, StoreError,
    dispatch::{Exchange, Fetch, Registration, Settlement},
    inspect::EventFilter,
    sessions::NewSession,
};
use postrider_store_sqlite::append_in;
use rusqlite::ErrorCode;
use support::Sqlite;
use uuid::Uuid;

/// Events of the busy run; each is a write transaction of its own. Where a transaction cannot wait
/// for another it fails at once and not after a while, so what counts is how often they meet,
/// and not for how long: each of these transactions ends only when a worker has to wait for it.
const EVENTS: usize = 150;
/// Longest wait of the enqueuer for a worker's call.
const MEET_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_1_writers_wait_instead_of_failing() {
    let world = World::<Sqlite>::new().await;
    let alpha = world.destinations[0];
    let application = world.harness.connect();
    let clock = world.clock.clone();
    let calls = Arc::new(Calls::default());
    let meets = Arc::clone(&calls);
    let enqueuer = tokio::task::spawn_blocking(move || {
        let mut ids = BTreeSet::new();
        for number in 0..EVENTS {
            let mut application = application_transaction(&application);
            let appended = append_in(
                &application,
                &[event(&format!("k{}", number % 7))],
                clock.now(),
            );
            ids.insert(appended.expect("no append fails").remove(0).event_id);
            application
                .execute(
                    "INSERT INTO orders VALUES (?1, 'placed')",
                    [number.to_string()],
                )
                .expect("no write fails");
            // Not before a worker has to wait for this transaction.
            meets.until_one_is_under_way();
            application.set_drop_behavior(rusqlite::DropBehavior::Commit);
            application.finish().expect("no commit fails");
        }
        ids
    });
    let mut workers = Vec::new();
    for number in 0..2 {
        let store: Arc<dyn Store> = Arc::new(world.harness.open_store());
        let calls = Arc::clone(&calls);
        workers.push(tokio::spawn(work(store, alpha, number, calls)));
    }
    let appended = enqueuer.await.unwrap();
    let mut sent = Vec::new();
    for worker in workers {
        sent.extend(worker.await.unwrap());
    }
    // Everything went out, and nothing twice.
    let unique: BTreeSet<EventId> = sent.iter().copied().collect();
    assert_eq!(sent.len(), EVENTS);
    assert_eq!(unique, appended);
}

fn application_transaction(connection: &rusqlite::Connection) -> rusqlite::Transaction<'_> {
    rusqlite::Transaction::new_unchecked(connection, rusqlite::TransactionBehavior::Immediate)
        .expect("waiting happens here, and ends")
}

/// How many writing calls of the workers are under way.
#[derive(Default)]
struct Calls {
    under_way: Mutex<usize>,
    begun: Condvar,
}

impl Calls {
    async fn done<T, E: Debug>(&self, call: impl Future<Output = Result<T, E>>) -> T {
        *self.under_way.lock().expect("no panic") += 1;
        self.begun.notify_all();
        let answer = call.await;
        *self.under_way.lock().expect("no panic") -= 1;
        answer.expect("no call fails")
    }

    fn until_one_is_under_way(&self) {
        let none = self.under_way.lock().expect("no panic");
        let found = self
            .begun
            .wait_timeout_while(none, MEET_WITHIN, |under_way| *under_way == 0)
            .expect("no panic");
        assert!(!found.1.timed_out(), "the workers stopped working");
    }
}

/// Sends half of the lanes' deliveries until all events have gone out; at most 5,000 rounds.
async fn work(
    store: Arc<dyn Store>,
    destination: DestinationId,
    half: u16,
    calls: Arc<Calls>,
) -> Vec<EventId> {
    let session = SessionId(Uuid::new_v4());
    let new = NewSession {
        id: session,
        owner: format!("worker {half}"),
        lease: Duration::from_secs(3600),
        serves: vec![destination],
        exclusive: false,
        version: "test".to_owned(),
    };
    calls.done(store.open_session(&new)).await;
    let wanted = [(destination, 2)];
    let claimed = calls.done(store.claim_lanes(session, &wanted)).await;
    let lanes: Vec<Lane> = claimed[0].1.clone();
    let mut exchange = Exchange {
        session,
        destination,
        settle: Vec::new(),
        quarantine: Vec::new(),
        suspend: None,
        register: Vec::new(),
        fetch: None,
    };
    let mut sent = Vec::new();
    for _ in 0..5000 {
        exchange.fetch = Some(Fetch {
            lanes: lanes.clone(),
            after: Position::START,
            exclude: Vec::new(),
            busy_keys: Vec::new(),
            limit: 10,
            bytes_max: u64::MAX,
        });
        let fetched = calls.done(store.exchange(&exchange)).await.fetched;
        exchange.settle.clear();
        if fetched.is_empty() {
            let filter = EventFilter::default();
            let page = store.events(&filter, Position::START, 1000).await;
            let rows = page.expect("no call fails").rows;
            if rows.len() == EVENTS && rows.iter().all(|row| row.open == 0) {
                break;
            }
            tokio::task::yield_now().await;
            continue;
        }
        let attempt = AttemptId(Uuid::new_v4());
        let members: Vec<_> = fetched.iter().map(|fetched| fetched.position).collect();
        exchange.fetch = None;
        exchange.register = vec![Registration {
            attempt,
            members: members.clone(),
        }];
        calls.done(store.exchange(&exchange)).await;
        exchange.register.clear();
        sent.extend(fetched.iter().map(|fetched| fetched.event.event_id));
        exchange.settle = vec![Settlement {
            attempt,
            members: members.into_iter().map(acknowledged).collect(),
        }];
    }
    sent
}

#[tokio::test]
async fn sql_1_a_read_that_turns_into_a_write_is_told_to_begin_again() {
    let world = World::<Sqlite>::new().await;
    let application = world.harness.connect();
    application
        .execute_batch("BEGIN; SELECT count(*) FROM orders")
        .unwrap();
    world.append(event("a")).await;
    // SQLite answers at once, whatever the busy timeout; the message says what to do.
    let refused = append_in(&application, &[event("b")], world.clock.now()).unwrap_err();
    let AppendError::Store(StoreError::Unavailable { message, source }) = &refused else {
        panic!("{refused:?}");
    };
    assert!(message.contains("BEGIN IMMEDIATE"), "{message}");
    let source = source.as_ref().and_then(|source| source.downcast_ref());
    let source: &rusqlite::Error = source.expect("SQLite's own error");
    assert_eq!(source.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    application
        .execute_batch("ROLLBACK; BEGIN IMMEDIATE")
        .unwrap();
    append_in(&application, &[event("b")], world.clock.now()).unwrap();
    application.execute_batch("COMMIT").unwrap();
    assert_eq!(stored(&world).await, 2);
}

#[tokio::test]
async fn sql_1_an_append_outside_a_transaction_is_refused() {
    let world = World::<Sqlite>::new().await;
    let application = world.harness.connect();
    let refused = append_in(&application, &[event("a")], world.clock.now()).unwrap_err();
    assert!(
        refused.to_string().contains("no transaction is open"),
        "{refused}"
    );
}

#[tokio::test]
async fn sql_1_a_refused_append_leaves_the_transaction_usable() {
    let world = World::<Sqlite>::new().await;
    let application = world.harness.connect();
    application.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut unknown = event("a");
    unknown.event_type = "order.shipped".to_owned();
    let refused = append_in(&application, &[event("a"), unknown], world.clock.now());
    assert!(
        matches!(refused, Err(AppendError::UnknownEventType { .. })),
        "{refused:?}"
    );
    append_in(&application, &[event("b"), event("c")], world.clock.now()).unwrap();
    application.execute_batch("COMMIT").unwrap();
    assert_eq!(stored(&world).await, 2);
}

#[tokio::test]
async fn sql_1_a_writer_that_never_ends_makes_calls_unavailable() {
    let world = World::<Sqlite>::new().await;
    let application = world.harness.connect();
    application.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Bounded: the call gives up by itself. Reads go on meanwhile.
    let (append, backlog) =
        tokio::join!(world.store.append(vec![event("a")]), world.store.backlog());
    assert!(
        matches!(
            append,
            Err(AppendError::Store(StoreError::Unavailable { .. }))
        ),
        "{append:?}"
    );
    assert_eq!(backlog.unwrap().len(), 1);
    application.execute_batch("ROLLBACK").unwrap();
    world.append(event("a")).await;
}

#[tokio::test]
async fn tim_1_a_time_that_cannot_be_read_gets_into_no_row() {
    let world = World::<Sqlite>::new().await;
    let sent = world.append_keys(&["a", "b"]).await;
    let outside = world.harness.connect();
    for time in [
        "'infinity'",
        "'-infinity'",
        "9e999",
        "9223372036854775807",
        "-9223372036854775808",
        // The year 294276, and 4713 BC.
        "9224286393600000000",
        "-210866803200000000",
    ] {
        let update = format!("UPDATE postrider_deliveries SET available_at = {time}");
        let refused = outside.execute_batch(&update).expect_err(time);
        assert_eq!(
            refused.sqlite_error_code(),
            Some(ErrorCode::ConstraintViolation),
            "{time}: {refused}"
        );
    }
    let worker = world.worker().await;
    assert_eq!(worker.drain(world.destinations[0]).await, sent);
}

#[tokio::test]
async fn sql_3_the_log_shrinks_once_a_reader_is_gone() {
    let world = World::<Sqlite>::new().await;
    let store = world.harness.open_store();
    let reader = world.harness.foreign_transaction().await;
    fill(&world).await;
    store.maintain().await.unwrap();
    let held = store.wal_bytes().unwrap();
    assert!(held > 3_000_000, "{held} bytes: the reader keeps them");
    drop(reader);
    let said = store.maintain().await.unwrap();
    assert_eq!(store.wal_bytes().unwrap(), 0);
    assert!(said[0].contains(&held.to_string()), "{said:?}");
}

#[tokio::test]
async fn sql_3_no_read_of_ours_outlives_its_call() {
    let world = World::<Sqlite>::new().await;
    let store = world.harness.open_store();
    world.append_keys(&["a", "b", "c"]).await;
    // Pages that were not read to the end, a refused exchange, an unfinished fetch.
    let filter = EventFilter::default();
    assert!(
        store
            .events(&filter, Position::START, 1)
            .await
            .unwrap()
            .more
    );
    let worker = world.worker().await;
    let mut one = worker.front(world.destinations[0]);
    one.bytes_max = 1;
    worker.fetch_with(world.destinations[0], one).await;
    fill(&world).await;
    store.maintain().await.unwrap();
    assert_eq!(store.wal_bytes().unwrap(), 0);
}

/// 1,000 events of 2 KB and more, in ten transactions.
async fn fill(world: &World<Sqlite>) {
    for _ in 0..10 {
        let events = (0..100).map(|number| {
            let mut event = event(&format!("k{number}"));
            event.content_type = Some("text/plain".to_owned());
            event.payload = vec![b'x'; 2048];
            event
        });
        world.append_all(events.collect()).await;
    }
}

async fn stored(world: &World<Sqlite>) -> usize {
    let filter = EventFilter::default();
    let page = world.store.events(&filter, Position::START, 100).await;
    page.unwrap().rows.len()
}
