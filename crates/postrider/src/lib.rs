//! Append events in your own database transaction; postrider delivers what you committed.
//!
//! An event becomes part of the transaction it is appended in: committed with it, gone with it.
//! This crate never opens a connection, never commits and never talks to a broker.

#[cfg(feature = "_driver")]
mod batch;
mod check;
mod error;
#[cfg(feature = "_postgres")]
mod postgres;
mod registry;

#[cfg(feature = "_sqlite")]
mod sqlite;

#[cfg(feature = "rusqlite")]
pub mod rusqlite;
#[cfg(feature = "sqlx-postgres")]
pub mod sqlx_postgres;
#[cfg(feature = "sqlx-sqlite")]
pub mod sqlx_sqlite;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use error::{AppendError, BatchError, LoadError, Source};
pub use postrider_contract::{
    Digest, EventId, EventType, Invalid, NewEvent, Timestamp, envelope::Aggregate,
    new_event::json_payload,
};
pub use postrider_schema::{CompileError, Violation};
pub use registry::{Registry, json_event_type};

/// What became of an appended event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    pub event_id: EventId,
    /// The event's place in the order of appends, assigned by the database. Later appends of one
    /// transaction have higher ones; between transactions it is not the order of commits.
    pub position: i64,
    /// It was there already, with the same content: this append changed nothing.
    pub already: bool,
}

// The Rust on the page compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/append.md")]
struct AppendPage;
