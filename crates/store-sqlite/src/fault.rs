//! What can go wrong inside a unit of work, and how it is told to the caller.

use postrider_store::StoreError;
use rusqlite::ErrorCode;

/// A failure inside a unit of work: nothing of the unit happened.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl Fault {
    pub(crate) fn refused(message: String) -> Self {
        Self::Store(StoreError::Refused {
            message,
            source: None,
        })
    }

    pub(crate) fn corrupt(message: String) -> Self {
        Self::Store(StoreError::Corrupt { message })
    }

    /// Another connection was in the way: the whole unit may be run again.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Sql(error) => matches!(
                error.sqlite_error_code(),
                Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
            ),
            Self::Store(_) => false,
        }
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Sql(error) => from_sqlite(error),
            Fault::Store(error) => error,
        }
    }
}

/// Who must act on what SQLite says.
pub(crate) fn from_sqlite(error: rusqlite::Error) -> StoreError {
    let message = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unavailable {
            message: format!(
                "{message}; another connection holds the write lock, or wrote since this \
                 transaction began to read: roll back, and begin it with BEGIN IMMEDIATE"
            ),
            source: Some(Box::new(error)),
        },
        Some(
            ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::FileLockingProtocolFailed,
        ) => StoreError::Unavailable {
            message,
            source: Some(Box::new(error)),
        },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Corrupt { message }
        }
        Some(_) => StoreError::Refused {
            message,
            source: Some(Box::new(error)),
        },
        // A column of another type than this program stores, or a statement that gave no row.
        None => StoreError::Corrupt { message },
    }
}
