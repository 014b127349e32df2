//! The exchange: settle, register and fetch in one transaction.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use postrider_contract::{Digest, EventId, Receipt, Timestamp};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId};

/// The result of appending one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub event_id: EventId,
    pub position: Position,
    /// It was there already, with the same digest.
    pub already: bool,
}

/// One transaction of one session for one destination. Parts may be empty.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub session: SessionId,
    pub destination: DestinationId,
    /// Attempts to finish.
    pub settle: Vec<Settlement>,
    /// Deliveries found unfit before any attempt.
    pub quarantine: Vec<Unfit>,
    /// Sends nothing more to this destination until a person resumes it.
    pub suspend: Option<Suspend>,
    /// Attempts to register; durable once the exchange returns (I4).
    pub register: Vec<Registration>,
    pub fetch: Option<Fetch>,
}

/// An attempt that is over, with the transition of each of its members.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub attempt: AttemptId,
    /// In ascending position order.
    pub members: Vec<Settled>,
}

#[derive(Clone, Debug)]
pub struct Settled {
    pub position: Position,
    pub next: SettledAs,
}

/// The transitions that the fast path can write.
#[derive(Clone, Debug)]
pub enum SettledAs {
    /// Delete the open row (winning the publish slot) and keep the receipt; if the row is gone,
    /// keep it as a duplicate receipt.
    Acknowledged(Receipt),
    /// Pending, due `delay` after the database's now.
    Retry {
        attempts: u32,
        delay: Duration,
        code: &'static str,
        detail: String,
    },
    Unknown {
        code: &'static str,
        detail: String,
    },
    Quarantined {
        attempts: u32,
        code: &'static str,
        detail: String,
    },
}

/// A delivery that cannot be sent as it is.
#[derive(Clone, Debug)]
pub struct Unfit {
    pub position: Position,
    pub code: &'static str,
    pub detail: String,
}

#[derive(Clone, Debug)]
pub struct Suspend {
    pub code: &'static str,
    pub detail: String,
}

/// An attempt to register: these deliveries are about to be sent.
#[derive(Clone, Debug)]
pub struct Registration {
    pub attempt: AttemptId,
    /// Ascending, no duplicates, not empty.
    pub members: Vec<Position>,
}

/// Due deliveries of held lanes, in position order.
///
/// A delivery is due when it is pending, its time has come and, where the destination orders by
/// key, no earlier delivery of its key waits for a retry, is unknown or (by `onQuarantine`) is
/// quarantined.
///
/// An earlier delivery of its key that failed before and is due again holds it too when this
/// scan cannot return it: its position is at or below `after` and not in `exclude`. Otherwise a
/// scan that started above a retry would overtake it the moment the retry falls due.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Lanes to read. All held by the session.
    pub lanes: Vec<Lane>,
    /// Only positions above. A hint that skips dead index entries, never a high-water mark.
    pub after: Position,
    /// Positions in flight or buffered already. Ascending.
    pub exclude: Vec<Position>,
    /// Key hashes that must wait for something in flight. Ascending.
    pub busy_keys: Vec<i64>,
    pub limit: u32,
    /// Stops before the payloads fetched exceed this, but fetches at least one.
    pub bytes_max: u64,
}

/// What an exchange did.
#[derive(Clone, Debug, Default)]
pub struct Exchanged {
    /// Acknowledged members whose slot was taken already; their receipts are kept as duplicates.
    pub duplicates: u64,
    pub fetched: Vec<Fetched>,
    /// The fetch read to the end: nothing else is due above `after` now.
    pub exhausted: bool,
    /// Until the next retry on these lanes is due, when the fetch read to the end and one waits.
    pub next_due: Option<Duration>,
    /// The database's clock at the exchange; `None` without a fetch.
    pub now: Option<Timestamp>,
}

/// A due delivery with its event.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub position: Position,
    pub lane: Lane,
    pub key_hash: i64,
    /// Charged attempts so far.
    pub attempts: u32,
    pub event: Arc<StoredEvent>,
}

/// An event as stored: bytes exactly as committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    pub event_id: EventId,
    /// Canonical JSON.
    pub envelope: String,
    pub envelope_digest: Digest,
    pub payload: Bytes,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// Free headers, sorted by name.
    pub headers: Vec<(String, String)>,
    pub appended_at: Timestamp,
}
