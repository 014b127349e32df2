//! One session of a relay, from its opening to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use postrider_core::{
    DestinationId, Lane, SessionId,
    delivery::Policy,
    dispatcher::{Config, Dispatcher},
    outcome::bounded_detail,
    session::{self, Session},
};
use postrider_store::{
    OpenError, SessionError,
    control::Registry,
    sessions::{BreakerReport, Listener, NewSession, OpenBreaker, Share},
};
use postrider_transport::{Problem, Severity};
use tokio::{sync::mpsc, task::JoinSet};
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    DestinationStatus, Meters, Relay,
    destination::{Control, Notice, Served, Task},
    doorbell::{next_ring, ring},
    preflight::{PREFLIGHT_REFUSED, look},
    running::{Gate, Running},
    worker::{Error, Stop},
};

/// How often the registry is read again, to serve what was registered since.
const REGISTRY_EVERY: Duration = Duration::from_secs(10);

/// Why a session came to its end.
#[derive(Debug)]
pub(crate) enum End {
    Stopped,
    Done,
    /// The registry changed: open a new one with it.
    Reload,
    Lost,
    ExclusiveHeld(String),
}

impl Relay {
    fn config(&self, served: &Served, session: SessionId, doorbell: bool) -> Config {
        let settings = &self.settings;
        let traits = served.transport.traits();
        let batch_max = usize::try_from(settings.batch_max.min(traits.batch_max)).unwrap_or(1);
        let mut config = Config {
            session,
            destination: served.id,
            policy: Policy::of(&served.place.destination, settings.backoff),
            breaker: settings.breaker,
            holds_key: false,
            quarantine_holds_key: false,
            one_per_key: false,
            batch_max: batch_max.max(1),
            batch_bytes_max: settings.batch_bytes_max,
            sending_max: settings.sending_max.max(1),
            late_max: settings.late_max,
            send_needs: settings.deadlines.send_needs(),
            poll_min: settings.poll_min,
            poll_max: if doorbell {
                settings.poll_max_with_doorbell
            } else {
                settings.poll_max
            },
            rescan: settings.rescan,
            fetches_max: None,
            seed: self.draw(),
        };
        config.set_ordering(&served.place.destination, traits.pipelined_in_order);
        config
    }

