//! The deliveries, sessions and lanes at one moment, small enough to be compared after every
//! write.

use postrider_contract::{Receipt, Timestamp};
use postrider_core::{AttemptId, SessionId, delivery::State};
use postrider_store_memory::model::{Model, facts::LaneFact};

use crate::{coverage::Happening, truth::Key};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) state: State,
    pub(crate) attempts: u32,
    /// The primary receipt and the attempt that it proves.
    pub(crate) receipt: Option<(AttemptId, Receipt)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeenSession {
    pub(crate) id: SessionId,
    pub(crate) expires_at: Timestamp,
    pub(crate) ended: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// In key order.
    pub(crate) deliveries: Vec<(Key, Seen)>,
    pub(crate) sessions: Vec<SeenSession>,
    pub(crate) lanes: Vec<LaneFact>,
    /// Attempts registered, and those of them that are not finished.
    pub(crate) attempts: usize,
    pub(crate) unfinished: Vec<AttemptId>,
    pub(crate) duplicates: usize,
}

/// One delivery that is not what it was.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) key: Key,
    /// `None`: it did not exist.
    pub(crate) from: Option<Seen>,
    /// `None`: it does not exist any more.
    pub(crate) to: Option<Seen>,
}

/// A row of the delivery table that a call walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    pub(crate) from: State,
    pub(crate) happening: Happening,
}

pub(crate) fn sessions(model: &Model) -> Vec<SeenSession> {
    model
        .session_facts()
        .map(|session| SeenSession {
            id: session.id,
            expires_at: session.expires_at,
            ended: session.ended.is_some(),
        })
        .collect()
}

impl Snapshot {
    pub(crate) fn of(model: &Model) -> Self {
        let open = model.open_facts().map(|open| {
            let seen = Seen {
                state: open.state,
                attempts: open.attempts,
                receipt: None,
            };
            ((open.destination, open.position), seen)
        });
        let closed = model.receipt_facts().map(|kept| {
            let seen = Seen {
                state: State::Acknowledged,
                attempts: 0,
                receipt: Some((kept.attempt, kept.receipt.clone())),
            };
            ((kept.destination, kept.position), seen)
        });
        let mut deliveries: Vec<_> = open.chain(closed).collect();
        deliveries.sort_by_key(|(key, _)| *key);
        let mut attempts = 0;
        let mut unfinished = Vec::new();
        for attempt in model.attempt_facts() {
            attempts += 1;
            if attempt.finished_at.is_none() {
                unfinished.push(attempt.id);
            }
        }
        Self {
            deliveries,
            sessions: sessions(model),
            lanes: model.lane_facts().collect(),
            attempts,
            unfinished,
            duplicates: model.duplicate_facts().count(),
        }
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Seen> {
        let found = self.deliveries.binary_search_by_key(&key, |(key, _)| *key);
        found.ok().map(|index| &self.deliveries[index].1)
    }

    pub(crate) fn changes(&self, after: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        let (mut old, mut new) = (
            self.deliveries.iter().peekable(),
            after.deliveries.iter().peekable(),
        );
        loop {
            let next = match (old.peek(), new.peek()) {
                (None, None) => return changes,
                (Some((key, _)), None) | (None, Some((key, _))) => *key,
                (Some((a, _)), Some((b, _))) => *a.min(b),
            };
            let from = old.next_if(|(key, _)| *key == next).map(|(_, seen)| seen);
            let to = new.next_if(|(key, _)| *key == next).map(|(_, seen)| seen);
            if from != to {
                changes.push(Change {
                    key: next,
                    from: from.cloned(),
                    to: to.cloned(),
                });
            }
        }
    }
}
