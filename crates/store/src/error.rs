//! What can go wrong with a store, split by who must act.

use postrider_contract::{Digest, EventId};

/// The store did not answer as it should. For a write, whether it committed is unknown unless
/// the variant says otherwise.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Connection refused or lost, pool exhausted, timeout, lock not obtained: try again.
    #[error("the database cannot be reached or did not answer in time: {message}")]
    Unavailable {
        message: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The database refused the statement; repeating it changes nothing.
    #[error("the database refused: {message}")]
    Refused {
        message: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// What is stored cannot be what this program stored.
    #[error("stored data cannot be read: {message}")]
    Corrupt { message: String },
    /// A registered object with the same name has other content.
    #[error(
        "{what} is registered with other content ({existing}, not {offered}); give it a new version"
    )]
    AlreadyDifferent {
        what: String,
        existing: String,
        offered: String,
    },
}

/// Why an event was not appended. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error(
        "event type {event_type:?} version {schema_version:?} is not in the active delivery set; register it with `postrider apply`"
    )]
    UnknownEventType {
        event_type: String,
        schema_version: String,
    },
    #[error("no delivery set is active; register one with `postrider apply`")]
    NoActiveDeliverySet,
    #[error(
        "event {event_id} exists with digest {existing}, this one has {offered}: an event id is never used twice"
    )]
    Conflict {
        event_id: EventId,
        existing: Digest,
        offered: Digest,
    },
    #[error(
        "payload of {length} bytes is over the {limit} bytes that destination {destination:?} takes"
    )]
    TooLarge {
        destination: String,
        length: u64,
        limit: u64,
    },
    /// A field breaks its rule; the message names it and the fix.
    #[error("{0}")]
    Invalid(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a session was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{owner:?} holds the exclusive dispatcher lease")]
    ExclusiveHeld { owner: String },
    /// It was opened before, which the caller may never have heard, and has ended since.
    #[error("the session has ended; open one with a new id")]
    Ended,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a session could not go on.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Its lease is over or it was ended. It can start nothing any more (I8).
    #[error("the session has ended")]
    Ended,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The session is not live: nothing of the exchange happened. Acknowledgements go through
    /// [`accept_receipts`](crate::Store::accept_receipts).
    #[error("the session has ended")]
    Ended,
    #[error(transparent)]
    Store(#[from] StoreError),
}
