//! Questions about what a topic holds: anchors, probes and how far consumers have come.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use postrider_contract::{Receipt, destination::Serializer};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, ConsumerPosition, Error, Message, Probe, Probed, wire::payload_digest,
};
use tokio::time::Instant;

use crate::{
    Kafka,
    anchor::{self, Ends},
    blocking, broken, error_of,
    flight::Spot,
    link::Link,
    reader, record, topics,
};

/// The end of every partition that a message may go to. What the producer itself was told is
/// taken where there is something: nothing that is sent now comes before it.
pub(crate) async fn anchor(
    kafka: &Kafka,
    messages: &[Arc<Message>],
) -> Result<Option<Anchor>, Error> {
    let link = kafka.connected().await?;
    let deadline = Instant::now() + kafka.settings.api_timeout;
    let mut by_topic: BTreeMap<Arc<str>, Vec<&Message>> = BTreeMap::new();
    for message in messages {
        // One that has no topic is never sent.
        if let Ok(topic) = kafka.place.topic(&message.routing) {
            by_topic.entry(topic).or_default().push(message);
        }
    }
    let topics: BTreeSet<_> = by_topic.keys().cloned().collect();
    let counts = kafka.counts(&link, topics, deadline).await;
    let mut spots = BTreeSet::new();
    for (topic, messages) in &by_topic {
        let Some(Ok(count)) = counts.get(topic) else {
            // Nothing can be sent to it now.
            continue;
        };
        for message in messages {
            match kafka.place.partition_of(message, *count) {
                Some(partition) => drop(spots.insert(spot(topic, partition))),
                None => spots.extend((0..*count).map(|partition| spot(topic, partition))),
            }
        }
    }
    let (known, unknown): (Vec<_>, Vec<_>) = spots
        .into_iter()
        .partition(|spot| link.next(spot).is_some());
    let mut ends = Ends::new();
    let mut put = |spot: Spot, end: u64| {
        let topic = ends.entry(spot.topic.as_ref().to_owned()).or_default();
        topic.insert(spot.partition, end);
    };
    for spot in known {
        if let Some(next) = link.next(&spot) {
            put(spot, next);
        }
    }
    for (spot, end) in kafka.ends(&link, unknown, deadline).await {
        put(spot, end.map_err(error_of)?);
    }
    Ok(anchor::write(&ends))
}

fn spot(topic: &Arc<str>, partition: u32) -> Spot {
    Spot {
        topic: Arc::clone(topic),
        partition,
    }
}

/// Looks for one event.
///
/// Absence is never proven. A copy may still be in the socket buffers between the producer that
/// was given up and a broker that reads slowly or was paused, and nothing bounds for how long. It
/// would take a fence: a producer with a transactional id, whose successor's `InitProducerId` makes
/// the brokers refuse whatever the old one still has under way.
pub(crate) async fn probe(kafka: &Kafka, probe: &Probe) -> Result<Probed, Error> {
    let cannot_tell = |reason: String| Ok(Probed::CannotTell { reason });
    let place = Arc::clone(&kafka.place);
    let Ok(topic) = place.topic(&probe.routing) else {
        return cannot_tell("the event has no topic here".to_owned());
    };
    let link = kafka.connected().await?;
    let deadline = Instant::now() + kafka.settings.api_timeout;
    let counts = kafka
        .counts(&link, BTreeSet::from([Arc::clone(&topic)]), deadline)
        .await;
    let count = match counts.into_iter().next() {
        Some((_, Ok(count))) => count,
        Some((
            _,
            Err(Outcome::Retryable {
                code: "topic_missing",
                detail,
                ..
            }),
        )) => {
            return cannot_tell(detail);
        }
        Some((_, Err(outcome))) => return Err(error_of(outcome)),
        None => return cannot_tell("the topic was not asked for".to_owned()),
    };
    let ends = probe.anchor.as_ref().and_then(anchor::read);
    let ends = ends
        .and_then(|mut ends| ends.remove(&*topic))
        .unwrap_or_default();
    // A topic that was given more partitions has its keys elsewhere since: those of the anchor
    // count too.
    let own: Vec<u32> = match place.partition(&probe.partition_key, count) {
        Some(partition) => vec![partition],
        None => (0..count).collect(),
    };
    let partitions: BTreeSet<u32> = own.into_iter().chain(ends.keys().copied()).collect();
    let spans: BTreeMap<u32, u64> = partitions
        .into_iter()
        .filter(|partition| *partition < count)
        .map(|partition| (partition, ends.get(&partition).copied().unwrap_or(0)))
        .collect();
    let (id, digest) = (probe.event_id.to_string(), probe.payload_digest);
    let settings = Arc::clone(&kafka.settings);
    let (from, name) = (spans.clone(), Arc::clone(&topic));
    let scanned = blocking(move || {
        let mut found: Option<(Spot, u64, bool)> = None;
        let header = record::id_header(place.serializer);
        let complete = reader::scan(
            &settings,
            header,
            &name,
            &spans,
            deadline.into_std(),
            |seen| {
                if seen.id != id {
                    return ControlFlow::Continue(());
                }
                let same = is_payload(place.serializer, seen.value, &digest);
                found = Some((spot(&name, seen.partition), seen.offset, same));
                ControlFlow::Break(())
            },
        )?;
        Ok::<_, Error>((found, complete))
    });
    let (found, complete) = scanned.await.map_err(|error| broken(&error))??;
    match found {
        Some((spot, offset, true)) => Ok(Probed::Found(receipt(&link, kafka, &spot, offset))),
        Some((spot, offset, false)) => cannot_tell(format!(
            "{topic}/{} holds this id at {offset} with another payload",
            spot.partition
        )),
        None if complete => cannot_tell(format!(
            "not in {topic} from {from:?} (partition: offset) to the end; a copy may still be under way"
        )),
        None => cannot_tell(format!(
            "not among the first {} messages after the anchor",
            kafka.settings.lookup_messages_max
        )),
    }
}

