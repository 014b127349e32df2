//! The exchange: what one session asks of its store for one destination, in one transaction.

use std::time::Duration;

use postrider_contract::Receipt;

use crate::{AttemptId, DestinationId, Lane, Position, SessionId};

/// One transaction of one session for one destination. Parts may be empty.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub session: SessionId,
    pub destination: DestinationId,
    /// Attempts to finish, each registered earlier by this session for this destination.
    pub settle: Vec<Settlement>,
    /// Deliveries found unfit before any attempt. One that is not pending is left as it is.
    pub quarantine: Vec<Unfit>,
    /// Sends nothing more to this destination until a person resumes it: from this exchange on,
    /// nothing is due there. A destination that is suspended already keeps its first reason.
    pub suspend: Option<Suspend>,
    /// Attempts to register; durable once the exchange returns (I4).
    pub register: Vec<Registration>,
    pub fetch: Option<Fetch>,
}

/// An attempt that is over, with the transition of each of its members: exactly those that were
/// registered, or the database refuses the exchange.
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
///
/// An acknowledgement closes the delivery whatever its open state (I7). The others change a
/// pending delivery only: one that was closed or quarantined by somebody else meanwhile keeps that
/// state, and the attempt keeps its outcome as history.
#[derive(Clone, Debug)]
pub enum SettledAs {
    /// Delete the open row (winning the publish slot) and keep the receipt; if the row is gone,
    /// keep it as a duplicate receipt.
    Acknowledged(Receipt),
    /// Pending, due `delay` after the database's now, at the latest at the end of the year 9999.
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
/// A delivery is due when it is pending, its time has come (one that never failed is due at once,
/// even when the clock has stepped back since) and, where the destination orders by
/// key, no earlier delivery of its key waits for a retry, is unknown or (by `onQuarantine`) is
/// quarantined.
///
/// An earlier delivery of its key that failed before and is due again holds it too when this
/// scan cannot return it: its position is at or below `after`. Otherwise a scan that started above
/// a retry would overtake it the moment the retry falls due. A pending delivery in `exclude` holds
/// nothing: it is in the caller's hands, and what is read now goes behind it, even where a clock
/// that stepped back makes it wait again. Were it held instead, the scan would pass over it and
/// bring what lies above as soon as the first one is settled. A replayed
/// delivery, and one whose session was lost, count as failed before. When evidence closes a
/// delivery that had failed, was unknown or quarantined, or when it quarantines one, the next open
/// delivery of that key counts as failed before from then on, so that a tail released by
/// somebody else leaves in order too.
///
/// Nothing is due at a suspended destination.
#[derive(Clone, Debug)]
pub struct Fetch {
    /// Lanes to read. All held by the session.
    pub lanes: Vec<Lane>,
    /// Only positions above. A hint that skips dead index entries, never a high-water mark: 0, or
    /// at most the last position fetched since it was 0 with the same lanes. Deliveries passed over
    /// because their key was held or busy stay below it until the caller goes back to 0, and so may
    /// what was committed late: [`Horizon`] says which.
    pub after: Position,
    /// Positions in flight or buffered already. Ascending.
    pub exclude: Vec<Position>,
    /// Key hashes that must wait for something in flight. Ascending.
    pub busy_keys: Vec<i64>,
    pub limit: u32,
    /// Stops before the payloads fetched exceed this, but fetches at least one.
    pub bytes_max: u64,
}

/// Which transactions a fetch could see, where positions may appear out of order. Transactions are
/// numbered in the order in which they begin to write, and have their number before they draw their
/// first position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// Of the fetch itself: higher than those of all transactions that had begun before it was
    /// asked for.
    pub number: u64,
    /// Those with lower numbers were over: what they committed could be read, and nothing more of
    /// theirs will appear.
    pub over: u64,
}
