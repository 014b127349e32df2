//! The stored record of one delivery: one exhaustive table of what may follow what.

use std::time::Duration;

use postrider_contract::{
    Receipt,
    destination::{Destination, OnUnknown},
};
use rand::Rng;

use crate::{
    Class, Outcome,
    backoff::Backoff,
    mutation::{self, Mutation},
};

/// The stored state of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Waits for its (next) attempt, or is in one.
    Pending,
    /// An attempt may have been accepted; nobody knows yet.
    Unknown,
    /// Waits for a person.
    Quarantined,
    /// Closed by a receipt.
    Acknowledged,
}

impl State {
    /// The word used in storage, output and metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Unknown => "unknown",
            Self::Quarantined => "quarantined",
            Self::Acknowledged => "acknowledged",
        }
    }
}

/// What happened to a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its live session learned the outcome of its attempt.
    Settled(Outcome),
    /// Its session ended with the attempt unfinished.
    SessionLost,
    /// Checked before sending and found unfit: digest or schema does not hold.
    Unfit { code: &'static str, detail: String },
    /// A valid receipt arrived, whoever brought it.
    Receipt(Receipt),
    /// The same event id turned up with another digest.
    Conflict { detail: String },
    /// A probe proved that the destination does not have it.
    ProvenAbsent,
    /// A probe could not tell; `deduplicated` says whether sending again is harmless.
    CannotTell { deduplicated: bool },
    /// A person asked to send it again.
    Replayed,
}

/// What a delivery becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Closed by its primary receipt.
    Acknowledge(Receipt),
    /// Closed already: the receipt is kept as a duplicate.
    KeepDuplicate(Receipt),
    /// Pending again, due after `delay`, with this many charged attempts.
    Retry {
        attempts: u32,
        delay: Duration,
        code: &'static str,
        detail: String,
    },
    /// Unknown until somebody finds out.
    Unknown { code: &'static str, detail: String },
    /// Quarantined.
    Quarantine {
        attempts: u32,
        code: &'static str,
        detail: String,
    },
}

/// How a destination wants its deliveries treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub on_unknown: OnUnknown,
    pub attempts_max: Option<u32>,
    pub backoff: Backoff,
}

impl Policy {
    #[must_use]
    pub fn of(destination: &Destination, backoff: Backoff) -> Self {
        Self {
            on_unknown: destination.on_unknown,
            attempts_max: destination.max_attempts,
            backoff,
        }
    }
}

/// A transition that the table does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a delivery that is {} cannot follow {event:?}", from.word())]
pub struct IllegalTransition {
    pub from: State,
    pub event: Box<Event>,
}

