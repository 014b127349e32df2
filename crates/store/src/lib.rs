//! The port: what a database must promise so that an outbox on it is true.
//!
//! Every method is one transaction (or a read), set-based, and safe to repeat after "commit done,
//! answer lost" with the same identities. Time is the database's own, never the caller's (I20).
//! The conformance suite holds one test per promise; every adapter passes the same file.

pub mod clock;
pub mod control;
pub mod dispatch;
pub mod error;
pub mod evidence;
pub mod inspect;
pub mod sessions;

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;
use postrider_contract::{EventId, Timestamp, new_event::NewEvent};
use postrider_core::{DestinationId, Lane, Position, SessionId};

pub use clock::Clock;
pub use error::{AppendError, ExchangeError, OpenError, SessionError, StoreError};

use control::{Applied, Audit, ControlPlane, Registry, SchemaStatus};
use dispatch::{Appended, Exchange, Exchanged};
use evidence::{Evidence, Verdict};
use inspect::{
    Backlog, DeliveryFilter, DeliveryRow, EventDetail, EventFilter, EventRow, HeldKey, LaneRow,
    Page, QuarantineRow, ReplaySelection, Replayed, SessionRow,
};
use sessions::{BreakerReport, Listener, NewSession, Recovered, Share};

/// A database that keeps an outbox.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Which schema version the database has, and whether this program knows it. Read-only.
    async fn schema_status(&self) -> Result<SchemaStatus, StoreError>;

    /// The database's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Everything registered: destinations of every generation, event types, the active set.
    async fn registry(&self) -> Result<Registry, StoreError>;

    /// Registers what `plan` holds, insert-or-compare, makes the lanes, and activates its
    /// delivery set. All or nothing; audited. The same plan again changes nothing.
    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError>;

    /// Lets a suspended destination run again. `false`: it was not suspended.
    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError>;

    /// Appends events in a transaction of their own, in order, all or nothing. Applications
    /// append in *their* transaction, through the `postrider` crate or the SQL functions.
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError>;

    /// Opens a session whose lease ends `lease` after the database's now.
    ///
    /// With `exclusive`, fails while another exclusive session is live; one whose lease is over
    /// is recovered first.
    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError>;

    /// Extends the lease and answers what is worth knowing to share lanes fairly.
    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError>;

    /// Takes up to the wanted number of free lanes per destination. A lane is free when no
    /// session holds it; lanes of an expired session become free by its recovery only.
    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError>;

    /// Frees lanes. The caller has nothing unfinished on them.
    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError>;

    /// Ends a session: its unfinished attempts are settled as in [`Store::recover_expired`], its
    /// lanes freed. Ending an ended session changes nothing.
    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError>;

    /// Ends sessions whose lease is over, at most `sessions_max`, each in one transaction: from
    /// here its settles fail; its open attempts finish as `lease_expired_unknown`; each delivery
    /// of them without a receipt follows its destination's unknown policy; its lanes are free.
    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError>;

    /// One transaction of a live session for one destination: settle, quarantine, register,
    /// fetch, in this order. Nothing of it happens if the session is not live.
    ///
    /// Idempotent by attempt id: a settle of a finished attempt and a registration of a
    /// registered one change nothing, so the same exchange may be sent again when its answer was
    /// lost. After an error that is not [`ExchangeError::Ended`] it is unknown whether it
    /// committed.
    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError>;

    /// The evidence path: true acknowledgements of any session, however late (I5, I6, I7).
    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError>;

    /// Says whether this session's worker sleeps and wants the doorbell rung on append.
    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError>;

    /// Listens for the doorbell on a connection of its own. `None`: this store has no doorbell
    /// (or it was found not to ring), poll instead.
    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError>;

    /// Backlog figures per destination, each bounded in cost.
    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError>;

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError>;

    async fn lanes(&self) -> Result<Vec<LaneRow>, StoreError>;

    /// Events in append order after `after`.
    async fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError>;

    /// All that is known of one event: deliveries, attempts, receipts, quarantine.
    async fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError>;

    /// Open deliveries in (destination, position) order after `after`.
    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError>;

    /// What holds the later deliveries of this one's key at its destination, if anything does.
    async fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError>;

    /// Quarantined deliveries in (destination, position) order after `after`.
    async fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError>;

    /// Quarantined → pending, in one transaction, audited; identity and target stay (I13). Of
    /// two at once, one replays and the other finds nothing. At most `limit`, lowest positions
    /// first.
    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError>;

    /// Makes what must exist ahead of time (partitions), and drops nothing. `migrate`/`maintain`
    /// only, never the relay (I19). Answers what it made, for people.
    async fn maintain(&self) -> Result<Vec<String>, StoreError>;
}
