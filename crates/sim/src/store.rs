//! The memory store as one worker reaches it: with time, faults and witnesses.

use std::{fmt::Display, future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use postrider_contract::{EventId, Timestamp, new_event::NewEvent};
use postrider_core::{DestinationId, Lane, Position, SessionId};
use postrider_store::{
    AppendError, ExchangeError, OpenError, SessionError, Store, StoreError,
    control::{Applied, Audit, ControlPlane, Registry, SchemaStatus},
    dispatch::{Appended, Exchange, Exchanged},
    evidence::{Evidence, Verdict},
    inspect::{
        Backlog, DeliveryFilter, DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow,
        Page, QuarantineRow, ReplaySelection, Replayed, SessionRow,
    },
    sessions::{BreakerReport, Listener, NewSession, Recovered, Share},
};

use crate::{
    fault::{CallKind, OfCall},
    life::Life,
    oracle::Request,
    world::World,
};

#[derive(Debug)]
pub(crate) struct SimStore {
    world: Arc<World>,
    life: Arc<Life>,
}

impl SimStore {
    pub(crate) fn new(world: &Arc<World>, life: &Arc<Life>) -> Self {
        Self {
            world: Arc::clone(world),
            life: Arc::clone(life),
        }
    }

    /// One call: the way there, the call itself, the way back. A fault strikes on either way.
    async fn call<T, E>(
        &self,
        kind: CallKind,
        request: Request<'_>,
        run: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E>
    where
        E: From<StoreError> + Display,
    {
        let life = &*self.life;
        life.proceed().await;
        let (nth, fault) = self.world.fault_of_call(life, kind);
        self.take_time(kind, nth, 0).await;
        match fault {
            Some(OfCall::FailBefore) => return Err(unavailable("before the commit").into()),
            Some(OfCall::CrashBefore) => life.crash().await,
            Some(OfCall::PauseBefore(ms)) => life.pause(ms).await,
            Some(OfCall::SlowBefore(ms)) => sleep(ms).await,
            Some(
                OfCall::FailAfter
                | OfCall::CrashAfter
                | OfCall::PauseAfter(_)
                | OfCall::SlowAfter(_),
            )
            | None => {}
        }
        life.proceed().await;
        self.world.reach(life.now());
        let result = self.world.call(Some(life), request, run);
        match fault {
            Some(OfCall::FailAfter) => return Err(unavailable("at the commit").into()),
            Some(OfCall::CrashAfter) => life.crash().await,
            Some(OfCall::PauseAfter(ms)) => life.pause(ms).await,
            Some(OfCall::SlowAfter(ms)) => sleep(ms).await,
            Some(
                OfCall::FailBefore
                | OfCall::CrashBefore
                | OfCall::PauseBefore(_)
                | OfCall::SlowBefore(_),
            )
            | None => {}
        }
        self.take_time(kind, nth, 1).await;
        life.proceed().await;
        result
    }

    async fn take_time(&self, kind: CallKind, nth: u32, way: u64) {
        let purpose = [
            20,
            self.life.id.worker as u64,
            kind as u64,
            u64::from(nth),
            way,
        ];
        let latency = self.world.latency(&purpose, 30);
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

fn unavailable(when: &str) -> StoreError {
    StoreError::Unavailable {
        message: format!("the connection was lost {when}"),
        source: None,
    }
}

#[async_trait]
impl Store for SimStore {
    async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        self.world.store.schema_status().await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.world.store.now().await
    }

    async fn registry(&self) -> Result<Registry, StoreError> {
        self.call(CallKind::Lease, Request::Read, self.world.store.registry())
            .await
    }

    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError> {
        self.world.store.apply(plan, audit).await
    }

    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError> {
        self.world
            .store
            .resume_destination(destination, audit)
            .await
    }

    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        self.world.store.append(events).await
    }

    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError> {
        let asked_at = self.life.clock();
        {
            let mut state = self.world.state();
            state.oracle.truth.sessions.insert(session.id, self.life.id);
        }
        let run = self.world.store.open_session(session);
        self.call(CallKind::Lease, Request::Open(session), run)
            .await?;
        self.life.granted(session.id, asked_at, session.lease);
        Ok(())
    }

    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError> {
        let asked_at = self.life.clock();
        let run = self.world.store.heartbeat(session, lease, breakers);
        let shares = self
            .call(CallKind::Lease, Request::Heartbeat(session), run)
            .await?;
        self.life.granted(session, asked_at, lease);
        Ok(shares)
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        let run = self.world.store.claim_lanes(session, wanted);
        self.call(CallKind::Lease, Request::Claim(session), run)
            .await
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError> {
        let run = self.world.store.release_lanes(session, destination, lanes);
        self.call(CallKind::Lease, Request::Release(session), run)
            .await
    }

    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError> {
        let run = self.world.store.end_session(session, reason);
        self.call(CallKind::Lease, Request::End(session), run).await
    }

    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError> {
        let run = self.world.store.recover_expired(sessions_max);
        self.call(CallKind::Recover, Request::Recover, run).await
    }

    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError> {
        let looks = exchange.settle.is_empty()
            && exchange.register.is_empty()
            && exchange.quarantine.is_empty();
        let kind = if looks {
            CallKind::Look
        } else {
            CallKind::Work
        };
        let run = async {
            let mut exchanged = self.world.store.exchange(exchange).await;
            if let Ok(exchanged) = &mut exchanged {
                self.world.state().read(exchange.destination, exchanged);
            }
            exchanged
        };
        self.call(kind, Request::Exchange(exchange), run).await
    }

    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError> {
        let run = self.world.store.accept_receipts(evidence);
        self.call(CallKind::Evidence, Request::Evidence(evidence), run)
            .await
    }

    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError> {
        let run = self.world.store.set_asleep(session, asleep);
        self.call(CallKind::Lease, Request::Asleep(session), run)
            .await
    }

    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError> {
        self.world.store.listen().await
    }

    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError> {
        self.world.store.backlog().await
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        self.world.store.sessions(limit).await
    }

    async fn lanes(&self) -> Result<Vec<LaneRow>, StoreError> {
        self.world.store.lanes().await
    }

    async fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        self.world.store.events(filter, after, limit).await
    }

    async fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.world.store.event(event).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.world.store.deliveries(filter, after, limit).await
    }

    async fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError> {
        self.world.store.held_by(destination, position).await
    }

    async fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError> {
        self.world.store.quarantined(selection, after, limit).await
    }

    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError> {
        self.world.store.replay(selection, limit, audit).await
    }

    async fn maintain(&self) -> Result<Vec<String>, StoreError> {
        self.world.store.maintain().await
    }
}
