//! How a relay is doing, and what its run came to.

use std::sync::atomic::{AtomicU64, Ordering};

use postrider_core::{DestinationId, SessionId};
use postrider_transport::{Problem, Severity};

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Deliveries registered in attempts.
    pub claimed: u64,
    pub acknowledged: u64,
    pub retried: u64,
    pub unknown: u64,
    pub quarantined: u64,
    /// Receipts kept as duplicates.
    pub duplicates: u64,
    pub shutdown_requested: bool,
    /// Another dispatcher holds the exclusive lease; nothing was claimed.
    pub exclusive_held_by: Option<String>,
}

/// The code of a destination whose kind this program cannot serve; another one may.
pub const KIND_UNKNOWN: &str = "kind_unknown";

/// How the relay is doing, for readiness and people.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub session: Option<SessionId>,
    pub stopping: bool,
    pub exclusive_held_by: Option<String>,
    /// The last store call of the session failed with this.
    pub store_problem: Option<String>,
    pub destinations: Vec<DestinationStatus>,
}

#[derive(Clone, Debug)]
pub struct DestinationStatus {
    pub id: DestinationId,
    pub name: String,
    pub generation: u64,
    /// Problems of the last preflight; `Err`: it could not be made, and why.
    pub preflight: Result<Vec<Problem>, Problem>,
    /// Another live session may send here, as the last heartbeat heard.
    pub served_elsewhere: bool,
    pub lanes_held: usize,
    pub lanes: u16,
}

impl DestinationStatus {
    /// Nothing keeps the relay from sending here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.refusal().is_none()
    }

    /// It is not ready here, and that is no trouble of the whole: another session serves it, or
    /// its kind is one that only another program knows, as in the middle of a rolling deploy.
    #[must_use]
    pub fn is_left_to_others(&self) -> bool {
        let is_unknown = |problem: &Problem| problem.code == KIND_UNKNOWN;
        self.refusal().is_some_and(is_unknown) || (!self.is_ready() && self.served_elsewhere)
    }

    /// What keeps the relay from sending here, if anything does.
    #[must_use]
    pub fn refusal(&self) -> Option<&Problem> {
        match &self.preflight {
            Ok(problems) => problems
                .iter()
                .find(|problem| problem.severity == Severity::Refused),
            Err(problem) => Some(problem),
        }
    }
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) claimed: Count,
    pub(crate) acknowledged: Count,
    pub(crate) retried: Count,
    pub(crate) unknown: Count,
    pub(crate) quarantined: Count,
    pub(crate) duplicates: Count,
}
