//! What a person decides: quarantine listed and replayed.

use std::ops::Bound;

use postrider_contract::Timestamp;
use postrider_core::{
    DestinationId, Position,
    mutation::{self, Mutation},
};
use postrider_store::{
    control::Audit,
    inspect::{Count, Page, QuarantineReason, QuarantineRow, ReplaySelection, Replayed},
};

use super::{END, Model, Open, OpenState, inspect::count};

impl Model {
    #[must_use]
    pub fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Page<QuarantineRow> {
        let rows = self
            .selected(selection)
            .filter(|(key, ..)| after.is_none_or(|after| *key > after))
            .map(|((destination, position), open, reason)| {
                let event = &self.events[&position].stored;
                QuarantineRow {
                    destination,
                    position,
                    event_id: event.event_id,
                    envelope: event.envelope.clone(),
                    envelope_digest: event.envelope_digest,
                    key_hash: open.key_hash,
                    attempts_charged: open.attempts,
                    reason: reason.clone(),
                    tail: self.tail(destination, position, open.key_hash),
                    overtaken: self.is_overtaken(destination, position, open.key_hash),
                }
            });
        super::inspect::page(rows, limit)
    }

    pub fn replay(
        &mut self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
        now: Timestamp,
    ) -> Replayed {
        let mut chosen: Vec<(Position, DestinationId)> = self
            .selected(selection)
            .map(|((destination, position), ..)| (position, destination))
            .collect();
        chosen.sort();
        chosen.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        for (position, destination) in &chosen {
            if let Some(open) = self.open.get_mut(&(*destination, *position)) {
                open.state = OpenState::Pending;
                open.attempts = 0;
                open.available_at = now;
                open.waited = !mutation::on(Mutation::ReplayedTailFirst);
            }
        }
        if !chosen.is_empty() {
            self.audit("replay", audit, chosen.len() as u64, now);
        }
        Replayed {
            deliveries: chosen
                .into_iter()
                .map(|(position, destination)| {
                    (
                        destination,
                        position,
                        self.events[&position].stored.event_id,
                    )
                })
                .collect(),
        }
    }

    fn selected(
        &self,
        selection: &ReplaySelection,
    ) -> impl Iterator<Item = ((DestinationId, Position), &Open, &QuarantineReason)> {
        self.open.iter().filter_map(move |(key, open)| {
            let OpenState::Quarantined(reason) = &open.state else {
                return None;
            };
            let event_id = self.events[&key.1].stored.event_id;
            let chosen = selection
                .events
                .as_ref()
                .is_none_or(|events| events.contains(&event_id))
                && selection.destination.is_none_or(|wanted| wanted == key.0)
                && selection
                    .code
                    .as_ref()
                    .is_none_or(|code| *code == reason.code);
            chosen.then_some((*key, open, reason))
        })
    }

    /// Open deliveries of the key behind a position.
    pub(super) fn tail(&self, destination: DestinationId, position: Position, key: i64) -> Count {
        let behind = (
            Bound::Excluded((destination, position)),
            Bound::Included((destination, END)),
        );
        count(
            self.open
                .range(behind)
                .filter(|(_, open)| open.key_hash == key)
                .count(),
        )
    }

    fn is_overtaken(&self, destination: DestinationId, position: Position, key: i64) -> bool {
        self.receipts.keys().any(|(other, later)| {
            *other == destination && *later > position && self.events[later].key_hash == key
        })
    }
}
