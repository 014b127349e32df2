//! I9: every attempt of a delivery goes to the destination frozen at append, and nowhere else.

use postrider_core::DestinationId;
use postrider_transport_memory::Stored;

use super::{Invariant, Verdict, ensure};
use crate::truth::Truth;

pub(crate) struct FrozenTarget;

impl Invariant for FrozenTarget {
    fn name(&self) -> &'static str {
        "I9 frozen target"
    }

    fn arrived(&mut self, destination: DestinationId, stored: &Stored, truth: &Truth) -> Verdict {
        let event = truth.event(stored.event_id);
        ensure(
            event.is_none_or(|event| event.destinations.contains(&destination)),
            || {
                format!(
                    "event {} reached destination {destination}, which its delivery set does not name",
                    stored.event_id
                )
            },
        )
    }
}
