//! I5: at most one primary receipt for each delivery, the first one for good; others are kept as
//! duplicates, and none is ever lost.

use super::{Invariant, Verdict, ensure};
use crate::{oracle::Written, truth::Truth};

pub(crate) struct OneSlot;

impl Invariant for OneSlot {
    fn name(&self) -> &'static str {
        "I5 one slot"
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        for change in written.changes {
            let before = change.from.as_ref().and_then(|seen| seen.receipt.as_ref());
            let after = change.to.as_ref().and_then(|seen| seen.receipt.as_ref());
            ensure(before.is_none() || before == after, || {
                format!(
                    "the slot of {:?} was taken twice: {before:?}, then {after:?}",
                    change.key
                )
            })?;
        }
        ensure(
            written.after.duplicates >= written.before.duplicates,
            || "a duplicate receipt is gone".to_owned(),
        )?;
        // Where evidence overtook the settlement of its own attempt, stores keep both.
        let settled = written
            .model
            .receipt_facts()
            .filter(|primary| !primary.late);
        for primary in settled {
            let again = written.model.duplicate_facts().any(|duplicate| {
                (duplicate.destination, duplicate.position)
                    == (primary.destination, primary.position)
                    && (duplicate.attempt, duplicate.receipt) == (primary.attempt, primary.receipt)
            });
            ensure(!again, || {
                format!(
                    "the primary receipt of event {} at destination {} is kept as its own duplicate",
                    primary.position, primary.destination
                )
            })?;
        }
        ensure(
            written
                .after
                .deliveries
                .windows(2)
                .all(|pair| pair[0].0 != pair[1].0),
            || "a delivery is open and closed at once".to_owned(),
        )
    }
}
