//! The exchange: settle, register and fetch in one transaction.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use postrider_contract::{Digest, EventId, Timestamp};
use postrider_core::{Lane, Position};

pub use postrider_core::exchange::{
    Exchange, Fetch, Horizon, Registration, Settled, SettledAs, Settlement, Suspend, Unfit,
};

/// The result of appending one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub event_id: EventId,
    pub position: Position,
    /// It was there already, with the same digest.
    pub already: bool,
}

/// What an exchange did.
#[derive(Clone, Debug, Default)]
pub struct Exchanged {
    /// Acknowledged members whose slot was taken already; their receipts are kept as duplicates.
    /// A settlement that was done before counts none.
    pub duplicates: u64,
    pub fetched: Vec<Fetched>,
    /// The fetch read to the end: nothing else is due above `after` now. False when the limit was
    /// reached, even if nothing follows, or when a payload no longer fitted.
    pub exhausted: bool,
    /// Until the next retry on these lanes is due, when the fetch read to the end and one waits:
    /// the earliest of the pending deliveries at any position whose time has not come, held ones
    /// included.
    pub next_due: Option<Duration>,
    /// The database's clock at the exchange; `None` without a fetch.
    pub now: Option<Timestamp>,
    /// Which transactions the fetch could see. `None` without a fetch, and where positions appear
    /// in order.
    pub horizon: Option<Horizon>,
}

/// A due delivery with its event.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub position: Position,
    pub lane: Lane,
    pub key_hash: i64,
    /// Charged attempts so far.
    pub attempts: u32,
    /// How long ago the first attempt with this delivery was registered (or, at most one lease
    /// later, settled), by the database's clock. `None`: never attempted. A transport whose
    /// destination forgets ids needs it.
    pub first_attempt_ago: Option<Duration>,
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
