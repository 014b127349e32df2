//! Reading a topic without leaving a trace: from a place in each partition to its end as it is
//! when the reading begins. Everything here blocks.

use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use postrider_transport::Error;
use rdkafka::{
    Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
    message::{Headers, Message as _},
    types::RDKafkaErrorCode as Code,
};

use crate::{connection::Settings, outcome::code_of};

/// The group that a reader is named after; it joins none and commits nothing.
const GROUP: &str = "postrider-reader";
/// Errors after which the library goes on by itself.
const PASSING: [Code; 5] = [
    Code::BrokerTransportFailure,
    Code::AllBrokersDown,
    Code::OperationTimedOut,
    Code::NotLeaderForPartition,
    Code::LeaderNotAvailable,
];
const POLL: Duration = Duration::from_millis(200);

/// A message that was read.
pub(crate) struct Seen<'a> {
    pub(crate) partition: u32,
    pub(crate) offset: u64,
    /// The event's id, where its header says one.
    pub(crate) id: &'a str,
    pub(crate) value: Option<&'a [u8]>,
}

/// Reads what is in `spans` (partition to first offset) and shows it until all is read, `visit`
/// says that it is enough, or `max` messages were read. The answer is whether nothing was left
/// out.
pub(crate) fn scan(
    settings: &Settings,
    header: &str,
    topic: &str,
    spans: &BTreeMap<u32, u64>,
    deadline: Instant,
    mut visit: impl FnMut(&Seen<'_>) -> ControlFlow<()>,
) -> Result<bool, Error> {
    let consumer: BaseConsumer = settings
        .consumer(GROUP)
        .create()
        .map_err(|e| failed(topic, &e))?;
    let mut open = assign(&consumer, topic, spans, deadline)?;
    let mut left = settings.lookup_messages_max;
    while !open.is_empty() {
        if left == 0 {
            return Ok(false);
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(Error::Unavailable {
                code: "lookup_failed",
                message: format!("{topic} was not read to its end in time"),
            });
        }
        let message = match consumer.poll(POLL.min(deadline - now)) {
            None => continue,
            Some(Ok(message)) => message,
            Some(Err(KafkaError::PartitionEOF(partition))) => {
                open.remove(&partition);
                continue;
            }
            // It tries again by itself.
            Some(Err(error)) if PASSING.contains(&code_of(&error)) => continue,
            Some(Err(error)) => return Err(failed(topic, &error)),
        };
        left -= 1;
        let Some(end) = open.get(&message.partition()).copied() else {
            continue;
        };
        let (Ok(partition), Ok(offset)) = (
            u32::try_from(message.partition()),
            u64::try_from(message.offset()),
        ) else {
            continue;
        };
        let id = message.headers().and_then(|headers| {
            let own = headers.iter().find(|found| found.key == header)?;
            std::str::from_utf8(own.value?).ok()
        });
        let seen = Seen {
            partition,
            offset,
            id: id.unwrap_or_default(),
            value: message.payload(),
        };
        if visit(&seen).is_break() {
            return Ok(true);
        }
        if offset + 1 >= end {
            open.remove(&message.partition());
        }
    }
    Ok(true)
}

/// Points the consumer at what is there of the spans; gives the end of each that is not empty.
fn assign(
    consumer: &BaseConsumer,
    topic: &str,
    spans: &BTreeMap<u32, u64>,
    deadline: Instant,
) -> Result<BTreeMap<i32, u64>, Error> {
    // It must be gone before the consumer: one that is still alive keeps its drop waiting.
    let mut list = TopicPartitionList::new();
    let mut open = BTreeMap::new();
    for (&partition, &from) in spans {
        let partition = i32::try_from(partition).unwrap_or(i32::MAX);
        let (low, high) = consumer
            .fetch_watermarks(topic, partition, left_of(deadline))
            .map_err(|error| failed(topic, &error))?;
        let (low, high) = (
            u64::try_from(low).unwrap_or(0),
            u64::try_from(high).unwrap_or(0),
        );
        // Beyond the end: the log was cut or made anew since.
        let from = if from > high { low } else { from.max(low) };
        if from >= high {
            continue;
        }
        let offset = Offset::Offset(i64::try_from(from).unwrap_or(i64::MAX));
        list.add_partition_offset(topic, partition, offset)
            .map_err(|error| failed(topic, &error))?;
        open.insert(partition, high);
    }
    if !open.is_empty() {
        consumer
            .assign(&list)
            .map_err(|error| failed(topic, &error))?;
    }
    Ok(open)
}

fn left_of(deadline: Instant) -> Duration {
    // Zero would mean no limit in some of the library's calls.
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}

fn failed(topic: &str, error: &KafkaError) -> Error {
    Error::Unavailable {
        code: "lookup_failed",
        message: format!("{topic} cannot be read: {error}"),
    }
}

/// How far a consumer group has come in the partitions of some topics: the committed offset, if
/// any, and the log's first and next offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    pub(crate) committed: Option<u64>,
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// The progress of a group in each partition given. Also whether the cluster knows the group.
pub(crate) fn progress(
    settings: &Settings,
    group: &str,
    partitions: &[(String, u32)],
) -> Result<(Vec<Progress>, bool), KafkaError> {
    let timeout = settings.api_timeout;
    let consumer: BaseConsumer = settings.consumer(group).create()?;
    let committed = {
        let mut list = TopicPartitionList::new();
        for (topic, partition) in partitions {
            list.add_partition(topic, i32::try_from(*partition).unwrap_or(i32::MAX));
        }
        let list = consumer.committed_offsets(list, timeout)?;
        let of = |topic: &str, partition: u32| {
            let found = list.find_partition(topic, i32::try_from(partition).ok()?)?;
            match found.offset() {
                Offset::Offset(offset) => u64::try_from(offset).ok(),
                Offset::Beginning
                | Offset::End
                | Offset::Stored
                | Offset::Invalid
                | Offset::OffsetTail(_) => None,
            }
        };
        let committed = partitions
            .iter()
            .map(|(topic, partition)| of(topic, *partition));
        committed.collect::<Vec<_>>()
    };
    let mut progress = Vec::with_capacity(partitions.len());
    for ((topic, partition), committed) in partitions.iter().zip(committed) {
        let partition = i32::try_from(*partition).unwrap_or(i32::MAX);
        let (low, high) = consumer.fetch_watermarks(topic, partition, timeout)?;
        progress.push(Progress {
            committed,
            low: u64::try_from(low).unwrap_or(0),
            high: u64::try_from(high).unwrap_or(0),
        });
    }
    let known = progress.iter().any(|one| one.committed.is_some())
        || consumer
            .fetch_group_list(Some(group), timeout)?
            .groups()
            .iter()
            .any(|found| found.name() == group && found.state() != "Dead");
    Ok((progress, known))
}
