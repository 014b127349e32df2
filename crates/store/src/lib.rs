//! The port: what a database must promise so that an outbox on it is true.
//!
//! Every method is one transaction (or a read), set-based, and safe to repeat after "commit done,
//! answer lost" with the same identities. Time is the database's own, never the caller's (I20).
//! The conformance suite holds one test per promise; every adapter passes the same file.

pub mod append;
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
    OldRows, Page, QuarantineRow, ReplaySelection, Replayed, SessionRow,
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
    /// delivery set. All or nothing; audited if it changed anything. The same plan again changes
    /// nothing. New destinations are numbered in plan order. An event type with the content of an
    /// earlier registration makes that one current again and counts as added.
    ///
    /// A (name, generation) or delivery set version with other content is
    /// [`StoreError::AlreadyDifferent`]; a member whose destination digest is registered nowhere
    /// is refused.
    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError>;

    /// Lets a suspended destination run again. `false`: it was not suspended.
    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError>;

    /// Appends events in a transaction of their own, in order, all or nothing. Applications
    /// append in *their* transaction, through the `postrider` crate or the SQL functions.
    ///
    /// An id that is there is looked at before the event type: a retry of an append is answered
    /// `already` even when the active delivery set has changed since ([`append::check_retry`]).
    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError>;

    /// Opens a session whose lease ends `lease` after the database's now.
    ///
    /// With `exclusive`, fails while another exclusive session is live; one whose lease is over
    /// is recovered first. Opening a session that is open changes nothing; an id that was ended
    /// is refused with [`OpenError::Ended`].
    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError>;

    /// Sets the lease to end `lease` after the database's now and answers what is worth knowing
    /// to share lanes fairly, per served destination in id order. A session whose lease is over
    /// has ended, recovered or not. Breakers that are not reported stay as they were; those of a
    /// session are forgotten when it ends.
    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError>;

    /// Takes up to the wanted number of free lanes per destination. A lane is free when no
    /// session holds it; lanes of an expired session become free by its recovery only. Answers
    /// what was taken now, one entry for each wanted, in that order; the lowest free lanes where
    /// nobody competes. Nothing is taken of a destination that the session does not serve.
    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError>;

    /// Frees lanes. The caller has nothing unfinished on them. Lanes that the session does not
    /// hold are left alone.
    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError>;

    /// Ends a session: its unfinished attempts are settled as in [`Store::recover_expired`], its
    /// lanes freed. Ending an ended or unheard-of session changes nothing.
    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError>;

    /// Ends sessions whose lease is over, at most `sessions_max`, each in one transaction: from
    /// here its settles fail; its open attempts finish as `lease_expired_unknown`; each delivery
    /// of them without a receipt follows its destination's unknown policy; its lanes are free.
    ///
    /// `resend` leaves a pending delivery pending and due now; `probe` and `hold` make it unknown.
    /// Deliveries that are not pending stay as they are. A lease ends when the database's now
    /// reaches its expiry; the session that expired first is ended first.
    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError>;

    /// One transaction of a live session for one destination: settle, quarantine, register,
    /// fetch, in this order. Nothing of it happens if the session is not live.
    ///
    /// Idempotent by attempt id: a settle of a finished attempt and a registration of a
    /// registered one change nothing, so the same exchange may be sent again when its answer was
    /// lost. After an error that is not [`ExchangeError::Ended`] or a refusal it is unknown
    /// whether it committed. A settlement of an attempt that this session did not register for
    /// this destination, or of other members than registered, is [`StoreError::Refused`].
    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError>;

    /// The evidence path: true acknowledgements of any session, however late (I5, I6, I7).
    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError>;

    /// Says whether this session's worker sleeps and wants the doorbell rung on append.
    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError>;

    /// Listens for the doorbell on a connection of its own. `None`: this store has no doorbell
    /// (or it was found not to ring), poll instead.
    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError>;

    /// Size of the write-ahead log beside the database, which grows for as long as some reader, of
    /// any program, keeps a transaction open. `None`: readers keep nothing of that kind here.
    async fn log_bytes(&self) -> Result<Option<u64>, StoreError> {
        Ok(None)
    }

    /// Backlog figures per destination, each bounded in cost.
    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError>;

    /// Live and ended sessions, the newest first (by opening time, then id).
    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError>;

    /// Every lane of every destination, in (destination, lane) order.
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

    /// What holds the later deliveries of this one's key at its destination, if anything does:
    /// the first delivery of the key that waits for a retry, is unknown or (by `onQuarantine`)
    /// quarantined, be it before this one, this one or after it.
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
    /// first (then lowest destinations). Nothing found: nothing in the audit log.
    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError>;

    /// What keeps rows that were deleted from being cleared away. `None`: in this database nobody's
    /// snapshot does.
    async fn old_rows(&self) -> Result<Option<OldRows>, StoreError> {
        Ok(None)
    }

    /// Makes what must exist ahead of time (partitions), and drops nothing. `migrate`/`maintain`
    /// only, never the relay (I19). Answers what it made, for people.
    async fn maintain(&self) -> Result<Vec<String>, StoreError>;
}
