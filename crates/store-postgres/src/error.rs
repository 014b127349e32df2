//! What a PostgreSQL error means to the port. Texts carry the server's message and code, never an
//! address, a parameter or a row (those stand in other fields of the error, which are dropped).

use postrider_contract::{Digest, EventId};
use postrider_store::{AppendError, ExchangeError, SessionError, StoreError};
use serde::Deserialize;
use tokio_postgres::error::{DbError, SqlState};

/// Codes that the schema's own functions raise.
pub(crate) mod code {
    pub(crate) const UNKNOWN_EVENT_TYPE: &str = "PR001";
    pub(crate) const CONFLICT: &str = "PR002";
    pub(crate) const TOO_LARGE: &str = "PR003";
    pub(crate) const INVALID_FIELD: &str = "PR004";
    pub(crate) const NO_DELIVERY_SET: &str = "PR005";
    pub(crate) const SESSION_ENDED: &str = "PR010";
    /// The fast path met something that needs the careful one.
    pub(crate) const NEEDS_CARE: &str = "PR011";
}

/// Whether the server said this code.
pub(crate) fn is(error: &tokio_postgres::Error, code: &str) -> bool {
    error.code().is_some_and(|found| found.code() == code)
}

/// Whether it only says that an earlier statement of the same transaction failed.
pub(crate) fn is_aftermath(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION)
}

pub(crate) fn unavailable(message: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        message: message.into(),
        source: None,
    }
}

pub(crate) fn refused(message: impl Into<String>) -> StoreError {
    StoreError::Refused {
        message: message.into(),
        source: None,
    }
}

pub(crate) fn corrupt(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        message: what.to_string(),
    }
}

pub(crate) fn store(error: &tokio_postgres::Error) -> StoreError {
    let Some(db) = error.as_db_error() else {
        return match std::error::Error::source(error) {
            // Reading a column failed: what is stored is not what this program stores.
            Some(source) if !source.is::<std::io::Error>() && is_conversion(error) => {
                corrupt(format!("{error}: {source}"))
            }
            Some(source) => unavailable(format!("{error}: {source}")),
            None => unavailable(error.to_string()),
        };
    };
    let message = format!("{} (SQLSTATE {})", db.message(), db.code().code());
    if may_pass(db.code()) {
        unavailable(message)
    } else {
        refused(message)
    }
}

fn is_conversion(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    text.starts_with("error deserializing column") || text.starts_with("error serializing")
}

/// Conditions that go away by themselves: lost connections, no resources, shutdown, timeouts,
/// deadlocks, a server that recovers or only reads.
fn may_pass(code: &SqlState) -> bool {
    matches!(code.code().get(..2), Some("08" | "53" | "57" | "58" | "40"))
        || [
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::READ_ONLY_SQL_TRANSACTION,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code)
}

pub(crate) fn session(error: &tokio_postgres::Error) -> SessionError {
    if is(error, code::SESSION_ENDED) {
        SessionError::Ended
    } else {
        SessionError::Store(store(error))
    }
}

pub(crate) fn exchange(error: &tokio_postgres::Error) -> ExchangeError {
    if is(error, code::SESSION_ENDED) {
        ExchangeError::Ended
    } else {
        ExchangeError::Store(store(error))
    }
}

/// Why the server did not append.
///
/// Public: whoever calls `postrider.append` on a connection of their own reads its errors alike.
#[must_use]
pub fn append(error: &tokio_postgres::Error) -> AppendError {
    error
        .as_db_error()
        .and_then(of_append)
        .unwrap_or_else(|| AppendError::Store(store(error)))
}

/// The facts that the functions put beside their message, see the migrations.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnknownType {
    event_type: String,
    schema_version: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conflict {
    event_id: EventId,
    existing: Digest,
    offered: Digest,
}

#[derive(Deserialize)]
struct TooLarge {
    destination: String,
    length: u64,
    limit: u64,
}

/// `None`: not one of ours, or without its facts.
fn of_append(error: &DbError) -> Option<AppendError> {
    fn facts<T: for<'a> Deserialize<'a>>(error: &DbError) -> Option<T> {
        serde_json::from_str(error.constraint()?).ok()
    }
    match error.code().code() {
        code::UNKNOWN_EVENT_TYPE => {
            let UnknownType {
                event_type,
                schema_version,
            } = facts(error)?;
            Some(AppendError::UnknownEventType {
                event_type,
                schema_version,
            })
        }
        code::CONFLICT => {
            let Conflict {
                event_id,
                existing,
                offered,
            } = facts(error)?;
            Some(AppendError::Conflict {
                event_id,
                existing,
                offered,
            })
        }
        code::TOO_LARGE => {
            let TooLarge {
                destination,
                length,
                limit,
            } = facts(error)?;
            Some(AppendError::TooLarge {
                destination,
                length,
                limit,
            })
        }
        code::INVALID_FIELD => Some(AppendError::Invalid(error.message().to_owned())),
        code::NO_DELIVERY_SET => Some(AppendError::NoActiveDeliverySet),
        _ => None,
    }
}
