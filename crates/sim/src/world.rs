//! What all workers of one trajectory share: the database, the brokers, true time, the faults
//! still to strike, and the oracle that watches. Plain data outside of every worker's runtime, so
//! that it outlives them as a database outlives its clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::FutureExt as _;
use postrider_contract::Timestamp;
use postrider_core::{DestinationId, Position};
use postrider_store::{
    Clock,
    clock::ManualClock,
    dispatch::{Exchanged, StoredEvent},
};
use postrider_store_memory::MemoryStore;
use postrider_transport_memory::{Broker, Delay};

use crate::{
    coverage::Coverage,
    fault::{CallKind, Fault, OfCall, OfMessage},
    life::Life,
    oracle::{Call, Oracle, Request},
    plan::Plan,
    random::Draw,
};

/// 2026-01-31T09:30:00Z, in microseconds.
const START: i64 = 1_769_851_800_000_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) store: MemoryStore,
    clock: ManualClock,
    /// By place.
    pub(crate) brokers: Vec<Broker>,
    state: Mutex<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// True time: microseconds since the start. It never goes back.
    pub(crate) now: u64,
    /// By how much the database's clock is off, in microseconds.
    pub(crate) database_ahead: i64,
    calls: BTreeMap<(usize, CallKind, u32), OfCall>,
    messages: BTreeMap<(usize, u32), OfMessage>,
    calls_made: BTreeMap<(usize, CallKind), u32>,
    messages_sent: BTreeMap<usize, u32>,
    /// Answers that a transport keeps back.
    pub(crate) kept_back: usize,
    /// Events that are read otherwise than written.
    pub(crate) corrupt: BTreeSet<Position>,
    logs_read: Vec<usize>,
    /// How many calls were made at this time.
    calls_at: (u64, u32),
    pub(crate) healing: bool,
    pub(crate) oracle: Oracle,
    pub(crate) coverage: Coverage,
    story: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(plan: Plan, faults: &[Fault], tell: bool) -> Arc<Self> {
        let start = Timestamp::from_unix_micros(START).expect("a time in range");
        let clock = ManualClock::at(start);
        let delay: Delay = Arc::new(|time| Box::pin(tokio::time::sleep(time)));
        let brokers: Vec<Broker> = plan
            .places
            .iter()
            .map(|place| Broker::with_delay(place.broker.clone(), Arc::clone(&delay)))
            .collect();
        let mut calls = BTreeMap::new();
        let mut messages = BTreeMap::new();
        for fault in faults {
            match fault {
                Fault::Call {
                    worker,
                    kind,
                    nth,
                    what,
                } => {
                    calls.insert((*worker, *kind, *nth), *what);
                }
                Fault::Message { place, nth, what } => {
                    messages.insert((*place, *nth), *what);
                }
                Fault::Timed { .. } => {}
            }
        }
        Arc::new(Self {
            store: MemoryStore::new(Clock::Manual(clock.clone())),
            clock,
            state: Mutex::new(State {
                now: 0,
                database_ahead: 0,
                calls,
                messages,
                calls_made: BTreeMap::new(),
                messages_sent: BTreeMap::new(),
                kept_back: 0,
                corrupt: BTreeSet::new(),
                logs_read: vec![0; brokers.len()],
                calls_at: (0, 0),
                healing: false,
                oracle: Oracle::new(),
                coverage: Coverage::default(),
                story: tell.then(Vec::new),
            }),
            brokers,
            plan,
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True time has come at least this far.
    pub(crate) fn reach(&self, now: u64) {
        let mut state = self.state();
        state.now = state.now.max(now);
        let database = START
            + i64::try_from(state.now).expect("trajectories are short")
            + state.database_ahead;
        self.clock
            .step_micros(database - self.clock.now().unix_micros());
    }

    pub(crate) fn database_now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A call of the store, watched. `by`: the worker that makes it, or somebody else.
    pub(crate) fn call<T, E: fmt::Display>(
        &self,
        by: Option<&Life>,
        request: Request<'_>,
        run: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let now = self.database_now();
        let live = request.needs().map(|needed| {
            self.store.inspect(|model| {
                model.session_facts().any(|session| {
                    session.id == needed && session.ended.is_none() && session.expires_at > now
                })
            })
        });
        let ended = self.ended_before(&request);
        let result = run
            .now_or_never()
            .expect("the memory store answers at once");
        self.count_call(by);
        let request = match ended {
            Some(ended) if ended == self.ended() => Request::Read,
            Some(_) | None => request,
        };
        let call = Call {
            request,
            done: result.is_ok(),
            live,
            now,
        };
        self.watch(by, &call, || match &result {
            Ok(_) => String::new(),
            Err(error) => format!(" failed: {error}"),
        });
        result
    }

    /// Sessions that have ended, where the call does nothing unless it ends another.
    fn ended_before(&self, request: &Request<'_>) -> Option<usize> {
        matches!(request, Request::Recover).then(|| self.ended())
    }

    fn ended(&self) -> usize {
        self.store.inspect(|model| {
            let sessions = model.session_facts();
            sessions.filter(|session| session.ended.is_some()).count()
        })
    }

    /// A worker that calls again and again while no time passes will never stop.
    fn count_call(&self, by: Option<&Life>) {
        const AT_ONE_TIME_MAX: u32 = 2_000;
        let mut state = self.state();
        if state.calls_at.0 != state.now {
            state.calls_at = (state.now, 0);
        }
        state.calls_at.1 += 1;
        if state.calls_at.1 == AT_ONE_TIME_MAX {
            let at = state.now / 1000;
            let detail = format!("{AT_ONE_TIME_MAX} calls while no time passed");
            state.oracle.break_with(at, "no spinning", detail);
            if let Some(life) = by {
                life.kill();
            }
        }
    }

    fn watch(&self, by: Option<&Life>, call: &Call<'_>, outcome: impl FnOnce() -> String) {
        let mut guard = self.state();
        let state = &mut *guard;
        let at = state.now / 1000;
        let changes = state
            .oracle
            .called(at, &self.store, call, &mut state.coverage);
        state.tell(by, || {
            let mut line = format!("{}{}", said(&call.request), outcome());
            for change in &changes {
                let word = |seen: &Option<crate::snapshot::Seen>| {
                    seen.as_ref().map_or_else(
                        || "nothing".to_owned(),
                        |seen| format!("{}/{}", seen.state.word(), seen.attempts),
                    )
                };
                let (destination, position) = change.key;
                line += &format!(
                    "; event {position} at {destination}: {} -> {}",
                    word(&change.from),
                    word(&change.to)
                );
            }
            line
        });
    }

    /// What becomes of the next call of this kind by this worker.
    pub(crate) fn fault_of_call(&self, life: &Life, kind: CallKind) -> (u32, Option<OfCall>) {
        let worker = life.id.worker;
        let mut state = self.state();
        let nth = state.calls_made.entry((worker, kind)).or_default();
        *nth += 1;
        let nth = *nth;
        let what = state.calls.remove(&(worker, kind, nth));
        let what = what.filter(|_| !state.healing);
        if let Some(what) = what {
            let fault = Fault::Call {
                worker,
                kind,
                nth,
                what,
            };
            state.strike(Some(life), &fault);
        }
        (nth, what)
    }

    /// What becomes of the next message to this place.
    pub(crate) fn fault_of_message(&self, life: &Life, place: usize) -> (u32, Option<OfMessage>) {
        let mut state = self.state();
        let nth = state.messages_sent.entry(place).or_default();
        *nth += 1;
        let nth = *nth;
        let what = state.messages.remove(&(place, nth));
        let what = what.filter(|_| !state.healing);
        if let Some(what) = what {
            state.strike(Some(life), &Fault::Message { place, nth, what });
        }
        (nth, what)
    }

    /// How long something takes that may take a little.
    pub(crate) fn latency(&self, purpose: &[u64], most_ms: u64) -> Duration {
        let mut draw = Draw::of(self.plan.seed, purpose);
        if draw.percent(self.plan.slow) {
            Duration::from_millis(draw.skewed(1, most_ms))
        } else {
            Duration::ZERO
        }
    }

    /// Shows the oracle what the brokers stored since it last looked.
    pub(crate) fn read_logs(&self) {
        for (place, broker) in self.brokers.iter().enumerate() {
            let destination = destination_id(place);
            broker.with_log(|log| {
                let mut state = self.state();
                let read = state.logs_read[place];
                if log.len() == read {
                    return;
                }
                state.logs_read[place] = log.len();
                let at = state.now / 1000;
                for stored in &log[read..] {
                    state.oracle.arrived(at, destination, stored);
                    state.tell(None, || {
                        format!(
                            "broker {place} holds {} as {}",
                            stored.event_id, stored.sequence
                        )
                    });
                }
            });
        }
    }

    pub(crate) fn tell(&self, by: Option<&Life>, line: impl FnOnce() -> String) {
        self.state().tell(by, line);
    }
}

impl State {
    pub(crate) fn tell(&mut self, by: Option<&Life>, line: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let who = by.map_or_else(String::new, |life| {
                format!("worker {}.{}: ", life.id.worker, life.id.life)
            });
            story.push(format!(
                "{:>6}.{:03} {who}{}",
                self.now / 1000,
                self.now % 1000,
                line()
            ));
        }
    }

    pub(crate) fn strike(&mut self, by: Option<&Life>, fault: &Fault) {
        self.coverage.fault(fault.name());
        self.tell(by, || format!("FAULT {fault}"));
    }

    /// Notes what a worker reads, and damages what is to be read otherwise than it was written.
    pub(crate) fn read(&mut self, destination: DestinationId, exchanged: &mut Exchanged) {
        let step = self.oracle.truth.step;
        for fetched in &mut exchanged.fetched {
            let key = (destination, fetched.position);
            self.oracle.truth.fetched.entry(key).or_insert(step);
            if self.corrupt.contains(&fetched.position) {
                fetched.event = Arc::new(StoredEvent {
                    payload: Bytes::from_static(b"{\"flipped\":1}"),
                    ..(*fetched.event).clone()
                });
            }
        }
    }

    pub(crate) fn take_story(&mut self) -> Vec<String> {
        self.story.take().unwrap_or_default()
    }
}

/// Destinations are numbered from 1 in order of registration.
pub(crate) fn destination_id(place: usize) -> DestinationId {
    DestinationId(i32::try_from(place + 1).expect("few places"))
}

fn said(request: &Request<'_>) -> String {
    match request {
        Request::Read => "reads, and changes nothing".to_owned(),
        Request::Open(session) => format!("opens session {}", session.id),
        Request::Heartbeat(session) => format!("heartbeat of {session}"),
        Request::Claim(session) => format!("{session} claims lanes"),
        Request::Release(session) => format!("{session} releases lanes"),
        Request::Asleep(session) => format!("{session} sleeps or wakes"),
        Request::End(session) => format!("ends session {session}"),
        Request::Recover => "recovers expired sessions".to_owned(),
        Request::Exchange(exchange) => {
            let settle: Vec<String> = exchange
                .settle
                .iter()
                .map(|settlement| {
                    let members: Vec<String> = settlement
                        .members
                        .iter()
                        .map(|member| format!("{} {}", member.position, settled(&member.next)))
                        .collect();
                    format!("{}: {}", short(&settlement.attempt.0), members.join(", "))
                })
                .collect();
            let register: Vec<String> = exchange
                .register
                .iter()
                .map(|one| {
                    let members: Vec<i64> = one.members.iter().map(|member| member.0).collect();
                    format!("{}: {members:?}", short(&one.attempt.0))
                })
                .collect();
            let fetch = if exchange.fetch.is_some() {
                ", fetches"
            } else {
                ""
            };
            format!(
                "destination {}: settles {settle:?}, registers {register:?}{fetch}",
                exchange.destination
            )
        }
        Request::Evidence(evidence) => {
            let pieces: Vec<String> = evidence
                .iter()
                .map(|piece| format!("event {} at {}", piece.position, piece.destination))
                .collect();
            format!("hands in evidence: {}", pieces.join(", "))
        }
        Request::Forged(piece, _) => format!(
            "somebody hands in forged evidence for event {} at {}",
            piece.position, piece.destination
        ),
        Request::Replay => "an operator replays".to_owned(),
        Request::Append => "the application commits".to_owned(),
        Request::Apply => "the control plane changes".to_owned(),
    }
}

fn settled(next: &postrider_core::exchange::SettledAs) -> String {
    use postrider_core::exchange::SettledAs;
    match next {
        SettledAs::Acknowledged(_) => "acknowledged".to_owned(),
        SettledAs::Retry { code, delay, .. } => format!("retry in {delay:?} ({code})"),
        SettledAs::Unknown { code, .. } => format!("unknown ({code})"),
        SettledAs::Quarantined { code, .. } => format!("quarantined ({code})"),
    }
}

fn short(id: &uuid::Uuid) -> String {
    id.simple().to_string()[..8].to_owned()
}
