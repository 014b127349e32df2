//! A writer to PostgreSQL: its own row and its events in one transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::{
    FaultProxy,
    proxy::{Direction, Flow},
};
use rand::{SeedableRng as _, rngs::StdRng};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use tokio_postgres::{Client, NoTls, Transaction, types::Json};
use uuid::Uuid;

use super::{Ending, Pace};
use crate::{
    journal::Journal,
    made::{Drafts, Made, Wish},
};

/// The writers' own table. A transaction's row tells whether it committed. Whoever asks puts a
/// row of its own there: it waits for a transaction that is still under way, and from then on the
/// asked one can never commit.
pub(crate) const TABLES: &str = "\
    create schema torture;
    create table torture.transactions (transaction_id uuid primary key, absent boolean not null);";

/// Long against a healthy database, short against the faults.
const STEP_WITHIN: Duration = Duration::from_secs(3);
/// How long the answer to a COMMIT is kept from its writer before the connection is cut: longer
/// than the commit takes.
const ANSWER_KEPT: Duration = Duration::from_millis(300);
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A link that loses the answer to the next COMMIT when it is told to.
#[derive(Debug)]
pub(crate) struct LossyLink {
    pub(crate) proxy: FaultProxy,
    pub(crate) armed: AtomicBool,
}

/// One writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) number: usize,
    pub(crate) seed: u64,
    /// Where it appends.
    pub(crate) url: String,
    /// Where it asks what became of a transaction: always the database itself.
    pub(crate) direct_url: String,
    pub(crate) link: Option<Arc<LossyLink>>,
    pub(crate) pace: Pace,
    pub(crate) journal: Arc<Journal>,
}

impl Writer {
    /// Appends until it is told to stop. What it had begun is ended and known when it returns.
    pub(crate) async fn write(self, mut stop: watch::Receiver<bool>) {
        let mut drafts = Drafts::new(self.seed, self.number);
        let mut rng = StdRng::seed_from_u64(self.seed.wrapping_add(self.number as u64));
        let mut client = None;
        while !*stop.borrow() {
            let (made, wish) = drafts.next();
            if self.carry_out(&mut client, &made, wish).await {
                drafts.committed(&made);
            }
            let pause = self.pace.pause(&mut rng);
            drop(timeout(pause, stop.wait_for(|stop| *stop)).await);
        }
    }

    /// Whether the events were committed in the end.
    async fn carry_out(&self, client: &mut Option<Client>, made: &[Made], wish: Wish) -> bool {
        if wish != Wish::Commit {
            self.once(client, made, false).await;
        }
        wish != Wish::RollBack && self.once(client, made, true).await
    }

    async fn once(&self, client: &mut Option<Client>, made: &[Made], commit: bool) -> bool {
        let transaction = Uuid::now_v7();
        let ending = self.transaction(client, transaction, made, commit).await;
        let committed = matches!(ending, Ending::Committed | Ending::ProvedCommitted);
        if committed {
            self.journal.committed(transaction, made);
        } else {
            self.journal.undone(made);
        }
        self.journal.known().endings.count(ending);
        committed
    }

    async fn transaction(
        &self,
        kept: &mut Option<Client>,
        transaction: Uuid,
        made: &[Made],
        commit: bool,
    ) -> Ending {
        let Ok(mut client) = self.client(kept.take()).await else {
            sleep(AGAIN_AFTER).await;
            return Ending::Failed;
        };
        match self.on(&mut client, transaction, made, commit).await {
            Some(Ending::Failed) => {
                sleep(AGAIN_AFTER).await;
                Ending::Failed
            }
            Some(ending) => {
                *kept = Some(client);
                ending
            }
            None => {
                // A connection that saw a failure is not used again.
                drop(client);
                self.ask_until_answered(transaction).await
            }
        }
    }

    /// Nothing if the outcome of COMMIT is not known.
    async fn on(
        &self,
        client: &mut Client,
        transaction: Uuid,
        made: &[Made],
        commit: bool,
    ) -> Option<Ending> {
        let begun = timeout(STEP_WITHIN, begin(client, transaction, made)).await;
        let Ok(Ok(open)) = begun else {
            return Some(Ending::Failed);
        };
        if !commit {
            let rolled_back = timeout(STEP_WITHIN, open.rollback()).await;
            let well = matches!(rolled_back, Ok(Ok(())));
            return Some(if well {
                Ending::RolledBack
            } else {
                Ending::Failed
            });
        }
        if let Some(link) = self.link.as_deref()
            && link.armed.load(Ordering::Relaxed)
        {
            lose_answer(open, link).await;
            self.journal.known().answers_lost += 1;
            link.armed.store(false, Ordering::Relaxed);
            return None;
        }
        let committed = timeout(STEP_WITHIN, open.commit()).await;
        matches!(committed, Ok(Ok(()))).then_some(Ending::Committed)
    }

    async fn client(&self, kept: Option<Client>) -> Result<Client> {
        match kept {
            Some(client) if !client.is_closed() => Ok(client),
            Some(_) | None => connect(&self.url).await,
        }
    }

    /// An unknown outcome is never guessed, however long it takes.
    async fn ask_until_answered(&self, transaction: Uuid) -> Ending {
        loop {
            match timeout(STEP_WITHIN, ask(&self.direct_url, transaction)).await {
                Ok(Ok(ending)) => return ending,
                Ok(Err(_)) | Err(_) => sleep(AGAIN_AFTER).await,
            }
        }
    }
}

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let connecting = tokio_postgres::connect(url, NoTls);
    let (client, connection) = timeout(STEP_WITHIN, connecting).await??;
    tokio::spawn(connection);
    Ok(client)
}

async fn begin<'a>(
    client: &'a mut Client,
    transaction: Uuid,
    made: &[Made],
) -> Result<Transaction<'a>> {
    let open = client.transaction().await?;
    let own = "insert into torture.transactions values ($1, false)";
    open.execute(own, &[&transaction]).await?;
    let events: Vec<_> = made
        .iter()
        .map(|made| {
            serde_json::json!({
                "event_type": made.event_type(),
                "aggregate_type": "torture",
                "aggregate_id": made.key,
                "event_id": made.id,
                "partition_key": made.key,
                "payload": made.payload,
            })
        })
        .collect();
    let append = "select event_id from postrider.append_batch($1::json)";
    let rows = open.query(append, &[&Json(events)]).await?;
    ensure!(rows.len() == made.len(), "not all were appended");
    Ok(open)
}

/// The COMMIT goes to the database, and its answer nowhere.
async fn lose_answer(open: Transaction<'_>, link: &LossyLink) {
    link.proxy.set(Direction::ServerToClient, Flow::Swallow);
    drop(timeout(ANSWER_KEPT, open.commit()).await);
    link.proxy.reset().await;
    link.proxy.set(Direction::ServerToClient, Flow::Pass);
}

async fn ask(url: &str, transaction: Uuid) -> Result<Ending> {
    let client = connect(url).await?;
    // Waits while that transaction is open, and takes its place if it is not there.
    let fence = "insert into torture.transactions values ($1, true) on conflict do nothing";
    client.execute(fence, &[&transaction]).await?;
    let look = "select absent from torture.transactions where transaction_id = $1";
    let row = client
        .query_opt(look, &[&transaction])
        .await?
        .context("one of the two rows is there")?;
    Ok(if row.try_get(0)? {
        Ending::ProvedAbsent
    } else {
        Ending::ProvedCommitted
    })
}
