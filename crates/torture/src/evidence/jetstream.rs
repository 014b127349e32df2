//! Whole streams, read message by message.

use std::time::Duration;

use anyhow::{Context as _, Result};
use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, pull},
};
use futures::StreamExt as _;

use super::Arrival;
use crate::digest::Sha256;

const NEXT_WITHIN: Duration = Duration::from_secs(30);

/// Every message of a stream, in its order.
pub(crate) async fn arrivals(context: &jetstream::Context, name: &str) -> Result<Vec<Arrival>> {
    let mut stream = context.get_stream(name).await?;
    let stored = usize::try_from(stream.info().await?.state.messages)?;
    let reading = pull::Config {
        ack_policy: AckPolicy::None,
        ..pull::Config::default()
    };
    let mut arriving = stream.create_consumer(reading).await?.messages().await?;
    let mut all = Vec::with_capacity(stored);
    while all.len() < stored {
        let next = tokio::time::timeout(NEXT_WITHIN, arriving.next()).await?;
        let message = next.context("the stream ended")??;
        let headers = message
            .headers
            .as_ref()
            .context("a message without headers")?;
        let id = headers
            .get("Nats-Msg-Id")
            .context("a message without its id")?;
        let info = message.info().map_err(anyhow::Error::from_boxed)?;
        all.push(Arrival {
            event: id.as_str().parse()?,
            digest: Sha256::of(&message.payload),
            number: Some(info.stream_sequence),
        });
    }
    Ok(all)
}
