//! The outbox on PostgreSQL 14 and later: its schema and migrations, the append functions that any
//! language calls in its own transaction, and the store that the relay runs on.
//!
//! It keeps no state in a database session, so it works through a pooler in transaction mode; only
//! the doorbell needs a connection of its own, past the pooler.

mod append;
mod client;
mod control;
mod error;
mod evidence;
mod exchange;
mod inspect;
mod listen;
mod maintain;
mod migrate;
mod param;
mod read;
mod runs;
mod schema;
mod sessions;
mod settle;
mod sql;
mod store;
mod tls;

#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc, time::Duration};

use postrider_store::{Clock, StoreError};

pub use error::append as append_error;
pub use migrate::{MigrateOptions, Migrated, migrate};
pub use schema::{InvalidName, RolePrefix, Schema};

use client::Connections;
use param::Moment;
use sql::Sql;

/// How to reach the database. The addresses hold secrets: `Debug` leaves them out.
#[derive(Clone)]
pub struct Options {
    /// `postgresql://user:password@host:port/database?sslmode=…`. May lead through a pooler in
    /// transaction mode.
    pub url: String,
    /// Where to listen for the doorbell, if `url` leads through a pooler.
    pub doorbell_url: Option<String>,
    /// Default `postrider`.
    pub schema: String,
    /// Most connections. A relay uses one per destination that is busy, and one for itself.
    pub pool_max: usize,
    /// Longest time for one call, and so for each of its statements.
    pub call_timeout: Duration,
    pub clock: Clock,
}

impl Options {
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            doorbell_url: None,
            schema: "postrider".to_owned(),
            pool_max: 8,
            call_timeout: Duration::from_secs(30),
            clock: Clock::Database,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("schema", &self.schema)
            .field("pool_max", &self.pool_max)
            .field("call_timeout", &self.call_timeout)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// A store on PostgreSQL. Clones share its connections.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    connections: Connections,
    sql: Arc<Sql>,
    schema: Schema,
    options: Arc<Options>,
}

impl PostgresStore {
    /// Prepares to connect; connects at the first call. Changes nothing in the database.
    ///
    /// # Errors
    /// `Refused` when an option is not usable.
    pub fn new(options: Options) -> Result<Self, StoreError> {
        let schema =
            Schema::new(&options.schema).map_err(|invalid| error::refused(invalid.to_string()))?;
        Ok(Self {
            connections: Connections::new(&options)?,
            sql: Arc::new(Sql::new(&schema, options.call_timeout)),
            schema,
            options: Arc::new(options),
        })
    }

    /// The `now` parameter of every statement.
    fn now_parameter(&self) -> Option<Moment> {
        self.options.clock.parameter().map(Moment)
    }
}