    /// One session, from its opening to its end.
    pub(crate) async fn session(
        &self,
        registry: &Registry,
        served: &BTreeMap<DestinationId, Arc<Served>>,
        stop: &mut Stop,
        fetches_max: Option<u64>,
        once: bool,
        ghosts: &mut JoinSet<()>,
    ) -> Result<End, Error> {
        let store = &self.shared.store;
        let clock = self.shared.clock;
        let id = SessionId(Uuid::from_bytes(self.draw()));
        let doorbell = if once { None } else { self.listen().await };
        let (notices, mut noticed) = mpsc::unbounded_channel();
        let mut running = Running::default();
        let (gates, mut gated) = mpsc::unbounded_channel();
        let mut preflights = JoinSet::new();
        for served in served.values() {
            let mut config = self.config(served, id, doorbell.is_some());
            config.fetches_max = fetches_max;
            let dispatcher = Dispatcher::new(config, clock.now());
            let (task, inbox) = Task::new(
                Arc::clone(served),
                Arc::clone(&self.shared),
                id,
                dispatcher,
                notices.clone(),
            );
            let (control, controlled) = mpsc::unbounded_channel();
            running.tasks.spawn(task.run(inbox, controlled));
            running.controls.insert(served.id, control);
            running.gates.insert(served.id, Gate::default());
            preflights.spawn(look(
                Arc::clone(served),
                self.settings.usage(&served.place.destination),
                gates.clone(),
            ));
        }
        drop(notices);
        drop(gates);
        let mut rings = ring(doorbell);
        let mut machine = Session::new(self.settings.deadlines, clock.now());
        let mut calls: JoinSet<session::Input> = JoinSet::new();
        let mut registry_at =
            tokio::time::interval_at(tokio::time::Instant::now() + REGISTRY_EVERY, REGISTRY_EVERY);
        let new_session = NewSession {
            id,
            owner: self.settings.owner.clone(),
            lease: self.settings.deadlines.settings().lease,
            serves: served.keys().copied().collect(),
            exclusive: self.settings.exclusive,
            version: self.settings.version.clone(),
        };
        machine.handle(clock.now(), session::Input::Tick);
        let end = loop {
            while let Some(command) = machine.poll_command() {
                if let Some(end) = self
                    .execute(command, &new_session, served, &mut running, &mut calls)
                    .await
                {
                    running.end = Some(end);
                }
            }
            if let Some(end) = running.end.take() {
                break end;
            }
            if fetches_max.is_some() && running.all_done(once, machine.has_its_lanes()) {
                break End::Done;
            }
            let sleep_at = running.sleep_at(rings.is_some());
            tokio::select! {
                biased;
                () = stop.wait() => break End::Stopped,
                // Before everything that can keep coming: the lease depends on it.
                () = clock.sleep_until(machine.next_wakeup()) => {
                    machine.handle(clock.now(), session::Input::Tick);
                }
                Some(input) = calls.join_next() => {
                    let input = input.unwrap_or_else(|error| {
                        warn!(%error, "a store call broke");
                        session::Input::CallFailed
                    });
                    if let session::Input::Beat(counts) = &input {
                        self.show_others(counts, &machine);
                    }
                    machine.handle(clock.now(), input);
                    self.show_lanes(&machine, served);
                }
                Some(notice) = noticed.recv() => match notice {
                    Notice::Drained(destination, lanes) => {
                        machine.handle(clock.now(), session::Input::Drained(destination, lanes));
                    }
                    Notice::Idle(destination, idle) => {
                        running.idle(destination, idle);
                        if !idle && running.asleep {
                            running.asleep = false;
                            self.set_asleep(id, false).await;
                        }
                    }
                    Notice::Done(destination) => {
                        running.done.insert(destination);
                    }
                    Notice::Ended => machine.handle(clock.now(), session::Input::Ended),
                },
                Some((destination, found)) = gated.recv() => {
                    let able = self.gate(destination, found, &mut running);
                    machine.handle(clock.now(), session::Input::Able(destination, able));
                }
                Some(()) = next_ring(&mut rings) => running.broadcast(&Control::Doorbell),
                () = tokio::time::sleep_until(sleep_at.unwrap_or_else(far)), if sleep_at.is_some() => {
                    running.asleep = true;
                    self.set_asleep(id, true).await;
                    // What was appended before the flag was seen rang no bell.
                    running.broadcast(&Control::Doorbell);
                }
                _ = registry_at.tick(), if !once => {
                    if self.registry_changed(registry).await {
                        info!("the registry has changed");
                        break End::Reload;
                    }
                }
            }
        };
        preflights.abort_all();
        match end {
            End::Lost | End::ExclusiveHeld(_) => {
                running.broadcast(&Control::Fence);
                let mut tasks = running.tasks;
                ghosts.spawn(async move { while tasks.join_next().await.is_some() {} });
                while ghosts.try_join_next().is_some() {}
            }
            End::Stopped | End::Done | End::Reload => {
                self.set_status(|status| status.stopping = matches!(end, End::Stopped));
                self.drain(&mut machine, id, running, calls, &new_session, served)
                    .await;
                if let Err(error) = store.end_session(id, "stopped").await {
                    warn!(%error, "the session was not ended; its lease will");
                }
            }
        }
        Ok(end)
    }

    /// Lets every destination finish what is in flight, heartbeats included, until the grace
    /// period ends.
    async fn drain(
        &self,
        machine: &mut Session,
        id: SessionId,
        mut running: Running,
        mut calls: JoinSet<session::Input>,
        new_session: &NewSession,
        served: &BTreeMap<DestinationId, Arc<Served>>,
    ) {
        let clock = self.shared.clock;
        running.broadcast(&Control::Stop);
        let grace = self.settings.deadlines.settings().shutdown_grace;
        let mut over = std::pin::pin!(tokio::time::sleep(grace));
        loop {
            while let Some(command) = machine.poll_command() {
                // What it has it keeps; only the lease matters now.
                if !matches!(
                    command,
                    session::Command::Claim(_) | session::Command::Recover
                ) {
                    self.execute(command, new_session, served, &mut running, &mut calls)
                        .await;
                } else {
                    machine.handle(clock.now(), session::Input::CallFailed);
                }
            }
            tokio::select! {
                biased;
                finished = running.tasks.join_next() => if finished.is_none() { return },
                Some(input) = calls.join_next() => {
                    machine.handle(clock.now(), input.unwrap_or(session::Input::CallFailed));
                }
                () = clock.sleep_until(machine.next_wakeup()) => {
                    machine.handle(clock.now(), session::Input::Tick);
                }
                () = &mut over => {
                    warn!(session = %id, "the grace period is over; leaving attempts unfinished");
                    running.tasks.abort_all();
                    return;
                }
            }
        }
    }

