//! Real processes, a real Postgres, a real JetStream: the relay is killed again and again, and
//! afterwards the database and the stream must agree about every event.

#[path = "../src/setup.rs"]
mod setup;

use std::time::Duration;

use anyhow::{Result, ensure};
use postrider_contract::destination::Ordering;
use postrider_testkit::{
    FaultProxy, Nats, Program, env, eventually,
    postgres::query_column,
    proxy::{Direction, Flow},
};
use tokio::process::Command;

const EVENTS: usize = 6_000;
const KILLS: u64 = 15;

fn relay(database: &str, nats: &str, until_empty: bool) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_postrider-bench"));
    command
        .args(["relay", "--lease-ms", "3000", "--batch-max", "100"])
        .args(["--database", database, "--nats", nats])
        .env("RUST_LOG", "warn");
    if until_empty {
        command.arg("--until-empty");
    }
    command
}

async fn number(url: &str, query: &str) -> Result<u64> {
    Ok(query_column(url, query).await?[0].parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_nothing_is_lost_and_each_event_has_one_receipt() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let store = setup::database(&url, setup::destination("KILLED", Ordering::Key)).await?;
    let stream = setup::stream(&nats.url(), "KILLED").await?;

    let appending = tokio::spawn(async move {
        for _ in 0..30 {
            setup::backlog(&store, EVENTS / 30, 300).await?;
        }
        anyhow::Ok(())
    });
    // Each life is a little longer than the one before: the kills fall into every part of it,
    // the taking over from the killed one included.
    let program = Program::new("relay")?;
    for kill in 0..KILLS {
        program.spawn(relay(&url, &nats.url(), false))?;
        tokio::time::sleep(Duration::from_millis(150 + kill * 90)).await;
        program.kill().await?;
    }
    appending.await??;
    let last = Command::from(relay(&url, &nats.url(), true)).output();
    let last = tokio::time::timeout(Duration::from_secs(90), last).await??;
    ensure!(
        last.status.success(),
        "{}",
        String::from_utf8_lossy(&last.stderr)
    );

    let events = u64::try_from(EVENTS)?;
    let count = |query: &'static str| number(&url, query);
    assert_eq!(
        count("select count(*)::text from postrider.events").await?,
        events
    );
    assert_eq!(
        count("select count(*)::text from postrider.deliveries").await?,
        0
    );
    assert_eq!(
        count("select count(*)::text from postrider.receipts").await?,
        events
    );
    assert_eq!(
        count("select count(distinct event_id)::text from postrider.receipts").await?,
        events
    );
    assert_eq!(
        count("select count(*)::text from postrider.quarantine").await?,
        0
    );
    assert_eq!(
        setup::stored(&stream, "KILLED").await?,
        events,
        "one message for each event"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_process_goes_on_when_nats_comes_back() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let store = setup::database(&url, setup::destination("OUTAGE", Ordering::Key)).await?;
    setup::stream(&nats.url(), "OUTAGE").await?;
    let program = Program::new("relay")?;
    program.spawn(relay(&url, &nats.url(), false))?;
    setup::backlog(&store, 500, 300).await?;
    let delivered = async |count: u64| {
        eventually(
            Duration::from_secs(60),
            "the events have receipts",
            || async {
                number(&url, "select count(*)::text from postrider.receipts")
                    .await
                    .is_ok_and(|receipts| receipts == count)
            },
        )
        .await
    };
    delivered(500).await?;
    nats.kill().await?;
    setup::backlog(&store, 500, 300).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let charged = "select count(*)::text from postrider.deliveries where attempts > 0";
    assert_eq!(
        number(&url, charged).await?,
        0,
        "an outage costs no attempt"
    );
    nats.restart().await?;
    delivered(1_000).await?;
    let context = async_nats::jetstream::new(async_nats::connect(nats.url()).await?);
    assert_eq!(setup::stored(&context, "OUTAGE").await?, 1_000);
    Ok(())
}

/// With a lease that is long enough to be paused in the middle of a send.
fn paused_relay(database: &str, nats: &str) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_postrider-bench"));
    command
        .args(["relay", "--lease-ms", "9000", "--batch-max", "100"])
        .args(["--database", database, "--nats", nats])
        .env("RUST_LOG", "warn");
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_paused_past_its_lease_hands_in_evidence_and_settles_nothing() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let store = setup::database(&url, setup::destination("PAUSED", Ordering::Key)).await?;
    let stream = setup::stream(&nats.url(), "PAUSED").await?;
    // The first relay's acknowledgements are held back, so that its sends are in flight.
    let proxy = FaultProxy::to_port(nats.port()).await?;
    let first = Program::new("first")?;
    first.spawn(paused_relay(&url, &format!("nats://{}", proxy.address())))?;
    let count = |query: &'static str| number(&url, query);
    setup::backlog(&store, 100, 300).await?;
    eventually(
        Duration::from_secs(30),
        "the first relay delivers",
        || async {
            count("select count(*)::text from postrider.receipts")
                .await
                .is_ok_and(|n| n == 100)
        },
    )
    .await?;
    proxy.set(Direction::ServerToClient, Flow::Hold);
    setup::backlog(&store, 100, 300).await?;
    eventually(
        Duration::from_secs(30),
        "the second hundred is stored",
        || async {
            setup::stored(&stream, "PAUSED")
                .await
                .is_ok_and(|n| n == 200)
        },
    )
    .await?;
    first.pause()?;

    let second = Program::new("second")?;
    second.spawn(relay(&url, &nats.url(), false))?;
    eventually(
        Duration::from_secs(60),
        "the second relay takes over",
        || async {
            count("select count(*)::text from postrider.receipts")
                .await
                .is_ok_and(|n| n == 200)
        },
    )
    .await?;
    proxy.heal().await?;
    first.resume()?;
    // The same acknowledgements again, from a session that has ended: kept, and nothing else.
    eventually(
        Duration::from_secs(30),
        "the late receipts are kept",
        || async {
            count("select count(*)::text from postrider.duplicate_receipts")
                .await
                .is_ok_and(|n| n > 0)
        },
    )
    .await?;
    assert_eq!(
        count("select count(*)::text from postrider.receipts").await?,
        200
    );
    assert_eq!(
        count("select count(distinct event_id)::text from postrider.receipts").await?,
        200
    );
    assert_eq!(
        count("select count(*)::text from postrider.deliveries").await?,
        0
    );
    assert_eq!(setup::stored(&stream, "PAUSED").await?, 200);
    Ok(())
}
