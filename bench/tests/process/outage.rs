//! JetStream is away for a minute while events are appended: the relay that was there before
//! delivers them all afterwards, and the outage is charged to no delivery.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Context as _, Result, ensure};
use postrider_contract::destination::Ordering;
use postrider_testkit::{Nats, Program, env, eventually};
use tokio::sync::watch;
use uuid::Uuid;

use crate::{
    setup,
    support::{self, Made, WITHIN, append, connect, count, relay},
};

const OUTAGE: Duration = Duration::from_secs(61);
const KEYS: usize = 20;

/// Appends one event of each key at a time until it is told to stop; the ids.
async fn append_until(url: String, mut stop: watch::Receiver<bool>) -> Result<BTreeSet<Uuid>> {
    let client = connect(&url).await?;
    let mut ids = BTreeSet::new();
    let mut turn = 0;
    while !*stop.borrow() {
        let made: Vec<Made> = (0..KEYS)
            .map(|key| Made::new(format!("key-{key}"), turn))
            .collect();
        append(&client, &made).await?;
        ids.extend(made.iter().map(|made| made.id));
        turn += 1;
        // A steady trickle, not a flood.
        drop(tokio::time::timeout(Duration::from_millis(50), stop.wait_for(|stop| *stop)).await);
    }
    Ok(ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_process_delivers_everything_after_a_minute_without_nats() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let destination = setup::destination("OUTAGE", Ordering::Key);
    setup::database(&url, vec![destination]).await?;
    setup::stream(&nats.url(), "OUTAGE").await?;
    let client = connect(&url).await?;
    let receipts = async || count(&client, "select count(*) from postrider.receipts").await;
    let program = Program::new("relay")?;
    program.spawn(relay(&url, &nats.url(), Duration::from_secs(3)))?;
    let pid = program.pid().context("the relay runs")?;
    let (stop, stopped) = watch::channel(false);
    let appending = tokio::spawn(append_until(url.clone(), stopped));
    eventually(WITHIN, "the first receipts", || async {
        receipts().await.is_ok_and(|receipts| receipts > 500)
    })
    .await?;

    nats.stop().await?;
    let began = tokio::time::Instant::now();
    eventually(WITHIN, "the outage to be shown", || async {
        count(&client, "select count(*) from postrider.breakers")
            .await
            .is_ok_and(|open| open == 1)
    })
    .await?;
    let before = receipts().await?;
    // The outage is the fault under test: it lasts its time.
    while began.elapsed() < OUTAGE {
        ensure_uncharged(&client).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    ensure!(receipts().await? == before, "a receipt without a server");
    let waiting = count(&client, "select count(*) from postrider.deliveries").await?;
    ensure!(waiting > 1_000, "only {waiting} events came meanwhile");

    nats.restart().await?;
    eventually(WITHIN, "what waited to be delivered", || async {
        ensure_uncharged(&client).await.is_ok()
            && receipts()
                .await
                .is_ok_and(|receipts| receipts > before + waiting)
    })
    .await?;
    stop.send_replace(true);
    let ids = appending.await??;
    eventually(WITHIN, "every event to be delivered", || async {
        receipts()
            .await
            .is_ok_and(|receipts| usize::try_from(receipts) == Ok(ids.len()))
    })
    .await?;
    ensure!(program.pid() == Some(pid), "the relay is another process");
    ensure_uncharged(&client).await?;

    let context = async_nats::jetstream::new(async_nats::connect(nats.url()).await?);
    let stored = support::messages(&context, "OUTAGE").await?;
    let on_stream: BTreeSet<Uuid> = stored.iter().map(|message| message.id).collect();
    ensure!(on_stream == ids, "other events than were appended");
    ensure!(stored.len() == ids.len(), "an event is stored twice");
    support::ensure_in_order(&stored)
}

/// No delivery has spent an attempt, and none ever was given up.
async fn ensure_uncharged(client: &tokio_postgres::Client) -> Result<()> {
    let charged = "select count(*) from postrider.deliveries where attempts > 0";
    ensure!(count(client, charged).await? == 0, "an attempt was charged");
    let quarantined = "select count(*) from postrider.quarantine";
    ensure!(count(client, quarantined).await? == 0, "one was given up");
    Ok(())
}
