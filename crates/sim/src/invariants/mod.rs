//! What must hold, one promise per file, named by its number in ARCHITECTURE.md where it has one.
//!
//! Each looks at the database, at the brokers and at the simulator's own truth; none takes the
//! relay's word for anything, and none assumes that an unknown write is absent.

mod attempt_budget;
mod i01_atomic;
mod i02_complete;
mod i03_immutable;
mod i04_register_before_send;
mod i05_one_slot;
mod i06_proof;
pub(crate) mod i07_late_truth;
mod i08_fence;
mod i09_frozen_target;
mod i11_unknown;
mod i12_conflict;
mod i13_no_silent_success;
mod i15_order;
mod i17_bounded;
pub(crate) mod i18_progress;
mod i20_one_clock;
mod one_attempt;

use postrider_core::DestinationId;
use postrider_store_memory::model::facts::AttemptFact;
use postrider_transport_memory::Stored;

use crate::{
    oracle::{Call, Ended, Sending, Written},
    truth::Truth,
};

/// `Err` says what is wrong.
pub(crate) type Verdict = Result<(), String>;

/// One promise. A method that is left out has nothing to say at that moment.
pub(crate) trait Invariant: Send {
    fn name(&self) -> &'static str;

    /// The store was called, whatever came of it.
    fn called(&mut self, _: &Call<'_>, _: &Truth) -> Verdict {
        Ok(())
    }

    /// The store wrote something.
    fn written(&mut self, _: &Written<'_>, _: &Truth) -> Verdict {
        Ok(())
    }

    /// A worker gives a batch to a transport.
    fn sending(&mut self, _: &Sending<'_>, _: &Truth) -> Verdict {
        Ok(())
    }

    /// A broker stored a message.
    fn arrived(&mut self, _: DestinationId, _: &Stored, _: &Truth) -> Verdict {
        Ok(())
    }

    /// Everything was healed, and what could be delivered had its time.
    fn ended(&mut self, _: &Ended<'_>, _: &Truth) -> Verdict {
        Ok(())
    }
}

pub(crate) fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(i01_atomic::Atomic),
        Box::new(i02_complete::Complete),
        Box::new(i03_immutable::Immutable),
        Box::new(i04_register_before_send::RegisterBeforeSend),
        Box::new(i05_one_slot::OneSlot),
        Box::new(i06_proof::Proof),
        Box::new(i07_late_truth::LateTruth),
        Box::new(i08_fence::Fence),
        Box::new(i09_frozen_target::FrozenTarget),
        Box::new(i11_unknown::UnknownIsAState),
        Box::new(i12_conflict::Conflict),
        Box::new(i13_no_silent_success::NoSilentSuccess),
        Box::new(i15_order::Order::default()),
        Box::new(i17_bounded::Bounded),
        Box::new(i18_progress::Progress),
        Box::new(i20_one_clock::OneClock),
        Box::new(attempt_budget::AttemptBudget),
        Box::new(one_attempt::OneAttempt),
    ]
}

fn ensure(holds: bool, detail: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(detail()) }
}

/// The attempt that a batch belongs to: registered by a session of this life for this
/// destination, with every message among its members, and not sent before. Of several, because an
/// earlier session registered one and was lost before it sent it, the newest; but what a worker
/// sends as it wakes up, it had decided to send before it slept, so that it is the oldest.
pub(crate) fn attempt_of<'a>(sending: &Sending<'a>, truth: &Truth) -> Option<AttemptFact<'a>> {
    let mut candidates: Vec<_> = sending
        .model
        .attempt_facts()
        .filter(|attempt| {
            attempt.destination == sending.destination
                && truth.sessions.get(&attempt.session) == Some(&sending.life)
                && !truth.sent.contains(&attempt.id)
                && sending
                    .positions
                    .iter()
                    .all(|position| attempt.members.contains(position))
        })
        .collect();
    candidates.sort_by_key(|attempt| (attempt.finished_at.is_none(), attempt.registered_at));
    if sending.lease_left.is_some() {
        candidates.reverse();
    }
    // A batch is all of an attempt, but for what was answered before it was sent.
    candidates.sort_by_key(|attempt| attempt.members.len() != sending.positions.len());
    candidates.into_iter().next()
}
