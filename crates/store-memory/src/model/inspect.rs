//! What people and metrics may ask. Reads only.

use postrider_contract::key;
use postrider_contract::{Envelope, EventId, Timestamp, destination::Ordering};
use postrider_core::{DestinationId, Lane, Position, delivery::State};
use postrider_store::{
    StoreError,
    clock::between,
    inspect::{
        ATTEMPTS_SHOWN_MAX, AttemptRow, Backlog, COUNT_MAX, Count, DeliveryDetail, DeliveryFilter,
        DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow, Page, ReceiptRow,
        SessionRow,
    },
};

use super::{Attempt, Event, Kept, Model, OpenState, fetch::holds};

impl Model {
    #[must_use]
    pub fn backlog(&self, now: Timestamp) -> Vec<Backlog> {
        self.destinations
            .iter()
            .map(|(id, registered)| {
                let in_state = |state| {
                    count(
                        self.open_at(*id)
                            .filter(|(_, o)| o.state.state() == state)
                            .count(),
                    )
                };
                let lanes = self
                    .lanes
                    .iter()
                    .filter(|((destination, _), _)| destination == id);
                Backlog {
                    destination: *id,
                    pending: in_state(State::Pending),
                    unknown: in_state(State::Unknown),
                    quarantined: in_state(State::Quarantined),
                    oldest_pending: self
                        .open_at(*id)
                        .find(|(_, open)| open.state == OpenState::Pending)
                        .map(|(position, _)| {
                            between(self.events[&position].stored.appended_at, now)
                        }),
                    breaker: self
                        .breakers
                        .range((*id, postrider_core::SessionId(uuid::Uuid::nil()))..)
                        .take_while(|((destination, _), _)| destination == id)
                        .map(|(_, row)| row)
                        .min_by_key(|row| (row.refused, row.since, row.session))
                        .cloned(),
                    lanes: registered.destination.lanes,
                    lanes_held: u16::try_from(lanes.filter(|(_, holder)| holder.is_some()).count())
                        .expect("at most 1024 lanes"),
                }
            })
            .collect()
    }

    #[must_use]
    pub fn sessions(&self, limit: u32) -> Vec<SessionRow> {
        let mut rows: Vec<SessionRow> = self
            .sessions
            .iter()
            .map(|(id, session)| SessionRow {
                id: *id,
                owner: session.owner.clone(),
                version: session.version.clone(),
                exclusive: session.exclusive,
                opened_at: session.opened_at,
                expires_at: session.expires_at,
                ended: session.ended.clone(),
                lanes: self
                    .lanes
                    .values()
                    .filter(|holder| holder.is_some_and(|(session, _)| session == *id))
                    .count() as u64,
            })
            .collect();
        rows.sort_by(|a, b| b.opened_at.cmp(&a.opened_at).then(a.id.cmp(&b.id)));
        rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        rows
    }

    #[must_use]
    pub fn lanes(&self) -> Vec<LaneRow> {
        self.lanes
            .iter()
            .map(|((destination, lane), holder)| LaneRow {
                destination: *destination,
                lane: *lane,
                session: holder.map(|(session, _)| session),
                owner: holder.map(|(session, _)| self.sessions[&session].owner.clone()),
                since: holder.map(|(_, since)| since),
            })
            .collect()
    }

