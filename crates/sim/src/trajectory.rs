//! One trajectory: a world, its faults, and the scheduler that lets its workers run in turn.
//!
//! True time is cut into quanta, drawn from the seed. In each, every worker that runs is given its
//! runtime until the quantum's end, in a drawn order; between them happens what the plan and the
//! fault list say. Within a quantum one worker is ahead of another by the quantum at most, which
//! is what a slow call or a slow process looks like from the database.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::Duration,
};

use postrider_contract::{Digest, EventId, Receipt};
use postrider_core::{AttemptId, delivery::State};
use postrider_relay::Meters;
use postrider_store::{Store as _, control::Audit, evidence::Evidence, inspect::ReplaySelection};
use postrider_store_memory::Transaction;

use crate::{
    coverage::Coverage,
    fault::{Fault, Forged, Timed},
    invariants::{i07_late_truth, i18_progress},
    life::{Halt, Running},
    oracle::{Ended, Request, UNKNOWN_CODES, Violation},
    panics,
    plan::{Append, CHAOS_MS, End, Plan, behind, foreign_id},
    random::Draw,
    truth::{Committed, Key, LifeId},
    world::{World, destination_id},
};

/// After so long without a fault, whatever is due must have been delivered. Two leases, the
/// registry's next reading and some retries fit many times.
const HEALING_MS_MAX: u64 = 60_000;

/// What came of a trajectory.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub coverage: Coverage,
    /// Empty unless it was asked for.
    pub story: Vec<String>,
    pub events: u64,
    /// Virtual milliseconds.
    pub lasted: u64,
}

/// Runs the trajectory of a seed.
#[must_use]
pub fn run(seed: u64, tell: bool) -> Outcome {
    let plan = Plan::new(seed);
    let faults = crate::fault::draw(&plan);
    run_with(plan, &faults, tell)
}

/// Runs the world of a seed with these faults in place of its own.
#[must_use]
pub fn run_faults(seed: u64, faults: &[Fault], tell: bool) -> Outcome {
    run_with(Plan::new(seed), faults, tell)
}

/// The faults of a seed.
#[must_use]
pub fn faults(seed: u64) -> Vec<Fault> {
    crate::fault::draw(&Plan::new(seed))
}

fn run_with(plan: Plan, faults: &[Fault], tell: bool) -> Outcome {
    panics::listen();
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut trajectory = Trajectory::new(plan, faults, tell);
        trajectory.chaos();
        trajectory.heal();
        trajectory.end()
    }));
    panics::ignore();
    ran.unwrap_or_else(|_| Outcome {
        violation: Some(Violation {
            invariant: "no panic",
            detail: panics::take().unwrap_or_default(),
            at: 0,
        }),
        coverage: Coverage::default(),
        story: Vec::new(),
        events: 0,
        lasted: 0,
    })
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Start(usize),
    Wake(usize),
    Append(usize),
    EndAppend(usize),
    Change,
    Timed(Timed),
    BrokerUp(usize),
}

#[derive(Debug, Default)]
struct Slot {
    running: Option<Running>,
    lives: u32,
    paused: bool,
}

struct Trajectory {
    world: Arc<World>,
    slots: Vec<Slot>,
    /// By time in microseconds, then in the order in which they were planned.
    timeline: BTreeMap<(u64, u64), Action>,
    planned: u64,
    open: BTreeMap<usize, (Append, Transaction)>,
    changed: bool,
    quanta: Draw,
    /// The end of the quantum under way.
    boundary: u64,
    meters: Arc<Meters>,
    /// Committed so far.
    events: u64,
}

/// Nobody reads them here, and making them costs more than a whole life of a worker.
fn meters() -> Arc<Meters> {
    static METERS: OnceLock<Arc<Meters>> = OnceLock::new();
    Arc::clone(METERS.get_or_init(Arc::default))
}