/// No value is the empty payload of a tombstone.
fn is_payload(
    serializer: Serializer,
    value: Option<&[u8]>,
    digest: &postrider_contract::Digest,
) -> bool {
    payload_digest(serializer, value.unwrap_or_default()).as_ref() == Some(digest)
}

fn receipt(link: &Link, kafka: &Kafka, spot: &Spot, offset: u64) -> Receipt {
    match link.receipt(spot, offset) {
        Outcome::Acknowledged(receipt) => receipt,
        Outcome::Retryable { .. } | Outcome::Rejected { .. } | Outcome::Unknown { .. } => {
            Receipt::Kafka {
                cluster: kafka.place.cluster.clone(),
                topic: spot.topic.as_ref().to_owned(),
                partition: spot.partition,
                offset,
            }
        }
    }
}

/// The committed offsets of a consumer group in the topics that the target can make.
pub(crate) async fn positions(
    kafka: &Kafka,
    consumer: &str,
) -> Result<Vec<ConsumerPosition>, Error> {
    let link = kafka.connected().await?;
    let (settings, place) = (Arc::clone(&kafka.settings), Arc::clone(&kafka.place));
    let group = consumer.to_owned();
    let asked = blocking(move || {
        let only = place.constant.as_deref();
        let topics = topics::list(link.client(), only, settings.api_timeout)?;
        let partitions: Vec<(String, u32)> = topics
            .into_iter()
            .filter(|topic| place.makes(&topic.name))
            .flat_map(|topic| (0..topic.partitions).map(move |p| (topic.name.clone(), p)))
            .filter(|(_, partition)| place.explicit.is_none_or(|own| own == *partition))
            .collect();
        let (progress, known) = reader::progress(&settings, &group, &partitions)?;
        Ok((partitions, progress, known))
    });
    let (partitions, progress, known) = asked
        .await
        .map_err(|error| broken(&error))?
        .map_err(|error| topics::unavailable(&error))?;
    if !known {
        return Err(Error::Misconfigured {
            code: "consumer_unknown",
            message: format!(
                "the cluster knows no consumer group {consumer:?}; give the consumer's group id as \
                 its name"
            ),
        });
    }
    let position = |((topic, partition), one): ((String, u32), reader::Progress)| {
        // What was dropped before it was read is not waiting any more.
        let next = one.committed.unwrap_or(0).max(one.low);
        ConsumerPosition {
            place: format!("{topic}/{partition}"),
            confirmed: one
                .committed
                .and_then(|next| next.checked_sub(1))
                .map(|last| last.to_string()),
            waiting: Some(one.high.saturating_sub(next)),
            exact: true,
        }
    };
    Ok(partitions.into_iter().zip(progress).map(position).collect())
}
