//! Runs operations against one store, and says in words what was asked and answered.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use postrider_contract::{
    Destination, EventId,
    destination::{OnQuarantine, OnUnknown, Ordering},
    new_event::NewEvent,
};
use postrider_core::{AttemptId, DestinationId, Lane, Position, SessionId};
use postrider_store::{
    AppendError, Store,
    clock::ManualClock,
    control::ControlPlane,
    dispatch::Appended,
    inspect::ReplaySelection,
    sessions::{BreakerReport, NewSession, OpenBreaker},
};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use uuid::Uuid;

use super::{
    answer,
    operation::{Kind, Operation},
};
use crate::store::{
    CallerTransaction, StoreHarness,
    fixture::{LEASE, NOTED, audit, destination, plan},
};

/// One store, and what the calls so far have made, by number.
#[derive(Debug)]
pub(super) struct Driver<H> {
    pub(super) harness: H,
    pub(super) store: Arc<dyn Store>,
    clock: ManualClock,
    seed: u64,
    ids: u64,
    pub(super) destinations: Vec<DestinationId>,
    pub(super) events: Vec<Known>,
    pub(super) numbers: BTreeMap<Position, usize>,
    pub(super) sessions: Vec<SessionId>,
    /// Lanes that a session was given, by (session, destination).
    pub(super) lanes: BTreeMap<(usize, usize), Vec<Lane>>,
    /// Events last fetched, by (session, destination).
    pub(super) fetched: BTreeMap<(usize, usize), Vec<usize>>,
    pub(super) attempts: Vec<KnownAttempt>,
}

#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) id: EventId,
    pub(super) position: Position,
    given: NewEvent,
}

impl Known {
    pub(super) fn key_hash(&self) -> i64 {
        postrider_contract::key::hash(self.given.partition_key.as_deref().unwrap_or_default())
    }
}

#[derive(Clone, Debug)]
pub(super) struct KnownAttempt {
    pub(super) id: AttemptId,
    pub(super) session: usize,
    pub(super) destination: usize,
    /// Event numbers.
    pub(super) members: Vec<usize>,
}

impl<H: StoreHarness> Driver<H> {
    pub(super) async fn open(seed: u64) -> Self {
        let clock = ManualClock::at("2026-01-31T09:30:00Z".parse().expect("a time"));
        let harness = H::open(clock.clone()).await;
        let store = harness.store();
        Self {
            harness,
            store,
            clock,
            seed,
            ids: 0,
            destinations: Vec::new(),
            events: Vec::new(),
            numbers: BTreeMap::new(),
            sessions: Vec::new(),
            lanes: BTreeMap::new(),
            fetched: BTreeMap::new(),
            attempts: Vec::new(),
        }
    }

    /// Runs one operation; answers what was asked and what came back.
    pub(super) async fn run(&mut self, operation: &Operation) -> String {
        let mut dice = StdRng::seed_from_u64(operation.dice);
        let said = match operation.kind {
            Kind::Apply => self.apply(&mut dice).await,
            Kind::Resume => self.resume(&mut dice).await,
            Kind::Append => self.append(&mut dice).await,
            Kind::CallerAppend => self.caller_append(&mut dice).await,
            Kind::OpenSession => self.open_session(&mut dice).await,
            Kind::Heartbeat => self.heartbeat(&mut dice).await,
            Kind::Claim => self.claim(&mut dice).await,
            Kind::Release => self.release(&mut dice).await,
            Kind::End => self.end(&mut dice).await,
            Kind::Recover => self.recover(&mut dice).await,
            Kind::Exchange => self.exchange(&mut dice).await,
            Kind::Evidence => self.evidence(&mut dice).await,
            Kind::Replay => self.replay(&mut dice).await,
            Kind::StepClock => Some(self.step_clock(&mut dice)),
            Kind::Look => Some(self.look(&mut dice).await),
        };
        let said = said.unwrap_or_else(|| "nothing to do it with".to_owned());
        format!("{:?}: {said}", operation.kind)
    }

