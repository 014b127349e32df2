//! What the documentation shows works as it stands: the SQL of docs/sql.md and of the README, and
//! the Rust programs. The Rust of docs/append.md is a doc test.

use std::path::Path;

use crate::support::{
    application::{Application as _, Outbox, Rusqlite, connect},
    control, stored,
};

#[path = "../../../../examples/rust-rusqlite/main.rs"]
#[expect(dead_code, reason = "the program's main")]
mod rust_rusqlite;

#[path = "../../../../examples/rust-sqlx-postgres/main.rs"]
#[expect(dead_code, reason = "the program's main")]
mod rust_sqlx_postgres;

#[tokio::test]
async fn the_rusqlite_program_runs() {
    let outbox = Rusqlite::outbox().await;
    let appended = rust_rusqlite::run(&outbox.address).unwrap();
    assert!(!appended.already);
    let event = stored(&*outbox.store, appended.event_id).await.event;
    assert_eq!(event.payload, br#"{"id":"42"}"#.as_slice());
    let orders = rusqlite::Connection::open(&outbox.address).unwrap();
    let count = orders.query_row("SELECT count(*) FROM orders", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(count.unwrap(), 2);
}

#[tokio::test]
async fn the_sqlx_program_runs() {
    let outbox = Outbox::postgres().await;
    let appended = rust_sqlx_postgres::run(&outbox.address).await.unwrap();
    assert_eq!(appended.len(), 3);
    assert!(appended.iter().all(|appended| appended.already));
    for appended in appended {
        assert_eq!(
            stored(&*outbox.store, appended.event_id).await.position.0,
            appended.position
        );
    }
}

#[tokio::test]
async fn the_sql_of_the_sql_page_runs() {
    assert_eq!(run_sql_of("docs/sql.md").await, 6);
}

#[tokio::test]
async fn the_sql_of_the_readme_runs() {
    assert_eq!(run_sql_of("README.md").await, 1);
}

/// Runs the blocks of SQL on a page, in order, as a producer. Answers how many events that made.
async fn run_sql_of(page: &str) -> i64 {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    let setup = "create table orders (id text primary key, total integer);
        grant insert on orders to postrider_producer;
        set role postrider_producer";
    client.batch_execute(setup).await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let mut blocks = 0;
    for block in text.split("```sql\n").skip(1) {
        let (sql, _) = block.split_once("```").unwrap();
        client.batch_execute(sql).await.unwrap_or_else(|error| {
            panic!("{page}: {error:?}\n{sql}");
        });
        blocks += 1;
    }
    assert!(blocks > 0, "{page} shows no SQL");
    client.batch_execute("reset role").await.unwrap();
    let placed = "select count(*) from postrider.events where event_type = $1";
    client
        .query_one(placed, &[&control::PLACED])
        .await
        .unwrap()
        .get(0)
}
