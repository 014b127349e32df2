//! The store port in memory: the reference model behind a lock, with faults on request.
//!
//! [`model::Model`] says what every store must do. [`MemoryStore`] is the same behind the async
//! port; its futures complete at once, so that a single-threaded simulator can drive it. Nothing
//! is ever written to disk.

pub mod faults;
pub mod model;

mod doorbell;
mod transaction;

use std::{
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use postrider_contract::{EventId, Timestamp, new_event::NewEvent};
use postrider_core::{DestinationId, Lane, Position, SessionId};
use postrider_store::{
    AppendError, Clock, ExchangeError, OpenError, SessionError, Store, StoreError,
    control::{Applied, Audit, ControlPlane, Registry, SchemaStatus},
    dispatch::{Appended, Exchange, Exchanged},
    evidence::{Evidence, Verdict},
    inspect::{
        Backlog, DeliveryFilter, DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow,
        Page, QuarantineRow, ReplaySelection, Replayed, SessionRow,
    },
    sessions::{BreakerReport, Listener, NewSession, Recovered, Share},
};

use doorbell::Doorbell;
use faults::{Call, Decision, Fate};
use model::Model;

pub use transaction::Transaction;

/// A database in memory. Clones are handles on the same one.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Shared {
    model: Mutex<Model>,
    decision: Mutex<Decision>,
    doorbell: Arc<Doorbell>,
}

impl MemoryStore {
    /// An empty database. [`Clock::Database`] is this machine's clock here.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            shared: Arc::default(),
            clock,
        }
    }

    /// From here on, `decide` says what becomes of each call. It must not call the store.
    pub fn set_faults(&self, decide: impl FnMut(Call) -> Fate + Send + 'static) {
        *self.decision() = Decision(Box::new(decide));
    }

    /// From here on, every call proceeds.
    pub fn clear_faults(&self) {
        *self.decision() = Decision::default();
    }

    /// Looks at the model, for checks that the port does not offer.
    pub fn inspect<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.model())
    }

    fn decision(&self) -> MutexGuard<'_, Decision> {
        self.shared
            .decision
            .lock()
            .expect("no panic in the decision")
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.shared.model.lock().expect("no panic in the model")
    }

    fn time(&self) -> Timestamp {
        self.clock.parameter().unwrap_or_else(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH);
            let micros = since
                .ok()
                .and_then(|since| i64::try_from(since.as_micros()).ok());
            micros
                .and_then(Timestamp::from_unix_micros)
                .expect("this machine's clock is between 1970 and 9999")
        })
    }

    fn call<T, E: From<StoreError>>(
        &self,
        call: Call,
        run: impl FnOnce(&mut Model, Timestamp) -> Result<T, E>,
    ) -> Result<T, E> {
        let fate = (self.decision().0)(call);
        if fate == Fate::FailBefore {
            return Err(E::from(unavailable(
                "the connection was lost before the commit",
            )));
        }
        let now = self.time();
        let result = run(&mut self.model(), now);
        match fate {
            Fate::Proceed | Fate::FailBefore => result,
            Fate::FailAfter => Err(E::from(unavailable(
                "the connection was lost at the commit",
            ))),
        }
    }

    fn read<T>(
        &self,
        run: impl FnOnce(&Model, Timestamp) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.call(Call::Read, |model, now| run(model, now))
    }

    fn ring_if_wanted(&self) {
        if self.model().is_anyone_asleep(self.time()) {
            self.shared.doorbell.ring();
        }
    }
}

fn unavailable(message: &str) -> StoreError {
    StoreError::Unavailable {
        message: message.to_owned(),
        source: None,
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        Ok(SchemaStatus::Current { version: 1 })
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.read(|_, now| Ok(now))
    }

    async fn registry(&self) -> Result<Registry, StoreError> {
        self.read(|model, _| Ok(model.registry()))
    }

    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError> {
        self.call(Call::Apply, |model, now| model.apply(plan, audit, now))
    }

    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError> {
        self.call(Call::ResumeDestination, |model, now| {
            Ok(model.resume_destination(destination, audit, now))
        })
    }

    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        let appended = self.call(Call::Append, |model, now| model.append(&events, now));
        self.ring_if_wanted();
        appended
    }

    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError> {
        self.call(Call::OpenSession, |model, now| {
            model.open_session(session, now)
        })
    }

    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError> {
        self.call(Call::Heartbeat, |model, now| {
            model.heartbeat(session, lease, breakers, now)
        })
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        self.call(Call::ClaimLanes, |model, now| {
            model.claim_lanes(session, wanted, now)
        })
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError> {
        self.call(Call::ReleaseLanes, |model, now| {
            model.release_lanes(session, destination, lanes, now)
        })
    }

    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError> {
        self.call(Call::EndSession, |model, now| {
            model.end_session(session, reason, now);
            Ok(())
        })
    }

    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError> {
        self.call(Call::RecoverExpired, |model, now| {
            Ok(model.recover_expired(sessions_max, now))
        })
    }

    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError> {
        self.call(Call::Exchange, |model, now| model.exchange(exchange, now))
    }

    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError> {
        self.call(Call::AcceptReceipts, |model, now| {
            Ok(model.accept_receipts(evidence, now))
        })
    }

    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError> {
        self.call(Call::SetAsleep, |model, _| {
            model.set_asleep(session, asleep);
            Ok(())
        })
    }

    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError> {
        Ok(Some(self.shared.doorbell.listen()))
    }

    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError> {
        self.read(|model, now| Ok(model.backlog(now)))
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        self.read(|model, _| Ok(model.sessions(limit)))
    }

    async fn lanes(&self) -> Result<Vec<LaneRow>, StoreError> {
        self.read(|model, _| Ok(model.lanes()))
    }

    async fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        self.read(|model, _| model.events(filter, after, limit))
    }

    async fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.read(|model, _| model.event(event))
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.read(|model, _| Ok(model.deliveries(filter, after, limit)))
    }

    async fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError> {
        self.read(|model, now| Ok(model.held_by(destination, position, now)))
    }

    async fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError> {
        self.read(|model, _| Ok(model.quarantined(selection, after, limit)))
    }

    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError> {
        self.call(Call::Replay, |model, now| {
            Ok(model.replay(selection, limit, audit, now))
        })
    }

    async fn maintain(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }
}
