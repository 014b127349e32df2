//! I15: where a destination orders by key, nothing is sent while an earlier delivery of its key
//! is open and not itself in flight; and where only one of a key may be in flight, first copies
//! arrive in append order.

use std::collections::{BTreeMap, BTreeSet};

use postrider_contract::destination::{OnQuarantine, Ordering};
use postrider_core::{DestinationId, Position, delivery::State};
use postrider_transport_memory::Stored;

use super::{Invariant, Verdict, attempt_of, ensure};
use crate::{oracle::Sending, truth::Truth};

#[derive(Default)]
pub(crate) struct Order {
    arrived: BTreeSet<(DestinationId, Position)>,
    /// The latest first copy of each key.
    latest: BTreeMap<(DestinationId, i64), Position>,
}

impl Invariant for Order {
    fn name(&self) -> &'static str {
        "I15 order"
    }

    fn sending(&mut self, sending: &Sending<'_>, truth: &Truth) -> Verdict {
        let destination = sending.destination;
        let Some(known) = truth.destinations.get(&destination) else {
            return Ok(());
        };
        // A worker that has just woken up may have decided to send before it slept.
        let woken = sending.lease_left.is_none();
        if known.ordering == Ordering::None || woken || !sent_by_the_living(sending, truth) {
            return Ok(());
        }
        let in_flight: BTreeSet<Position> = sending
            .model
            .attempt_facts()
            .filter(|attempt| attempt.destination == destination && attempt.finished_at.is_none())
            .flat_map(|attempt| attempt.members.iter().copied())
            .collect();
        for open in sending.model.open_facts() {
            let holds = open.destination == destination
                && match open.state {
                    State::Pending | State::Unknown => true,
                    State::Quarantined => known.on_quarantine == OnQuarantine::Hold,
                    State::Acknowledged => false,
                };
            if !holds || in_flight.contains(&open.position) {
                continue;
            }
            let overtaking = sending.positions.iter().find(|position| {
                **position > open.position
                    && truth.key_hash(**position) == Some(open.key_hash)
                    && !truth.may_be_overtaken(destination, open.position, **position)
            });
            ensure(overtaking.is_none(), || {
                format!(
                    "{overtaking:?} is sent to destination {destination} before {} of its key, \
                     which is {}",
                    open.position,
                    open.state.word()
                )
            })?;
        }
        Ok(())
    }

    fn arrived(&mut self, destination: DestinationId, stored: &Stored, truth: &Truth) -> Verdict {
        let (Some(position), Some(known)) = (
            truth.positions.get(&stored.event_id),
            truth.destinations.get(&destination),
        ) else {
            return Ok(());
        };
        let Some(key) = truth.key_hash(*position) else {
            return Ok(());
        };
        if known.ordering != Ordering::Strict || !self.arrived.insert((destination, *position)) {
            return Ok(());
        }
        let latest = self.latest.entry((destination, key)).or_insert(*position);
        let before = *latest;
        *latest = before.max(*position);
        ensure(
            before <= *position || truth.may_be_overtaken(destination, *position, before),
            || format!("destination {destination} got {before} before {position} of the same key"),
        )
    }
}

/// Whether the session of this send is live in the database: a paused worker that wakes up may
/// not know yet what became of its deliveries.
fn sent_by_the_living(sending: &Sending<'_>, truth: &Truth) -> bool {
    let Some(attempt) = attempt_of(sending, truth) else {
        return false;
    };
    sending.model.session_facts().any(|fact| {
        fact.id == attempt.session && fact.ended.is_none() && fact.expires_at > sending.now
    })
}
