//! What is stored, row by row, for an oracle that checks it from outside. Borrowed and in key
//! order; nothing here decides or changes anything.

use std::collections::{BTreeMap, BTreeSet};

use postrider_contract::{Destination, Digest, Receipt, Timestamp};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId, delivery::State};
use postrider_store::{dispatch::StoredEvent, inspect::QuarantineReason};

use super::Model;

/// A committed event.
#[derive(Clone, Copy, Debug)]
pub struct EventFact<'a> {
    pub position: Position,
    pub event: &'a StoredEvent,
    pub key_hash: i64,
    /// What its frozen delivery set prescribes.
    pub destinations: &'a BTreeSet<DestinationId>,
}

/// An open delivery.
#[derive(Clone, Copy, Debug)]
pub struct OpenFact<'a> {
    pub destination: DestinationId,
    pub position: Position,
    pub key_hash: i64,
    pub lane: Lane,
    pub state: State,
    /// Charged since append or replay.
    pub attempts: u32,
    pub available_at: Timestamp,
    /// It failed, was replayed, or its session was lost.
    pub waited: bool,
    pub quarantine: Option<&'a QuarantineReason>,
}

/// A receipt that was kept.
#[derive(Clone, Copy, Debug)]
pub struct ReceiptFact<'a> {
    pub destination: DestinationId,
    pub position: Position,
    pub attempt: AttemptId,
    pub accepted_at: Timestamp,
    pub receipt: &'a Receipt,
    /// It came by the evidence path.
    pub late: bool,
}

/// A registered attempt.
#[derive(Clone, Copy, Debug)]
pub struct AttemptFact<'a> {
    pub id: AttemptId,
    pub session: SessionId,
    pub destination: DestinationId,
    pub registered_at: Timestamp,
    pub members: &'a [Position],
    pub finished_at: Option<Timestamp>,
    /// (code, detail) of the members that were not acknowledged, once it is finished.
    pub exceptions: Option<&'a BTreeMap<Position, (String, String)>>,
}

#[derive(Clone, Copy, Debug)]
pub struct SessionFact<'a> {
    pub id: SessionId,
    pub opened_at: Timestamp,
    pub expires_at: Timestamp,
    pub exclusive: bool,
    /// With the reason.
    pub ended: Option<&'a (Timestamp, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneFact {
    pub destination: DestinationId,
    pub lane: Lane,
    pub holder: Option<SessionId>,
}

impl Model {
    pub fn event_facts(&self) -> impl Iterator<Item = EventFact<'_>> {
        self.events.iter().map(|(position, event)| EventFact {
            position: *position,
            event: &event.stored,
            key_hash: event.key_hash,
            destinations: &event.destinations,
        })
    }

    /// In (destination, position) order.
    pub fn open_facts(&self) -> impl Iterator<Item = OpenFact<'_>> {
        self.open
            .iter()
            .map(|((destination, position), open)| OpenFact {
                destination: *destination,
                position: *position,
                key_hash: open.key_hash,
                lane: open.lane,
                state: open.state.state(),
                attempts: open.attempts,
                available_at: open.available_at,
                waited: open.waited,
                quarantine: match &open.state {
                    super::OpenState::Quarantined(reason) => Some(reason),
                    super::OpenState::Pending | super::OpenState::Unknown => None,
                },
            })
    }

    /// The primary receipts, in (destination, position) order.
    pub fn receipt_facts(&self) -> impl Iterator<Item = ReceiptFact<'_>> {
        self.receipts.iter().map(|(key, kept)| fact(*key, kept))
    }

    /// The duplicate receipts, in (destination, position) order.
    pub fn duplicate_facts(&self) -> impl Iterator<Item = ReceiptFact<'_>> {
        self.duplicates
            .iter()
            .flat_map(|(key, kept)| kept.iter().map(|kept| fact(*key, kept)))
    }

    pub fn attempt_facts(&self) -> impl Iterator<Item = AttemptFact<'_>> {
        self.attempts.iter().map(|(id, attempt)| AttemptFact {
            id: *id,
            session: attempt.session,
            destination: attempt.destination,
            registered_at: attempt.registered_at,
            members: &attempt.members,
            finished_at: attempt.finished.as_ref().map(|finish| finish.at),
            exceptions: attempt.finished.as_ref().map(|finish| &finish.exceptions),
        })
    }

    pub fn session_facts(&self) -> impl Iterator<Item = SessionFact<'_>> {
        self.sessions.iter().map(|(id, session)| SessionFact {
            id: *id,
            opened_at: session.opened_at,
            expires_at: session.expires_at,
            exclusive: session.exclusive,
            ended: session.ended.as_ref(),
        })
    }

    pub fn lane_facts(&self) -> impl Iterator<Item = LaneFact> {
        self.lanes
            .iter()
            .map(|((destination, lane), holder)| LaneFact {
                destination: *destination,
                lane: *lane,
                holder: holder.map(|(session, _)| session),
            })
    }

    /// Registered destinations with their digests, in order of registration.
    pub fn destination_facts(
        &self,
    ) -> impl Iterator<Item = (DestinationId, &Destination, &Digest, bool)> {
        self.destinations.iter().map(|(id, registered)| {
            let suspended = registered.suspended.is_some();
            (*id, &registered.destination, &registered.digest, suspended)
        })
    }
}

fn fact((destination, position): (DestinationId, Position), kept: &super::Kept) -> ReceiptFact<'_> {
    ReceiptFact {
        destination,
        position,
        attempt: kept.attempt,
        accepted_at: kept.accepted_at,
        receipt: &kept.receipt,
        late: kept.late,
    }
}
