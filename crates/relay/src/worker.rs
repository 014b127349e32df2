//! One relay process: opens sessions one after the other, and serves every destination in each.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use postrider_core::{
    DestinationId, Lane, SessionId,
    delivery::Policy,
    dispatcher::{Config, Dispatcher},
    session::{self, Session},
};
use postrider_schema::Schemas;
use postrider_store::{
    OpenError, SessionError, Store, StoreError,
    control::{Registry, SchemaStatus},
    sessions::{NewSession, Share},
};
use postrider_transport::{Problem, Severity, Usage, wire};
use rand::{
    Rng as _, SeedableRng as _,
    distr::{Distribution, StandardUniform},
    rngs::StdRng,
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    Meters, Settings, TransportFactory,
    clock::Clock,
    destination::{Control, Notice, Served, Shared, Task, share_late},
};

/// Why a relay could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the database is not at a schema version that this program knows: {0:?}; run `postrider migrate` with the newest program in use"
    )]
    Schema(SchemaStatus),
    #[error("a registered JSON Schema cannot be compiled: {0}")]
    Registry(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Asks a relay to stop: finish what is in flight, start nothing.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// A stop and the sender that triggers it with `true`.
    #[must_use]
    pub fn new() -> (watch::Sender<bool>, Self) {
        let (sender, receiver) = watch::channel(false);
        (sender, Self(receiver))
    }

    fn requested(&self) -> bool {
        *self.0.borrow()
    }

    async fn wait(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Deliveries registered in attempts.
    pub claimed: u64,
    pub acknowledged: u64,
    pub retried: u64,
    pub unknown: u64,
    pub quarantined: u64,
    /// Receipts kept as duplicates.
    pub duplicates: u64,
    pub shutdown_requested: bool,
    /// Another dispatcher holds the exclusive lease; nothing was claimed.
    pub exclusive_held_by: Option<String>,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) claimed: Count,
    pub(crate) acknowledged: Count,
    pub(crate) retried: Count,
    pub(crate) unknown: Count,
    pub(crate) quarantined: Count,
    pub(crate) duplicates: Count,
}

/// How the relay is doing, for readiness and people.
#[derive(Clone, Debug, Default)]
pub struct Status {
    pub session: Option<SessionId>,
    pub stopping: bool,
    pub exclusive_held_by: Option<String>,
    /// The last store call of the session failed with this.
    pub store_problem: Option<String>,
    pub destinations: Vec<DestinationStatus>,
}

#[derive(Clone, Debug)]
pub struct DestinationStatus {
    pub id: DestinationId,
    pub name: String,
    pub generation: u64,
    /// Problems of the last preflight; `Err`: it could not be made, and why.
    pub preflight: Result<Vec<Problem>, String>,
    pub lanes_held: usize,
    pub lanes: u16,
}

impl DestinationStatus {
    /// Nothing keeps the relay from sending here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let refused = |problem: &Problem| problem.severity == Severity::Refused;
        self.preflight
            .as_ref()
            .is_ok_and(|problems| !problems.iter().any(refused))
    }
}

/// A relay. [`Relay::run`] serves until it is told to stop.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    transports: Arc<dyn TransportFactory>,
    settings: Settings,
    status: Mutex<Status>,
    random: Mutex<StdRng>,
}

/// How often the registry is read again, to serve what was registered since.
const REGISTRY_EVERY: Duration = Duration::from_secs(10);
/// How often a destination is looked at again: while it is refused, and while it is fine.
const PREFLIGHT_REFUSED: Duration = Duration::from_secs(1);
const PREFLIGHT_FINE: Duration = Duration::from_secs(30);
/// How long everything must be idle before the worker asks for the doorbell.
const SLEEP_AFTER: Duration = Duration::from_millis(40);

/// Why a session came to its end.
#[derive(Debug)]
enum End {
    Stopped,
    Done,
    /// The registry changed: open a new one with it.
    Reload,
    Lost,
    ExclusiveHeld(String),
}

