//! An attempt is charged only for what the destination refused, never for an outage, an unknown
//! outcome or a hold; and a spent budget quarantines.

use postrider_core::delivery::State;

use super::{Invariant, Verdict, ensure};
use crate::{oracle::Written, truth::Truth};

pub(crate) struct AttemptBudget;

impl Invariant for AttemptBudget {
    fn name(&self) -> &'static str {
        "attempt budget"
    }

    fn written(&mut self, written: &Written<'_>, truth: &Truth) -> Verdict {
        for change in written.changes {
            let Some(to) = &change.to else { continue };
            let charged = truth.charged.get(&change.key).copied().unwrap_or(0);
            ensure(to.attempts <= charged, || {
                format!(
                    "{:?} was charged {} attempts, and refused {charged} times",
                    change.key, to.attempts
                )
            })?;
            let max = truth
                .destinations
                .get(&change.key.0)
                .and_then(|known| known.max_attempts);
            ensure(
                to.state != State::Pending || max.is_none_or(|max| to.attempts < max),
                || format!("{:?} has spent its attempts and is tried again", change.key),
            )?;
        }
        Ok(())
    }
}