    /// An id that the other store gets too.
    pub(super) fn make_id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128((u128::from(self.seed) << 64) | u128::from(self.ids))
    }

    /// The number of an event, as seen by its position.
    pub(super) fn number(&self, position: Position) -> String {
        match self.numbers.get(&position) {
            Some(number) => format!("e{number}"),
            None => format!("unknown position {position}"),
        }
    }

    pub(super) fn destination_number(&self, id: DestinationId) -> String {
        match self.destinations.iter().position(|known| *known == id) {
            Some(number) => format!("d{number}"),
            None => format!("unknown destination {id}"),
        }
    }

    pub(super) fn session_number(&self, id: SessionId) -> String {
        match self.sessions.iter().position(|known| *known == id) {
            Some(number) => format!("s{number}"),
            None => format!("unknown session {id}"),
        }
    }

    pub(super) fn some_session(&self, dice: &mut StdRng) -> Option<usize> {
        let count = self.sessions.len();
        // The last ones are the likelier to be alive.
        (count > 0).then(|| count - 1 - dice.random_range(0..count.min(4)))
    }

    pub(super) fn some_destination(&self, dice: &mut StdRng) -> Option<usize> {
        let count = self.destinations.len();
        (count > 0).then(|| dice.random_range(0..count))
    }

    async fn apply(&mut self, dice: &mut StdRng) -> Option<String> {
        let first = self.destinations.is_empty();
        let choice = if first {
            0
        } else {
            dice.random_range(0..plans().len())
        };
        let plan = plans().swap_remove(choice);
        let applied = self.store.apply(&plan, &audit("plan")).await;
        if let Ok(registry) = self.store.registry().await {
            self.destinations = registry.destinations.iter().map(|d| d.id).collect();
        }
        let answer = answer::result(&applied, |a| format!("{a:?}"), answer::store_error);
        Some(format!("plan {choice} -> {answer}"))
    }

    async fn resume(&mut self, dice: &mut StdRng) -> Option<String> {
        let destination = self.some_destination(dice)?;
        let id = self.destinations[destination];
        let resumed = self.store.resume_destination(id, &audit("back")).await;
        let answer = answer::result(&resumed, |r| r.to_string(), answer::store_error);
        Some(format!("d{destination} -> {answer}"))
    }

    fn new_events(&mut self, dice: &mut StdRng) -> Vec<NewEvent> {
        let count = *[1, 1, 1, 2, 3, 5].choose(dice).expect("not empty");
        (0..count).map(|_| self.new_event(dice)).collect()
    }

    fn new_event(&mut self, dice: &mut StdRng) -> NewEvent {
        let again = dice.random_ratio(1, 8);
        if let Some(known) = self.events.choose(dice).filter(|_| again) {
            let mut event = known.given.clone();
            if dice.random_ratio(1, 3) {
                event.payload = br#"{"other":true}"#.to_vec();
            }
            return event;
        }
        let key = format!("k{}", dice.random_range(0..4));
        let mut event = crate::store::fixture::event(&key);
        event.event_id = Some(EventId(self.make_id()));
        event.payload = format!("{{\"n\":{}}}", dice.random_range(0..1000)).into_bytes();
        match dice.random_range(0..40) {
            0 => event.event_type = "order.shipped".to_owned(),
            1 => event.aggregate.id = String::new(),
            2 => event.payload = format!("\"{}\"", "x".repeat(100)).into_bytes(),
            3..10 => event.event_type = NOTED.to_owned(),
            _ => {}
        }
        event
    }

    async fn append(&mut self, dice: &mut StdRng) -> Option<String> {
        let events = self.new_events(dice);
        let appended = self.store.append(events.clone()).await;
        Some(self.remember(&events, &appended))
    }

    async fn caller_append(&mut self, dice: &mut StdRng) -> Option<String> {
        let events = self.new_events(dice);
        let key = self.make_id().to_string();
        let mut transaction = self.harness.begin().await;
        transaction.put_row(&key, "placed").await;
        let appended = transaction.append(events.clone()).await;
        let commits = appended.is_ok() && dice.random_ratio(2, 3);
        if commits {
            transaction.commit().await;
            let said = self.remember(&events, &appended);
            let row = self.harness.business_row(&key).await;
            return Some(format!("committed, {said}, {row:?}"));
        }
        transaction.roll_back().await;
        let row = self.harness.business_row(&key).await;
        let already = |appended: &Vec<Appended>| answer::list(appended.iter().map(|a| a.already));
        let answer = answer::result(&appended, already, answer::append_error);
        Some(format!("rolled back, {answer}, {row:?}"))
    }

    fn remember(
        &mut self,
        events: &[NewEvent],
        appended: &Result<Vec<Appended>, AppendError>,
    ) -> String {
        let answers = match appended {
            Ok(answers) => answers,
            Err(error) => return format!("refused: {}", answer::append_error(error)),
        };
        for (event, answer) in events.iter().zip(answers).filter(|(_, a)| !a.already) {
            self.numbers.insert(answer.position, self.events.len());
            self.events.push(Known {
                id: answer.event_id,
                position: answer.position,
                given: event.clone(),
            });
        }
        let words = answers.iter().map(|answer| {
            let word = if answer.already { "already" } else { "new" };
            format!("{} {word}", self.number(answer.position))
        });
        words.collect::<Vec<_>>().join(", ")
    }

    async fn open_session(&mut self, dice: &mut StdRng) -> Option<String> {
        let number = self.sessions.len();
        let again = dice.random_ratio(1, 10);
        let id = match self.sessions.choose(dice).copied().filter(|_| again) {
            Some(known) => known,
            None => {
                let id = SessionId(self.make_id());
                self.sessions.push(id);
                id
            }
        };
        let session = NewSession {
            id,
            owner: format!("owner {number}"),
            lease: Duration::from_secs(dice.random_range(5..60)),
            serves: self
                .destinations
                .iter()
                .copied()
                .filter(|_| dice.random_ratio(5, 6))
                .collect(),
            exclusive: dice.random_ratio(1, 6),
            version: "0.1.0".to_owned(),
        };
        let opened = self.store.open_session(&session).await;
        let asked = (
            self.session_number(id),
            session.exclusive,
            session.serves.len(),
        );
        let answer = answer::result(&opened, |()| "opened".to_owned(), answer::open_error);
        Some(format!("{asked:?} -> {answer}"))
    }

    async fn heartbeat(&mut self, dice: &mut StdRng) -> Option<String> {
        let session = self.some_session(dice)?;
        let mut reports = Vec::new();
        for destination in &self.destinations {
            if dice.random_ratio(1, 4) {
                let open = dice.random_ratio(1, 2).then(|| OpenBreaker {
                    code: "connect".to_owned(),
                    detail: "refused".to_owned(),
                    next_probe_in: Duration::from_millis(dice.random_range(0..5000)),
                    refused: dice.random_ratio(1, 3),
                });
                reports.push(BreakerReport {
                    destination: *destination,
                    open,
                });
            }
        }
        let shares = self
            .store
            .heartbeat(self.sessions[session], LEASE, &reports)
            .await;
        let words = |shares: &Vec<postrider_store::sessions::Share>| {
            answer::list(shares.iter().map(|share| {
                (
                    self.destination_number(share.destination),
                    share.lanes,
                    share.sessions,
                    share.held.clone(),
                    share.free,
                    share.suspended,
                )
            }))
        };
        let answer = answer::result(&shares, words, answer::session_error);
        Some(format!("s{session} -> {answer}"))
    }

    async fn claim(&mut self, dice: &mut StdRng) -> Option<String> {
        let session = self.some_session(dice)?;
        let wanted: Vec<(DestinationId, u16)> = self
            .destinations
            .iter()
            .map(|destination| (*destination, dice.random_range(0..5)))
            .collect();
        let claimed = self
            .store
            .claim_lanes(self.sessions[session], &wanted)
            .await;
        if let Ok(claimed) = &claimed {
            for (number, (_, lanes)) in claimed.iter().enumerate() {
                let held = self.lanes.entry((session, number)).or_default();
                held.extend(lanes);
                held.sort_unstable();
            }
        }
        let words = |claimed: &Vec<(DestinationId, Vec<Lane>)>| {
            answer::list(
                claimed
                    .iter()
                    .map(|(d, lanes)| (self.destination_number(*d), lanes)),
            )
        };
        let answer = answer::result(&claimed, words, answer::session_error);
        Some(format!("s{session} -> {answer}"))
    }

    async fn release(&mut self, dice: &mut StdRng) -> Option<String> {
        let (session, destination) = (self.some_session(dice)?, self.some_destination(dice)?);
        let held = self
            .lanes
            .get(&(session, destination))
            .cloned()
            .unwrap_or_default();
        let released: Vec<Lane> = held
            .iter()
            .copied()
            .filter(|_| dice.random_ratio(1, 2))
            .collect();
        let answer = self
            .store
            .release_lanes(
                self.sessions[session],
                self.destinations[destination],
                &released,
            )
            .await;
        if answer.is_ok() {
            let left = held
                .into_iter()
                .filter(|lane| !released.contains(lane))
                .collect();
            self.lanes.insert((session, destination), left);
        }
        let answer = answer::result(&answer, |()| "done".to_owned(), answer::session_error);
        Some(format!(
            "s{session} d{destination} {released:?} -> {answer}"
        ))
    }

    async fn end(&mut self, dice: &mut StdRng) -> Option<String> {
        let session = self.some_session(dice)?;
        let ended = self
            .store
            .end_session(self.sessions[session], "shutdown")
            .await;
        let answer = answer::result(&ended, |()| "done".to_owned(), answer::store_error);
        Some(format!("s{session} -> {answer}"))
    }

    async fn recover(&mut self, dice: &mut StdRng) -> Option<String> {
        let recovered = self.store.recover_expired(dice.random_range(1..4)).await;
        let words = |recovered: &Vec<postrider_store::sessions::Recovered>| {
            answer::list(recovered.iter().map(|r| {
                (
                    self.session_number(r.session),
                    r.owner.clone(),
                    r.attempts,
                    r.deliveries,
                    r.lanes,
                )
            }))
        };
        Some(answer::result(&recovered, words, answer::store_error))
    }

    async fn replay(&mut self, dice: &mut StdRng) -> Option<String> {
        let mut selection = ReplaySelection::default();
        match dice.random_range(0..4) {
            0 => {
                let some = self.events.iter().filter(|_| dice.random_ratio(1, 2));
                selection.events = Some(some.map(|event| event.id).collect());
            }
            1 => selection.destination = self.destinations.choose(dice).copied(),
            2 => selection.code = Some("too_large".to_owned()),
            _ => {}
        }
        let limit = dice.random_range(0..6);
        let replayed = self.store.replay(&selection, limit, &audit("fixed")).await;
        let words = |replayed: &postrider_store::inspect::Replayed| {
            answer::list(
                replayed
                    .deliveries
                    .iter()
                    .map(|(destination, position, _)| {
                        (
                            self.destination_number(*destination),
                            self.number(*position),
                        )
                    }),
            )
        };
        let answer = answer::result(&replayed, words, answer::store_error);
        Some(format!("at most {limit} -> {answer}"))
    }

    fn step_clock(&mut self, dice: &mut StdRng) -> String {
        let micros: i64 = match dice.random_range(0..10) {
            0 => -dice.random_range(0..20_000_000),
            1 => 60_000_000,
            // Leases are whole seconds: this lands on their ends.
            9 => dice.random_range(0..40) * 1_000_000,
            2..5 => dice.random_range(0..20_000_000),
            _ => dice.random_range(0..2_000_000),
        };
        self.clock.step_micros(micros);
        format!("{micros} us")
    }
}