    /// # Errors
    /// `Corrupt` when a stored envelope cannot be read.
    pub fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        let mut rows = Vec::new();
        for (position, event) in self.events.range(Position(after.0.saturating_add(1))..) {
            let envelope = Envelope::from_stored(&event.stored.envelope).map_err(|error| {
                StoreError::Corrupt {
                    message: format!("envelope at position {position}: {error}"),
                }
            })?;
            if matches(filter, &envelope) {
                rows.push(EventRow {
                    position: *position,
                    event_id: event.stored.event_id,
                    envelope: event.stored.envelope.clone(),
                    appended_at: event.stored.appended_at,
                    open: self.open_count(*position, event),
                });
            }
        }
        Ok(page(rows.into_iter(), limit))
    }

    fn open_count(&self, position: Position, event: &Event) -> u32 {
        let open = event
            .destinations
            .iter()
            .filter(|destination| self.open.contains_key(&(**destination, position)));
        u32::try_from(open.count()).unwrap_or(u32::MAX)
    }

    /// # Errors
    /// `Corrupt` when a delivery is neither open nor closed by a receipt.
    pub fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError> {
        let Some(position) = self.positions.get(&event) else {
            return Ok(None);
        };
        let event = &self.events[position];
        let deliveries = event
            .destinations
            .iter()
            .map(|destination| self.delivery(*destination, *position, event))
            .collect::<Result<_, _>>()?;
        Ok(Some(EventDetail {
            position: *position,
            event: (*event.stored).clone(),
            key_hash: event.key_hash,
            deliveries,
        }))
    }

    fn delivery(
        &self,
        destination: DestinationId,
        position: Position,
        event: &Event,
    ) -> Result<DeliveryDetail, StoreError> {
        let at = (destination, position);
        let open = self.open.get(&at);
        let receipt = self.receipts.get(&at);
        if open.is_some() == receipt.is_some() {
            return Err(StoreError::Corrupt {
                message: format!(
                    "the delivery of event {} to destination {destination} must be either open or closed by a receipt",
                    event.stored.event_id
                ),
            });
        }
        let lanes = self.destinations[&destination].destination.lanes;
        let mut duplicates: Vec<ReceiptRow> = self
            .duplicates
            .get(&at)
            .into_iter()
            .flatten()
            .map(receipt_row)
            .collect();
        duplicates.sort_by_key(|row| (row.accepted_at, row.attempt, row.receipt.pack()));
        Ok(DeliveryDetail {
            destination,
            lane: Lane(key::lane(event.key_hash, lanes)),
            state: open.map_or(State::Acknowledged, |open| open.state.state()),
            attempts_charged: open.map_or(0, |open| open.attempts),
            available_at: open.map(|open| open.available_at),
            attempts: self.attempts_of(destination, position),
            receipt: receipt.map(receipt_row),
            duplicates,
            quarantine: open.and_then(|open| match &open.state {
                OpenState::Quarantined(reason) => Some(reason.clone()),
                OpenState::Pending | OpenState::Unknown => None,
            }),
        })
    }

    fn attempts_of(&self, destination: DestinationId, position: Position) -> Vec<AttemptRow> {
        let mut rows: Vec<AttemptRow> = self
            .attempts
            .iter()
            .filter(|(_, attempt)| {
                attempt.destination == destination
                    && attempt.members.binary_search(&position).is_ok()
            })
            .map(|(id, attempt)| self.attempt_row(*id, attempt, position))
            .collect();
        rows.sort_by_key(|row| (row.registered_at, row.attempt));
        let shown = usize::try_from(ATTEMPTS_SHOWN_MAX).unwrap_or(usize::MAX);
        rows.split_off(rows.len().saturating_sub(shown))
    }

    fn attempt_row(
        &self,
        id: postrider_core::AttemptId,
        attempt: &Attempt,
        position: Position,
    ) -> AttemptRow {
        let session = &self.sessions[&attempt.session];
        let finish = attempt.finished.as_ref();
        let exception = finish.and_then(|finish| finish.exceptions.get(&position));
        AttemptRow {
            attempt: id,
            session: attempt.session,
            owner: session.owner.clone(),
            registered_at: attempt.registered_at,
            finished_at: finish.map(|finish| finish.at),
            outcome: finish.map(|_| {
                exception.map_or_else(|| State::Acknowledged.word().to_owned(), |e| e.0.clone())
            }),
            detail: exception
                .map(|e| e.1.clone())
                .filter(|detail| !detail.is_empty()),
            lease_until: session
                .ended
                .as_ref()
                .map_or(session.expires_at, |(ended, _)| {
                    session.expires_at.min(*ended)
                }),
        }
    }

    #[must_use]
    pub fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Page<DeliveryRow> {
        let rows = self
            .open
            .iter()
            .filter(|((destination, position), open)| {
                after.is_none_or(|after| (*destination, *position) > after)
                    && filter
                        .destination
                        .is_none_or(|wanted| wanted == *destination)
                    && filter
                        .state
                        .is_none_or(|wanted| wanted == open.state.state())
                    && filter.key_hash.is_none_or(|wanted| wanted == open.key_hash)
            })
            .map(|((destination, position), open)| DeliveryRow {
                destination: *destination,
                position: *position,
                event_id: self.events[position].stored.event_id,
                lane: open.lane,
                state: open.state.state(),
                attempts_charged: open.attempts,
                available_at: open.available_at,
            });
        page(rows, limit)
    }

    #[must_use]
    pub fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
        now: Timestamp,
    ) -> Option<HeldKey> {
        let registered = self.destinations.get(&destination)?;
        if registered.destination.ordering == Ordering::None {
            return None;
        }
        let key = self.events.get(&position)?.key_hash;
        let (head, open) = self
            .open_at(destination)
            .find(|(_, open)| open.key_hash == key && holds(open, &registered.destination, now))?;
        Some(HeldKey {
            head,
            head_event: self.events[&head].stored.event_id,
            head_state: open.state.state(),
            head_available_at: open.available_at,
            tail: self.tail(destination, head, key),
        })
    }
}

fn receipt_row(kept: &Kept) -> ReceiptRow {
    ReceiptRow {
        attempt: kept.attempt,
        accepted_at: kept.accepted_at,
        receipt: kept.receipt.clone(),
        late: kept.late,
    }
}

fn matches(filter: &EventFilter, envelope: &Envelope) -> bool {
    let is = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|w| w == found);
    is(&filter.event_type, &envelope.event_type)
        && is(&filter.tenant, &envelope.tenant)
        && is(&filter.aggregate_type, &envelope.aggregate.kind)
        && is(&filter.aggregate_id, &envelope.aggregate.id)
        && is(&filter.partition_key, &envelope.partition_key)
}

pub(super) fn page<T>(mut rows: impl Iterator<Item = T>, limit: u32) -> Page<T> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let page = rows.by_ref().take(limit).collect();
    Page {
        rows: page,
        more: rows.next().is_some(),
    }
}

pub(super) fn count(found: usize) -> Count {
    let found = u64::try_from(found).unwrap_or(u64::MAX);
    Count {
        value: found.min(COUNT_MAX),
        capped: found > COUNT_MAX,
    }
}
