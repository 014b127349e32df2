//! The limit: what the machine can do when nothing is promised. Reads the events in order,
//! publishes them with pipelined acknowledgements, and writes one progress row a batch.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::{HeaderMap, jetstream};
use futures::{StreamExt as _, stream::FuturesOrdered};
use tokio_postgres::types::ToSql;

const BATCH: i64 = 1_000;
const IN_FLIGHT_MAX: usize = 2_000;

pub(crate) async fn run(database: &str, nats: &str, stream: &str) -> Result<Duration> {
    let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls)
        .await
        .context("connecting")?;
    let connection = tokio::spawn(connection);
    client
        .batch_execute("create table if not exists limit_progress (position bigint not null)")
        .await?;
    client
        .batch_execute("insert into limit_progress values (0)")
        .await?;
    let read = client
        .prepare(
            "select position, event_id::text, payload from postrider.events \
             where position > $1 order by position limit $2",
        )
        .await?;
    let write = client
        .prepare("update limit_progress set position = $1")
        .await?;
    let context = jetstream::new(async_nats::connect(nats).await?);
    let started = Instant::now();
    let mut after = 0_i64;
    let mut acks = FuturesOrdered::new();
    let mut next = client.query(&read, &[&after, &BATCH]).await?;
    while !next.is_empty() {
        let rows = std::mem::take(&mut next);
        let last: i64 = rows[rows.len() - 1].get(0);
        let publish = async {
            for row in &rows {
                let id: String = row.get(1);
                let payload: Vec<u8> = row.get(2);
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Msg-Id", id.as_str());
                let ack = context
                    .publish_with_headers(format!("{stream}.event"), headers, payload.into())
                    .await?;
                acks.push_back(ack.into_future());
                while acks.len() >= IN_FLIGHT_MAX {
                    acks.next().await.transpose()?;
                }
            }
            anyhow::Ok(())
        };
        let (from, done): ([&(dyn ToSql + Sync); 2], [&(dyn ToSql + Sync); 1]) =
            ([&last, &BATCH], [&after]);
        let (published, read_ahead, progress) = tokio::join!(
            publish,
            client.query(&read, &from),
            client.execute(&write, &done),
        );
        published?;
        progress?;
        next = read_ahead?;
        after = last;
    }
    while let Some(ack) = acks.next().await {
        ack?;
    }
    client.execute(&write, &[&after]).await?;
    let took = started.elapsed();
    drop(client);
    connection.await??;
    Ok(took)
}
