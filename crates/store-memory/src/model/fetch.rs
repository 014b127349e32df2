//! Fetch: what is due, and what is held by an earlier delivery of its key.

use std::collections::BTreeSet;

use postrider_contract::{
    Timestamp,
    destination::{Destination, OnQuarantine, Ordering},
};
use postrider_core::{
    DestinationId,
    mutation::{self, Mutation},
};
use postrider_store::{
    StoreError,
    clock::between,
    dispatch::{Exchanged, Fetch, Fetched},
};

use super::{Model, Open, OpenState};

impl Model {
    pub(super) fn fetch(
        &self,
        destination: DestinationId,
        fetch: &Fetch,
        now: Timestamp,
        answer: &mut Exchanged,
    ) -> Result<(), StoreError> {
        answer.now = Some(now);
        answer.horizon = Some(self.horizon());
        let registered = self.destination(destination)?;
        if registered.suspended.is_some() {
            answer.exhausted = true;
            return Ok(());
        }
        let by_key = registered.destination.ordering != Ordering::None;
        let mut held_keys: BTreeSet<i64> = BTreeSet::new();
        let mut bytes = 0_u64;
        for (position, open) in self.open_at(destination) {
            let held = by_key && held_keys.contains(&open.key_hash);
            let excluded = fetch.exclude.binary_search(&position).is_ok();
            let pending = open.state == OpenState::Pending;
            let passed_over = open.waited && pending && position <= fetch.after;
            // The caller has it in hand, and keeps what follows behind it.
            let in_hand = pending && excluded;
            if !in_hand && (holds(open, &registered.destination, now) || passed_over) {
                held_keys.insert(open.key_hash);
            }
            let is_due = open.state == OpenState::Pending
                && !waits(open, now)
                && position > fetch.after
                && fetch.lanes.contains(&open.lane)
                && !held
                && !excluded
                && fetch.busy_keys.binary_search(&open.key_hash).is_err();
            if !is_due {
                continue;
            }
            if answer.fetched.len() as u64 >= u64::from(fetch.limit) {
                return Ok(());
            }
            let event = &self.events[&position];
            bytes = bytes.saturating_add(event.stored.payload.len() as u64);
            if bytes > fetch.bytes_max && !answer.fetched.is_empty() {
                return Ok(());
            }
            answer.fetched.push(Fetched {
                position,
                lane: open.lane,
                key_hash: open.key_hash,
                attempts: open.attempts,
                first_attempt_ago: open.first_attempt_at.map(|first| between(first, now)),
                event: event.stored.clone(),
            });
        }
        if mutation::on(Mutation::OfferedElsewhere) {
            self.offer_from_elsewhere(destination, fetch, answer);
        }
        if answer.fetched.len() as u64 >= u64::from(fetch.limit) {
            return Ok(());
        }
        answer.exhausted = true;
        answer.next_due = self
            .open_at(destination)
            .filter(|(_, open)| {
                open.state == OpenState::Pending
                    && waits(open, now)
                    && fetch.lanes.contains(&open.lane)
            })
            .map(|(_, open)| between(now, open.available_at))
            .min();
        Ok(())
    }
}

impl Model {
    /// [`Mutation::OfferedElsewhere`].
    fn offer_from_elsewhere(
        &self,
        destination: DestinationId,
        fetch: &Fetch,
        answer: &mut Exchanged,
    ) {
        let failed = self.open.iter().find(|((other, position), open)| {
            *other != destination
                && open.waited
                && !self.events[position].destinations.contains(&destination)
                && fetch.exclude.binary_search(position).is_err()
        });
        if let (Some(((_, position), open)), Some(lane)) = (failed, fetch.lanes.first()) {
            answer.fetched.push(Fetched {
                position: *position,
                lane: *lane,
                key_hash: open.key_hash,
                attempts: open.attempts,
                first_attempt_ago: None,
                event: self.events[position].stored.clone(),
            });
            answer.fetched.sort_by_key(|fetched| fetched.position);
        }
    }
}

/// What never failed is due whatever its time: a clock that steps back delays nothing new.
fn waits(open: &Open, now: Timestamp) -> bool {
    open.waited && open.available_at > now
}

/// Whether a delivery holds the later ones of its key by its own state. Asked only where the
/// destination orders by key.
pub(super) fn holds(open: &Open, destination: &Destination, now: Timestamp) -> bool {
    match &open.state {
        OpenState::Pending => waits(open, now),
        OpenState::Unknown => true,
        OpenState::Quarantined(_) => {
            destination.on_quarantine == OnQuarantine::Hold
                && !mutation::on(Mutation::QuarantineHoldsNothing)
        }
    }
}
