//! Sessions and lanes as the store keeps them.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use postrider_core::{DestinationId, Lane, SessionId};

use crate::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    pub id: SessionId,
    /// A name for people: host and process.
    pub owner: String,
    pub lease: Duration,
    /// The destinations whose kind this worker can serve; it takes lanes of no other.
    pub serves: Vec<DestinationId>,
    pub exclusive: bool,
    /// The program's version.
    pub version: String,
}

/// One destination's lanes as a heartbeat saw them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    pub destination: DestinationId,
    pub lanes: u16,
    /// Live sessions that serve it and did not report that they refuse it.
    pub sessions: u32,
    /// Lanes that this session holds.
    pub held: Vec<Lane>,
    /// Lanes that no session holds.
    pub free: u16,
    /// The destination is suspended: hold its lanes, send nothing.
    pub suspended: bool,
}

/// What a worker tells others of a breaker. Kept for `why`; that a worker refuses a destination
/// also says that no lane is for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BreakerReport {
    pub destination: DestinationId,
    /// `None`: closed.
    pub open: Option<OpenBreaker>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBreaker {
    pub code: String,
    pub detail: String,
    /// Until the next probe, from now.
    pub next_probe_in: Duration,
    /// The worker's look at the destination refused it: it sends nothing there and takes no lane
    /// until a later look finds it fine. `false`: an outage, probed with one delivery at a time.
    pub refused: bool,
}

/// A session that recovery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub session: SessionId,
    pub owner: String,
    /// Attempts finished as `lease_expired_unknown`.
    pub attempts: u64,
    /// Deliveries of them that had no receipt.
    pub deliveries: u64,
    /// Lanes freed.
    pub lanes: u64,
}

/// The doorbell: a hint that something was appended, never the truth.
#[async_trait]
pub trait Listener: Debug + Send {
    /// Returns when it rang. An error means that it will not ring any more: listen again.
    async fn rung(&mut self) -> Result<(), StoreError>;
}
