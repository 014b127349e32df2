//! I3: envelope, payload and digests stay as committed, in the database and on the way out; and
//! no two contents ever go by one id.

use postrider_contract::Digest;
use postrider_core::DestinationId;
use postrider_transport_memory::Stored;

use super::{Invariant, Verdict, ensure};
use crate::{oracle::Ended, truth::Truth};

pub(crate) struct Immutable;

impl Invariant for Immutable {
    fn name(&self) -> &'static str {
        "I3 immutable"
    }

    fn arrived(&mut self, destination: DestinationId, stored: &Stored, truth: &Truth) -> Verdict {
        let event = truth.event(stored.event_id);
        ensure(
            event.is_none_or(|event| event.payload == stored.body),
            || {
                format!(
                    "destination {destination} was sent {} with another payload",
                    stored.event_id
                )
            },
        )
    }

    fn ended(&mut self, ended: &Ended<'_>, truth: &Truth) -> Verdict {
        for fact in ended.model.event_facts() {
            let Some(event) = truth.committed.get(&fact.position) else {
                continue;
            };
            let same = event.id == fact.event.event_id
                && event.payload == fact.event.payload
                && event.envelope_digest == Some(fact.event.envelope_digest)
                && fact.event.envelope_digest == Digest::of_canonical(&fact.event.envelope)
                && event.destinations == *fact.destinations;
            ensure(same, || format!("event {} was changed", event.id))?;
        }
        Ok(())
    }
}
