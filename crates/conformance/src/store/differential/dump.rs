//! All that the port shows, as text.

use std::{collections::BTreeMap, fmt::Write as _};

use postrider_core::Position;
use postrider_store::inspect::{
    AttemptRow, DeliveryDetail, DeliveryFilter, EventFilter, ReceiptRow, ReplaySelection,
};
use rand::{Rng, rngs::StdRng};

use super::{answer, driver::Driver};
use crate::store::StoreHarness;

impl<H: StoreHarness> Driver<H> {
    /// One question to the reading side, drawn.
    pub(super) async fn look(&mut self, dice: &mut StdRng) -> String {
        match dice.random_range(0..6) {
            0 => self.backlog().await,
            1 => self.lanes_and_sessions().await,
            2 => self.pages_of_events(dice.random_range(1..5)).await,
            3 => self.pages_of_deliveries(dice.random_range(1..5)).await,
            4 => self.pages_of_quarantined(dice.random_range(1..5)).await,
            _ => self.held_keys().await,
        }
    }

    /// Everything.
    pub(super) async fn dump(&mut self) -> String {
        let parts = [
            self.registry().await,
            self.backlog().await,
            self.lanes_and_sessions().await,
            self.pages_of_events(7).await,
            self.pages_of_deliveries(5).await,
            self.pages_of_quarantined(3).await,
            self.held_keys().await,
            self.details().await,
            format!("audit {:?}", self.harness.audit_log().await),
            answer::list(
                self.harness
                    .findings()
                    .await
                    .iter()
                    .map(|finding| &finding.code),
            ),
        ];
        parts.join("\n")
    }

    async fn registry(&self) -> String {
        let registry = self.store.registry().await.expect("the registry is read");
        let destinations = registry.destinations.iter().map(|registered| {
            (
                self.destination_number(registered.id),
                registered.digest,
                registered.current,
                registered.suspended.clone(),
            )
        });
        let destinations = answer::list(destinations);
        let set = registry.delivery_set.map(|set| (set.version, set.digest()));
        format!("registry {destinations} {:?} {set:?}", registry.event_types)
    }

    async fn backlog(&self) -> String {
        let backlog = self.store.backlog().await.expect("the backlog is read");
        let rows = backlog.iter().map(|row| {
            let breaker = row.breaker.as_ref().map(|breaker| {
                let session = self.session_number(breaker.session);
                (
                    session,
                    breaker.since,
                    breaker.code.clone(),
                    breaker.next_probe_at,
                    breaker.refused,
                )
            });
            (
                self.destination_number(row.destination),
                [row.pending, row.unknown, row.quarantined],
                row.oldest_pending,
                breaker,
                row.lanes,
                row.lanes_held,
            )
        });
        format!("backlog {}", answer::list(rows))
    }

    async fn lanes_and_sessions(&self) -> String {
        let lanes = self.store.lanes().await.expect("the lanes are read");
        let lanes = lanes.iter().map(|row| {
            let session = row.session.map(|session| self.session_number(session));
            let destination = self.destination_number(row.destination);
            (destination, row.lane, session, row.owner.clone(), row.since)
        });
        let sessions = self
            .store
            .sessions(100)
            .await
            .expect("the sessions are read");
        let sessions = sessions.iter().map(|row| {
            (
                self.session_number(row.id),
                (row.owner.clone(), row.version.clone(), row.exclusive),
                (row.opened_at, row.expires_at),
                row.ended.clone(),
                row.lanes,
            )
        });
        format!(
            "lanes {} sessions {}",
            answer::list(lanes),
            answer::list(sessions)
        )
    }

    async fn pages_of_events(&self, limit: u32) -> String {
        let mut text = String::from("events");
        let mut after = Position::START;
        for _ in 0..=self.events.len() {
            let page = self
                .store
                .events(&EventFilter::default(), after, limit)
                .await;
            let page = page.expect("the events are read");
            for row in &page.rows {
                let number = self.number(row.position);
                write!(text, " {number} {} {}", row.appended_at, row.open).expect("text");
            }
            let Some(last) = page.rows.last().filter(|_| page.more) else {
                return text;
            };
            after = last.position;
        }
        format!("{text} and no end")
    }

