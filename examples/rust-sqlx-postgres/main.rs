//! Appends events in a transaction of sqlx on Postgres: `main URL`, a database with the outbox
//! (`postrider migrate`, `postrider apply`) and the event type `order.placed` version `1`.

use postrider::{Appended, EventId, NewEvent, json_payload, sqlx_postgres as outbox};
use sqlx::{Connection, PgConnection};

type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args()
        .nth(1)
        .ok_or("give the URL of the database")?;
    run(&url).await.map(drop)
}

/// Imports three orders in one transaction, twice. Answers what the second time found.
pub(crate) async fn run(url: &str) -> Result<Vec<Appended>, Failure> {
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql("create table if not exists orders (id text primary key)")
        .execute(&mut connection)
        .await?;
    let registry = outbox::load(&mut connection).await?;

    // Ids of our own: a second run after "did my commit arrive?" is then harmless.
    let mut events = Vec::new();
    for (index, order) in ["a", "b", "c"].into_iter().enumerate() {
        let payload = json_payload(&serde_json::json!({"id": order}))?;
        let id = format!("5f0c7127-38c1-4d1f-9b0c-{index:012}");
        events.push(NewEvent {
            event_id: Some(id.parse::<EventId>()?),
            ..NewEvent::new("order.placed", "1", "order", order, payload)
        });
    }
    let mut appended = Vec::new();
    for _ in 0..2 {
        let mut transaction = connection.begin().await?;
        for event in &events {
            sqlx::query("insert into orders (id) values ($1) on conflict do nothing")
                .bind(&event.aggregate.id)
                .execute(&mut *transaction)
                .await?;
        }
        // One round trip for all of them, in order, all or nothing.
        appended = outbox::append_all(&mut transaction, &registry, events.clone()).await?;
        transaction.commit().await?;
    }
    Ok(appended)
}
