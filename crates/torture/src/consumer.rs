//! A consumer of both streams, as a process of its own: a durable pull consumer with an inbox and
//! an effect in one transaction. It kills itself at the moment that a file names, and ends at the
//! first error: whoever started it starts it again.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, PullConsumer, pull},
};
use clap::Args;
use futures::StreamExt as _;
use tokio_postgres::Transaction;
use uuid::Uuid;

use crate::{digest::Sha256, writer::postgres::connect};

pub(crate) const TABLES: &str = "\
    create table torture.inbox (stream text, event_id uuid, digest text not null,
        primary key (stream, event_id));
    create table torture.effects (stream text not null, event_id uuid not null);
    create table torture.conflicts (stream text not null, event_id uuid not null);
    create table torture.redeliveries (count bigint not null);
    insert into torture.redeliveries values (0);";

pub(crate) const DURABLE: &str = "torture";
const BATCH_MAX: usize = 50;
const FETCH_WITHIN: std::time::Duration = std::time::Duration::from_millis(300);

/// When it is to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Its effects are committed, and the broker does not know.
    BeforeAck,
    AfterAck,
}

impl Moment {
    fn word(self) -> &'static str {
        match self {
            Self::BeforeAck => "before-ack",
            Self::AfterAck => "after-ack",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Consume {
    #[arg(long)]
    database: String,
    #[arg(long)]
    nats: String,
    #[arg(long)]
    stream: Vec<String>,
    #[arg(long)]
    folder: PathBuf,
}

/// Orders a consumer that works in `folder` to die.
pub(crate) fn order_death(folder: &Path, at: Moment) -> Result<()> {
    let new = folder.join("death.new");
    std::fs::write(&new, at.word())?;
    std::fs::rename(&new, folder.join("death")).context("ordering a death")
}

/// Whether the ordered death has come.
pub(crate) fn died(folder: &Path) -> bool {
    !folder.join("death").exists()
}

fn die_if_it_is_time(folder: &Path, now: Moment) {
    let order = folder.join("death");
    if std::fs::read_to_string(&order).is_ok_and(|at| at == now.word()) {
        // Gone before us, so that the next one lives.
        drop(std::fs::remove_file(&order));
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL)
            .expect("a process may kill itself");
    }
}

/// Makes the durable consumer of a stream.
pub(crate) async fn create(context: &jetstream::Context, stream: &str) -> Result<()> {
    let config = pull::Config {
        durable_name: Some(DURABLE.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: std::time::Duration::from_secs(3),
        ..pull::Config::default()
    };
    context
        .get_stream(stream)
        .await?
        .create_consumer(config)
        .await?;
    Ok(())
}

/// Consumes until something fails.
pub(crate) async fn consume(args: &Consume) -> Result<()> {
    let client = async_nats::connect(&args.nats).await?;
    let context = jetstream::new(client.clone());
    let mut database = connect(&args.database).await?;
    let mut consumers = Vec::new();
    for stream in &args.stream {
        let consumer: PullConsumer = context
            .get_stream(stream)
            .await?
            .get_consumer(DURABLE)
            .await
            .map_err(anyhow::Error::from_boxed)?;
        consumers.push((stream, consumer));
    }
    loop {
        for (stream, consumer) in &consumers {
            let fetching = consumer
                .fetch()
                .max_messages(BATCH_MAX)
                .expires(FETCH_WITHIN);
            let mut arriving = fetching.messages().await?;
            let mut messages = Vec::new();
            while let Some(message) = arriving.next().await {
                messages.push(message.map_err(anyhow::Error::from_boxed)?);
            }
            if messages.is_empty() {
                continue;
            }
            let transaction = database.transaction().await?;
            for message in &messages {
                apply(&transaction, stream, message).await?;
            }
            transaction.commit().await?;
            die_if_it_is_time(&args.folder, Moment::BeforeAck);
            for message in &messages {
                message.ack().await.map_err(anyhow::Error::from_boxed)?;
            }
            client.flush().await?;
            die_if_it_is_time(&args.folder, Moment::AfterAck);
        }
    }
}

/// The inbox lets an event through once.
async fn apply(
    transaction: &Transaction<'_>,
    stream: &str,
    message: &async_nats::Message,
) -> Result<()> {
    let headers = message
        .headers
        .as_ref()
        .context("a message without headers")?;
    let id = headers
        .get("Nats-Msg-Id")
        .context("a message without its id")?;
    let id: Uuid = id.as_str().parse()?;
    let digest = format!("{:?}", Sha256::of(&message.payload));
    let register = "insert into torture.inbox values ($1, $2, $3) on conflict do nothing";
    if transaction
        .execute(register, &[&stream, &id, &digest])
        .await?
        == 1
    {
        let effect = "insert into torture.effects values ($1, $2)";
        transaction.execute(effect, &[&stream, &id]).await?;
        return Ok(());
    }
    let again = "update torture.redeliveries set count = count + 1";
    transaction.execute(again, &[]).await?;
    let conflict = "insert into torture.conflicts select stream, event_id from torture.inbox \
                    where stream = $1 and event_id = $2 and digest <> $3";
    transaction
        .execute(conflict, &[&stream, &id, &digest])
        .await?;
    Ok(())
}