impl Trajectory {
    fn new(plan: Plan, faults: &[Fault], tell: bool) -> Self {
        let world = World::new(plan, faults, tell);
        let mut trajectory = Self {
            slots: world.plan.starts.iter().map(|_| Slot::default()).collect(),
            quanta: Draw::of(world.plan.seed, &[30]),
            world,
            timeline: BTreeMap::new(),
            planned: 0,
            open: BTreeMap::new(),
            changed: false,
            boundary: 0,
            meters: meters(),
            events: 0,
        };
        trajectory.apply();
        let plan = &trajectory.world.plan;
        let mut actions = Vec::new();
        for (worker, at) in plan.starts.iter().enumerate() {
            actions.push((*at, Action::Start(worker)));
        }
        for (index, append) in plan.appends.iter().enumerate() {
            actions.push((append.at, Action::Append(index)));
        }
        if let Some(change) = &plan.change {
            actions.push((change.at, Action::Change));
        }
        for fault in faults {
            if let Fault::Timed { at, what } = fault {
                actions.push((*at, Action::Timed(*what)));
            }
        }
        for (at, action) in actions {
            trajectory.at(at * 1000, action);
        }
        trajectory
    }

    fn at(&mut self, at: u64, action: Action) {
        self.planned += 1;
        self.timeline.insert((at, self.planned), action);
    }

    fn now(&self) -> u64 {
        self.world.state().now
    }

    fn is_broken(&self) -> bool {
        self.world.state().oracle.violation.is_some()
    }

    fn chaos(&mut self) {
        while self.now() < CHAOS_MS * 1000 && !self.is_broken() {
            self.quantum(3_000, 400_000, CHAOS_MS * 1000);
        }
    }

    /// Lets the workers run up to the end of the quantum or to the next action, and does what is
    /// due then.
    fn quantum(&mut self, least: u64, most: u64, end: u64) {
        let now = self.now();
        if self.boundary <= now {
            self.boundary = now + self.quanta.skewed(least, most);
        }
        let action = self.timeline.keys().next().map_or(end, |(at, _)| *at);
        let target = self.boundary.min(action).min(end).max(now);
        self.run_workers(target);
        self.world.reach(target);
        while let Some(entry) = self.timeline.first_entry() {
            if entry.key().0 > target {
                break;
            }
            let action = entry.remove();
            self.act(action);
        }
    }

    fn run_workers(&mut self, target: u64) {
        let mut order = Draw::of(self.world.plan.seed, &[31, self.boundary]);
        let first = order.index(self.slots.len());
        for offset in 0..self.slots.len() {
            let worker = (first + offset) % self.slots.len();
            let slot = &mut self.slots[worker];
            let Some(running) = slot.running.as_ref().filter(|_| !slot.paused) else {
                continue;
            };
            running.run_until(target);
            let halt = running.life.halt();
            let came_to = running.now();
            let over = running.is_over();
            self.world.read_logs();
            if let Some(panic) = panics::take() {
                let mut state = self.world.state();
                let at = state.now / 1000;
                state.oracle.break_with(at, "no panic", panic);
            }
            match halt {
                Halt::Crashed => self.kill(worker),
                Halt::Paused(ms) => {
                    slot.paused = true;
                    self.at(came_to + ms * 1000, Action::Wake(worker));
                }
                Halt::No if over => self.bury(worker),
                Halt::No => {}
            }
        }
    }

    fn start(&mut self, worker: usize) {
        let slot = &mut self.slots[worker];
        if slot.running.is_some() {
            return;
        }
        let id = LifeId {
            worker,
            life: slot.lives,
        };
        slot.lives += 1;
        slot.paused = false;
        let running = Running::start(&self.world, id, &self.meters);
        if self.world.plan.is_older(id) {
            let mut state = self.world.state();
            state.coverage.count("relays of an older version", 1);
        }
        self.world.tell(Some(&running.life), || "starts".to_owned());
        slot.running = Some(running);
    }

    /// As SIGKILL does. It comes back after a while.
    fn kill(&mut self, worker: usize) {
        let Some(running) = self.slots[worker].running.take() else {
            return;
        };
        self.world
            .tell(Some(&running.life), || "is dead".to_owned());
        drop(running);
        self.come_back(worker);
    }

