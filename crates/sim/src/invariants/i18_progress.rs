//! I18: once everything works again, whatever is due is delivered; what is not is shown, as
//! unknown or as held by an unknown one of its key.

use std::collections::BTreeSet;

use postrider_contract::destination::{OnUnknown, Ordering};
use postrider_core::delivery::State;
use postrider_store_memory::model::{Model, facts::OpenFact};

use super::{Invariant, Verdict};
use crate::{oracle::Ended, truth::Truth};

pub(crate) struct Progress;

impl Invariant for Progress {
    fn name(&self) -> &'static str {
        "I18 progress"
    }

    fn ended(&mut self, ended: &Ended<'_>, truth: &Truth) -> Verdict {
        match stalled(ended.model, truth).first() {
            Some(stalled) => Err(stalled.clone()),
            None => Ok(()),
        }
    }
}

/// Deliveries that nothing explains.
pub(crate) fn stalled(model: &Model, truth: &Truth) -> Vec<String> {
    let mut held = BTreeSet::new();
    let mut stalled = Vec::new();
    for open in model.open_facts() {
        if !is_shown(&open, truth, &held) {
            stalled.push(format!(
                "event {} is still {} at destination {}",
                open.position,
                open.state.word(),
                open.destination
            ));
        }
        if open.state == State::Unknown {
            held.insert((open.destination, open.key_hash));
        }
    }
    stalled
}

fn is_shown(
    open: &OpenFact<'_>,
    truth: &Truth,
    held: &BTreeSet<(postrider_core::DestinationId, i64)>,
) -> bool {
    let Some(known) = truth.destinations.get(&open.destination) else {
        return false;
    };
    match open.state {
        State::Unknown => known.on_unknown != OnUnknown::Resend,
        State::Pending => {
            known.ordering != Ordering::None && held.contains(&(open.destination, open.key_hash))
        }
        State::Quarantined | State::Acknowledged => false,
    }
}
