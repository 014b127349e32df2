//! I6: every receipt belongs to a registered attempt with that event at that destination, and
//! names a place where that destination's broker really holds it.

use postrider_contract::Receipt;
use postrider_store_memory::model::facts::ReceiptFact;

use super::{Invariant, Verdict, ensure};
use crate::{oracle::Ended, truth::Truth};

pub(crate) struct Proof;

impl Invariant for Proof {
    fn name(&self) -> &'static str {
        "I6 proof"
    }

    fn ended(&mut self, ended: &Ended<'_>, truth: &Truth) -> Verdict {
        let facts = ended.model.receipt_facts();
        for fact in facts.chain(ended.model.duplicate_facts()) {
            proves(&fact, ended, truth).map_err(|reason| {
                format!(
                    "the receipt {:?} of event {} at destination {}: {reason}",
                    fact.receipt, fact.position, fact.destination
                )
            })?;
        }
        Ok(())
    }
}

fn proves(fact: &ReceiptFact<'_>, ended: &Ended<'_>, truth: &Truth) -> Verdict {
    let attempt = ended
        .model
        .attempt_facts()
        .find(|attempt| attempt.id == fact.attempt);
    ensure(
        attempt.is_some_and(|attempt| {
            attempt.destination == fact.destination && attempt.members.contains(&fact.position)
        }),
        || "no attempt registered it".to_owned(),
    )?;
    let Receipt::Handler { handler, sequence } = fact.receipt else {
        return Err("no broker gives such receipts".to_owned());
    };
    let at = truth.destinations.get(&fact.destination);
    ensure(at.is_some_and(|known| known.name == *handler), || {
        format!("broker {handler} gave it")
    })?;
    let index = usize::try_from(*sequence).unwrap_or(0).wrapping_sub(1);
    let stored = ended
        .logs
        .get(&fact.destination)
        .and_then(|log| log.get(index));
    let committed = truth.committed.get(&fact.position);
    ensure(
        stored.is_some_and(|stored| committed.is_some_and(|event| event.id == stored.event_id)),
        || "the broker holds something else there".to_owned(),
    )
}
