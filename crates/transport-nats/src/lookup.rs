//! Looking for messages by their id, without sending anything: reads forward from the anchor,
//! message by message on the subject, up to the end as it was when the look-up began.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use postrider_contract::{EventId, Receipt, Timestamp};
use postrider_transport::{Anchor, Error, Probe, Probed, wire::payload_digest};

use crate::{
    Place,
    connection::Settings,
    link::Link,
    progress::{Progress, Reading},
    receipt,
    stream::{self, ApiError, Info, Stored},
};

/// Clocks of this host and of the server may differ by this much when a start is found by time.
const CLOCK_MARGIN: Duration = Duration::from_secs(300);
/// Halvings when a start is looked for by time: more than a 64-bit sequence can need.
const HALVINGS_MAX: u32 = 64;

/// What to look for, by subject.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    subjects: BTreeMap<String, Subject>,
}

#[derive(Debug)]
struct Subject {
    events: BTreeMap<String, usize>,
    /// The earliest anchor; `None`: at least one has none.
    anchor: Option<u64>,
    first_sent_ago: Duration,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Found {
    /// By index in the batch.
    pub(crate) seen: BTreeMap<usize, Seen>,
    /// Everything from the anchor on was read.
    pub(crate) complete: bool,
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) receipt: Receipt,
    pub(crate) body: Bytes,
}

impl Wanted {
    pub(crate) fn add(
        &mut self,
        index: usize,
        event_id: EventId,
        subject: String,
        anchor: Option<u64>,
        first_sent_ago: Duration,
    ) {
        let subject = self.subjects.entry(subject).or_insert_with(|| Subject {
            events: BTreeMap::new(),
            anchor,
            first_sent_ago,
        });
        subject.events.insert(event_id.to_string(), index);
        subject.anchor = subject
            .anchor
            .zip(anchor)
            .map(|(own, other)| own.min(other));
        subject.first_sent_ago = subject.first_sent_ago.max(first_sent_ago);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subjects.is_empty()
    }
}

/// Looks for all of them.
pub(crate) async fn find(
    link: &Link,
    place: &Place,
    settings: &Settings,
    progress: &Progress,
    wanted: &Wanted,
) -> Result<Found, ApiError> {
    let info = stream::info(link, &place.stream).await?;
    let mut found = Found {
        seen: BTreeMap::new(),
        complete: true,
    };
    let mut left = settings.lookup_messages_max;
    for (subject, want) in &wanted.subjects {
        let events = want.events.keys();
        let first = match progress.next(&info.created, events.clone()) {
            Some(next) => next,
            None => start(link, place, &info, want).await?,
        };
        let mut reading = Reading::new(progress, &info.created, events, first);
        while !reading.is_over() && reading.sequence <= info.state.last_seq {
            if left == 0 {
                found.complete = false;
                return Ok(found);
            }
            left -= 1;
            let next = stream::next(link, &place.stream, reading.sequence, subject).await?;
            let Some(stored) = next else {
                reading.sequence = info.state.last_seq + 1;
                break;
            };
            reading.sequence = stored.sequence + 1;
            // The first copy is the one that counts, as in the server's own dedup.
            if let Some(id) = &stored.message_id
                && reading.is_missing(id)
                && let Some(&index) = want.events.get(id)
            {
                reading.found(id);
                found.seen.insert(index, seen(link, place, stored));
            }
        }
    }
    Ok(found)
}

/// Looks for one event, for the port's probe.
///
/// Absence is proven for a sealed stream only. Anywhere else a copy may still be under way: in the
/// buffers of a connection that is gone for us and not yet for the server, or between the servers
/// of a cluster, for a time that nothing bounds.
pub(crate) async fn probe(
    link: &Link,
    place: &Place,
    settings: &Settings,
    probe: &Probe,
) -> Result<Probed, Error> {
    let cannot_tell = |reason: String| Ok(Probed::CannotTell { reason });
    let Ok(subject) = place.subject.render(&probe.routing) else {
        return cannot_tell("the event has no subject here".to_owned());
    };
    let anchor = probe.anchor.as_ref().and_then(Anchor::as_number);
    let anchor = anchor.unwrap_or(0);
    let mut wanted = Wanted::default();
    // Without an anchor and without a time, everything that is stored is read.
    wanted.add(0, probe.event_id, subject, Some(anchor), Duration::MAX);
    // By itself: absence must not rest on what was read for other reasons.
    let mut found = find(link, place, settings, &Progress::default(), &wanted).await?;
    if let Some(seen) = found.seen.remove(&0) {
        return if payload_digest(place.serializer, &seen.body) == Some(probe.payload_digest) {
            Ok(Probed::Found(seen.receipt))
        } else {
            cannot_tell("the stream holds this id with another payload".to_owned())
        };
    }
    if !found.complete {
        let max = settings.lookup_messages_max;
        return cannot_tell(format!(
            "not among the first {max} messages after the anchor"
        ));
    }
    let info = stream::info(link, &place.stream).await?;
    let from = anchor.max(1);
    let keeps_all = info.config.retention == "limits"
        && info.state.num_deleted == 0
        && info.state.first_seq.max(1) <= from;
    if info.config.sealed && keeps_all {
        return Ok(Probed::ProvenAbsent);
    }
    cannot_tell(format!(
        "not among the messages {from} to {}; a copy may still be under way",
        info.state.last_seq
    ))
}

/// Where to start reading.
async fn start(link: &Link, place: &Place, info: &Info, want: &Subject) -> Result<u64, ApiError> {
    // Sequences start at 1, and an empty stream says 0.
    let (first, last) = (info.state.first_seq.max(1), info.state.last_seq);
    match want.anchor {
        // Beyond the end: the stream was made anew since.
        Some(anchor) if anchor > last + 1 => Ok(first),
        Some(anchor) => Ok(anchor.max(first)),
        None => by_time(link, place, first, last, want.first_sent_ago).await,
    }
}

/// The first message stored since shortly before `ago`, by halving.
async fn by_time(
    link: &Link,
    place: &Place,
    first: u64,
    last: u64,
    ago: Duration,
) -> Result<u64, ApiError> {
    let now = std::time::SystemTime::now();
    let unix = now
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    let Some(since) = unix.checked_sub(ago.saturating_add(CLOCK_MARGIN)) else {
        return Ok(first);
    };
    let since = i64::try_from(since.as_micros()).unwrap_or(i64::MAX);
    let (mut low, mut high) = (first, last + 1);
    for _ in 0..HALVINGS_MAX {
        if low >= high {
            break;
        }
        let middle = low + (high - low) / 2;
        let stored = stream::next(link, &place.stream, middle, ">").await?;
        let time = stored.and_then(|stored| stored.time.parse::<Timestamp>().ok());
        match time {
            Some(time) if time.unix_micros() < since => low = middle + 1,
            Some(_) | None => high = middle,
        }
    }
    Ok(low)
}

fn seen(link: &Link, place: &Place, stored: Stored) -> Seen {
    Seen {
        receipt: receipt(link, &place.stream, stored.sequence),
        body: stored.body.into(),
    }
}