/// Plans that a sequence may apply: the same again, more, fewer, another generation, and some
/// that must be refused.
fn plans() -> Vec<ControlPlane> {
    let ordered = Destination {
        lanes: 3,
        on_unknown: OnUnknown::Probe,
        ..destination("alpha")
    };
    let passing = Destination {
        lanes: 2,
        on_quarantine: OnQuarantine::Pass,
        ordering: Ordering::Strict,
        max_payload_bytes: Some(50),
        ..destination("beta")
    };
    let loose = Destination {
        lanes: 1,
        ordering: Ordering::None,
        on_unknown: OnUnknown::Hold,
        ..destination("gamma")
    };
    let again = Destination {
        generation: 2,
        on_unknown: OnUnknown::Resend,
        ..ordered.clone()
    };
    let changed = Destination {
        target: "elsewhere".to_owned(),
        ..passing.clone()
    };
    let mut orphan = plan(9, &[ordered.clone(), destination("nowhere")]);
    orphan.destinations.pop();
    let mut schema = plan(1, &[ordered.clone(), passing.clone()]);
    schema.event_types[0].json_schema = Some("{}".to_owned());
    vec![
        plan(1, &[ordered.clone(), passing.clone()]),
        plan(2, &[ordered.clone(), passing.clone(), loose]),
        plan(3, &[again, passing]),
        plan(2, std::slice::from_ref(&ordered)),
        plan(4, &[ordered, changed]),
        orphan,
        schema,
    ]
}
