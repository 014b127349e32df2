//! kill -9 at random moments of every part of a relay's life, while events are appended, some of
//! them in transactions that roll back.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use postrider_contract::destination::Ordering;
use postrider_testkit::{Nats, Program, env, eventually_some};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::{process::Command, sync::watch};
use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    setup,
    support::{self, Made, Stored, WITHIN, append, connect, count, relay},
};

const EVENTS: usize = 20_000;
const KILLS: usize = 50;
/// Appending at the same time, each with keys of its own, so that the order of a key is known.
const APPENDERS: usize = 2;
const TRANSACTION: usize = 20;
const TRANSACTIONS: usize = EVENTS / APPENDERS / TRANSACTION;
const KEYS: usize = 50;
/// One transaction in ten is rolled back besides.
const ROLLED_BACK_EVERY: usize = 10;
/// Short, so that a killed relay's lanes are free again while the next one lives. A relay that
/// misses it on a busy machine is one more fault.
const LEASE: Duration = Duration::from_millis(1_500);

/// What a relay is doing when it is killed. A random pause follows each but the first, and the
/// kill may well fall into the next part.
#[derive(Clone, Copy, Debug)]
enum Part {
    Starting,
    /// It has a session, and waits for the lanes of the one before it.
    WithoutLanes,
    WithLanes,
    Sending,
    Settling,
    /// It has delivered all there was.
    Idle,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::Starting,
        Self::WithoutLanes,
        Self::WithLanes,
        Self::Sending,
        Self::Settling,
        Self::Idle,
    ];

    /// Asks whether the session of owner `$1` has come this far.
    fn reached(self) -> &'static str {
        match self {
            Self::Starting => "select $1 <> ''",
            Self::WithoutLanes => "select exists (select from postrider.sessions where owner = $1)",
            Self::WithLanes => {
                "select exists (select from postrider.lanes \
                 join postrider.sessions using (session_id) where owner = $1)"
            }
            Self::Sending => {
                "select exists (select from postrider.open_attempts \
                 join postrider.sessions using (session_id) where owner = $1)"
            }
            Self::Settling => {
                "select exists (select from postrider.receipt_batches \
                 join postrider.attempts using (attempt_id) \
                 join postrider.sessions using (session_id) where owner = $1)"
            }
            Self::Idle => {
                "select exists (select from postrider.lanes \
                 join postrider.sessions using (session_id) where owner = $1) \
                 and not exists (select from postrider.deliveries)"
            }
        }
    }

    fn pause_ms_max(self) -> u64 {
        match self {
            Self::Starting => 30,
            Self::WithoutLanes | Self::WithLanes | Self::Idle => 60,
            Self::Sending => 15,
            Self::Settling => 250,
        }
    }
}

/// What was committed, and what was rolled back and never committed.
#[derive(Debug, Default)]
struct Appended {
    committed: BTreeSet<Uuid>,
    rolled_back: BTreeSet<Uuid>,
}

/// Appends its share, as far as `allowed` transactions. Some transactions roll back; every second
/// one of these is made again with the same ids.
async fn append_all(
    url: String,
    appender: usize,
    seed: u64,
    mut allowed: watch::Receiver<usize>,
) -> Result<Appended> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut client = connect(&url).await?;
    let mut appended = Appended::default();
    let mut turns = [0_u64; KEYS];
    for number in 0..TRANSACTIONS {
        allowed.wait_for(|allowed| number < *allowed).await?;
        let made: Vec<Made> = (0..TRANSACTION)
            .map(|_| {
                let key = rng.random_range(0..KEYS);
                turns[key] += 1;
                Made::new(format!("{appender}/{key}"), turns[key] - 1)
            })
            .collect();
        if number % ROLLED_BACK_EVERY == 0 {
            let again = number % (ROLLED_BACK_EVERY * 2) == 0;
            let mut doomed = made.clone();
            if !again {
                doomed.iter_mut().for_each(|made| made.id = Uuid::now_v7());
                appended
                    .rolled_back
                    .extend(doomed.iter().map(|made| made.id));
            }
            let transaction = client.transaction().await?;
            append(&transaction, &doomed).await?;
            // Open for a while, so that others commit above its positions.
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..40))).await;
            transaction.rollback().await?;
        }
        let transaction = client.transaction().await?;
        append(&transaction, &made).await?;
        tokio::time::sleep(Duration::from_millis(rng.random_range(0..40))).await;
        transaction.commit().await?;
        appended.committed.extend(made.iter().map(|made| made.id));
    }
    Ok(appended)
}

/// How many were killed while they had no session, no lanes, nothing under way, an open attempt.
#[derive(Debug, Default)]
struct Killed {
    without_session: usize,
    without_lanes: usize,
    between_attempts: usize,
    with_an_open_attempt: usize,
}

impl Killed {
    async fn count(&mut self, client: &Client, owner: &str) -> Result<()> {
        let reached = async |part: Part| -> Result<bool> {
            let row = client.query_one(part.reached(), &[&owner]).await?;
            Ok(row.try_get(0)?)
        };
        let found = if reached(Part::Sending).await? {
            &mut self.with_an_open_attempt
        } else if reached(Part::WithLanes).await? {
            &mut self.between_attempts
        } else if reached(Part::WithoutLanes).await? {
            &mut self.without_lanes
        } else {
            &mut self.without_session
        };
        *found += 1;
        Ok(())
    }