impl Relay {
    #[must_use]
    pub fn new(
        store: Arc<dyn Store>,
        transports: Arc<dyn TransportFactory>,
        settings: Settings,
        meters: Arc<Meters>,
    ) -> Self {
        let limits = settings.deadlines.settings();
        let shared = Shared {
            store,
            schemas: tokio::sync::RwLock::new(Schemas::default()),
            meters,
            counts: Counts::default(),
            clock: Clock::start(),
            send: limits.send,
            hard: limits.hard,
        };
        let random = settings
            .seed
            .map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        Self {
            shared: Arc::new(shared),
            transports,
            settings,
            status: Mutex::new(Status::default()),
            random: Mutex::new(random),
        }
    }

    fn draw<T>(&self) -> T
    where
        StandardUniform: Distribution<T>,
    {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        random.random()
    }

    #[must_use]
    pub fn status(&self) -> Status {
        self.status
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn set_status(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Serves until `stop` is triggered or the iterations are spent.
    ///
    /// # Errors
    /// When the database's schema is not this program's. A database that cannot be reached is
    /// waited for.
    pub async fn run(&self, stop: Stop) -> Result<Report, Error> {
        self.serve(stop, self.settings.iterations_max, false).await
    }

    /// Fetches once from every destination whose lanes are free, sends that, and ends.
    ///
    /// # Errors
    /// As [`Relay::run`]; also when the database cannot be reached.
    pub async fn dispatch_once(&self) -> Result<Report, Error> {
        let (_keep, stop) = Stop::new();
        self.serve(stop, Some(1), true).await
    }

    async fn serve(
        &self,
        mut stop: Stop,
        fetches_max: Option<u64>,
        once: bool,
    ) -> Result<Report, Error> {
        let mut served: BTreeMap<DestinationId, Arc<Served>> = BTreeMap::new();
        let mut ghosts = JoinSet::new();
        let mut tries = 0_u64;
        let mut exclusive_held_by = None;
        while !stop.requested() {
            let registry = match self.read_registry().await {
                Ok(registry) => registry,
                Err(Error::Store(error)) if !once => {
                    warn!(%error, "the database does not answer; trying again");
                    self.set_status(|status| status.store_problem = Some(error.to_string()));
                    self.pause(&mut stop, Duration::from_secs(1)).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            self.open_transports(&registry, &mut served);
            let end = self
                .session(
                    &registry,
                    &served,
                    &mut stop,
                    fetches_max,
                    once,
                    &mut ghosts,
                )
                .await?;
            self.set_status(|status| status.session = None);
            match end {
                End::Stopped | End::Done => break,
                End::Reload => {}
                End::Lost => warn!("the session has ended; opening another"),
                End::ExclusiveHeld(owner) => {
                    self.set_status(|status| status.exclusive_held_by = Some(owner.clone()));
                    exclusive_held_by = Some(owner);
                    tries += 1;
                    if once || fetches_max.is_some_and(|max| tries >= max) {
                        break;
                    }
                    self.pause(&mut stop, Duration::from_secs(1)).await;
                    continue;
                }
            }
            exclusive_held_by = None;
        }
        // Evidence of ended sessions is handed in before the process goes, for as long as a
        // graceful stop may take.
        let grace = self.settings.deadlines.settings().shutdown_grace;
        let all_in = async { while ghosts.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, all_in).await.is_err() {
            warn!("late answers were still awaited at the end of the grace period");
        }
        for served in served.values() {
            served.transport.close().await;
        }
        let counts = &self.shared.counts;
        Ok(Report {
            claimed: counts.claimed.get(),
            acknowledged: counts.acknowledged.get(),
            retried: counts.retried.get(),
            unknown: counts.unknown.get(),
            quarantined: counts.quarantined.get(),
            duplicates: counts.duplicates.get(),
            shutdown_requested: stop.requested(),
            exclusive_held_by,
        })
    }

    async fn pause(&self, stop: &mut Stop, duration: Duration) {
        tokio::select! {
            biased;
            () = stop.wait() => {}
            () = tokio::time::sleep(duration) => {}
        }
    }

    async fn read_registry(&self) -> Result<Registry, Error> {
        match self.shared.store.schema_status().await? {
            SchemaStatus::Current { .. } => {}
            status @ (SchemaStatus::Missing
            | SchemaStatus::Older { .. }
            | SchemaStatus::Newer { .. }
            | SchemaStatus::Altered { .. }) => return Err(Error::Schema(status)),
        }
        let registry = self.shared.store.registry().await?;
        let types = registry
            .event_types
            .iter()
            .map(|registered| &registered.event_type);
        let schemas =
            Schemas::compile(types).map_err(|error| Error::Registry(error.to_string()))?;
        *self.shared.schemas.write().await = schemas;
        self.set_status(|status| status.store_problem = None);
        Ok(registry)
    }

    /// Opens a transport for every destination of a known kind, of every generation: an old one
    /// may still have deliveries.
    fn open_transports(
        &self,
        registry: &Registry,
        served: &mut BTreeMap<DestinationId, Arc<Served>>,
    ) {
        let kinds = self.transports.kinds();
        let mut statuses = Vec::new();
        for registered in &registry.destinations {
            let destination = &registered.destination;
            let mut preflight = Err("not looked at yet".to_owned());
            if !kinds.contains(&destination.kind.as_str()) {
                preflight = Err(format!(
                    "this program cannot serve kind {:?}",
                    destination.kind
                ));
            } else if let Entry::Vacant(free) = served.entry(registered.id) {
                match self.transports.open(registered) {
                    Ok(transport) => {
                        free.insert(Arc::new(Served {
                            id: registered.id,
                            place: wire::Place::new(destination.clone()),
                            late: transport.late().map(share_late),
                            transport,
                            breaker: Mutex::new(None),
                            meters: self.shared.meters.of(&destination.name),
                        }));
                    }
                    Err(error) => {
                        warn!(destination = destination.name, %error, "cannot be served");
                        preflight = Err(error.to_string());
                    }
                }
            }
            statuses.push(DestinationStatus {
                id: registered.id,
                name: destination.name.clone(),
                generation: destination.generation,
                preflight,
                lanes_held: 0,
                lanes: destination.lanes,
            });
        }
        self.set_status(|status| status.destinations = statuses);
    }

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
    async fn session(
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
                Some(input) = calls.join_next() => {
                    let input = input.unwrap_or_else(|error| {
                        warn!(%error, "a store call broke");
                        session::Input::CallFailed
                    });
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
                    self.gate(destination, found, &mut running);
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
                () = clock.sleep_until(machine.next_wakeup()) => {
                    machine.handle(clock.now(), session::Input::Tick);
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
                Err(OpenError::Store(error)) => {
                    self.store_failed(&error);
                    calls.spawn(async { session::Input::OpenFailed });
                }
            },
            session::Command::Heartbeat => {
                let lease = new_session.lease;
                let reports: Vec<_> = served
                    .values()
                    .map(|served| served.breaker_report())
                    .collect();
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

    fn store_failed(&self, error: &StoreError) {
        self.shared.meters.store_errors.inc();
        warn!(%error, "the database does not answer; trying again");
        self.set_status(|status| status.store_problem = Some(error.to_string()));
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
        found: Result<Vec<Problem>, String>,
        running: &mut Running,
    ) {
        self.set_status(|status| {
            if let Some(shown) = status.destinations.iter_mut().find(|d| d.id == destination) {
                shown.preflight = found.clone();
            }
        });
        let refused = match &found {
            Ok(problems) => {
                for problem in problems {
                    warn!(%destination, code = problem.code, message = problem.message, "preflight");
                }
                problems
                    .iter()
                    .any(|problem| problem.severity == Severity::Refused)
            }
            Err(error) => {
                info!(%destination, error, "the destination cannot be looked at now");
                // Once it was fine, the breaker deals with outages; before, nothing is known.
                !running.was_fine(destination)
            }
        };
        running.refuse(destination, refused);
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

    async fn listen(&self) -> Option<Box<dyn postrider_store::sessions::Listener>> {
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

/// What a session has running.
#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    controls: BTreeMap<DestinationId, mpsc::UnboundedSender<Control>>,
    gates: BTreeMap<DestinationId, Gate>,
    lanes: BTreeMap<DestinationId, usize>,
    idle: BTreeSet<DestinationId>,
    idle_since: Option<tokio::time::Instant>,
    done: BTreeSet<DestinationId>,
    asleep: bool,
    live: bool,
    end: Option<End>,
}

/// What keeps a destination from being sent to.
#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    /// By a person or by the destination itself, in the store.
    suspended: bool,
    preflight: Preflight,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Preflight {
    #[default]
    NotYet,
    Fine,
    Refused,
}

impl Running {
    fn tell(&self, destination: DestinationId, control: Control) {
        if let Some(sender) = self.controls.get(&destination)
            && sender.send(control).is_err()
        {
            info!(%destination, "its task is over");
        }
    }

    fn broadcast(&self, control: &Control) {
        for destination in self.controls.keys() {
            self.tell(*destination, control.clone());
        }
    }

    fn suspend(&mut self, destination: DestinationId, suspended: bool) {
        let Some(gate) = self.gates.get_mut(&destination) else {
            return;
        };
        gate.suspended = suspended;
        self.tell_gate(destination);
    }

    fn refuse(&mut self, destination: DestinationId, refused: bool) {
        let Some(gate) = self.gates.get_mut(&destination) else {
            return;
        };
        gate.preflight = if refused {
            Preflight::Refused
        } else {
            Preflight::Fine
        };
        self.tell_gate(destination);
    }

    fn was_fine(&self, destination: DestinationId) -> bool {
        self.gates
            .get(&destination)
            .is_some_and(|gate| gate.preflight == Preflight::Fine)
    }

    fn closed(&self, destination: DestinationId) -> bool {
        self.gates
            .get(&destination)
            .is_none_or(|gate| gate.suspended || gate.preflight != Preflight::Fine)
    }

    fn tell_gate(&self, destination: DestinationId) {
        self.tell(destination, Control::Suspended(self.closed(destination)));
    }

    fn idle(&mut self, destination: DestinationId, idle: bool) {
        if idle {
            self.idle.insert(destination);
        } else {
            self.idle.remove(&destination);
        }
        let all = self.idle.len() == self.controls.len();
        self.idle_since = all.then(tokio::time::Instant::now);
    }

    /// When to ask for the doorbell, if everything stays idle.
    fn sleep_at(&self, doorbell: bool) -> Option<tokio::time::Instant> {
        let since = self
            .idle_since
            .filter(|_| doorbell && !self.asleep && self.live)?;
        Some(since + SLEEP_AFTER)
    }

    /// Every destination that can be served now has made its fetches. One whose gate is closed
    /// does not count, or a bounded run would wait for a person; with `once`, one without lanes
    /// does not either.
    fn all_done(&self, once: bool, has_its_lanes: bool) -> bool {
        let looked = self
            .gates
            .values()
            .all(|gate| gate.preflight != Preflight::NotYet);
        let known = looked && has_its_lanes;
        let exempt = |destination: &DestinationId| {
            known
                && (self.closed(*destination)
                    || (once && self.lanes.get(destination).is_none_or(|lanes| *lanes == 0)))
        };
        (!once || known)
            && self
                .controls
                .keys()
                .all(|destination| self.done.contains(destination) || exempt(destination))
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

/// Looks at a destination again and again, and tells the session what it found.
async fn look(
    served: Arc<Served>,
    usage: Usage,
    gates: mpsc::UnboundedSender<(DestinationId, Result<Vec<Problem>, String>)>,
) {
    loop {
        let found = served
            .transport
            .preflight(&usage)
            .await
            .map_err(|error| error.to_string());
        let fine = found.as_ref().is_ok_and(|problems| {
            problems
                .iter()
                .all(|problem| problem.severity != Severity::Refused)
        });
        if gates.send((served.id, found)).is_err() {
            return;
        }
        tokio::time::sleep(if fine {
            PREFLIGHT_FINE
        } else {
            PREFLIGHT_REFUSED
        })
        .await;
    }
}

/// Turns a listener into rings. It ends when the listener fails; polling goes on.
fn ring(
    listener: Option<Box<dyn postrider_store::sessions::Listener>>,
) -> Option<mpsc::Receiver<()>> {
    let mut listener = listener?;
    // One waiting ring says all.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                biased;
                () = sender.closed() => return,
                rung = listener.rung() => if let Err(error) = rung {
                    warn!(%error, "the doorbell is not heard any more; polling");
                    return;
                },
            }
            if let Err(mpsc::error::TrySendError::Closed(())) = sender.try_send(()) {
                return;
            }
        }
    });
    Some(receiver)
}

async fn next_ring(rings: &mut Option<mpsc::Receiver<()>>) -> Option<()> {
    match rings {
        Some(receiver) => {
            let rung = receiver.recv().await;
            if rung.is_none() {
                *rings = None;
            }
            rung
        }
        None => std::future::pending().await,
    }
}
