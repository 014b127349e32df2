//! The writers' own log: what each transaction came to, as its writer knows it. Never what the
//! relay or the outbox say.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use uuid::Uuid;

use crate::{digest::Sha256, made::Made, writer::Ending};

/// An event whose transaction committed.
#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) key: String,
    pub(crate) turn: u64,
    pub(crate) destinations: &'static [&'static str],
    pub(crate) digest: Sha256,
}

impl From<&Made> for Committed {
    fn from(made: &Made) -> Self {
        Self {
            key: made.key.clone(),
            turn: made.turn,
            destinations: made.destinations(),
            digest: made.digest(),
        }
    }
}

/// How transactions ended.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Endings {
    pub(crate) committed: u64,
    pub(crate) rolled_back: u64,
    /// Failed before their COMMIT was sent.
    pub(crate) failed: u64,
    /// The answer to COMMIT was lost, and the database was asked later.
    pub(crate) unknown: u64,
    /// Of these: it had committed.
    pub(crate) unknown_committed: u64,
}

impl Endings {
    pub(crate) fn count(&mut self, ending: Ending) {
        match ending {
            Ending::Committed => self.committed += 1,
            Ending::RolledBack => self.rolled_back += 1,
            Ending::Failed => self.failed += 1,
            Ending::ProvedCommitted => {
                self.committed += 1;
                self.unknown += 1;
                self.unknown_committed += 1;
            }
            Ending::ProvedAbsent => self.unknown += 1,
        }
    }
}

/// What the writers know.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) committed: BTreeMap<Uuid, Committed>,
    /// Appended in transactions that did not commit. An id that was committed later is here too.
    pub(crate) undone: BTreeSet<Uuid>,
    /// The transactions that committed, as the writers name them.
    pub(crate) transactions: BTreeSet<Uuid>,
    pub(crate) endings: Endings,
    /// Answers to COMMIT that were lost on purpose.
    pub(crate) answers_lost: u64,
}

impl Known {
    /// Deliveries that all committed events must have.
    pub(crate) fn owed(&self) -> u64 {
        let events = self.committed.values();
        events.map(|event| event.destinations.len() as u64).sum()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Journal(Mutex<Known>);

impl Journal {
    /// The lock is never held across an await, and a panic while it is held leaves a log that is
    /// still true.
    pub(crate) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn committed(&self, transaction: Uuid, made: &[Made]) {
        let mut known = self.known();
        known.transactions.insert(transaction);
        known
            .committed
            .extend(made.iter().map(|made| (made.id, made.into())));
    }

    pub(crate) fn undone(&self, made: &[Made]) {
        self.known().undone.extend(made.iter().map(|made| made.id));
    }
}
