//! Append: an event with exactly the deliveries that its delivery set prescribes (I2).

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use postrider_contract::{
    DeliverySet, Digest, EventId, Timestamp, envelope::DeliverySetRef, key, new_event::NewEvent,
};
use postrider_core::{
    DestinationId, Lane, Position,
    mutation::{self, Mutation},
};
use postrider_store::{
    AppendError, StoreError,
    append::check_retry,
    dispatch::{Appended, StoredEvent},
};

use super::{Event, Model, Open, OpenState, TransactionId, transaction::Draft};

impl Model {
    /// Appends events in the caller's transaction, all or nothing. After an error the
    /// transaction can go on.
    ///
    /// # Errors
    /// As [`Store::append`](postrider_store::Store::append); `Unavailable` where a database would
    /// wait for another open transaction that appends the same id.
    pub fn append_in(
        &mut self,
        transaction: TransactionId,
        events: &[NewEvent],
        now: Timestamp,
    ) -> Result<Vec<Appended>, AppendError> {
        self.transaction(transaction)?;
        let mut drafts: Vec<Draft> = Vec::new();
        let mut answers = Vec::with_capacity(events.len());
        for event in events {
            if let Some(answer) = self.appended_before(transaction, &drafts, event)? {
                answers.push(answer);
                continue;
            }
            let draft = self.draft(event, now)?;
            answers.push(Appended {
                event_id: draft.event_id,
                position: draft.position,
                already: false,
            });
            drafts.push(draft);
        }
        self.transaction(transaction)?.events.extend(drafts);
        Ok(answers)
    }

    fn appended_before(
        &self,
        transaction: TransactionId,
        drafts: &[Draft],
        event: &NewEvent,
    ) -> Result<Option<Appended>, AppendError> {
        let Some(event_id) = event.event_id else {
            return Ok(None);
        };
        let committed = self
            .positions
            .get(&event_id)
            .map(|position| (*position, &self.events[position].stored));
        let own = || {
            let earlier = self.transactions.get(&transaction);
            earlier
                .iter()
                .flat_map(|open| &open.events)
                .chain(drafts)
                .find(|draft| draft.event_id == event_id)
                .map(|draft| (draft.position, &draft.event.stored))
        };
        if let Some((position, stored)) = committed.or_else(own) {
            check_retry(event, event_id, &stored.envelope, stored.envelope_digest)?;
            return Ok(Some(Appended {
                event_id,
                position,
                already: true,
            }));
        }
        let elsewhere = self
            .transactions
            .values()
            .flat_map(|open| &open.events)
            .any(|draft| draft.event_id == event_id);
        if elsewhere {
            return Err(AppendError::Store(StoreError::Unavailable {
                message: format!("another open transaction appends event {event_id}"),
                source: None,
            }));
        }
        Ok(None)
    }

    fn draft(&mut self, event: &NewEvent, now: Timestamp) -> Result<Draft, AppendError> {
        let (set, set_digest) = self
            .active_set
            .and_then(|version| self.delivery_sets.get(&version))
            .ok_or(AppendError::NoActiveDeliverySet)?;
        let destinations = self.prescribed(set, event)?;
        for id in &destinations {
            let destination = &self.destination(*id)?.destination;
            let length = u64::try_from(event.payload.len()).unwrap_or(u64::MAX);
            if let Some(limit) = destination.max_payload_bytes
                && length > limit
            {
                return Err(AppendError::TooLarge {
                    destination: destination.name.clone(),
                    length,
                    limit,
                });
            }
        }
        let set = DeliverySetRef {
            version: set.version,
            digest: *set_digest,
        };
        let schema_digest = self.schema_digest(event);
        let event_id = event.event_id.unwrap_or_else(|| self.make_id(now));
        let sealed = event
            .seal(event_id, now, &set, schema_digest)
            .map_err(|invalid| AppendError::Invalid(invalid.to_string()))?;
        self.position += 1;
        let made = if mutation::on(Mutation::DeliveriesMissing) {
            1
        } else {
            destinations.len()
        };
        let deliveries = destinations
            .iter()
            .take(made)
            .map(|id| {
                let lanes = self.destinations[id].destination.lanes;
                let open = Open {
                    key_hash: sealed.key_hash,
                    lane: Lane(key::lane(sealed.key_hash, lanes)),
                    state: OpenState::Pending,
                    attempts: 0,
                    available_at: now,
                    waited: false,
                    first_attempt_at: None,
                };
                (*id, open)
            })
            .collect();
        Ok(Draft {
            position: Position(self.position),
            event_id,
            event: Event {
                stored: Arc::new(StoredEvent {
                    event_id,
                    envelope: sealed.canonical,
                    envelope_digest: sealed.digest,
                    payload: Bytes::from(event.payload.clone()),
                    traceparent: event.traceparent.clone(),
                    tracestate: event.tracestate.clone(),
                    headers: sealed.headers,
                    appended_at: now,
                }),
                key_hash: sealed.key_hash,
                generation: sealed.envelope.generation,
                payload_digest: sealed.envelope.payload.digest,
                destinations,
            },
            deliveries,
        })
    }

    /// Every member's destination, mandatory or not.
    fn prescribed(
        &self,
        set: &DeliverySet,
        event: &NewEvent,
    ) -> Result<BTreeSet<DestinationId>, AppendError> {
        let known = set.applicable_events.iter().any(|applicable| {
            applicable.event_type == event.event_type
                && applicable.schema_version == event.schema_version
        });
        if !known {
            return Err(AppendError::UnknownEventType {
                event_type: event.event_type.clone(),
                schema_version: event.schema_version.clone(),
            });
        }
        let digests: BTreeSet<Digest> = set
            .members
            .iter()
            .filter(|member| {
                member.event_type == event.event_type
                    && member.schema_version == event.schema_version
            })
            .map(|member| member.destination_digest)
            .collect();
        Ok(self
            .destinations
            .iter()
            .filter(|(_, registered)| digests.contains(&registered.digest))
            .map(|(id, _)| *id)
            .collect())
    }

    fn schema_digest(&self, event: &NewEvent) -> Option<Digest> {
        self.event_types
            .iter()
            .find(|registration| {
                registration.current
                    && registration.event_type.event_type == event.event_type
                    && registration.event_type.schema_version == event.schema_version
            })
            .and_then(|registration| registration.event_type.schema_digest())
    }

    /// A UUIDv7 from the given time and a counter: the model has no randomness.
    fn make_id(&mut self, now: Timestamp) -> EventId {
        self.ids_made += 1;
        let mut counter = [0; 10];
        counter[2..].copy_from_slice(&self.ids_made.to_be_bytes());
        let millis = u64::try_from(now.unix_micros() / 1000).unwrap_or(0);
        EventId(uuid::Builder::from_unix_timestamp_millis(millis, &counter).into_uuid())
    }
}
