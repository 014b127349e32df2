//! What the process tests share: relays, appends in transactions of the test's own, and the
//! messages of a stream as a consumer reads them.

use std::{collections::BTreeMap, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, pull},
};
use futures::StreamExt as _;
use tokio_postgres::{Client, GenericClient, NoTls, types::Json};
use uuid::Uuid;

use crate::setup;

/// Generous against a busy machine: what is waited for takes a second or two.
pub(crate) const WITHIN: Duration = Duration::from_secs(60);

/// A relay whose deadlines all follow from its lease.
pub(crate) fn relay(database: &str, nats: &str, lease: Duration) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postrider-bench"));
    command
        .args(["relay", "--batch-max", "100", "--lease-ms"])
        .arg(lease.as_millis().to_string())
        .args(["--database", database, "--nats", nats])
        .env("RUST_LOG", "warn");
    command
}

/// A connection for looking and appending. It ends with its client.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

pub(crate) async fn count(client: &Client, query: &str) -> Result<i64> {
    let row = client.query_one(query, &[]).await.context("counting")?;
    Ok(row.try_get(0)?)
}

/// An event to append: who it is, whose turn it is within its key, and how large.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) id: Uuid,
    pub(crate) key: String,
    /// Counts up within the key, in commit order.
    pub(crate) turn: u64,
    pub(crate) filler: usize,
}

impl Made {
    pub(crate) fn new(key: String, turn: u64) -> Self {
        Self {
            id: Uuid::now_v7(),
            key,
            turn,
            filler: 200,
        }
    }
}

/// Appends within the transaction that `client` is.
pub(crate) async fn append(client: &impl GenericClient, made: &[Made]) -> Result<()> {
    let events: Vec<_> = made
        .iter()
        .map(|made| {
            serde_json::json!({
                "event_type": setup::EVENT_TYPE,
                "aggregate_type": "bench",
                "aggregate_id": made.key,
                "event_id": made.id,
                "partition_key": made.key,
                "payload_json": { "turn": made.turn, "filler": "x".repeat(made.filler) },
            })
        })
        .collect();
    let rows = client
        .query(
            "select event_id from postrider.append_batch($1::json)",
            &[&Json(events)],
        )
        .await
        .context("appending")?;
    ensure!(rows.len() == made.len(), "not all were appended");
    Ok(())
}

/// A message as the stream has it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) id: Uuid,
    pub(crate) sequence: u64,
    pub(crate) key: String,
    pub(crate) turn: u64,
}

/// Every message of a stream, in its order.
pub(crate) async fn messages(context: &jetstream::Context, name: &str) -> Result<Vec<Stored>> {
    let stored = usize::try_from(setup::stored(context, name).await?)?;
    let consumer = context
        .get_stream(name)
        .await?
        .create_consumer(pull::Config {
            ack_policy: AckPolicy::None,
            ..pull::Config::default()
        })
        .await?;
    let mut arriving = consumer.messages().await?;
    let mut all = Vec::with_capacity(stored);
    while all.len() < stored {
        let next = tokio::time::timeout(WITHIN, arriving.next()).await?;
        let message = next.context("the stream ended")??;
        let headers = message.headers.as_ref().context("no headers")?;
        let header = |name| headers.get(name).context(name).map(|value| value.as_str());
        let payload: serde_json::Value = serde_json::from_slice(&message.payload)?;
        all.push(Stored {
            id: header("Nats-Msg-Id")?.parse()?,
            sequence: message
                .info()
                .map_err(anyhow::Error::from_boxed)?
                .stream_sequence,
            key: header("ce-partitionkey")?.to_owned(),
            turn: payload["turn"].as_u64().context("no turn")?,
        });
    }
    Ok(all)
}

/// The turns of each key in stream order.
pub(crate) fn turns(stored: &[Stored]) -> BTreeMap<&str, Vec<u64>> {
    let mut turns: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for message in stored {
        turns.entry(&message.key).or_default().push(message.turn);
    }
    turns
}

/// Each key's turns are 0, 1, 2 and so on: complete, once, and in commit order.
pub(crate) fn ensure_in_order(stored: &[Stored]) -> Result<()> {
    for (key, turns) in turns(stored) {
        let in_order = turns.iter().copied().eq(0..turns.len() as u64);
        ensure!(in_order, "{key} was stored as {turns:?}");
    }
    Ok(())
}
