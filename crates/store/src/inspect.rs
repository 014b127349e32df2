//! What people and metrics may ask of a store. Every answer is bounded.

use std::time::Duration;

use postrider_contract::{Digest, EventId, Receipt, Timestamp};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId, delivery::State};

use crate::dispatch::StoredEvent;

/// One page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// There is more after the last row.
    pub more: bool,
}

/// A count that stops counting: `at least` when `capped`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub value: u64,
    pub capped: bool,
}

/// Highest value of a [`Count`], so that no question costs more than this many index entries.
pub const COUNT_MAX: u64 = 100_000;

/// The backlog of one destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub destination: DestinationId,
    pub pending: Count,
    pub unknown: Count,
    pub quarantined: Count,
    /// Age of the first pending delivery in position order.
    pub oldest_pending: Option<Duration>,
    /// Of several sessions that report one, the one open longest; a refusal only where no other
    /// is open.
    pub breaker: Option<BreakerRow>,
    pub lanes: u16,
    pub lanes_held: u16,
}

/// An open breaker as last reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerRow {
    pub session: SessionId,
    pub since: Timestamp,
    pub code: String,
    pub detail: String,
    pub next_probe_at: Timestamp,
    /// As reported: the session's look refused the destination.
    pub refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    pub id: SessionId,
    pub owner: String,
    pub version: String,
    pub exclusive: bool,
    pub opened_at: Timestamp,
    pub expires_at: Timestamp,
    /// With the reason.
    pub ended: Option<(Timestamp, String)>,
    pub lanes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRow {
    pub destination: DestinationId,
    pub lane: Lane,
    pub session: Option<SessionId>,
    pub owner: Option<String>,
    pub since: Option<Timestamp>,
}

/// Every part that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventFilter {
    pub event_type: Option<String>,
    pub tenant: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub partition_key: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventRow {
    pub position: Position,
    pub event_id: EventId,
    /// Canonical JSON.
    pub envelope: String,
    pub appended_at: Timestamp,
    /// Deliveries still open.
    pub open: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDetail {
    pub position: Position,
    pub event: StoredEvent,
    pub key_hash: i64,
    /// One per delivery that the frozen delivery set prescribes, by destination id.
    pub deliveries: Vec<DeliveryDetail>,
}

/// Attempts shown per delivery: the newest ones.
pub const ATTEMPTS_SHOWN_MAX: u32 = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryDetail {
    pub destination: DestinationId,
    pub lane: Lane,
    pub state: State,
    /// Charged attempts since append or replay; 0 once acknowledged.
    pub attempts_charged: u32,
    /// When it is due; `None` once acknowledged.
    pub available_at: Option<Timestamp>,
    /// The newest [`ATTEMPTS_SHOWN_MAX`], oldest first (by registration time, then id).
    pub attempts: Vec<AttemptRow>,
    pub receipt: Option<ReceiptRow>,
    /// By (time, attempt, packed receipt).
    pub duplicates: Vec<ReceiptRow>,
    pub quarantine: Option<QuarantineReason>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRow {
    pub attempt: AttemptId,
    pub session: SessionId,
    pub owner: String,
    pub registered_at: Timestamp,
    /// `None` while it is open.
    pub finished_at: Option<Timestamp>,
    /// `acknowledged`, or the code of the exception; `None` while it is open. A receipt that came
    /// after the attempt was finished does not rewrite it.
    pub outcome: Option<String>,
    /// `None` where there is nothing to say.
    pub detail: Option<String>,
    /// When the session's lease ends, or when the session ended if that came first.
    pub lease_until: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiptRow {
    pub attempt: AttemptId,
    pub accepted_at: Timestamp,
    pub receipt: Receipt,
    /// Came by the evidence path.
    pub late: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineReason {
    pub code: String,
    pub detail: String,
    pub since: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub destination: Option<DestinationId>,
    pub state: Option<State>,
    pub key_hash: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryRow {
    pub destination: DestinationId,
    pub position: Position,
    pub event_id: EventId,
    pub lane: Lane,
    pub state: State,
    pub attempts_charged: u32,
    pub available_at: Timestamp,
}

/// The delivery that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldKey {
    pub head: Position,
    pub head_event: EventId,
    pub head_state: State,
    pub head_available_at: Timestamp,
    /// Deliveries behind it.
    pub tail: Count,
}

/// What keeps a database from clearing away rows that were deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldRows {
    /// Rows of the outbox that are deleted and still there, as the database last counted.
    pub dead: u64,
    /// Who holds the oldest snapshot, if anybody does.
    pub holder: Option<SnapshotHolder>,
    /// `false`: this role may not see the snapshots of others, so there may be an older one.
    pub all_seen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotHolder {
    /// Such as `session`, `prepared transaction` or `replication slot`.
    pub kind: String,
    /// An application's name, a transaction's or a slot's.
    pub name: String,
    /// The process that has it, if one does.
    pub pid: Option<i32>,
    /// Such as `idle in transaction`; of a prepared transaction, its owner.
    pub state: String,
    /// Transactions that began since.
    pub transactions: u64,
    /// How long it is held, where the database knows.
    pub held_for: Option<Duration>,
}

/// Which quarantined deliveries. Every part that is set must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplaySelection {
    pub events: Option<Vec<EventId>>,
    pub destination: Option<DestinationId>,
    pub code: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantineRow {
    pub destination: DestinationId,
    pub position: Position,
    pub event_id: EventId,
    /// Canonical JSON.
    pub envelope: String,
    pub envelope_digest: Digest,
    pub key_hash: i64,
    pub attempts_charged: u32,
    pub reason: QuarantineReason,
    /// Deliveries of its key behind it at this destination.
    pub tail: Count,
    /// A later delivery of its key was acknowledged already: replaying sends out of order.
    pub overtaken: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// In the order in which they will be sent.
    pub deliveries: Vec<(DestinationId, Position, EventId)>,
}