    fn bury(&mut self, worker: usize) {
        let Some(running) = self.slots[worker].running.take() else {
            return;
        };
        self.world
            .tell(Some(&running.life), || "has stopped".to_owned());
        if let Err(error) = running.end() {
            let mut state = self.world.state();
            let at = state.now / 1000;
            state.oracle.break_with(at, "no panic", error);
        }
        self.come_back(worker);
    }

    fn come_back(&mut self, worker: usize) {
        self.slots[worker].paused = false;
        let life = u64::from(self.slots[worker].lives);
        let mut draw = Draw::of(self.world.plan.seed, &[32, worker as u64, life]);
        let after = draw.skewed(20, 2_500) * 1000;
        self.at(self.now() + after, Action::Start(worker));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Start(worker) => self.start(worker),
            Action::Wake(worker) => self.wake(worker),
            Action::Append(index) => {
                let append = self.world.plan.appends[index].clone();
                self.append(index, append);
            }
            Action::EndAppend(index) => {
                if let Some((append, transaction)) = self.open.remove(&index) {
                    self.finish(&append, transaction);
                }
            }
            Action::Change => {
                self.changed = true;
                self.apply();
            }
            Action::BrokerUp(place) => self.world.brokers[place].set_down(false),
            // A worker that is far ahead takes true time with it, past the end of the chaos.
            Action::Timed(what) => {
                if !self.world.state().healing {
                    self.strike(what);
                }
            }
        }
    }

    fn wake(&mut self, worker: usize) {
        let now = self.now();
        let slot = &mut self.slots[worker];
        let Some(running) = slot.running.as_ref().filter(|_| slot.paused) else {
            return;
        };
        slot.paused = false;
        let slept = Duration::from_micros(now.saturating_sub(running.now()));
        running.jump(slept, true);
        running.resume();
        self.world
            .tell(Some(&running.life), || format!("wakes after {slept:?}"));
    }

    fn apply(&mut self) {
        let control = self.world.plan.control(self.changed);
        let audit = audit("apply");
        {
            let mut state = self.world.state();
            for (index, destination) in control.destinations.iter().enumerate() {
                let known = &mut state.oracle.truth.destinations;
                known.insert(destination_id(index), destination.clone());
            }
        }
        let applied = self.world.call(
            None,
            Request::Apply,
            self.world.store.apply(&control, &audit),
        );
        applied.expect("the plan is consistent");
    }

    fn append(&mut self, index: usize, append: Append) {
        let transaction = self.world.store.begin();
        let events: Vec<_> = append
            .events
            .iter()
            .map(|planned| planned.event())
            .collect();
        let appended = transaction
            .append(&events)
            .expect("what the plan appends is valid");
        // What is prescribed is settled now; it counts once it is committed.
        let places: Vec<_> = append
            .events
            .iter()
            .map(|planned| self.world.plan.prescribed(planned.noted, self.changed))
            .collect();
        let mut state = self.world.state();
        for ((appended, event), places) in appended.iter().zip(&events).zip(places) {
            let committed = Committed {
                id: appended.event_id,
                envelope_digest: None,
                payload: event.payload.clone().into(),
                key_hash: 0,
                destinations: places.map(destination_id).collect(),
                step: 0,
            };
            state
                .oracle
                .truth
                .uncommitted
                .insert(appended.position, committed);
        }
        drop(state);
        let end = append.end;
        match end {
            End::Commit | End::CommitTwice => {
                self.finish(&append, transaction);
                if end == End::CommitTwice {
                    let again = self.world.store.append(events);
                    let answers = self.world.call(None, Request::Append, again);
                    let harmless = answers.is_ok_and(|all| all.iter().all(|one| one.already));
                    if !harmless {
                        let mut state = self.world.state();
                        let at = state.now / 1000;
                        let detail = "the same append again was not harmless".to_owned();
                        state.oracle.break_with(at, "I1 atomic", detail);
                    }
                }
            }
            End::CommitAt(at) | End::RollBackAt(at) => {
                self.open.insert(index, (append, transaction));
                self.at(at * 1000, Action::EndAppend(index));
            }
        }
    }

    /// Commits or rolls back.
    fn finish(&mut self, append: &Append, transaction: Transaction) {
        let ids: Vec<EventId> = append.events.iter().map(|planned| planned.id).collect();
        if let End::RollBackAt(_) = append.end {
            transaction.roll_back();
            self.world
                .tell(None, || format!("the application rolls {ids:?} back"));
            return;
        }
        {
            let mut state = self.world.state();
            let truth = &mut state.oracle.truth;
            let uncommitted = std::mem::take(&mut truth.uncommitted);
            let (ours, others) = uncommitted
                .into_iter()
                .partition(|(_, event)| ids.contains(&event.id));
            truth.uncommitted = others;
            let ours: BTreeMap<_, Committed> = ours;
            for (position, mut event) in ours {
                event.step = truth.step + 1;
                truth.positions.insert(event.id, position);
                truth.committed.insert(position, event);
            }
        }
        self.events += ids.len() as u64;
        let committed = self
            .world
            .call(None, Request::Append, async { transaction.commit() });
        committed.expect("the memory store commits");
        let mut guard = self.world.state();
        let truth = &mut guard.oracle.truth;
        self.world.store.inspect(|model| {
            for fact in model.event_facts() {
                if let Some(event) = truth.committed.get_mut(&fact.position) {
                    event.key_hash = fact.key_hash;
                    event
                        .envelope_digest
                        .get_or_insert(fact.event.envelope_digest);
                }
            }
        });
    }

    fn strike(&mut self, what: Timed) {
        {
            let mut state = self.world.state();
            let at = state.now / 1000;
            state.strike(None, &Fault::Timed { at, what });
        }
        match what {
            Timed::Crash(worker) => self.kill(worker),
            Timed::Pause(worker, ms) => {
                let now = self.now();
                let slot = &mut self.slots[worker];
                if let Some(running) = slot.running.as_ref().filter(|_| !slot.paused) {
                    running.halt_for(ms);
                    slot.paused = true;
                    self.at(now + ms * 1000, Action::Wake(worker));
                }
            }
            Timed::WorkerClock(worker, ms) => {
                let slot = &self.slots[worker];
                if let Some(running) = slot.running.as_ref().filter(|_| !slot.paused) {
                    running.jump(Duration::from_millis(ms), false);
                }
            }
            Timed::DatabaseClock(ms) => {
                self.world.state().database_ahead += ms * 1000;
                self.world.reach(0);
            }
            Timed::Stop(worker) => {
                if let Some(running) = &self.slots[worker].running {
                    running.ask_to_stop();
                }
            }
            Timed::EndSession(worker) => self.end_session(worker),
            Timed::BrokerDown(place, ms) => {
                self.world.brokers[place].set_down(true);
                self.at(self.now() + ms * 1000, Action::BrokerUp(place));
            }
            Timed::Forget(place) => self.world.brokers[place].forget(),
            Timed::DeliverLate(place) => {
                self.world.brokers[place].deliver_all_late();
            }
            Timed::Release(place) => {
                self.world.brokers[place].release_all();
            }
            Timed::Replay => {
                let replayed = self.replay();
                self.append_behind(&replayed);
            }
            Timed::Resume => self.resume_destinations(),
            Timed::Forge(forged) => self.forge(forged),
            Timed::Corrupt(nth) => {
                let mut state = self.world.state();
                let position = state.oracle.truth.committed.keys().nth(nth).copied();
                state.corrupt.extend(position);
            }
        }
        self.world.read_logs();
    }

    fn end_session(&mut self, worker: usize) {
        let found = {
            let state = self.world.state();
            let truth = &state.oracle.truth;
            self.world.store.inspect(|model| {
                model
                    .session_facts()
                    .filter(|session| {
                        session.ended.is_none()
                            && truth
                                .sessions
                                .get(&session.id)
                                .is_some_and(|life| life.worker == worker)
                    })
                    .max_by_key(|session| session.opened_at)
                    .map(|session| session.id)
            })
        };
        if let Some(session) = found {
            let end = self.world.store.end_session(session, "a person did");
            let ended = self.world.call(None, Request::End(session), end);
            ended.expect("the memory store does it");
        }
    }

    fn replay(&mut self) -> Vec<Key> {
        let quarantined: Vec<Key> = self.world.store.inspect(|model| {
            model
                .open_facts()
                .filter(|open| open.state == State::Quarantined)
                .map(|open| (open.destination, open.position))
                .collect()
        });
        if quarantined.is_empty() {
            return quarantined;
        }
        let again = quarantined.iter().copied();
        self.world.state().oracle.truth.replayed.extend(again);
        let selection = ReplaySelection::default();
        let audit = audit("replay");
        let replay = self.world.store.replay(&selection, 1_000, &audit);
        let replayed = self.world.call(None, Request::Replay, replay);
        replayed.expect("the memory store does it");
        quarantined
    }

    /// The application goes on with a key right after a person has let it go on.
    fn append_behind(&mut self, replayed: &[Key]) {
        let Some((_, position)) = replayed.first() else {
            return;
        };
        let plan = &self.world.plan;
        let id = {
            let state = self.world.state();
            let committed = &state.oracle.truth.committed;
            committed.get(position).map(|event| event.id)
        };
        let mut planned = plan.appends.iter().flat_map(|append| &append.events);
        if let Some(earlier) = planned.find(|planned| Some(planned.id) == id) {
            let append = behind(plan.seed, earlier, self.planned);
            self.planned += 1;
            self.append(usize::MAX, append);
        }
    }

    fn resume_destinations(&mut self) {
        let suspended: Vec<_> = self.world.store.inspect(|model| {
            model
                .destination_facts()
                .filter(|(.., suspended)| *suspended)
                .map(|(id, ..)| id)
                .collect()
        });
        for id in suspended {
            let audit = audit("resume");
            let resume = self.world.store.resume_destination(id, &audit);
            let resumed = self.world.call(None, Request::Apply, resume);
            resumed.expect("the memory store does it");
        }
    }

    fn forge(&mut self, forged: Forged) {
        let now = self.now();
        let mut draw = Draw::of(self.world.plan.seed, &[33, now]);
        let attempts: Vec<(AttemptId, _, _)> = self.world.store.inspect(|model| {
            model
                .attempt_facts()
                .flat_map(|attempt| {
                    attempt
                        .members
                        .iter()
                        .map(move |position| (attempt.id, attempt.destination, *position))
                })
                .collect()
        });
        if attempts.is_empty() {
            return;
        }
        let (attempt, destination, position) = attempts[draw.index(attempts.len())];
        let mut guard = self.world.state();
        let truth = &mut guard.oracle.truth;
        let (Some(event), Some(known)) = (
            truth.committed.get(&position),
            truth.destinations.get(&destination),
        ) else {
            return;
        };
        let mut evidence = Evidence {
            attempt,
            destination,
            destination_digest: known.digest(),
            position,
            event_id: event.id,
            generation: 1,
            payload_digest: Digest::of_bytes(&event.payload),
            receipt: Receipt::Handler {
                handler: known.name.clone(),
                sequence: 1,
            },
        };
        let other = Digest::of_bytes(b"forged");
        let other_digest = match forged {
            Forged::Payload => {
                evidence.payload_digest = other;
                true
            }
            Forged::Destination => {
                evidence.destination_digest = other;
                true
            }
            Forged::Event => {
                evidence.event_id = EventId(foreign_id(self.world.plan.seed, now));
                false
            }
            Forged::Generation => {
                evidence.generation = 99;
                false
            }
            Forged::Attempt => {
                evidence.attempt = AttemptId(foreign_id(self.world.plan.seed, now));
                false
            }
        };
        if other_digest {
            truth.conflicts.insert((destination, event.key_hash));
        }
        drop(guard);
        let handed_in = std::slice::from_ref(&evidence);
        let accept = self.world.store.accept_receipts(handed_in);
        let request = Request::Forged(&evidence, other_digest);
        let verdicts = self.world.call(None, request, accept);
        verdicts.expect("the memory store does it");
    }

    /// No more faults: brokers are up, paused workers wake, dead ones come back, people do what
    /// is theirs. Until nothing is left to do.
    fn heal(&mut self) {
        if self.is_broken() {
            return;
        }
        let mut draw = Draw::of(self.world.plan.seed, &[34]);
        {
            let mut state = self.world.state();
            state.healing = true;
            state.corrupt.clear();
            state.tell(None, || "HEALING".to_owned());
        }
        let deliver = draw.percent(50);
        for broker in &self.world.brokers {
            broker.set_down(false);
            if deliver {
                broker.deliver_all_late();
            } else {
                broker.drop_all_late();
            }
        }
        let start = self.now();
        let end = start + HEALING_MS_MAX * 1000;
        for worker in 0..self.slots.len() {
            self.wake(worker);
        }
        let mut next_visit = start;
        while self.now() < end && !self.is_broken() {
            if self.now() >= next_visit {
                next_visit = self.now() + 700_000;
                self.replay();
                self.resume_destinations();
                for broker in &self.world.brokers {
                    broker.release_all();
                }
            }
            self.quantum(50_000, 400_000, end);
            if self.is_settled() {
                return;
            }
        }
    }

    fn alive(&self) -> Vec<LifeId> {
        let running = self.slots.iter().filter_map(|slot| slot.running.as_ref());
        running.map(|running| running.life.id).collect()
    }

    fn is_settled(&self) -> bool {
        if !self.open.is_empty() || !self.timeline.is_empty() {
            return false;
        }
        let alive = self.alive();
        let state = self.world.state();
        let truth = &state.oracle.truth;
        state.kept_back == 0
            && self.world.store.inspect(|model| {
                i18_progress::stalled(model, truth).is_empty()
                    && model
                        .attempt_facts()
                        .all(|attempt| attempt.finished_at.is_some())
                    && i07_late_truth::missing(model, &alive, truth).is_none()
            })
    }

    fn end(self) -> Outcome {
        self.world.read_logs();
        let alive = self.alive();
        let logs = self
            .world
            .brokers
            .iter()
            .enumerate()
            .map(|(place, broker)| (destination_id(place), broker.log()))
            .collect();
        let mut guard = self.world.state();
        let state = &mut *guard;
        let at = state.now / 1000;
        if state.oracle.violation.is_none() {
            let (oracle, coverage) = (&mut state.oracle, &mut state.coverage);
            self.world.store.inspect(|model| {
                let ended = Ended {
                    model,
                    alive: &alive,
                    logs: &logs,
                };
                oracle.ended(at, &ended);
                measure(model, &oracle.truth, coverage);
            });
        }
        let outcome = Outcome {
            violation: state.oracle.violation.clone(),
            coverage: std::mem::take(&mut state.coverage),
            story: state.take_story(),
            events: self.events,
            lasted: at,
        };
        drop(guard);
        outcome
    }
}

