//! Faults on request: a call fails before its commit, or after it.

use std::fmt;

/// A call of the port, as the decision function sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// The commit of a caller's own transaction.
    Commit,
    /// Any read: nothing is committed, so failing after it means that the answer is lost.
    Read,
    Apply,
    ResumeDestination,
    Append,
    OpenSession,
    Heartbeat,
    ClaimLanes,
    ReleaseLanes,
    EndSession,
    RecoverExpired,
    Exchange,
    AcceptReceipts,
    SetAsleep,
    Replay,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Proceed,
    /// Nothing happens; the caller gets `Unavailable`.
    FailBefore,
    /// It commits and the answer is lost; the caller gets `Unavailable`.
    FailAfter,
}

/// Decides the fate of each call, in call order. A simulator drives it with a seed.
pub(crate) struct Decision(pub(crate) Box<dyn FnMut(Call) -> Fate + Send>);

impl fmt::Debug for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Decision")
    }
}

impl Default for Decision {
    fn default() -> Self {
        Self(Box::new(|_| Fate::Proceed))
    }
}
