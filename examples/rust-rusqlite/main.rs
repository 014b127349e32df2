//! Appends an event in a transaction of rusqlite: `main PATH`, a file with the outbox
//! (`postrider migrate`, `postrider apply`) and the event type `order.placed` version `1`.

use std::time::Duration;

use postrider::{AppendError, Appended, NewEvent, Registry, json_payload, rusqlite as outbox};
use rusqlite::{Connection, TransactionBehavior};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let path = std::env::args()
        .nth(1)
        .ok_or("give the path of the database")?;
    run(&path).map(drop)
}

/// Places an order, and tries to place a bad one. Answers what was appended.
pub(crate) fn run(path: &str) -> Result<Appended, Failure> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY) STRICT")?;
    let registry = outbox::load(&connection)?;

    let placed = place(&mut connection, &registry, "42")?;
    refuse(&mut connection, &registry)?;
    Ok(placed)
}

/// Changes the business data and says so. Both commit, or neither does.
fn place(
    connection: &mut Connection,
    registry: &Registry,
    order: &str,
) -> Result<Appended, Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO orders (id) VALUES (?1)", [order])?;
    let payload = json_payload(&serde_json::json!({"id": order}))?;
    let event = NewEvent::new("order.placed", "1", "order", order, payload);
    let appended = outbox::append(&transaction, registry, event)?;
    transaction.commit()?;
    Ok(appended)
}

/// A payload that breaks its schema is refused, and the transaction goes on.
fn refuse(connection: &mut Connection, registry: &Registry) -> Result<(), Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let event = NewEvent::new("order.placed", "1", "order", "43", r#"{"id": 43}"#);
    match outbox::append(&transaction, registry, event) {
        Err(AppendError::Schema { violation, .. }) => {
            assert!(violation.to_string().contains("\"/id\""));
        }
        Ok(_) => return Err("the schema lets a number be an id".into()),
        Err(error) => return Err(error.into()),
    }
    transaction.execute("INSERT INTO orders (id) VALUES ('43')", [])?;
    transaction.commit()?;
    Ok(())
}
