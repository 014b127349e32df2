//! A writer to SQLite: its own row and its events in one transaction.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, ensure};
use postrider::{EventId, NewEvent, Registry, rusqlite as outbox};
use rand::{SeedableRng as _, rngs::StdRng};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::{Ending, Pace};
use crate::{
    journal::Journal,
    made::{Drafts, Made, Wish},
};

/// The writers' own table, asked as the one in PostgreSQL is.
pub(crate) const TABLES: &str = "\
    create table torture_transactions (transaction_id text primary key, absent integer not null)
    strict;";

const BUSY_FOR: Duration = Duration::from_secs(3);
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// One writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) number: usize,
    pub(crate) seed: u64,
    pub(crate) file: PathBuf,
    pub(crate) pace: Pace,
    pub(crate) journal: Arc<Journal>,
}

/// A connection, with what an append needs.
struct Open {
    connection: Connection,
    registry: Registry,
}

impl Writer {
    /// Appends until it is told to stop. What it had begun is ended and known when it returns.
    pub(crate) async fn write(self, mut stop: watch::Receiver<bool>) {
        let writer = Arc::new(self);
        let mut drafts = Drafts::new(writer.seed, writer.number);
        let mut rng = StdRng::seed_from_u64(writer.seed.wrapping_add(writer.number as u64));
        while !*stop.borrow() {
            let (made, wish) = drafts.next();
            if wish != Wish::Commit {
                once(&writer, &made, false).await;
            }
            if wish != Wish::RollBack && once(&writer, &made, true).await {
                drafts.committed(&made);
            }
            let pause = writer.pace.pause(&mut rng);
            drop(timeout(pause, stop.wait_for(|stop| *stop)).await);
        }
    }
}

/// Whether the events were committed.
async fn once(writer: &Arc<Writer>, made: &[Made], commit: bool) -> bool {
    let transaction = Uuid::now_v7();
    let mut ending = blocking(writer, made, move |writer, made| {
        writer.transaction(transaction, made, commit)
    })
    .await;
    // An unknown outcome is never guessed, however long it takes.
    while ending.is_none() {
        sleep(AGAIN_AFTER).await;
        ending = blocking(writer, made, move |writer, _| writer.ask(transaction).ok()).await;
    }
    let ending = ending.expect("asked until it was answered");
    let committed = matches!(ending, Ending::Committed | Ending::ProvedCommitted);
    if committed {
        writer.journal.committed(transaction, made);
    } else {
        writer.journal.undone(made);
    }
    writer.journal.known().endings.count(ending);
    if ending == Ending::Failed {
        sleep(AGAIN_AFTER).await;
    }
    committed
}

async fn blocking<T: Send + 'static>(
    writer: &Arc<Writer>,
    made: &[Made],
    work: impl FnOnce(&Writer, &[Made]) -> T + Send + 'static,
) -> T {
    let (writer, made) = (Arc::clone(writer), made.to_vec());
    let done = tokio::task::spawn_blocking(move || work(&writer, &made));
    done.await.expect("a writer does not panic")
}

impl Writer {
    /// Nothing if the outcome of COMMIT is not known.
    fn transaction(&self, transaction: Uuid, made: &[Made], commit: bool) -> Option<Ending> {
        let Ok(mut open) = self.open() else {
            return Some(Ending::Failed);
        };
        let Ok(begun) = begin(&mut open, transaction, made) else {
            return Some(Ending::Failed);
        };
        if !commit {
            // If this fails, the end of the connection rolls it back.
            drop(begun.rollback());
            return Some(Ending::RolledBack);
        }
        begun.commit().ok().map(|()| Ending::Committed)
    }

    /// A connection for each transaction, as small programs do.
    fn open(&self) -> Result<Open> {
        let connection = Connection::open(&self.file)?;
        connection.busy_timeout(BUSY_FOR)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        let registry = outbox::load(&connection)?;
        Ok(Open {
            connection,
            registry,
        })
    }

    fn ask(&self, transaction: Uuid) -> Result<Ending> {
        let mut connection = self.open()?.connection;
        let asking = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let id = transaction.to_string();
        asking.execute(
            "insert into torture_transactions values (?1, 1) on conflict do nothing",
            params![id],
        )?;
        let look = "select absent from torture_transactions where transaction_id = ?1";
        let absent: bool = asking
            .query_row(look, params![id], |row| row.get(0))
            .context("one of the two rows is there")?;
        asking.commit()?;
        Ok(if absent {
            Ending::ProvedAbsent
        } else {
            Ending::ProvedCommitted
        })
    }
}

fn begin<'a>(
    open: &'a mut Open,
    transaction: Uuid,
    made: &[Made],
) -> Result<rusqlite::Transaction<'a>> {
    let begun = open
        .connection
        .transaction_with_behavior(TransactionBehavior::Immediate)?;
    begun.execute(
        "insert into torture_transactions values (?1, 0)",
        params![transaction.to_string()],
    )?;
    let events = made.iter().map(|made| {
        let payload = made.payload.as_str();
        let mut event = NewEvent::new(made.event_type(), "1", "torture", &made.key, payload);
        event.event_id = Some(EventId(made.id));
        event.partition_key = Some(made.key.clone());
        event
    });
    let appended = outbox::append_all(&begun, &open.registry, events.collect())?;
    ensure!(
        appended.len() == made.len() && appended.iter().all(|one| !one.already),
        "not all were appended"
    );
    Ok(begun)
}
