//! How far look-ups have read, so that one which ran out of time goes on there the next time. What
//! is stored behind that place later is still ahead of it. It reads nothing itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Events that are remembered at most. Past it all are forgotten, and read from their anchors again.
const EVENTS_MAX: usize = 4_096;

/// Of one stream.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    read: Mutex<Read>,
}

#[derive(Debug, Default)]
struct Read {
    /// When the stream was made: another one of its name is read from the start.
    created: String,
    /// By event id: it is at no lower sequence.
    next: BTreeMap<String, u64>,
}

impl Progress {
    /// Where to go on for all of these events; `None`: at least one was not looked for yet.
    pub(crate) fn next<'a>(
        &self,
        created: &str,
        mut events: impl Iterator<Item = &'a String>,
    ) -> Option<u64> {
        let read = self.read();
        if read.created != created {
            return None;
        }
        events
            .try_fold(u64::MAX, |least, event| {
                read.next.get(event).map(|next| least.min(*next))
            })
            .filter(|next| *next < u64::MAX)
    }

    fn note<'a>(&self, created: &str, missing: impl Iterator<Item = &'a str>, next: u64) {
        let mut read = self.read();
        if read.created != created || read.next.len() > EVENTS_MAX {
            created.clone_into(&mut read.created);
            read.next.clear();
        }
        for event in missing {
            let known = read.next.entry(event.to_owned()).or_default();
            *known = next.max(*known);
        }
    }

    fn forget(&self, event: &str) {
        self.read().next.remove(event);
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One look-up under way. What it read counts, however it ends.
#[derive(Debug)]
pub(crate) struct Reading<'a> {
    progress: &'a Progress,
    created: &'a str,
    missing: BTreeSet<&'a str>,
    /// The next sequence to read.
    pub(crate) sequence: u64,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(
        progress: &'a Progress,
        created: &'a str,
        events: impl Iterator<Item = &'a String>,
        sequence: u64,
    ) -> Self {
        Self {
            progress,
            created,
            missing: events.map(String::as_str).collect(),
            sequence,
        }
    }

    /// Found: should it be looked for again, it must be found again.
    pub(crate) fn found(&mut self, event: &str) {
        self.missing.remove(event);
        self.progress.forget(event);
    }

    pub(crate) fn is_missing(&self, event: &str) -> bool {
        self.missing.contains(event)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.missing.is_empty()
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let missing = self.missing.iter().copied();
        self.progress.note(self.created, missing, self.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_up_goes_on_where_the_last_one_stopped_and_never_past_what_it_found() {
        let progress = Progress::default();
        let events = ["a".to_owned(), "b".to_owned()];
        assert_eq!(progress.next("monday", events.iter()), None);
        let mut reading = Reading::new(&progress, "monday", events.iter(), 5);
        reading.sequence = 9;
        drop(reading);
        assert_eq!(progress.next("monday", events.iter()), Some(9));
        let mut reading = Reading::new(&progress, "monday", events.iter(), 9);
        reading.found("a");
        assert!(reading.is_missing("b") && !reading.is_missing("a") && !reading.is_over());
        reading.sequence = 12;
        drop(reading);
        assert_eq!(progress.next("monday", events[1..].iter()), Some(12));
        assert_eq!(
            progress.next("monday", events.iter()),
            None,
            "a is read again"
        );
    }

    #[test]
    fn a_stream_that_was_made_anew_is_read_from_the_start() {
        let progress = Progress::default();
        let events = ["a".to_owned()];
        drop(Reading::new(&progress, "monday", events.iter(), 7));
        assert_eq!(progress.next("tuesday", events.iter()), None);
        drop(Reading::new(&progress, "tuesday", events.iter(), 3));
        assert_eq!(progress.next("tuesday", events.iter()), Some(3));
    }
}
