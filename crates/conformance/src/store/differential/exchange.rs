//! The exchange and the evidence, drawn from what exists: mostly as a worker would, sometimes as
//! a confused one.

use std::time::Duration;

use postrider_contract::{Digest, EventId};
use postrider_core::{AttemptId, Lane, Position, delivery::State};
use postrider_store::{
    dispatch::{
        Exchange, Exchanged, Fetch, Registration, Settled, SettledAs, Settlement, Suspend, Unfit,
    },
    evidence::{Evidence, Verdict},
};
use rand::{Rng, rngs::StdRng, seq::IndexedRandom};

use super::{
    answer,
    driver::{Driver, KnownAttempt},
};
use crate::store::{StoreHarness, fixture::receipt};

impl<H: StoreHarness> Driver<H> {
    pub(super) async fn exchange(&mut self, dice: &mut StdRng) -> Option<String> {
        let (session, destination) = (self.some_session(dice)?, self.some_destination(dice)?);
        let mut exchange = Exchange {
            session: self.sessions[session],
            destination: self.destinations[destination],
            settle: Vec::new(),
            quarantine: Vec::new(),
            suspend: None,
            register: Vec::new(),
            fetch: None,
        };
        let mut asked = vec![format!("s{session} d{destination}")];
        if dice.random_ratio(2, 3) {
            asked.extend(self.add_settlement(&mut exchange, (session, destination), dice));
        }
        if dice.random_ratio(1, 15) {
            asked.extend(self.add_unfit(&mut exchange, destination, dice));
        }
        if dice.random_ratio(1, 40) {
            exchange.suspend = Some(Suspend {
                code: "gone",
                detail: "410".to_owned(),
            });
            asked.push("suspend".to_owned());
        }
        let registered = if dice.random_ratio(2, 3) {
            self.add_registration(&mut exchange, (session, destination), dice)
        } else {
            None
        };
        if let Some(attempt) = &registered {
            asked.push(format!("register {:?}", attempt.members));
        }
        if dice.random_ratio(4, 5) {
            exchange.fetch = Some(self.draw_fetch((session, destination), dice));
        }
        let mut answers = Vec::new();
        // Sometimes the answer is lost, and the same exchange is sent again.
        for _ in 0..if dice.random_ratio(1, 8) { 2 } else { 1 } {
            let answer = self.store.exchange(&exchange).await;
            if let Ok(answer) = &answer {
                self.remember_fetched((session, destination), &exchange, answer);
            }
            let words = |answer: &Exchanged| self.exchanged(answer);
            answers.push(answer::result(&answer, words, answer::exchange_error));
            if answer.is_ok() && answers.len() == 1 {
                self.attempts.extend(registered.clone());
            }
        }
        if let Some(fetch) = &exchange.fetch {
            asked.push(self.fetch_words(fetch));
        }
        Some(format!(
            "{} -> {}",
            asked.join(", "),
            answers.join(" again ")
        ))
    }

    fn remember_fetched(&mut self, at: (usize, usize), exchange: &Exchange, answer: &Exchanged) {
        if exchange.fetch.is_some() {
            let numbers = answer.fetched.iter();
            let numbers = numbers.filter_map(|f| self.numbers.get(&f.position).copied());
            self.fetched.insert(at, numbers.collect());
        }
    }

    fn exchanged(&self, answer: &Exchanged) -> String {
        let fetched = answer.fetched.iter().map(|fetched| {
            let event = &fetched.event;
            let content = (
                event.event_id,
                event.envelope_digest,
                event.payload.len(),
                event.appended_at,
            );
            format!(
                "{} lane {} key {} attempts {} sent before {} {content:?}",
                self.number(fetched.position),
                fetched.lane,
                fetched.key_hash,
                fetched.attempts,
                // How long ago may be told from the registration or from the settlement.
                fetched.first_attempt_ago.is_some(),
            )
        });
        format!(
            "{} duplicates, exhausted {}, next {:?}, now {:?}, {}",
            answer.duplicates,
            answer.exhausted,
            answer.next_due,
            answer.now,
            answer::list(fetched),
        )
    }

