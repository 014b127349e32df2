//! What look-ups have read of a stream. One that ran out of time goes on there the next time, and
//! what was read while looking for one event serves for all others. It reads nothing itself.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use postrider_contract::Digest;
use uuid::Uuid;

/// A message that was read: the first with its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) sequence: u64,
    /// Of its body.
    pub(crate) digest: Digest,
}

/// From where a look-up must have read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Sequence(u64),
    /// All that was stored since, in microseconds since 1970.
    Time(i64),
}

impl Start {
    fn time(self) -> Option<i64> {
        match self {
            Self::Sequence(_) => None,
            Self::Time(since) => Some(since),
        }
    }
}

/// Of one stream, by subject.
#[derive(Debug, Default)]
pub(crate) struct Readings(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// When the stream was made: nothing that was read of another one of its name counts.
    created: String,
    subjects: BTreeMap<String, Reading>,
}

/// All messages of one subject in a range of the stream.
#[derive(Debug)]
pub(crate) struct Reading {
    from: u64,
    /// All that was stored since then, in microseconds since 1970, is at `from` or later.
    since: Option<i64>,
    /// The next sequence to read.
    next: u64,
    /// Those in the range, in order. With an id: the first of an event.
    order: VecDeque<(u64, Option<Uuid>)>,
    copies: HashMap<Uuid, Copy>,
}

impl Readings {
    /// Goes on with what was read of `subject` if that begins where it must. False: it does not,
    /// and [`Readings::begin`] is to say where it begins.
    pub(crate) fn resume(&self, created: &str, last: u64, subject: &str, start: Start) -> bool {
        let mut inner = self.inner();
        if inner.created != created {
            inner.subjects.clear();
            created.clone_into(&mut inner.created);
        }
        // A stream that ends before what was read has lost it, as by a crash of its server.
        inner.subjects.retain(|_, reading| reading.next <= last + 1);
        let reading = inner.subjects.get(subject);
        reading.is_some_and(|reading| match start {
            Start::Sequence(start) => (reading.from..=reading.next).contains(&start),
            Start::Time(start) => reading.since.is_some_and(|since| since <= start),
        })
    }

    /// Begins at `from`. `max` messages are remembered of all subjects together, once more than one
    /// was read.
    pub(crate) fn begin(&self, subject: &str, from: u64, start: Start, max: usize) {
        let mut inner = self.inner();
        inner.subjects.remove(subject);
        let remembered: usize = inner
            .subjects
            .values()
            .map(|reading| reading.len() + 1)
            .sum();
        if remembered > max {
            inner.subjects.clear();
        }
        let reading = Reading {
            from,
            since: start.time(),
            next: from,
            order: VecDeque::new(),
            copies: HashMap::new(),
        };
        inner.subjects.insert(subject.to_owned(), reading);
    }

