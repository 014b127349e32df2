//! What the simulator knows by itself: what the application committed, what the brokers were
//! given and answered. Invariants compare the database with this, never with the relay's word.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use postrider_contract::{Destination, Digest, EventId, Receipt, destination::OnQuarantine};
use postrider_core::{AttemptId, DestinationId, Position, SessionId};

/// One delivery.
pub(crate) type Key = (DestinationId, Position);

/// A life of a worker: its number, and how often it was started before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LifeId {
    pub(crate) worker: usize,
    pub(crate) life: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) id: EventId,
    /// Known once it is committed.
    pub(crate) envelope_digest: Option<Digest>,
    pub(crate) payload: Bytes,
    pub(crate) key_hash: i64,
    pub(crate) destinations: BTreeSet<DestinationId>,
    /// When it became visible, in steps of the simulator.
    pub(crate) step: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Ack {
    pub(crate) life: LifeId,
    pub(crate) key: Key,
    pub(crate) receipt: Receipt,
}

#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// Counts observations: an order without a clock.
    pub(crate) step: u64,
    pub(crate) committed: BTreeMap<Position, Committed>,
    /// Appended in transactions that are open or were rolled back.
    pub(crate) uncommitted: BTreeMap<Position, Committed>,
    pub(crate) positions: BTreeMap<EventId, Position>,
    /// By place, as registered.
    pub(crate) destinations: BTreeMap<DestinationId, Destination>,
    pub(crate) sessions: BTreeMap<SessionId, LifeId>,
    /// The step at which a worker first read a delivery.
    pub(crate) fetched: BTreeMap<Key, u64>,
    /// Attempts whose messages were given to a transport.
    pub(crate) sent: BTreeSet<AttemptId>,
    /// Refusals and rejections that a broker answered.
    pub(crate) charged: BTreeMap<Key, u32>,
    /// Acknowledgements that a worker was given.
    pub(crate) acks: Vec<Ack>,
    /// Replayed by an operator.
    pub(crate) replayed: BTreeSet<Key>,
    /// Ever seen quarantined.
    pub(crate) quarantined: BTreeSet<Key>,
    /// Somebody handed in evidence with another digest for one of this key.
    pub(crate) conflicts: BTreeSet<(DestinationId, i64)>,
}

impl Truth {
    /// A committed event.
    pub(crate) fn event(&self, id: EventId) -> Option<&Committed> {
        self.committed.get(self.positions.get(&id)?)
    }

    pub(crate) fn key_hash(&self, position: Position) -> Option<i64> {
        self.committed.get(&position).map(|event| event.key_hash)
    }

    /// Whether `earlier` may be overtaken at a destination by a later one of its key without a
    /// fault: it appeared after the later one had been read, or a person let the key pass.
    pub(crate) fn may_be_overtaken(
        &self,
        destination: DestinationId,
        earlier: Position,
        later: Position,
    ) -> bool {
        let appeared = self.committed.get(&earlier).map_or(0, |event| event.step);
        let read = self.fetched.get(&(destination, later)).copied();
        let passes = self
            .destinations
            .get(&destination)
            .is_some_and(|known| known.on_quarantine == OnQuarantine::Pass)
            && self.quarantined.contains(&(destination, earlier));
        let conflict = self
            .key_hash(earlier)
            .is_some_and(|key| self.conflicts.contains(&(destination, key)));
        passes || conflict || read.is_some_and(|read| read <= appeared)
    }
}
