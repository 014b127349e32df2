//! I1: an event exists if and only if the transaction that appended it committed.

use postrider_core::DestinationId;
use postrider_transport_memory::Stored;

use super::{Invariant, Verdict, ensure};
use crate::{oracle::Ended, truth::Truth};

pub(crate) struct Atomic;

impl Invariant for Atomic {
    fn name(&self) -> &'static str {
        "I1 atomic"
    }

    fn arrived(&mut self, destination: DestinationId, stored: &Stored, truth: &Truth) -> Verdict {
        ensure(truth.positions.contains_key(&stored.event_id), || {
            format!(
                "destination {destination} was sent {}, which was never committed",
                stored.event_id
            )
        })
    }

    fn ended(&mut self, ended: &Ended<'_>, truth: &Truth) -> Verdict {
        let found: Vec<_> = ended
            .model
            .event_facts()
            .map(|event| event.position)
            .collect();
        ensure(found.iter().eq(truth.committed.keys()), || {
            format!(
                "the database has events {found:?}, the application committed {:?}",
                truth.committed.keys()
            )
        })
    }
}