/// How long unknown outcomes stayed so, where the destination resends.
fn measure(
    model: &postrider_store_memory::model::Model,
    truth: &crate::truth::Truth,
    coverage: &mut Coverage,
) {
    for receipt in model.receipt_facts() {
        let first_unknown = model
            .attempt_facts()
            .filter(|attempt| attempt.destination == receipt.destination)
            .filter(|attempt| {
                attempt
                    .exceptions
                    .and_then(|exceptions| exceptions.get(&receipt.position))
                    .is_some_and(|(code, _)| UNKNOWN_CODES.contains(&code.as_str()))
            })
            .filter_map(|attempt| attempt.finished_at)
            .min();
        let resends = truth
            .destinations
            .get(&receipt.destination)
            .is_some_and(|known| {
                known.on_unknown == postrider_contract::destination::OnUnknown::Resend
            });
        if let Some(since) = first_unknown.filter(|_| resends) {
            let micros = receipt.accepted_at.unix_micros() - since.unix_micros();
            let seconds = u64::try_from(micros / 1_000_000).unwrap_or(0);
            *coverage.unknown_seconds.entry(seconds).or_default() += 1;
        }
    }
    coverage.count("duplicate receipts", model.duplicate_facts().count() as u64);
    let unknown = model
        .open_facts()
        .filter(|open| open.state == State::Unknown)
        .count();
    coverage.count("shown as unknown at the end", unknown as u64);
}

fn audit(reason: &str) -> Audit {
    Audit {
        actor: "simulator".to_owned(),
        reason: reason.to_owned(),
    }
}