/// The table. `attempts` counts charged attempts so far; `rng` draws the jitter.
///
/// # Errors
/// [`IllegalTransition`] where the table has no entry: the caller acted on stale knowledge.
pub fn next(
    from: State,
    attempts: u32,
    event: Event,
    policy: &Policy,
    rng: &mut impl Rng,
) -> Result<Next, IllegalTransition> {
    match (from, event) {
        // A true receipt closes whatever is open and is never thrown away (I7).
        (State::Pending | State::Unknown | State::Quarantined, Event::Receipt(receipt))
        | (State::Pending, Event::Settled(Outcome::Acknowledged(receipt))) => {
            Ok(Next::Acknowledge(receipt))
        }
        (State::Acknowledged, Event::Receipt(receipt)) => Ok(Next::KeepDuplicate(receipt)),

        (
            State::Pending,
            Event::Settled(Outcome::Retryable {
                class,
                code,
                detail,
                retry_after,
            }),
        ) => Ok(match class {
            // The breaker spaces these; the delivery itself is due at once, and free of charge.
            Class::Outage => {
                let delay = retry_after.unwrap_or(Duration::ZERO);
                Next::Retry {
                    attempts: attempts + u32::from(mutation::on(Mutation::OutageCharged)),
                    delay,
                    code,
                    detail,
                }
            }
            Class::Held => Next::Retry {
                attempts: attempts + u32::from(mutation::on(Mutation::HeldCharged)),
                delay: Duration::ZERO,
                code,
                detail,
            },
            Class::Refusal => {
                let attempts = attempts.saturating_add(1);
                if policy.attempts_max.is_some_and(|max| attempts >= max)
                    && !mutation::on(Mutation::BudgetIgnored)
                {
                    Next::Quarantine {
                        attempts,
                        code,
                        detail,
                    }
                } else {
                    let jittered = policy.backoff.delay(attempts, rng);
                    let delay = retry_after.map_or(jittered, |asked| asked.max(jittered));
                    Next::Retry {
                        attempts,
                        delay,
                        code,
                        detail,
                    }
                }
            }
        }),
        (
            State::Pending,
            Event::Settled(Outcome::Rejected {
                code,
                detail,
                suspends: _,
            }),
        ) => Ok(Next::Quarantine {
            attempts: attempts.saturating_add(1),
            code,
            detail,
        }),
        (State::Pending, Event::Settled(Outcome::Unknown { code, detail })) => {
            Ok(unknown(attempts, code, detail, policy, rng))
        }
        (State::Pending, Event::SessionLost) => Ok(unknown(
            attempts,
            "lease_expired_unknown",
            String::new(),
            policy,
            rng,
        )),
        (State::Pending, Event::Unfit { code, detail }) => Ok(Next::Quarantine {
            attempts,
            code,
            detail,
        }),

        (State::Unknown, Event::ProvenAbsent)
        | (State::Unknown, Event::CannotTell { deduplicated: true }) => Ok(Next::Retry {
            attempts,
            delay: Duration::ZERO,
            code: "unknown_resolved",
            detail: String::new(),
        }),
        (
            State::Unknown,
            Event::CannotTell {
                deduplicated: false,
            },
        ) => Ok(Next::Unknown {
            code: "cannot_tell",
            detail: String::new(),
        }),

        (
            State::Pending | State::Unknown | State::Quarantined | State::Acknowledged,
            Event::Conflict { detail },
        ) => Ok(Next::Quarantine {
            attempts,
            code: "digest_conflict",
            detail,
        }),

        (State::Quarantined, Event::Replayed) => Ok(Next::Retry {
            attempts: 0,
            delay: Duration::ZERO,
            code: "replayed",
            detail: String::new(),
        }),

        (from @ State::Acknowledged, event @ Event::Settled(_))
        | (from @ State::Unknown, event @ Event::Settled(_))
        | (from @ State::Quarantined, event @ Event::Settled(_))
        | (
            from @ (State::Unknown | State::Quarantined | State::Acknowledged),
            event @ (Event::SessionLost | Event::Unfit { .. }),
        )
        | (
            from @ (State::Pending | State::Quarantined | State::Acknowledged),
            event @ (Event::ProvenAbsent | Event::CannotTell { .. }),
        )
        | (
            from @ (State::Pending | State::Unknown | State::Acknowledged),
            event @ Event::Replayed,
        ) => Err(IllegalTransition {
            from,
            event: Box::new(event),
        }),
    }
}

/// An unknown outcome is never charged (it is neither failure nor success); what follows is the
/// destination's choice. A resend waits one jittered step, so that a dead connection does not
/// make a tight loop.
fn unknown(
    attempts: u32,
    code: &'static str,
    detail: String,
    policy: &Policy,
    rng: &mut impl Rng,
) -> Next {
    let on_unknown = if mutation::on(Mutation::UnknownResent) {
        OnUnknown::Resend
    } else {
        policy.on_unknown
    };
    match on_unknown {
        OnUnknown::Resend => Next::Retry {
            attempts: attempts + u32::from(mutation::on(Mutation::UnknownCharged)),
            delay: policy.backoff.delay(1, rng),
            code,
            detail,
        },
        OnUnknown::Probe | OnUnknown::Hold => Next::Unknown { code, detail },
    }
}