    async fn execute(
        &self,
        command: session::Command,
        new_session: &NewSession,
        served: &BTreeMap<DestinationId, Arc<Served>>,
        running: &mut Running,
        calls: &mut JoinSet<session::Input>,
    ) -> Option<End> {
        let store = Arc::clone(&self.shared.store);
        let meters = Arc::clone(&self.shared.meters);
        let id = new_session.id;
        match command {
            session::Command::Open => match store.open_session(new_session).await {
                Ok(()) => {
                    info!(session = %id, "the session is open");
                    self.set_status(|status| {
                        status.session = Some(id);
                        status.exclusive_held_by = None;
                    });
                    meters.session_live.set(1);
                    calls.spawn(async { session::Input::Opened });
                }
                Err(OpenError::ExclusiveHeld { owner }) => {
                    return Some(End::ExclusiveHeld(owner));
                }
                // An opening whose answer was lost, long ago enough for somebody to recover it.
                Err(OpenError::Ended) => return Some(End::Lost),
                Err(OpenError::Store(error)) => {
                    self.store_failed(&error);
                    calls.spawn(async { session::Input::OpenFailed });
                }
            },
            session::Command::Heartbeat => {
                let lease = new_session.lease;
                let reports = self.reports(served, running);
                calls.spawn(async move {
                    match store.heartbeat(id, lease, &reports).await {
                        Ok(shares) => {
                            let since_epoch = std::time::SystemTime::now()
                                .duration_since(std::time::UNIX_EPOCH)
                                .map_or(0.0, |since| since.as_secs_f64());
                            meters.last_heartbeat.set(since_epoch);
                            session::Input::Beat(shares.into_iter().map(count).collect())
                        }
                        Err(SessionError::Ended) => session::Input::Ended,
                        Err(SessionError::Store(error)) => {
                            meters.store_errors.inc();
                            warn!(%error, "a heartbeat failed");
                            session::Input::BeatFailed
                        }
                    }
                });
            }
            session::Command::Claim(wanted) => {
                calls.spawn(async move {
                    match store.claim_lanes(id, &wanted).await {
                        Ok(claimed) => session::Input::Claimed(
                            claimed
                                .into_iter()
                                .map(|(destination, lanes)| {
                                    (destination, lanes.into_iter().collect())
                                })
                                .collect(),
                        ),
                        Err(error) => session_failed(&error, &meters),
                    }
                });
            }
            session::Command::Release(destination, lanes) => {
                let lanes: Vec<Lane> = lanes.into_iter().collect();
                calls.spawn(async move {
                    match store.release_lanes(id, destination, &lanes).await {
                        Ok(()) => session::Input::Released,
                        Err(error) => session_failed(&error, &meters),
                    }
                });
            }
            session::Command::Recover => {
                // One at a time keeps each transaction short; the next look comes soon.
                const SESSIONS_MAX: u32 = 4;
                calls.spawn(async move {
                    match store.recover_expired(SESSIONS_MAX).await {
                        Ok(recovered) => {
                            for session in &recovered {
                                meters.sessions_recovered.inc();
                                info!(
                                    session = %session.session,
                                    owner = session.owner,
                                    attempts = session.attempts,
                                    deliveries = session.deliveries,
                                    lanes = session.lanes,
                                    "recovered a session whose lease was over"
                                );
                            }
                            if recovered.is_empty() {
                                session::Input::NothingRecovered
                            } else {
                                session::Input::Recovered
                            }
                        }
                        Err(error) => {
                            meters.store_errors.inc();
                            warn!(%error, "looking for expired sessions failed");
                            session::Input::CallFailed
                        }
                    }
                });
            }
            session::Command::SetLanes(destination, lanes) => {
                running.lanes.insert(destination, lanes.len());
                running.tell(destination, Control::Lanes(lanes));
            }
            session::Command::Drain(destination, lanes) => {
                running.tell(destination, Control::Drain(lanes));
            }
            session::Command::Suspended(destination, suspended) => {
                running.suspend(destination, suspended);
            }
            session::Command::LeaseUntil(until) => {
                running.live = true;
                running.broadcast(&Control::LeaseUntil(until));
            }
            session::Command::Fence => {
                meters.session_live.set(0);
                return Some(End::Lost);
            }
        }
        None
    }

