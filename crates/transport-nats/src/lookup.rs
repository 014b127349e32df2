//! Looking for messages by their id, without sending anything: reads forward from the anchor on the
//! subject, up to the end as it was when the look-up began.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use futures::future::try_join_all;
use postrider_contract::{EventId, Timestamp};
use postrider_transport::{Anchor, Error, Probe, Probed, wire::payload_digest};

use crate::{
    Place,
    connection::Settings,
    link::Link,
    reading::{Copy, Readings, Start},
    receipt,
    stream::{self, ApiError, Info, Stored},
};

/// Clocks of this host and of the server may differ by this much when a start is found by time.
const CLOCK_MARGIN: Duration = Duration::from_secs(300);
/// Halvings when a start is looked for by time: more than a 64-bit sequence can need.
const HALVINGS_MAX: u32 = 64;

/// Messages that are asked for at a time, where each question brings another one.
const QUESTIONS_MAX: usize = 16;

/// What to look for, by subject.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    subjects: BTreeMap<String, Subject>,
}

#[derive(Debug)]
struct Subject {
    events: Vec<(EventId, usize)>,
    /// The earliest anchor; `None`: at least one has none.
    anchor: Option<u64>,
    first_sent_ago: Duration,
}

/// What was seen.
#[derive(Debug)]
pub(crate) struct Found {
    /// By index in the batch.
    pub(crate) seen: BTreeMap<usize, Copy>,
    /// Everything from the anchor on was read.
    pub(crate) complete: bool,
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
            events: Vec::new(),
            anchor,
            first_sent_ago,
        });
        subject.events.push((event_id, index));
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
    readings: &Readings,
    wanted: &Wanted,
) -> Result<Found, ApiError> {
    let info = stream::info(link, &place.stream).await?;
    let mut found = Found {
        seen: BTreeMap::new(),
        complete: true,
    };
    let max = usize::try_from(settings.lookup_messages_max).unwrap_or(usize::MAX);
    for (subject, want) in &wanted.subjects {
        let start = want.start(&info);
        let last = info.state.last_seq;
        if !readings.resume(&info.created, last, subject, start) {
            let from = first_of(link, place, &info, start).await?;
            readings.begin(subject, from, start, max);
        }
        let mut questions = 1;
        let mut room_was_made = false;
        loop {
            let state = readings.with(subject, |reading| {
                let all = want
                    .events
                    .iter()
                    .all(|(id, _)| reading.find(id.0).is_some());
                (all, reading.next(), reading.len() >= max)
            });
            let Some((false, next, full)) = state else {
                break;
            };
            if next > last {
                break;
            }
            if !full {
                questions = read_on(link, place, readings, subject, next..=last, questions).await?;
            } else if room_was_made {
                found.complete = false;
                break;
            } else {
                room_was_made = true;
                let from = first_of(link, place, &info, start).await?;
                readings.with(subject, |reading| reading.forget_before(from, start));
            }
        }
        readings.with(subject, |reading| {
            for (id, index) in &want.events {
                if let Some(copy) = reading.find(id.0) {
                    found.seen.insert(*index, copy);
                }
            }
        });
    }
    Ok(found)
}

/// Reads messages of a subject in a range that is not empty and taken already: `questions` at a
/// time, so that a slow network does not make each wait for the one before it. Answers how many to
/// ask the next time.
///
/// The question for a sequence is answered with the first message at or after it. Where the last
/// question has no answer, the rest of the range holds nothing.
async fn read_on(
    link: &Link,
    place: &Place,
    readings: &Readings,
    subject: &str,
    range: RangeInclusive<u64>,
    questions: usize,
) -> Result<usize, ApiError> {
    let end = *range.end();
    let asked = range
        .take(questions)
        .map(|sequence| stream::next(link, &place.stream, sequence, subject));
    let answers = try_join_all(asked).await?;
    let nothing_follows = answers.last().is_some_and(Option::is_none);
    let mut messages: Vec<Stored> = answers.into_iter().flatten().collect();
    messages.dedup_by_key(|stored| stored.sequence);
    readings.with(subject, |reading| {
        for stored in &messages {
            reading.add(stored.sequence, stored.message_id.as_deref(), &stored.body);
        }
        if nothing_follows {
            reading.read_to(end + 1);
        }
    });
    Ok(if messages.len() * 2 > questions {
        (questions * 2).min(QUESTIONS_MAX)
    } else {
        (questions / 2).max(1)
    })
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
    wanted.add(
        0,
        probe.event_id,
        subject.clone(),
        Some(anchor),
        Duration::MAX,
    );
    // By itself: absence must not rest on what was read for other reasons.
    let mut found = find(link, place, settings, &Readings::default(), &wanted).await?;
    if let Some(copy) = found.seen.remove(&0) {
        let stored = stream::next(link, &place.stream, copy.sequence, &subject).await?;
        let stored = stored.filter(|stored| stored.sequence == copy.sequence);
        let Some(stored) = stored else {
            return cannot_tell("it was there, and has just been removed".to_owned());
        };
        return if payload_digest(place.serializer, &stored.body) == Some(probe.payload_digest) {
            Ok(Probed::Found(receipt(link, &place.stream, copy.sequence)))
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

impl Subject {
    /// From where everything must be read.
    fn start(&self, info: &Info) -> Start {
        // Sequences start at 1, and an empty stream says 0.
        let (first, last) = (info.state.first_seq.max(1), info.state.last_seq);
        if let Some(anchor) = self.anchor {
            // Beyond the end: the stream was made anew since.
            let is_beyond = anchor > last + 1;
            return Start::Sequence(if is_beyond { first } else { anchor.max(first) });
        }
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        match unix.checked_sub(self.first_sent_ago.saturating_add(CLOCK_MARGIN)) {
            Some(since) => Start::Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
            None => Start::Sequence(first),
        }
    }
}

async fn first_of(link: &Link, place: &Place, info: &Info, start: Start) -> Result<u64, ApiError> {
    match start {
        Start::Sequence(first) => Ok(first),
        Start::Time(since) => by_time(link, place, info, since).await,
    }
}

/// The first message stored at `since` or later, in microseconds since 1970, by halving.
async fn by_time(link: &Link, place: &Place, info: &Info, since: i64) -> Result<u64, ApiError> {
    let (mut low, mut high) = (info.state.first_seq.max(1), info.state.last_seq + 1);
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
