//! The port, method by method.

use std::time::Duration;

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
        OldRows, Page, QuarantineRow, ReplaySelection, Replayed, SessionRow,
    },
    sessions::{BreakerReport, Listener, NewSession, Recovered, Share},
};

use crate::{PostgresStore, error::corrupt, maintain, migrate, param::Moment};

#[async_trait]
impl Store for PostgresStore {
    async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        migrate::status(self).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        if let Some(Moment(now)) = self.now_parameter() {
            return Ok(now);
        }
        let rows = self.ask(&self.sql.now, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| corrupt("a clock without a time"))?;
        crate::read::time(row, "clock_timestamp")
    }

    async fn registry(&self) -> Result<Registry, StoreError> {
        self.read_registry().await
    }

    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError> {
        self.apply_plan(plan, audit).await
    }

    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError> {
        self.resume(destination, audit).await
    }

    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        self.append_events(events).await
    }

    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError> {
        self.open(session).await
    }

    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError> {
        self.beat(session, lease, breakers).await
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        self.claim(session, wanted).await
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError> {
        self.release(session, destination, lanes).await
    }

    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError> {
        self.end(session, reason).await
    }

    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError> {
        self.recover(sessions_max).await
    }

    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError> {
        self.run_exchange(exchange).await
    }

    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError> {
        self.accept(evidence).await
    }

    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError> {
        self.sleep(session, asleep).await
    }

    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError> {
        self.start_listening().await
    }

    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError> {
        self.read_backlog().await
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        self.list_sessions(limit).await
    }

    async fn lanes(&self) -> Result<Vec<LaneRow>, StoreError> {
        self.list_lanes().await
    }

    async fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        self.list_events(filter, after, limit).await
    }

    async fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.read_event(event).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        self.list_deliveries(filter, after, limit).await
    }

    async fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError> {
        self.holder(destination, position).await
    }

    async fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError> {
        self.list_quarantined(selection, after, limit).await
    }

    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError> {
        self.replay_quarantined(selection, limit, audit).await
    }

    async fn old_rows(&self) -> Result<Option<OldRows>, StoreError> {
        self.read_old_rows().await.map(Some)
    }

    async fn maintain(&self) -> Result<Vec<String>, StoreError> {
        let client = migrate::connect(&self.options.url).await?;
        maintain::partitions(&client, &self.schema, self.now_parameter()).await
    }
}
