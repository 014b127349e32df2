//! The reference semantics of the store port: what every database must do, as plain data.
//!
//! Synchronous and deterministic: no I/O, no clock (`now` is an argument), no randomness, ordered
//! maps only. It is the oracle of the differential test and what the simulator runs on. It never
//! optimises: where a database packs or indexes, the model scans.

mod append;
mod control;
mod evidence;
mod exchange;
pub mod facts;
mod fetch;
mod inspect;
mod people;
mod sessions;
mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postrider_contract::{
    DeliverySet, Destination, Digest, EventId, EventType, Receipt, Timestamp,
};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId, delivery::State};
use postrider_store::{
    StoreError,
    control::Suspension,
    dispatch::StoredEvent,
    inspect::{BreakerRow, QuarantineReason},
};

pub use transaction::TransactionId;

/// After every position.
const END: Position = Position(i64::MAX);

/// A database that keeps an outbox, in memory.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// Numbered from 1 in order of registration.
    destinations: BTreeMap<DestinationId, RegisteredAs>,
    /// In order of registration.
    event_types: Vec<TypeRegistration>,
    /// By version, with their digests.
    delivery_sets: BTreeMap<u64, (DeliverySet, Digest)>,
    active_set: Option<u64>,
    /// The last position given out.
    position: i64,
    /// Ids made so far.
    ids_made: u64,
    events: BTreeMap<Position, Event>,
    positions: BTreeMap<EventId, Position>,
    /// Open deliveries. A delivery that is neither here nor in `receipts` does not exist.
    open: BTreeMap<(DestinationId, Position), Open>,
    /// Publish slots that were won.
    receipts: BTreeMap<(DestinationId, Position), Kept>,
    duplicates: BTreeMap<(DestinationId, Position), Vec<Kept>>,
    attempts: BTreeMap<AttemptId, Attempt>,
    sessions: BTreeMap<SessionId, Session>,
    /// Who holds each lane, since when.
    lanes: BTreeMap<(DestinationId, Lane), Option<(SessionId, Timestamp)>>,
    breakers: BTreeMap<(DestinationId, SessionId), BreakerRow>,
    findings: Vec<Finding>,
    audit: Vec<AuditEntry>,
    transactions: BTreeMap<TransactionId, transaction::Open>,
    transactions_begun: u64,
    rows: BTreeMap<String, String>,
}

#[derive(Clone, Debug)]
struct RegisteredAs {
    destination: Destination,
    digest: Digest,
    suspended: Option<Suspension>,
}

#[derive(Clone, Debug)]
struct TypeRegistration {
    event_type: EventType,
    current: bool,
}

#[derive(Clone, Debug)]
struct Event {
    stored: Arc<StoredEvent>,
    key_hash: i64,
    generation: u64,
    payload_digest: Digest,
    /// What its frozen delivery set prescribes.
    destinations: BTreeSet<DestinationId>,
}

#[derive(Clone, Debug)]
struct Open {
    key_hash: i64,
    lane: Lane,
    state: OpenState,
    /// Charged since append or replay.
    attempts: u32,
    available_at: Timestamp,
    /// It failed, was replayed, or its session was lost: its place in its key's order must be
    /// kept even below a scan.
    waited: bool,
    /// When the first attempt that did not close it was registered.
    first_attempt_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OpenState {
    Pending,
    Unknown,
    Quarantined(QuarantineReason),
}

impl OpenState {
    fn state(&self) -> State {
        match self {
            Self::Pending => State::Pending,
            Self::Unknown => State::Unknown,
            Self::Quarantined(_) => State::Quarantined,
        }
    }
}

/// A receipt that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    attempt: AttemptId,
    accepted_at: Timestamp,
    receipt: Receipt,
    late: bool,
}

#[derive(Clone, Debug)]
struct Attempt {
    session: SessionId,
    destination: DestinationId,
    registered_at: Timestamp,
    members: Vec<Position>,
    finished: Option<Finish>,
}

#[derive(Clone, Debug)]
struct Finish {
    at: Timestamp,
    /// (code, detail) of the members that were not acknowledged.
    exceptions: BTreeMap<Position, (String, String)>,
}

#[derive(Clone, Debug)]
struct Session {
    owner: String,
    version: String,
    exclusive: bool,
    serves: BTreeSet<DestinationId>,
    opened_at: Timestamp,
    expires_at: Timestamp,
    asleep: bool,
    ended: Option<(Timestamp, String)>,
}

impl Session {
    fn is_live(&self, now: Timestamp) -> bool {
        self.ended.is_none() && self.expires_at > now
    }
}

/// Something that could not be settled, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub code: String,
    pub destination: DestinationId,
    pub position: Position,
    pub detail: String,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
}

/// Who changed something, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    pub at: Timestamp,
    /// `apply`, `resume_destination` or `replay`.
    pub action: &'static str,
    pub actor: String,
    pub reason: String,
    /// How many things changed.
    pub changed: u64,
}

impl Model {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Oldest first.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Oldest first.
    #[must_use]
    pub fn audit_log(&self) -> &[AuditEntry] {
        &self.audit
    }

    /// A committed business row, see [`Model::put_row`].
    #[must_use]
    pub fn row(&self, key: &str) -> Option<&str> {
        self.rows.get(key).map(String::as_str)
    }

    /// Whether some live session wants the doorbell.
    #[must_use]
    pub fn is_anyone_asleep(&self, now: Timestamp) -> bool {
        self.sessions
            .values()
            .any(|session| session.asleep && session.is_live(now))
    }

    fn destination(&self, id: DestinationId) -> Result<&RegisteredAs, StoreError> {
        self.destinations
            .get(&id)
            .ok_or_else(|| refused(format!("destination {id} is not registered")))
    }

    /// Open deliveries of one destination, in position order.
    fn open_at(&self, destination: DestinationId) -> impl Iterator<Item = (Position, &Open)> {
        self.open
            .range((destination, Position::START)..=(destination, END))
            .map(|((_, position), open)| (*position, open))
    }
}

fn refused(message: String) -> StoreError {
    StoreError::Refused {
        message,
        source: None,
    }
}
