//! The limit: what the machine can do when nothing is promised. Reads the events in order,
//! publishes them with pipelined acknowledgements, and writes one progress row a batch.
//!
//! Measured with two kinds of message: bare, which is the payload under an id, and the same as the
//! relay's, headers included. The difference is the price of the message format, which is the
//! broker's more than anybody's; what the relay itself costs shows beside the second.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use async_nats::{HeaderMap, jetstream};
use futures::{StreamExt as _, stream::FuturesOrdered};
use postrider_contract::{
    Destination, Envelope,
    cloudevents::{Binding, rebind},
};
use postrider_core::Position;
use postrider_store::{Store as _, inspect::EventFilter};
use postrider_store_postgres::PostgresStore;
use postrider_transport::wire;
use tokio_postgres::types::ToSql;

const IN_FLIGHT_MAX: usize = 2_000;

/// `headers`: what every message carries besides its id. `batch`: events read together.
pub(crate) async fn run(
    database: &str,
    nats: &str,
    stream: &str,
    headers: &HeaderMap,
    batch: i64,
) -> Result<Duration> {
    let (client, connection) = tokio_postgres::connect(database, tokio_postgres::NoTls)
        .await
        .context("connecting")?;
    let connection = tokio::spawn(connection);
    client
        .batch_execute("drop table if exists limit_progress; create table limit_progress (position bigint not null)")
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
    let mut next = client.query(&read, &[&after, &batch]).await?;
    while !next.is_empty() {
        let rows = std::mem::take(&mut next);
        let last: i64 = rows[rows.len() - 1].get(0);
        let publish = async {
            for row in &rows {
                let id: String = row.get(1);
                let payload: Vec<u8> = row.get(2);
                let mut headers = headers.clone();
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
            ([&last, &batch], [&after]);
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

/// The headers of the first event's message to `destination`, as the relay makes them.
pub(crate) async fn headers(store: &PostgresStore, destination: &Destination) -> Result<HeaderMap> {
    let all = EventFilter::default();
    let first = store.events(&all, Position::START, 1).await?;
    let first = first.rows.first().context("nothing was appended")?;
    let event = store.event(first.event_id).await?;
    let stored = event.context("the first event is gone")?.event;
    let envelope: Envelope = serde_json::from_str(&stored.envelope)?;
    let event = wire::Event {
        envelope: &envelope,
        envelope_digest: &stored.envelope_digest,
        payload: &stored.payload,
        traceparent: stored.traceparent.as_deref(),
        tracestate: stored.tracestate.as_deref(),
        headers: &stored.headers,
    };
    let message = wire::message(&wire::Place::new(destination.clone()), &event, None)?;
    let mut headers = HeaderMap::new();
    for (name, value) in message.headers.iter() {
        let (name, value) = rebind(name, value, Binding::NATS);
        headers.insert(&*name, &*value);
    }
    Ok(headers)
}
