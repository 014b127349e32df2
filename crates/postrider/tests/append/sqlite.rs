//! What holds on SQLite beside the promises of every driver.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use postrider::{AppendError, rusqlite as outbox, sqlx_sqlite};
use postrider_store::inspect::EventFilter;
use rusqlite::{Connection, TransactionBehavior};
use sqlx::ConnectOptions as _;

use crate::support::{
    application::{Application as _, Outbox, Rusqlite},
    order,
};

fn open(outbox: &Outbox) -> Connection {
    let connection = Connection::open(&outbox.address).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

/// Reads in a deferred transaction, lets somebody else write, and then appends.
#[tokio::test]
async fn sql_1_a_transaction_that_read_before_another_wrote_is_told_to_run_again() {
    let world = Rusqlite::outbox().await;
    let (mut reader, writer) = (open(&world), open(&world));
    let registry = outbox::load(&reader).unwrap();

    let deferred = reader.transaction().unwrap();
    let count = "select count(*) from business";
    deferred
        .query_row(count, [], |row| row.get::<_, i64>(0))
        .unwrap();
    writer
        .execute("insert into business values ('x')", [])
        .unwrap();
    let refused = outbox::append(&deferred, &registry, order("a")).unwrap_err();
    assert!(matches!(refused, AppendError::Outdated { .. }), "{refused}");
    assert!(refused.to_string().contains("BEGIN IMMEDIATE"), "{refused}");
    deferred.rollback().unwrap();

    let options: sqlx::sqlite::SqliteConnectOptions = world.address.parse().unwrap();
    let mut connection = options.connect().await.unwrap();
    sqlx::raw_sql("BEGIN")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query(count).fetch_one(&mut connection).await.unwrap();
    writer
        .execute("insert into business values ('y')", [])
        .unwrap();
    let refused = sqlx_sqlite::append(&mut connection, &registry, order("a")).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, AppendError::Outdated { .. }), "{refused}");
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut connection)
        .await
        .unwrap();

    // The unit as a whole, run again as the error says, succeeds.
    let immediate = reader
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    outbox::append(&immediate, &registry, order("a")).unwrap();
    immediate.commit().unwrap();
}

/// Three applications append in IMMEDIATE transactions, each through its own connection, while a
/// fourth writes business rows: nobody ever sees "database is locked".
#[expect(
    clippy::disallowed_methods,
    reason = "a pause between two writes: nothing waits for it"
)]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sql_1_immediate_transactions_wait_for_each_other() {
    const EVENTS: usize = 60;
    /// Waiting is what is shown, not how long it takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);
    let world = Rusqlite::outbox().await;
    let registry = Arc::new(outbox::load(&open(&world)).unwrap());
    let stop = Arc::new(AtomicBool::new(false));

    let noise = open(&world);
    noise.busy_timeout(PATIENCE).unwrap();
    let quiet = Arc::clone(&stop);
    // SQLite gives the lock to whoever asks at the right moment. One that never pauses could keep
    // the others out for longer than they wait, which is not the case's subject.
    let noise = tokio::task::spawn_blocking(move || {
        while !quiet.load(Ordering::SeqCst) {
            noise
                .execute("insert into business values (hex(randomblob(8)))", [])
                .unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let mut appenders = Vec::new();
    for appender in 0..3 {
        let (mut connection, registry) = (open(&world), Arc::clone(&registry));
        connection.busy_timeout(PATIENCE).unwrap();
        appenders.push(tokio::task::spawn_blocking(move || {
            for index in 0..EVENTS {
                let transaction = connection
                    .transaction_with_behavior(TransactionBehavior::Immediate)
                    .unwrap();
                let count = "select count(*) from business";
                transaction
                    .query_row(count, [], |row| row.get::<_, i64>(0))
                    .unwrap();
                let event = order(&format!("{appender}-{index}"));
                outbox::append(&transaction, &registry, event).unwrap();
                transaction.commit().unwrap();
            }
        }));
    }
    let mut appended = Vec::new();
    for appender in appenders {
        appended.push(appender.await);
    }
    stop.store(true, Ordering::SeqCst);
    noise.await.unwrap();
    for appended in appended {
        appended.unwrap();
    }
    let all = EventFilter::default();
    let page = world
        .store
        .events(&all, postrider_core::Position(0), 1_000)
        .await
        .unwrap();
    assert_eq!(page.rows.len(), 3 * EVENTS);
}

#[tokio::test]
async fn a_file_without_an_outbox_says_so() {
    let folder = tempfile::TempDir::new().unwrap();
    let connection = Connection::open(folder.path().join("x.db")).unwrap();
    let error = outbox::load(&connection).unwrap_err().to_string();
    assert!(error.contains("no such table: postrider_"), "{error}");
    assert!(error.contains("postrider migrate"), "{error}");
}