    async fn pages_of_deliveries(&self, limit: u32) -> String {
        let mut text = String::from("deliveries");
        let mut after = None;
        for _ in 0..=self.events.len() * self.destinations.len() {
            let page = self
                .store
                .deliveries(&DeliveryFilter::default(), after, limit)
                .await;
            let page = page.expect("the deliveries are read");
            for row in &page.rows {
                let row = (
                    self.destination_number(row.destination),
                    self.number(row.position),
                    row.lane,
                    row.state,
                    row.attempts_charged,
                    row.available_at,
                );
                write!(text, "\n  {row:?}").expect("text");
            }
            let Some(last) = page.rows.last().filter(|_| page.more) else {
                return text;
            };
            after = Some((last.destination, last.position));
        }
        format!("{text} and no end")
    }

    async fn pages_of_quarantined(&self, limit: u32) -> String {
        let mut text = String::from("quarantined");
        let mut after = None;
        for _ in 0..=self.events.len() * self.destinations.len() {
            let page = self
                .store
                .quarantined(&ReplaySelection::default(), after, limit)
                .await;
            let page = page.expect("the quarantine is read");
            for row in &page.rows {
                let row = (
                    self.destination_number(row.destination),
                    self.number(row.position),
                    (row.key_hash, row.attempts_charged),
                    answer::reason(&row.reason),
                    row.tail,
                    row.overtaken,
                );
                write!(text, "\n  {row:?}").expect("text");
            }
            let Some(last) = page.rows.last().filter(|_| page.more) else {
                return text;
            };
            after = Some((last.destination, last.position));
        }
        format!("{text} and no end")
    }

    async fn held_keys(&self) -> String {
        let mut text = String::from("held");
        // Every event of a key has the same answer: the first and the last of each will do.
        let mut of_key: BTreeMap<i64, [usize; 2]> = BTreeMap::new();
        for (event, known) in self.events.iter().enumerate() {
            of_key.entry(known.key_hash()).or_insert([event, event])[1] = event;
        }
        for (number, destination) in self.destinations.iter().enumerate() {
            for event in of_key.values().flatten() {
                let known = &self.events[*event];
                let held = self.store.held_by(*destination, known.position).await;
                let Some(held) = held.expect("the holder is read") else {
                    continue;
                };
                let head = self.number(held.head);
                let row = (head, held.head_state, held.head_available_at, held.tail);
                write!(text, "\n  d{number} e{event} by {row:?}").expect("text");
            }
        }
        text
    }

    async fn details(&self) -> String {
        let mut text = String::from("details");
        for (number, known) in self.events.iter().enumerate() {
            let detail = self.store.event(known.id).await.expect("the event is read");
            let detail = detail.expect("the event exists");
            let event = (
                self.number(detail.position),
                &detail.event.envelope,
                detail.event.payload.len(),
                detail.key_hash,
            );
            write!(text, "\n  e{number} {event:?}").expect("text");
            for delivery in &detail.deliveries {
                write!(text, "\n  e{number} {}", self.delivery(delivery)).expect("text");
            }
        }
        text
    }

    fn delivery(&self, delivery: &DeliveryDetail) -> String {
        let attempts = delivery
            .attempts
            .iter()
            .map(|attempt| self.attempt(attempt));
        let receipt = |row: &ReceiptRow| {
            let attempt = self.attempt_number(row.attempt);
            format!(
                "{attempt} at {} late {} {:?}",
                row.accepted_at, row.late, row.receipt
            )
        };
        format!(
            "{} lane {} {:?} attempts {} due {:?} receipt {:?} duplicates {} quarantine {:?} attempts {}",
            self.destination_number(delivery.destination),
            delivery.lane,
            delivery.state,
            delivery.attempts_charged,
            delivery.available_at.map(|time| time.to_string()),
            delivery.receipt.as_ref().map(receipt),
            answer::list(delivery.duplicates.iter().map(receipt)),
            delivery.quarantine.as_ref().map(answer::reason),
            answer::list(attempts),
        )
    }

    fn attempt(&self, row: &AttemptRow) -> String {
        format!(
            "{} {} {} registered {} finished {:?} {:?} {:?} lease {}",
            self.attempt_number(row.attempt),
            self.session_number(row.session),
            row.owner,
            row.registered_at,
            row.finished_at.map(|time| time.to_string()),
            row.outcome,
            row.detail,
            row.lease_until,
        )
    }

    fn attempt_number(&self, id: postrider_core::AttemptId) -> String {
        match self.attempts.iter().position(|attempt| attempt.id == id) {
            Some(number) => format!("a{number}"),
            None => format!("unknown attempt {id}"),
        }
    }
}