    fn add_settlement(
        &self,
        exchange: &mut Exchange,
        (session, destination): (usize, usize),
        dice: &mut StdRng,
    ) -> Option<String> {
        let own: Vec<(usize, &KnownAttempt)> = self
            .attempts
            .iter()
            .enumerate()
            .filter(|(_, attempt)| (attempt.session, attempt.destination) == (session, destination))
            .collect();
        // Mostly one of this session's last attempts here, sometimes any attempt at all.
        let recent = &own[own.len().saturating_sub(3)..];
        let (number, attempt) = if dice.random_ratio(1, 20) {
            let number = dice.random_range(0..self.attempts.len().max(1));
            (number, self.attempts.get(number)?)
        } else {
            *recent.choose(dice)?
        };
        let mut members = attempt.members.clone();
        if dice.random_ratio(1, 30) {
            members.pop();
        }
        let members: Vec<Settled> = members
            .into_iter()
            .map(|number| Settled {
                position: self.events[number].position,
                next: draw_outcome(number, dice),
            })
            .collect();
        let words = members.iter().map(|settled| match &settled.next {
            SettledAs::Acknowledged(_) => "ack",
            SettledAs::Retry { .. } => "retry",
            SettledAs::Unknown { .. } => "unknown",
            SettledAs::Quarantined { .. } => "quarantine",
        });
        let words = words.collect::<Vec<_>>().join(" ");
        exchange.settle.push(Settlement {
            attempt: attempt.id,
            members,
        });
        Some(format!("settle a{number} {:?} as {words}", attempt.members))
    }

    fn add_unfit(
        &self,
        exchange: &mut Exchange,
        destination: usize,
        dice: &mut StdRng,
    ) -> Option<String> {
        let number = dice.random_range(0..self.events.len().max(1));
        let event = self.events.get(number)?;
        exchange.quarantine.push(Unfit {
            position: event.position,
            code: "schema",
            detail: "total: is missing".to_owned(),
        });
        Some(format!("unfit e{number} at d{destination}"))
    }

    /// Mostly what was fetched last, sometimes other deliveries of the destination, closed ones
    /// among them.
    fn add_registration(
        &mut self,
        exchange: &mut Exchange,
        (session, destination): (usize, usize),
        dice: &mut StdRng,
    ) -> Option<KnownAttempt> {
        let fetched = self
            .fetched
            .get(&(session, destination))
            .cloned()
            .unwrap_or_default();
        let pool = if dice.random_ratio(1, 10) {
            let mut other: Vec<usize> = self
                .attempts_at(destination)
                .flat_map(|a| a.members.clone())
                .collect();
            other.sort_unstable();
            other.dedup();
            other
        } else {
            fetched
        };
        let share = dice.random_range(1..=3);
        let members: Vec<usize> = pool
            .into_iter()
            .filter(|_| dice.random_ratio(share, 3))
            .collect();
        if members.is_empty() {
            return None;
        }
        let id = AttemptId(self.make_id());
        exchange.register.push(Registration {
            attempt: id,
            members: members
                .iter()
                .map(|number| self.events[*number].position)
                .collect(),
        });
        Some(KnownAttempt {
            id,
            session,
            destination,
            members,
        })
    }

    fn attempts_at(&self, destination: usize) -> impl Iterator<Item = &KnownAttempt> {
        self.attempts
            .iter()
            .filter(move |attempt| attempt.destination == destination)
    }

    fn draw_fetch(&self, at: (usize, usize), dice: &mut StdRng) -> Fetch {
        let held = self.lanes.get(&at).cloned().unwrap_or_default();
        let lanes: Vec<Lane> = held
            .into_iter()
            .filter(|_| dice.random_ratio(9, 10))
            .collect();
        let some_position = |dice: &mut StdRng| {
            let event = self.events.choose(dice);
            event.map_or(Position::START, |event| event.position)
        };
        let after = if dice.random_ratio(1, 4) {
            some_position(dice)
        } else {
            Position::START
        };
        let one_in = if dice.random_ratio(1, 3) { 3 } else { u32::MAX };
        let exclude: Vec<Position> = self
            .events
            .iter()
            .filter(|_| dice.random_ratio(1, one_in))
            .map(|event| event.position)
            .collect();
        let mut busy_keys: Vec<i64> = (0..4)
            .filter(|_| dice.random_ratio(1, 12))
            .map(|key| postrider_contract::key::hash(&format!("k{key}")))
            .collect();
        busy_keys.sort_unstable();
        Fetch {
            lanes,
            after,
            exclude,
            busy_keys,
            limit: *[0, 1, 2, 5, 100, 100, 100].choose(dice).expect("not empty"),
            bytes_max: *[0, 10, 30, u64::MAX, u64::MAX, u64::MAX]
                .choose(dice)
                .expect("not empty"),
        }
    }

