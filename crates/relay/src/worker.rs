//! One relay process: opens sessions one after the other, and serves every destination in each.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::DestinationId;
use postrider_schema::Schemas;
use postrider_store::{
    Store, StoreError,
    control::{Registry, SchemaStatus},
};
use postrider_transport::{Problem, Severity, wire};
use rand::{
    Rng as _, SeedableRng as _,
    distr::{Distribution, StandardUniform},
    rngs::StdRng,
};
use tokio::{sync::watch, task::JoinSet};
use tracing::warn;

use crate::{
    Meters, Settings, TransportFactory,
    clock::Clock,
    destination::{Served, Shared, share_late},
    session::End,
    status::{Counts, DestinationStatus, KIND_UNKNOWN, Report, Status},
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

    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|stop| *stop).await.is_err() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}

/// A relay. [`Relay::run`] serves until it is told to stop.
#[derive(Debug)]
pub struct Relay {
    pub(crate) shared: Arc<Shared>,
    pub(crate) transports: Arc<dyn TransportFactory>,
    pub(crate) settings: Settings,
    pub(crate) status: Mutex<Status>,
    pub(crate) random: Mutex<StdRng>,
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

    pub(crate) fn draw<T>(&self) -> T
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

    pub(crate) fn set_status(&self, change: impl FnOnce(&mut Status)) {
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
            if registry.destinations.is_empty() {
                warn!("nothing is registered, so nothing is relayed: run `postrider apply`");
            }
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
            let mut preflight = Err(refusal(
                "not_looked_at",
                "it was not looked at yet".to_owned(),
            ));
            if !kinds.contains(&destination.kind.as_str()) {
                preflight = Err(refusal(
                    KIND_UNKNOWN,
                    format!("this program cannot serve kind {:?}", destination.kind),
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
                        preflight = Err(error.into_problem());
                    }
                }
            }
            statuses.push(DestinationStatus {
                id: registered.id,
                name: destination.name.clone(),
                generation: destination.generation,
                preflight,
                served_elsewhere: false,
                lanes_held: 0,
                lanes: destination.lanes,
            });
        }
        self.set_status(|status| status.destinations = statuses);
    }

    pub(crate) fn store_failed(&self, error: &StoreError) {
        self.shared.meters.store_errors.inc();
        warn!(%error, "the database does not answer; trying again");
        self.set_status(|status| status.store_problem = Some(error.to_string()));
    }
}

fn refusal(code: &'static str, message: String) -> Problem {
    Problem {
        code,
        severity: Severity::Refused,
        message,
    }
}
