//! A small order service: it commits each order and its event in one transaction of its own
//! database, and rolls some back.

use std::{collections::BTreeSet, path::Path, time::Duration};

use postrider::{NewEvent, Registry, json_payload, rusqlite as outbox};
use rusqlite::{Connection, TransactionBehavior, params};
use uuid::Uuid;

use crate::{
    code::Code,
    fault::{Failure, Fault},
};

/// One order in ten is given up after its event was appended.
const ROLLED_BACK_EVERY: u32 = 10;
/// So that a key has several events: orders of one customer keep their order.
const CUSTOMERS: u32 = 40;

/// The service with its connection to its own database.
#[derive(Debug)]
pub(super) struct Shop {
    connection: Connection,
    registry: Registry,
    orders: u32,
    /// Events of orders that were given up: nobody may ever see them.
    pub(super) rolled_back: BTreeSet<Uuid>,
}

impl Shop {
    pub(super) fn open(database: &Path) -> Result<Self, Failure> {
        let open = || -> Result<Self, Box<dyn std::error::Error>> {
            let connection = Connection::open(database)?;
            // The relay writes to the same file.
            connection.busy_timeout(Duration::from_secs(10))?;
            connection.execute_batch(
                "create table orders (
                    id integer primary key,
                    customer integer not null,
                    total integer not null,
                    event_id text not null unique
                )",
            )?;
            let registry = outbox::load(&connection)?;
            Ok(Self {
                connection,
                registry,
                orders: 0,
                rolled_back: BTreeSet::new(),
            })
        };
        open().map_err(|error| broken(&error.to_string()))
    }

    /// Takes one order; answers whether it was committed.
    pub(super) fn order(&mut self) -> Result<bool, Failure> {
        self.try_order().map_err(|error| broken(&error.to_string()))
    }

    fn try_order(&mut self) -> Result<bool, Box<dyn std::error::Error>> {
        self.orders += 1;
        let (id, customer) = (self.orders, self.orders % CUSTOMERS);
        let total = 100 + id % 900;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;

        let payload = json_payload(&serde_json::json!({
            "order": id.to_string(),
            "total": total,
        }))?;
        let mut event = NewEvent::new("order.placed", "1", "order", id.to_string(), payload);
        event.partition_key = Some(format!("customer/{customer}"));
        let appended = outbox::append(&transaction, &self.registry, event)?;
        let event_id = appended.event_id.0;
        transaction.execute(
            "insert into orders (id, customer, total, event_id) values (?1, ?2, ?3, ?4)",
            params![id, customer, total, event_id.to_string()],
        )?;

        if id % ROLLED_BACK_EVERY == 0 {
            transaction.rollback()?;
            self.rolled_back.insert(event_id);
            return Ok(false);
        }
        transaction.commit()?;
        Ok(true)
    }

    /// The events of all orders that are in the business table: the truth that the rest is
    /// compared with.
    pub(super) fn committed(&self) -> Result<BTreeSet<Uuid>, Failure> {
        let read = || -> Result<BTreeSet<Uuid>, Box<dyn std::error::Error>> {
            let mut statement = self.connection.prepare("select event_id from orders")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            let mut ids = BTreeSet::new();
            for row in rows {
                ids.insert(row?.parse()?);
            }
            Ok(ids)
        };
        read().map_err(|error| broken(&error.to_string()))
    }
}

/// How many of these orders are committed.
pub(super) fn committed_of(orders: u32) -> u32 {
    orders - orders / ROLLED_BACK_EVERY
}

fn broken(why: &str) -> Failure {
    Fault::new(
        Code::StoreRefused,
        format!("the demo's order service: {why}"),
        "",
        "see that the disk is not full and that nothing else has the demo's folder open",
    )
    .into()
}
