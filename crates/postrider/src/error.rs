//! Why an event was not appended.

use postrider_contract::{EventId, Invalid};
use postrider_schema::{CompileError, Violation};

/// What a driver or a database says about itself.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why an event was not appended. Nothing of it was written.
///
/// The transaction it was to be part of goes on as before, except after
/// [`Database`](Self::Database), where it depends on the database's own rules: Postgres refuses
/// everything but a rollback after an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// A field breaks its rule. Found before anything was sent to the database.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The payload breaks the schema of its event type. Found before anything was sent to the
    /// database. Holds no value of the payload.
    #[error("event type {event_type:?} version {schema_version:?}: {violation}")]
    Schema {
        event_type: String,
        schema_version: String,
        violation: Violation,
    },
    /// Nobody has said where such events go. Found before anything was sent to the database, or
    /// by it if the registry is older than the active delivery set.
    #[error(
        "event type {event_type:?} version {schema_version:?} is not registered; register it with \
         `postrider apply`"
    )]
    UnknownEventType {
        event_type: String,
        schema_version: String,
    },
    /// No event can be appended before the first `postrider apply`.
    #[error("no delivery set is active; register one with `postrider apply`")]
    NoActiveDeliverySet,
    /// A destination of the event takes no payload of this size.
    #[error(
        "payload of {length} bytes is over the {limit} bytes that destination {destination:?} \
         takes; send less, or a reference to it"
    )]
    TooLarge {
        destination: String,
        /// Bytes.
        length: u64,
        /// Bytes.
        limit: u64,
    },
    /// The id was used for something else (I12).
    #[error(
        "event {event_id} was appended before with other content; an event id is never used twice"
    )]
    Conflict { event_id: EventId },
    /// The event was checked against event types that are not the database's.
    #[error(
        "the event types of this program are not those in the database: load the registry from \
         there, or register this program's schemas with `postrider apply`"
    )]
    StaleRegistry,
    /// The registry was out of date, and could not be read again.
    #[error("the registry is out of date: {0}")]
    Registry(#[from] LoadError),
    /// The transaction read before it wrote, and another one wrote in between (SQLite only).
    #[error(
        "the transaction saw data that has changed since; roll it back and run it again from its \
         start, with BEGIN IMMEDIATE so that it cannot happen"
    )]
    Outdated {
        #[source]
        source: Source,
    },
    /// The database refused, or could not be asked.
    #[error("the database did not take the event: {message}")]
    Database {
        message: String,
        #[source]
        source: Source,
    },
}

impl AppendError {
    /// Whether a registry that was loaded again might say otherwise.
    #[cfg(feature = "_driver")]
    pub(crate) fn may_be_stale(&self) -> bool {
        matches!(
            self,
            Self::UnknownEventType { .. } | Self::NoActiveDeliverySet | Self::StaleRegistry
        )
    }
}

/// Why a batch was not appended. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", place(.index))]
pub struct BatchError {
    /// Which event of the batch, from 0; `None` if it is not about one of them.
    pub index: Option<usize>,
    pub error: AppendError,
}

#[cfg(feature = "_driver")]
impl BatchError {
    pub(crate) fn of_all(error: AppendError) -> Self {
        Self { index: None, error }
    }
}

fn place(index: &Option<usize>) -> String {
    index.map_or_else(String::new, |index| format!("event {index} of the batch: "))
}

/// Why the registry could not be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error(transparent)]
    Schema(#[from] CompileError),
    /// What is stored is not what `postrider apply` stores.
    #[error("the registry in the database cannot be read: {0}")]
    Corrupt(String),
    /// The database refused, or could not be asked.
    #[error("the database did not give its registry: {message}")]
    Database {
        message: String,
        #[source]
        source: Source,
    },
}
