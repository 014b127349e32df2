//! Reading a stream back: where its end is, and whether an event is in it.
//!
//! A stream keeps what was read, so looking takes nothing from anybody. What is found is proof.
//! What is not found may still come: see the page on what a probe proves.

use std::time::Duration;

use postrider_contract::{Digest, Receipt, destination::Serializer};
use postrider_transport::{Error, Probe, Probed, wire::payload_digest};
use tokio::time::Instant;

use crate::{
    ask::{Delivery, Heard, Start, Talk, Unanswered},
    link::Link,
    message::TAG,
    wire::Value,
};

/// Messages on their way to us while reading.
const PREFETCH: u16 = 100;
/// A stream says where a message is and never that it was the last. When nothing has come for this
/// long, the rest is taken for unread: an event that is there can be missed, and is then only not
/// found.
const IDLE: Duration = Duration::from_millis(400);

/// An offset that is in the stream, near its end; 0 where nothing is to be seen. What is sent after
/// this has a higher one.
pub(crate) async fn near_end(link: &Link, queue: &str) -> Result<i64, Unanswered> {
    let mut talk = Talk::begin(link).await?;
    talk.read_stream(queue, Start::Last, 1).await?;
    match talk.hear_within(IDLE).await? {
        Some(Heard::Delivery(delivery)) => Ok(offset(&delivery).unwrap_or(0)),
        Some(Heard::Method(_) | Heard::Closed(_) | Heard::Ended) | None => Ok(0),
    }
}

/// What looking takes beside the question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looking<'a> {
    pub(crate) queue: &'a str,
    pub(crate) serializer: Serializer,
    pub(crate) messages_max: u32,
    pub(crate) within: Duration,
}

pub(crate) async fn probe(
    link: &Link,
    looking: Looking<'_>,
    probe: &Probe,
) -> Result<Probed, Error> {
    let anchor = probe.anchor.as_ref().and_then(|anchor| anchor.as_number());
    let from = match anchor.and_then(|number| i64::try_from(number).ok()) {
        Some(offset) => offset,
        // The newest part, as much as one look-up may read.
        None => near_end(link, looking.queue)
            .await?
            .saturating_sub(looking.messages_max.into())
            .max(0),
    };
    let mut talk = Talk::begin(link).await?;
    talk.read_stream(looking.queue, Start::Offset(from), PREFETCH)
        .await?;
    let deadline = Instant::now() + looking.within;
    let wanted = probe.event_id.to_string();
    let mut read = 0;
    while read < looking.messages_max && Instant::now() < deadline {
        let delivery = match talk.hear_within(IDLE).await? {
            Some(Heard::Delivery(delivery)) => delivery,
            Some(Heard::Method(_) | Heard::Closed(_) | Heard::Ended) | None => break,
        };
        read += 1;
        if delivery.properties.message_id.as_deref() == Some(wanted.as_str()) {
            return Ok(judge(&delivery, looking.serializer, &probe.payload_digest));
        }
        if delivery.tag.is_multiple_of(u64::from(PREFETCH / 2)) {
            talk.read_up_to(delivery.tag);
        }
    }
    Ok(Probed::CannotTell {
        reason: format!(
            "not among the {read} messages of stream {:?} from offset {from} on; a copy may still \
             be on its way",
            looking.queue
        ),
    })
}

/// A message with the event's id is the event if its payload is, and it carries the tag that its
/// confirm would have had.
fn judge(delivery: &Delivery, serializer: Serializer, expected: &Digest) -> Probed {
    let cannot_tell = |reason: &str| Probed::CannotTell {
        reason: reason.to_owned(),
    };
    if payload_digest(serializer, &delivery.body).as_ref() != Some(expected) {
        return cannot_tell("the stream holds this id with another payload");
    }
    let tag = match delivery.properties.headers.get(TAG) {
        Some(Value::Number(tag)) => u64::try_from(*tag).ok(),
        Some(Value::Text(_) | Value::Flag(_) | Value::Table(_) | Value::Other) | None => None,
    };
    match tag {
        Some(delivery_tag) => Probed::Found(Receipt::Amqp {
            exchange: delivery.exchange.clone(),
            routing_key: delivery.routing_key.clone(),
            delivery_tag,
        }),
        None => cannot_tell("the stream holds this event, but somebody else put it there"),
    }
}

fn offset(delivery: &Delivery) -> Option<i64> {
    match delivery.properties.headers.get("x-stream-offset") {
        Some(Value::Number(offset)) => Some(*offset),
        Some(Value::Text(_) | Value::Flag(_) | Value::Table(_) | Value::Other) | None => None,
    }
}