    fn in_every_part(&self) -> bool {
        let Self {
            without_session,
            without_lanes,
            between_attempts,
            with_an_open_attempt,
        } = *self;
        without_session > 0 && without_lanes > 0 && between_attempts > 0 && with_an_open_attempt > 0
    }
}

/// The primary receipts: event, stream and sequence.
async fn receipts(client: &Client) -> Result<Vec<(Uuid, String, u64)>> {
    let rows = client
        .query(
            "select event_id, shared ->> 'stream', number from postrider.receipts",
            &[],
        )
        .await?;
    rows.iter()
        .map(|row| {
            let number: i64 = row.try_get(2)?;
            Ok((row.try_get(0)?, row.try_get(1)?, number.try_into()?))
        })
        .collect()
}

fn ensure_same(what: &str, found: &BTreeSet<Uuid>, expected: &BTreeSet<Uuid>) -> Result<()> {
    let missing: Vec<_> = expected.difference(found).take(5).collect();
    let more: Vec<_> = found.difference(expected).take(5).collect();
    ensure!(
        missing.is_empty() && more.is_empty(),
        "{what}: {} instead of {}; missing {missing:?}, too many {more:?}",
        found.len(),
        expected.len(),
    );
    Ok(())
}

/// The database and the stream agree about every event.
async fn audit(client: &Client, appended: &Appended, stored: &[Stored]) -> Result<()> {
    let Appended {
        committed,
        rolled_back,
    } = appended;
    ensure!(committed.len() == EVENTS, "{} committed", committed.len());
    let rows = client
        .query("select event_id from postrider.events", &[])
        .await?;
    let events: BTreeSet<Uuid> = rows.iter().map(|row| row.get(0)).collect();
    ensure_same("events", &events, committed)?;

    let on_stream: BTreeMap<Uuid, u64> = stored
        .iter()
        .map(|message| (message.id, message.sequence))
        .collect();
    let ids: BTreeSet<Uuid> = on_stream.keys().copied().collect();
    ensure_same("ids on the stream", &ids, committed)?;
    ensure!(
        stored.len() == ids.len(),
        "{} messages have {} ids",
        stored.len(),
        ids.len()
    );
    ensure!(!rolled_back.is_empty(), "nothing was rolled back");
    ensure!(
        ids.is_disjoint(rolled_back),
        "an event that was rolled back is on the stream"
    );
    support::ensure_in_order(stored)?;

    let receipts = receipts(client).await?;
    ensure!(receipts.len() == EVENTS, "{} receipts", receipts.len());
    let with_receipt: BTreeSet<Uuid> = receipts.iter().map(|(event, ..)| *event).collect();
    ensure_same("events with a receipt", &with_receipt, committed)?;
    for (event, stream, sequence) in receipts {
        ensure!(
            stream == "KILLED" && on_stream[&event] == sequence,
            "the receipt of {event} names {stream} {sequence}, where another message is"
        );
    }
    for table in ["deliveries", "quarantine", "open_attempts"] {
        let left = count(client, &format!("select count(*) from postrider.{table}")).await?;
        ensure!(left == 0, "{left} rows left in {table}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_fifty_random_moments_nothing_is_lost_doubled_or_made_up() -> Result<()> {
    let seed: u64 = rand::rng().random();
    run(seed).await.with_context(|| format!("seed {seed}"))
}

async fn run(seed: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(seed);
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let destination = setup::destination("KILLED", Ordering::Key);
    setup::database(&url, vec![destination]).await?;
    let context = setup::stream(&nats.url(), "KILLED").await?;
    let client = connect(&url).await?;

    let (allow, allowed) = watch::channel(0);
    let appenders: Vec<_> = (0..APPENDERS)
        .map(|appender| {
            let (url, seed, allowed) = (url.clone(), rng.random(), allowed.clone());
            tokio::spawn(append_all(url, appender, seed, allowed))
        })
        .collect();
    let program = Program::new("relay")?;
    let mut killed = Killed::default();
    for kill in 0..KILLS {
        // Each life has events to send.
        allow.send_replace(TRANSACTIONS * (kill + 1) / KILLS);
        let owner = format!("life {kill}");
        let part = Part::ALL[kill % Part::ALL.len()];
        let mut command = relay(&url, &nats.url(), LEASE);
        command.args(["--owner", &owner]);
        program.spawn(command)?;
        // Between two looks a short part may be over; a kill at any other moment is as good.
        let reached = eventually_some(LEASE * 2, "the part", || async {
            let row = client.query_one(part.reached(), &[&owner]).await.ok()?;
            row.get::<_, bool>(0).then_some(())
        });
        drop(reached.await);
        let pause = rng.random_range(0..=part.pause_ms_max());
        tokio::time::sleep(Duration::from_millis(pause)).await;
        program.kill().await?;
        killed.count(&client, &owner).await?;
    }
    ensure!(killed.in_every_part(), "killed only {killed:?}");

    let mut appended = Appended::default();
    for appender in appenders {
        let part = appender.await??;
        appended.committed.extend(part.committed);
        appended.rolled_back.extend(part.rolled_back);
    }
    let mut last = relay(&url, &nats.url(), LEASE);
    last.arg("--until-empty");
    let last = tokio::time::timeout(WITHIN, Command::from(last).output()).await??;
    ensure!(
        last.status.success(),
        "{}",
        String::from_utf8_lossy(&last.stderr)
    );
    let stored = support::messages(&context, "KILLED").await?;
    audit(&client, &appended, &stored).await?;
    Ok(())
}
