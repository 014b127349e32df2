//! A relay that is paused for longer than its lease: it may settle nothing afterwards, and its
//! acknowledgements are kept all the same.

use std::time::Duration;

use anyhow::Result;
use postrider_contract::destination::Ordering;
use postrider_testkit::{
    FaultProxy, Nats, Program, env, eventually,
    proxy::{Direction, Flow},
};

use crate::{
    setup,
    support::{connect, count, relay},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_paused_past_its_lease_hands_in_evidence_and_settles_nothing() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let store = setup::database(&url, vec![setup::destination("PAUSED", Ordering::Key)]).await?;
    let stream = setup::stream(&nats.url(), "PAUSED").await?;
    // The first relay's acknowledgements are held back, so that its sends are in flight.
    let proxy = FaultProxy::to_port(nats.port()).await?;
    let first = Program::new("first")?;
    // Long enough to be paused in the middle of a send.
    let through = format!("nats://{}", proxy.address());
    first.spawn(relay(&url, &through, Duration::from_secs(9)))?;
    let client = connect(&url).await?;
    let count = |query: &'static str| count(&client, query);
    setup::backlog(&store, 100, 300).await?;
    eventually(
        Duration::from_secs(30),
        "the first relay delivers",
        || async {
            count("select count(*) from postrider.receipts")
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
    second.spawn(relay(&url, &nats.url(), Duration::from_secs(3)))?;
    eventually(
        Duration::from_secs(60),
        "the second relay takes over",
        || async {
            count("select count(*) from postrider.receipts")
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
            count("select count(*) from postrider.duplicate_receipts")
                .await
                .is_ok_and(|n| n > 0)
        },
    )
    .await?;
    assert_eq!(count("select count(*) from postrider.receipts").await?, 200);
    assert_eq!(
        count("select count(distinct event_id) from postrider.receipts").await?,
        200
    );
    assert_eq!(count("select count(*) from postrider.deliveries").await?, 0);
    assert_eq!(setup::stored(&stream, "PAUSED").await?, 200);
    Ok(())
}