    fn fetch_words(&self, fetch: &Fetch) -> String {
        let after = match fetch.after {
            Position::START => "the start".to_owned(),
            position => self.number(position),
        };
        let exclude = answer::list(fetch.exclude.iter().map(|position| self.number(*position)));
        format!(
            "fetch lanes {} after {after} but {exclude}, {} busy, {} rows, {} bytes",
            answer::list(fetch.lanes.iter().map(|lane| lane.0)),
            fetch.busy_keys.len(),
            fetch.limit,
            fetch.bytes_max,
        )
    }

    pub(super) async fn evidence(&mut self, dice: &mut StdRng) -> Option<String> {
        let mut pieces = Vec::new();
        let mut asked = Vec::new();
        for _ in 0..dice.random_range(1..4) {
            let number = dice.random_range(0..self.attempts.len().max(1));
            let attempt = self.attempts.get(number)?.clone();
            let event = *attempt.members.choose(dice)?;
            let (piece, word) = self.draw_evidence(&attempt, event, dice).await?;
            asked.push(format!("a{number} e{event} {word}"));
            pieces.push(piece);
        }
        let verdicts = self.store.accept_receipts(&pieces).await;
        let words = |verdicts: &Vec<Verdict>| answer::list(verdicts.iter().map(answer::verdict));
        let answer = answer::result(&verdicts, words, answer::store_error);
        Some(format!("{} -> {answer}", asked.join(", ")))
    }

    async fn draw_evidence(
        &mut self,
        attempt: &KnownAttempt,
        event: usize,
        dice: &mut StdRng,
    ) -> Option<(Evidence, &'static str)> {
        let known = self.events.get(event)?.clone();
        let detail = self.store.event(known.id).await.ok()??;
        let envelope = postrider_contract::Envelope::from_stored(&detail.event.envelope).ok()?;
        let registry = self.store.registry().await.ok()?;
        // The sequence it was acknowledged with, or another copy's.
        let sequence = event as u64 + u64::from(dice.random_ratio(1, 4));
        let mut evidence = Evidence {
            attempt: attempt.id,
            destination: self.destinations[attempt.destination],
            destination_digest: registry.destinations.get(attempt.destination)?.digest,
            position: known.position,
            event_id: known.id,
            generation: envelope.generation,
            payload_digest: envelope.payload.digest,
            receipt: receipt(sequence),
        };
        let word = match dice.random_range(0..16) {
            0 => {
                evidence.payload_digest = Digest::of_bytes(b"another");
                "with another payload"
            }
            1 => {
                evidence.destination_digest = Digest::of_canonical("{}");
                "with another destination"
            }
            2 => {
                evidence.event_id = EventId(self.make_id());
                "for another event"
            }
            3 => {
                evidence.generation = 2;
                "of another generation"
            }
            4 => {
                evidence.attempt = AttemptId(self.make_id());
                "of no attempt"
            }
            _ => "true",
        };
        Some((evidence, word))
    }
}

fn draw_outcome(number: usize, dice: &mut StdRng) -> SettledAs {
    match dice.random_range(0..10) {
        0 | 1 => SettledAs::Retry {
            attempts: dice.random_range(0..3),
            delay: *[
                Duration::ZERO,
                Duration::from_secs(1),
                Duration::from_secs(30),
                Duration::MAX,
            ]
            .choose(dice)
            .expect("not empty"),
            code: "refused_for_now",
            detail: "try later".to_owned(),
        },
        2 => SettledAs::Unknown {
            code: "deadline",
            detail: String::new(),
        },
        3 => SettledAs::Quarantined {
            attempts: dice.random_range(0..3),
            code: "too_large",
            detail: State::Quarantined.word().to_owned(),
        },
        _ => SettledAs::Acknowledged(receipt(number as u64)),
    }
}