    fn show_others(&self, counts: &[session::Count], machine: &Session) {
        self.set_status(|status| {
            for destination in &mut status.destinations {
                let count = counts.iter().find(|one| one.destination == destination.id);
                destination.served_elsewhere = count.is_some_and(|count| {
                    count.sessions > u32::from(machine.is_counted(destination.id))
                });
            }
        });
    }

    fn show_lanes(&self, machine: &Session, served: &BTreeMap<DestinationId, Arc<Served>>) {
        let held = machine.held();
        for served in served.values() {
            let count = held.get(&served.id).map_or(0, BTreeSet::len);
            served
                .meters
                .lanes_held
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.set_status(|status| {
            for destination in &mut status.destinations {
                destination.lanes_held = held.get(&destination.id).map_or(0, BTreeSet::len);
            }
        });
    }

    fn gate(
        &self,
        destination: DestinationId,
        found: Result<Vec<Problem>, Problem>,
        running: &mut Running,
    ) -> bool {
        let mut name = destination.to_string();
        let mut is_news = true;
        self.set_status(|status| {
            if let Some(shown) = status.destinations.iter_mut().find(|d| d.id == destination) {
                name = format!("{}#{}", shown.name, shown.generation);
                is_news = shown.preflight != found;
                shown.preflight = found.clone();
            }
        });
        let refused = match &found {
            Ok(problems) => {
                for problem in problems.iter().filter(|_| is_news) {
                    warn!(
                        destination = name,
                        code = problem.code,
                        message = problem.message,
                        "preflight"
                    );
                }
                problems
                    .iter()
                    .any(|problem| problem.severity == Severity::Refused)
            }
            Err(problem) => {
                if is_news {
                    warn!(
                        destination = name,
                        code = problem.code,
                        message = problem.message,
                        "the destination cannot be looked at now"
                    );
                }
                // Once it was fine, the breaker deals with outages; before, nothing is known.
                !running.was_fine(destination)
            }
        };
        running.refuse(destination, refused);
        !refused
    }

    /// What others should know of every destination: what the breaker says where the gate is
    /// open, else why it is not.
    fn reports(
        &self,
        served: &BTreeMap<DestinationId, Arc<Served>>,
        running: &Running,
    ) -> Vec<BreakerReport> {
        let report = |status: &DestinationStatus| match served.get(&status.id) {
            Some(served) if running.was_fine(status.id) => served.breaker_report(),
            Some(_) | None => BreakerReport {
                destination: status.id,
                open: status.refusal().map(|problem| OpenBreaker {
                    code: problem.code.to_owned(),
                    detail: bounded_detail(&problem.message),
                    next_probe_in: PREFLIGHT_REFUSED,
                    refused: true,
                }),
            },
        };
        self.status().destinations.iter().map(report).collect()
    }

    async fn registry_changed(&self, known: &Registry) -> bool {
        match self.shared.store.registry().await {
            Ok(now) => {
                let ids = |registry: &Registry| -> Vec<DestinationId> {
                    registry
                        .destinations
                        .iter()
                        .map(|registered| registered.id)
                        .collect()
                };
                ids(&now) != ids(known)
            }
            Err(error) => {
                self.store_failed(&error);
                false
            }
        }
    }

    async fn listen(&self) -> Option<Box<dyn Listener>> {
        match self.shared.store.listen().await {
            Ok(listener) => listener,
            Err(error) => {
                warn!(%error, "the doorbell cannot be heard; polling");
                None
            }
        }
    }

    async fn set_asleep(&self, session: SessionId, asleep: bool) {
        // Only a hint: polling goes on.
        if let Err(error) = self.shared.store.set_asleep(session, asleep).await {
            self.store_failed(&error);
        }
    }
}

fn far() -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_secs(3600)
}

fn count(share: Share) -> session::Count {
    session::Count {
        destination: share.destination,
        lanes: share.lanes,
        sessions: share.sessions,
        held: share.held.into_iter().collect(),
        free: share.free,
        suspended: share.suspended,
    }
}

fn session_failed(error: &SessionError, meters: &Meters) -> session::Input {
    match error {
        SessionError::Ended => session::Input::Ended,
        SessionError::Store(error) => {
            meters.store_errors.inc();
            warn!(%error, "a store call of the session failed");
            session::Input::CallFailed
        }
    }
}