    /// What was read of `subject`; nothing is if somebody else's look-up made room for its own.
    pub(crate) fn with<T>(&self, subject: &str, act: impl FnOnce(&mut Reading) -> T) -> Option<T> {
        self.inner().subjects.get_mut(subject).map(act)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reading {
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    pub(crate) fn find(&self, id: Uuid) -> Option<Copy> {
        self.copies.get(&id).copied()
    }

    /// Forgets what lies before `from`, where `start` is, to make room for what follows.
    pub(crate) fn forget_before(&mut self, from: u64, start: Start) {
        while let Some((sequence, id)) = self.order.front()
            && *sequence < from
        {
            if let Some(id) = id {
                self.copies.remove(id);
            }
            self.order.pop_front();
        }
        if from > self.from {
            self.from = from;
            self.since = start.time();
            self.next = self.next.max(from);
        }
    }

    /// A message that follows all that was read. Others than events have other ids.
    pub(crate) fn add(&mut self, sequence: u64, message_id: Option<&str>, body: &[u8]) {
        self.next = self.next.max(sequence + 1);
        let id = message_id.and_then(event_id);
        let id = id.filter(|id| !self.copies.contains_key(id));
        self.order.push_back((sequence, id));
        if let Some(id) = id {
            let digest = Digest::of_bytes(body);
            self.copies.insert(id, Copy { sequence, digest });
        }
    }

    /// There is nothing more before `sequence`.
    pub(crate) fn read_to(&mut self, sequence: u64) {
        self.next = self.next.max(sequence);
    }
}

/// The id of an event, which is written in one way only.
fn event_id(text: &str) -> Option<Uuid> {
    let id = Uuid::try_parse(text).ok()?;
    let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
    (id.hyphenated().encode_lower(&mut buffer) == text).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: &str = "orders";

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn add(readings: &Readings, sequence: u64, number: u128) {
        let text = id(number).to_string();
        readings.with(SUBJECT, |reading| {
            reading.add(sequence, Some(&text), b"body")
        });
    }

    fn sequence(readings: &Readings, number: u128) -> Option<u64> {
        let found = readings.with(SUBJECT, |reading| reading.find(id(number)));
        found.flatten().map(|copy| copy.sequence)
    }

    #[test]
    fn what_was_read_for_one_event_serves_for_another() {
        let readings = Readings::default();
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Time(50)));
        readings.begin(SUBJECT, 5, Start::Time(50), 10);
        add(&readings, 6, 1);
        add(&readings, 7, 2);
        // The first copy counts.
        add(&readings, 9, 1);
        for (start, there) in [
            (Start::Time(60), true),
            (Start::Time(49), false),
            (Start::Sequence(5), true),
            (Start::Sequence(10), true),
            (Start::Sequence(4), false),
            (Start::Sequence(11), false),
        ] {
            assert_eq!(
                readings.resume("monday", 20, SUBJECT, start),
                there,
                "{start:?}"
            );
        }
        assert_eq!(sequence(&readings, 1), Some(6));
        assert_eq!(sequence(&readings, 2), Some(7));
        assert_eq!(sequence(&readings, 3), None);
        assert_eq!(readings.with(SUBJECT, |reading| reading.next()), Some(10));
    }

    #[test]
    fn a_stream_that_lost_what_was_read_is_read_again() {
        let readings = Readings::default();
        assert!(!readings.resume("monday", 9, SUBJECT, Start::Sequence(1)));
        readings.begin(SUBJECT, 1, Start::Sequence(1), 10);
        add(&readings, 9, 1);
        assert!(readings.resume("monday", 9, SUBJECT, Start::Sequence(1)));
        assert!(!readings.resume("monday", 8, SUBJECT, Start::Sequence(1)));
    }

    #[test]
    fn a_stream_that_was_made_anew_is_read_from_the_start() {
        let readings = Readings::default();
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Sequence(1)));
        readings.begin(SUBJECT, 1, Start::Sequence(1), 10);
        assert!(readings.resume("monday", 20, SUBJECT, Start::Sequence(1)));
        assert!(!readings.resume("tuesday", 20, SUBJECT, Start::Sequence(1)));
    }

    #[test]
    fn room_is_made_before_the_start_and_of_other_subjects() {
        let readings = Readings::default();
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Sequence(1)));
        readings.begin(SUBJECT, 1, Start::Sequence(1), 1);
        (1..=3).for_each(|number| add(&readings, number, number.into()));
        readings.with(SUBJECT, |reading| {
            reading.forget_before(3, Start::Sequence(3));
        });

        assert_eq!(
            (sequence(&readings, 2), sequence(&readings, 3)),
            (None, Some(3))
        );
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Sequence(2)));
        add(&readings, 4, 4);
        readings.begin("others", 1, Start::Sequence(1), 1);
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Sequence(3)));
    }

    #[test]
    fn another_writing_of_an_id_is_another_message() {
        let readings = Readings::default();
        assert!(!readings.resume("monday", 20, SUBJECT, Start::Sequence(1)));
        readings.begin(SUBJECT, 1, Start::Sequence(1), 10);
        let text = id(1).simple().to_string();
        readings.with(SUBJECT, |reading| {
            reading.add(1, Some(&text), b"");
            reading.add(2, Some("Nats-Msg-Id of somebody"), b"");
            reading.add(3, None, b"");
        });
        assert_eq!(sequence(&readings, 1), None);
        assert_eq!(readings.with(SUBJECT, |reading| reading.next()), Some(4));
    }
}
