//! The store port on SQLite: the embedded default, one file, no server.
//!
//! The application's own tables live in the same file, so one transaction covers the business
//! change and the event ([`append::append_in`]). There is one writer at a time; everything here
//! keeps its write transactions short. It never keeps a read transaction open between calls, and
//! it never changes the schema except in [`migrate`].

pub mod append;

mod column;
mod connection;
mod control;
mod evidence;
mod exchange;
mod fault;
mod fetch;
mod filesystem;
mod inspect;
mod people;
mod runs;
mod schema;
mod sessions;
mod sql;

use std::{
    path::{Path, PathBuf},
    time::Duration,
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
use rusqlite::Connection;

use append::{Refusal, append_all};
use connection::{Access, Pool, READERS};
use fault::Fault;

pub use append::append_in;
pub use schema::migrate;

/// How to open a database.
#[derive(Clone, Debug)]
pub struct Options {
    pub path: PathBuf,
    /// [`Clock::Database`] is this machine's clock: every process that has the file open runs
    /// here.
    pub clock: Clock,
    /// Every call that writes is refused.
    pub read_only: bool,
    /// Opens a file on a network file system all the same. Only where exactly one machine ever
    /// does: SQLite's locks do not hold there.
    pub allow_network_filesystem: bool,
}

impl Options {
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            clock: Clock::Database,
            read_only: false,
            allow_network_filesystem: false,
        }
    }
}

/// A database file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    clock: Clock,
    /// `None`: opened read-only.
    writer: Option<Pool>,
    readers: Pool,
}

