//! A transaction that took its position before another and commits after it (ORD-1): a running
//! relay waits for nobody, and misses nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use postrider_contract::destination::Ordering;
use postrider_testkit::{Nats, Program, env, eventually};

use crate::{
    setup,
    support::{self, Made, WITHIN, append, connect, count, relay},
};

#[tokio::test(flavor = "multi_thread")]
async fn ord_1_what_commits_late_is_sent_and_what_rolls_back_is_not() -> Result<()> {
    let url = env::postgres().create_database().await?;
    let nats = Nats::start(&env::nats_server_current()).await?;
    let destination = setup::destination("LATE", Ordering::Key);
    setup::database(&url, vec![destination]).await?;
    let context = setup::stream(&nats.url(), "LATE").await?;
    let program = Program::new("relay")?;
    program.spawn(relay(&url, &nats.url(), Duration::from_secs(3)))?;
    let client = connect(&url).await?;
    let delivered = async |expected: i64| -> Result<()> {
        eventually(WITHIN, "the receipts", || async {
            count(&client, "select count(*) from postrider.receipts")
                .await
                .is_ok_and(|receipts| receipts == expected)
        })
        .await
    };

    let [mut late, mut doomed] = [connect(&url).await?, connect(&url).await?];
    let first = Made::new("a".to_owned(), 0);
    let never = Made::new("b".to_owned(), 0);
    let late = late.transaction().await?;
    append(&late, std::slice::from_ref(&first)).await?;
    let doomed = doomed.transaction().await?;
    append(&doomed, std::slice::from_ref(&never)).await?;
    let others: Vec<Made> = (0..100)
        .map(|turn| Made::new("c".to_owned(), turn))
        .collect();
    append(&client, &others).await?;
    // Both are still open: what came after them does not wait.
    delivered(100).await?;
    late.commit().await?;
    delivered(101).await?;
    doomed.rollback().await?;
    append(&client, &[Made::new("b".to_owned(), 0)]).await?;
    delivered(102).await?;

    let stored = support::messages(&context, "LATE").await?;
    ensure!(stored.len() == 102 && stored[100].id == first.id);
    ensure!(stored.iter().all(|message| message.id != never.id));
    support::ensure_in_order(&stored)
}
