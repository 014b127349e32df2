//! Deliberate protocol bugs, for the simulator to prove that it would see them.
//!
//! Without the feature `mutations` every question here is answered `false` at compile time and
//! nothing of it is left in a program. Only the feature of the same name of `postrider-sim`, off by
//! default, turns it on, and the command line refuses to compile with it: a build of the whole
//! workspace with all features fails rather than ship a bug.

/// One bug. Its place in the code asks [`on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutation {
    /// The store settles and registers for sessions that have ended.
    FenceSkipped,
    /// A heartbeat brings an expired session back.
    HeartbeatRevives,
    /// A second receipt replaces the primary one.
    SlotTakenTwice,
    /// Recovery deletes open attempts and leaves their deliveries pending.
    RecoveryDropsAttempts,
    /// Recovery ends sessions whose lease still runs.
    RecoveryOfTheLiving,
    /// A lane is given to a second session.
    LaneGivenTwice,
    /// Evidence is taken whatever digests it names.
    DigestNotCompared,
    /// Evidence with another digest is only noted.
    ConflictNotQuarantined,
    /// A receipt for a closed delivery is thrown away.
    DuplicatesDropped,
    /// A settlement that is repeated is done again.
    SettledTwice,
    /// A settlement forgets the outcome of the members that failed.
    ExceptionsLost,
    /// A replayed delivery does not hold its key.
    ReplayedTailFirst,
    /// What was rolled back is delivered.
    RolledBackDelivered,
    /// An event gets the first of its deliveries only.
    DeliveriesMissing,
    /// What failed at one destination is offered to another.
    OfferedElsewhere,
    /// A quarantined delivery does not hold its key.
    QuarantineHoldsNothing,
    /// Recovery makes everything due again, whatever the destination says of unknown outcomes.
    RecoveryResends,
    /// An unknown outcome is sent again, whatever the destination says.
    UnknownResent,
    /// An unknown outcome is taken for an acknowledgement.
    UnknownTakenAsSuccess,
    /// An unknown outcome costs an attempt.
    UnknownCharged,
    /// A message that was held back is charged an attempt.
    HeldCharged,
    /// An outage costs an attempt.
    OutageCharged,
    /// The attempt budget is never spent.
    BudgetIgnored,
    /// A send starts although the lease may not cover it.
    LeaseNotCovering,
    /// A batch is sent while its registration is under way.
    SentBeforeRegistered,
    /// Acknowledgements after the deadline are dropped.
    LateAcksDropped,
    /// What a session had not settled when it ended is dropped.
    EvidenceDroppedAtFence,
    /// An exchange whose answer was lost is forgotten.
    FailedExchangeForgotten,
    /// Nothing waits behind a failed delivery of its key.
    RetryOvertaken,
    /// What became stale while it was read or prepared is sent all the same.
    StaleKept,
    /// What was read behind something that was left out goes before it.
    LeftOutOvertaken,
    /// The reader never goes back to the front: what it passed over is never read.
    NeverFromTheFront,
    /// The reader reads on from where it was: what appears late below is overtaken.
    LateCommitOvertaken,
    /// An empty queue is not looked at again.
    PollingLost,
    /// Lanes are handed over while messages of theirs are in flight.
    LanesNotDrained,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 35] = [
        Self::FenceSkipped,
        Self::HeartbeatRevives,
        Self::SlotTakenTwice,
        Self::RecoveryDropsAttempts,
        Self::RecoveryOfTheLiving,
        Self::LaneGivenTwice,
        Self::DigestNotCompared,
        Self::ConflictNotQuarantined,
        Self::DuplicatesDropped,
        Self::SettledTwice,
        Self::ExceptionsLost,
        Self::ReplayedTailFirst,
        Self::RolledBackDelivered,
        Self::DeliveriesMissing,
        Self::OfferedElsewhere,
        Self::QuarantineHoldsNothing,
        Self::RecoveryResends,
        Self::UnknownResent,
        Self::UnknownTakenAsSuccess,
        Self::UnknownCharged,
        Self::HeldCharged,
        Self::OutageCharged,
        Self::BudgetIgnored,
        Self::LeaseNotCovering,
        Self::SentBeforeRegistered,
        Self::LateAcksDropped,
        Self::EvidenceDroppedAtFence,
        Self::FailedExchangeForgotten,
        Self::RetryOvertaken,
        Self::StaleKept,
        Self::LeftOutOvertaken,
        Self::NeverFromTheFront,
        Self::LateCommitOvertaken,
        Self::PollingLost,
        Self::LanesNotDrained,
    ];
}

/// Whether bugs can be switched on at all in this build.
pub const COMPILED_IN: bool = cfg!(feature = "mutations");

/// Whether this bug is on, on this thread.
#[cfg(not(feature = "mutations"))]
#[must_use]
#[inline]
pub const fn on(_: Mutation) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use switch::{on, set};

#[cfg(feature = "mutations")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Whether this bug is on, on this thread.
    #[must_use]
    pub fn on(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }

    /// Switches one bug on, or all off, on this thread.
    pub fn set(mutation: Option<Mutation>) {
        ON.set(mutation);
    }
}
