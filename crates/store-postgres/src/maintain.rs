//! What must exist ahead of time: the month partitions of events. Makes, never drops.

use std::time::Duration;

use postrider_store::StoreError;
use tokio_postgres::{Client, error::SqlState};

use crate::{
    error,
    param::{Moment, params},
    schema::Schema,
};

/// Months ahead of this one.
const MONTHS_AHEAD: i32 = 3;
/// Appends that go to the default partition, and fetches, wait at most this long behind us.
const LOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Attaching looks through the default partition for rows of the month while it is locked.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// Tries for each partition.
const ATTEMPTS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(200);

/// Makes the partitions of this month and the next ones; answers a line for each that it made or
/// could not make. One that is missing costs nothing but tidiness: its events go to the default
/// partition.
pub(crate) async fn partitions(
    client: &Client,
    schema: &Schema,
    now: Option<Moment>,
) -> Result<Vec<String>, StoreError> {
    let months = client
        .query_typed(
            &schema.fill(include_str!("../sql/months.sql")),
            params![now, MONTHS_AHEAD],
        )
        .await
        .map_err(|error| error::store(&error))?;
    let mut notes = Vec::new();
    for month in months {
        let name: String = month.get(0);
        let from: String = month.get(1);
        let to: String = month.get(2);
        notes.extend(partition(client, schema, &name, &from, &to).await?);
    }
    Ok(notes)
}

async fn partition(
    client: &Client,
    schema: &Schema,
    name: &str,
    from: &str,
    to: &str,
) -> Result<Option<String>, StoreError> {
    // ATTACH needs no lock on the parent that an append or a fetch would wait for; CREATE TABLE …
    // PARTITION OF would. The new table exists before in a form that nobody uses.
    let sql = format!(
        "begin; set local lock_timeout = {}; set local statement_timeout = {}; \
         set local client_min_messages = warning;\n{}\ncommit",
        LOCK_TIMEOUT.as_millis(),
        STATEMENT_TIMEOUT.as_millis(),
        schema
            .fill(include_str!("../sql/partition.sql"))
            .replace("{partition}", name)
            .replace("{from}", from)
            .replace("{to}", to)
    );
    for _ in 0..ATTEMPTS_MAX {
        let Err(error) = client.batch_execute(&sql).await else {
            return Ok(Some(format!("partition {name} made")));
        };
        client
            .batch_execute("rollback")
            .await
            .map_err(|error| error::store(&error))?;
        let code = error.code();
        if code == Some(&SqlState::CHECK_VIOLATION) {
            return Ok(Some(format!(
                "partition {name} not made: events of its month are in the default partition already, and stay there"
            )));
        }
        if code == Some(&SqlState::QUERY_CANCELED) {
            return Ok(Some(format!(
                "partition {name} not made: the default partition is too large to be searched while it is locked"
            )));
        }
        if code != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Err(error::store(&error));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Some(format!(
        "partition {name} not made: its lock was not obtained in {ATTEMPTS_MAX} tries; run maintenance again"
    )))
}