impl SqliteStore {
    /// Opens a database that is there. It may lack the schema, see [`Store::schema_status`].
    ///
    /// # Errors
    /// `Refused` when there is no such file, or when it is on a network file system.
    pub fn open(options: &Options) -> Result<Self, StoreError> {
        filesystem::check(&options.path, options.allow_network_filesystem)?;
        let writer = if options.read_only {
            None
        } else {
            Some(Pool::open(&options.path, Access::Write, 1)?)
        };
        Ok(Self {
            path: options.path.clone(),
            clock: options.clock.clone(),
            writer,
            readers: Pool::open(&options.path, Access::Read, READERS)?,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size of the write-ahead log in bytes; 0 when there is none. It grows for as long as some
    /// reader, of any program, keeps a transaction open.
    ///
    /// # Errors
    /// `Unavailable` when the file cannot be looked at.
    pub fn wal_bytes(&self) -> Result<u64, StoreError> {
        let mut path = self.path.clone().into_os_string();
        path.push("-wal");
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(StoreError::Unavailable {
                message: format!("{}: {error}", PathBuf::from(path).display()),
                source: Some(Box::new(error)),
            }),
        }
    }

    async fn write<T, E>(
        &self,
        mut unit: impl FnMut(&Connection, Timestamp) -> Result<Result<T, E>, Fault> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let Some(writer) = &self.writer else {
            return Err(E::from(StoreError::Refused {
                message: format!("{} was opened read-only", self.path.display()),
                source: None,
            }));
        };
        let clock = self.clock.clone();
        writer
            .run(move |connection| {
                connection::write(connection, &clock, |transaction, now| {
                    unit(transaction, now)
                })
            })
            .await?
    }

    /// As [`Self::write`], for a unit that has no refusal of its own.
    async fn change<T: Send + 'static>(
        &self,
        mut unit: impl FnMut(&Connection, Timestamp) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.write(move |connection, now| unit(connection, now).map(Ok))
            .await
    }

    async fn read<T: Send + 'static>(
        &self,
        mut unit: impl FnMut(&Connection, Timestamp) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let clock = self.clock.clone();
        self.readers
            .run(move |connection| {
                connection::read(connection, &clock, |transaction, now| {
                    unit(transaction, now)
                })
            })
            .await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn schema_status(&self) -> Result<SchemaStatus, StoreError> {
        self.read(|connection, _| schema::status(connection)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        connection::time(&self.clock)
    }

    async fn registry(&self) -> Result<Registry, StoreError> {
        self.read(|connection, _| control::registry(connection))
            .await
    }

    async fn apply(&self, plan: &ControlPlane, audit: &Audit) -> Result<Applied, StoreError> {
        let (plan, audit) = (plan.clone(), audit.clone());
        self.write(move |connection, now| control::apply(connection, &plan, &audit, now))
            .await
    }

    async fn resume_destination(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError> {
        let audit = audit.clone();
        self.change(move |connection, now| control::resume(connection, destination, &audit, now))
            .await
    }

    async fn append(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        self.write(
            move |connection, now| match append_all(connection, &events, now) {
                Ok(appended) => Ok(Ok(appended)),
                Err(Refusal::Append(error)) => Ok(Err(error)),
                Err(Refusal::Fault(fault)) => Err(fault),
            },
        )
        .await
    }

    async fn open_session(&self, session: &NewSession) -> Result<(), OpenError> {
        let session = session.clone();
        self.write(move |connection, now| sessions::open(connection, &session, now))
            .await
    }

    async fn heartbeat(
        &self,
        session: SessionId,
        lease: Duration,
        breakers: &[BreakerReport],
    ) -> Result<Vec<Share>, SessionError> {
        let breakers = breakers.to_vec();
        self.write(move |connection, now| {
            sessions::heartbeat(connection, session, lease, &breakers, now)
        })
        .await
    }

    async fn claim_lanes(
        &self,
        session: SessionId,
        wanted: &[(DestinationId, u16)],
    ) -> Result<Vec<(DestinationId, Vec<Lane>)>, SessionError> {
        let wanted = wanted.to_vec();
        self.write(move |connection, now| sessions::claim_lanes(connection, session, &wanted, now))
            .await
    }

    async fn release_lanes(
        &self,
        session: SessionId,
        destination: DestinationId,
        lanes: &[Lane],
    ) -> Result<(), SessionError> {
        let lanes = lanes.to_vec();
        self.write(move |connection, now| {
            sessions::release_lanes(connection, session, destination, &lanes, now)
        })
        .await
    }

    async fn end_session(&self, session: SessionId, reason: &str) -> Result<(), StoreError> {
        let reason = reason.to_owned();
        self.change(move |connection, now| {
            sessions::end(connection, session, &reason, now).map(drop)
        })
        .await
    }

    async fn recover_expired(&self, sessions_max: u32) -> Result<Vec<Recovered>, StoreError> {
        let expired = self
            .read(move |connection, now| sessions::expired(connection, sessions_max, now))
            .await?;
        let mut recovered = Vec::new();
        for session in expired {
            let ended = self
                .change(move |connection, now| sessions::recover(connection, session, now))
                .await?;
            recovered.extend(ended);
        }
        Ok(recovered)
    }

    async fn exchange(&self, exchange: &Exchange) -> Result<Exchanged, ExchangeError> {
        let exchange = exchange.clone();
        self.write(move |connection, now| exchange::run(connection, &exchange, now))
            .await
    }

    async fn accept_receipts(&self, evidence: &[Evidence]) -> Result<Vec<Verdict>, StoreError> {
        let evidence = evidence.to_vec();
        self.change(move |connection, now| {
            evidence
                .iter()
                .map(|piece| evidence::accept(connection, piece, now))
                .collect()
        })
        .await
    }

    async fn set_asleep(&self, session: SessionId, asleep: bool) -> Result<(), StoreError> {
        self.change(move |connection, _| sessions::set_asleep(connection, session, asleep))
            .await
    }

    /// No doorbell: SQLite tells nobody of a commit. `PRAGMA data_version` would have to be
    /// polled just as the deliveries are, and the relay's own commits would ring it.
    async fn listen(&self) -> Result<Option<Box<dyn Listener>>, StoreError> {
        Ok(None)
    }

    async fn log_bytes(&self) -> Result<Option<u64>, StoreError> {
        self.wal_bytes().map(Some)
    }

    async fn backlog(&self) -> Result<Vec<Backlog>, StoreError> {
        self.read(inspect::backlog).await
    }

    async fn sessions(&self, limit: u32) -> Result<Vec<SessionRow>, StoreError> {
        self.read(move |connection, _| inspect::sessions(connection, limit))
            .await
    }

    async fn lanes(&self) -> Result<Vec<LaneRow>, StoreError> {
        self.read(|connection, _| inspect::lanes(connection)).await
    }

    async fn events(
        &self,
        filter: &EventFilter,
        after: Position,
        limit: u32,
    ) -> Result<Page<EventRow>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| inspect::events(connection, &filter, after, limit))
            .await
    }

    async fn event(&self, event: EventId) -> Result<Option<EventDetail>, StoreError> {
        self.read(move |connection, _| inspect::event(connection, event))
            .await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<DeliveryRow>, StoreError> {
        let filter = filter.clone();
        self.read(move |connection, _| inspect::deliveries(connection, &filter, after, limit))
            .await
    }

    async fn held_by(
        &self,
        destination: DestinationId,
        position: Position,
    ) -> Result<Option<HeldKey>, StoreError> {
        self.read(move |connection, now| inspect::held_by(connection, destination, position, now))
            .await
    }

    async fn quarantined(
        &self,
        selection: &ReplaySelection,
        after: Option<(DestinationId, Position)>,
        limit: u32,
    ) -> Result<Page<QuarantineRow>, StoreError> {
        let selection = selection.clone();
        self.read(move |connection, _| people::quarantined(connection, &selection, after, limit))
            .await
    }

    async fn replay(
        &self,
        selection: &ReplaySelection,
        limit: u32,
        audit: &Audit,
    ) -> Result<Replayed, StoreError> {
        let (selection, audit) = (selection.clone(), audit.clone());
        self.change(move |connection, now| {
            people::replay(connection, &selection, limit, &audit, now)
        })
        .await
    }

    /// Lets SQLite refresh its statistics and empties the write-ahead log into the database, as
    /// far as readers let it.
    async fn maintain(&self) -> Result<Vec<String>, StoreError> {
        let Some(writer) = &self.writer else {
            return Err(StoreError::Refused {
                message: format!("{} was opened read-only", self.path.display()),
                source: None,
            });
        };
        let before = self.wal_bytes()?;
        writer
            .run(|connection| {
                let maintained = connection.execute_batch("PRAGMA optimize").and_then(|()| {
                    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                });
                maintained.map_err(fault::from_sqlite)
            })
            .await?;
        let after = self.wal_bytes()?;
        if after >= before {
            return Ok(Vec::new());
        }
        Ok(vec![format!(
            "the write-ahead log went from {before} to {after} bytes"
        )])
    }
}
