//! Connections: how they are set up, shared and bounded in time.
//!
//! One connection writes and a few read. SQLite has one writer at a time anyway, so queueing here
//! costs nothing and is fair, which SQLite's own waiting is not. Readers never wait for the
//! writer (WAL). Work runs on the runtime's blocking threads; a call that takes too long is
//! interrupted, and the connection goes back whole.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use postrider_contract::Timestamp;
use postrider_store::{Clock, StoreError};
use rusqlite::{
    Connection, InterruptHandle, OpenFlags, Transaction, TransactionBehavior, config::DbConfig,
};
use tokio::sync::Semaphore;

use crate::fault::{Fault, from_sqlite};

/// How long one `BEGIN IMMEDIATE` waits for another process's write transaction.
const BUSY_MAX: Duration = Duration::from_secs(5);
/// After this long no unit is run again because another connection was in the way.
const UNIT_MAX: Duration = Duration::from_secs(8);
/// When work is interrupted: the last try of a unit may begin at its end and wait once more.
const WORK_MAX: Duration = Duration::from_secs(15);
/// How long a call waits for its turn on a connection of this store.
const TURN_MAX: Duration = Duration::from_secs(15);

const _: () = assert!(UNIT_MAX.as_millis() + BUSY_MAX.as_millis() < WORK_MAX.as_millis());

/// Connections that read at the same time. Each call holds one for milliseconds.
pub(crate) const READERS: usize = 2;

/// The statements of this store fit, with room for the growth of a release or two.
const STATEMENTS_MAX: usize = 160;

/// The write-ahead log is cut back to this many bytes when it starts over.
const WAL_KEPT_BYTES: i64 = 16 << 20;

/// What a connection may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// As `Write`, and makes the file.
    Create,
}

/// Opens a database and sets it up.
///
/// - `journal_mode = WAL`: readers and the writer do not wait for each other.
/// - `synchronous = FULL`: a commit is on the disk when it returns. `NORMAL` may lose the last
///   commits of a machine that loses power, and with them an attempt whose bytes have left (I4).
/// - `foreign_keys = ON`: SQLite leaves them unchecked by default, per connection.
/// - Stable query plans: a plan never depends on the values of one call, and no call pays for
///   planning anew.
/// - `recursive_triggers = ON`: so that `REPLACE` asks the triggers that refuse deletion.
pub(crate) fn open(path: &Path, access: Access) -> Result<Connection, StoreError> {
    let flags = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Access::Create => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
    };
    let connection = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)
        .map_err(|error| cannot_open(path, error))?;
    set_up(&connection, access).map_err(from_sqlite)?;
    Ok(connection)
}

fn cannot_open(path: &Path, error: rusqlite::Error) -> StoreError {
    let path = path.display();
    let advice = "create it with `postrider migrate`, or correct the path";
    StoreError::Refused {
        message: format!("{path} cannot be opened: {error}; {advice}"),
        source: Some(Box::new(error)),
    }
}

fn set_up(connection: &Connection, access: Access) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "recursive_triggers", true)?;
    if access == Access::Read {
        return Ok(());
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update_and_check(None, "journal_size_limit", WAL_KEPT_BYTES, |row| {
        row.get::<_, i64>(0)
    })?;
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))?;
    Ok(())
}

/// Connections of one kind, opened as they are needed.
#[derive(Debug)]
pub(crate) struct Pool {
    path: PathBuf,
    access: Access,
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
    work_max: Duration,
}

impl Pool {
    /// Opens the first connection, so that a wrong path is found now.
    pub(crate) fn open(path: &Path, access: Access, size: usize) -> Result<Self, StoreError> {
        let first = open(path, access)?;
        Ok(Self {
            path: path.to_owned(),
            access,
            turns: Arc::new(Semaphore::new(size)),
            idle: Arc::new(Mutex::new(vec![first])),
            work_max: WORK_MAX,
        })
    }

    /// Runs work on a connection, on a blocking thread. Work goes on to its end when the caller
    /// stops waiting: whether it committed is then unknown, as with any database.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = tokio::time::timeout(TURN_MAX, self.turns.clone().acquire_owned()).await;
        let turn = turn
            .map_err(|_| unavailable(format!("no connection was free for {TURN_MAX:?}")))?
            .map_err(|_| unavailable("the store is closed".to_owned()))?;
        let (path, access, home) = (self.path.clone(), self.access, self.idle.clone());
        let interrupt = Arc::new(OnceLock::new());
        let at_work = interrupt.clone();
        let mut task = tokio::task::spawn_blocking(move || {
            let idle = home.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let mut connection = match idle {
                Some(connection) => connection,
                None => open(&path, access)?,
            };
            at_work.get_or_init(|| connection.get_interrupt_handle());
            let result = work(&mut connection);
            home.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            drop(turn);
            result
        });
        let joined = match tokio::time::timeout(self.work_max, &mut task).await {
            Ok(joined) => joined,
            Err(_) => {
                if let Some(handle) = interrupt.get() {
                    InterruptHandle::interrupt(handle);
                }
                task.await
            }
        };
        joined.unwrap_or_else(|error| {
            Err(StoreError::Unavailable {
                message: "the work on the database did not end as it should".to_owned(),
                source: Some(Box::new(error)),
            })
        })
    }
}

/// Runs a unit of work in one write transaction. It takes the write lock at its beginning: a
/// transaction that reads first cannot wait for it later, and fails at once whatever the busy
/// timeout. Should another connection be in the way all the same, the whole unit runs again,
/// never a single statement. A unit that answers an inner error is rolled back.
pub(crate) fn write<T, E>(
    connection: &mut Connection,
    clock: &Clock,
    unit: impl FnMut(&Transaction<'_>, Timestamp) -> Result<Result<T, E>, Fault>,
) -> Result<Result<T, E>, StoreError> {
    repeat(connection, TransactionBehavior::Immediate, clock, unit)
}

/// Reads from one snapshot, which ends with the call: a read transaction left open would keep
/// the write-ahead log growing.
pub(crate) fn read<T>(
    connection: &mut Connection,
    clock: &Clock,
    mut unit: impl FnMut(&Transaction<'_>, Timestamp) -> Result<T, Fault>,
) -> Result<T, StoreError> {
    let unit =
        move |transaction: &Transaction<'_>, now| unit(transaction, now).map(Ok::<T, StoreError>);
    repeat(connection, TransactionBehavior::Deferred, clock, unit)?
}

fn repeat<T, E>(
    connection: &mut Connection,
    behavior: TransactionBehavior,
    clock: &Clock,
    mut unit: impl FnMut(&Transaction<'_>, Timestamp) -> Result<Result<T, E>, Fault>,
) -> Result<Result<T, E>, StoreError> {
    let until = Instant::now() + UNIT_MAX;
    loop {
        match once(connection, behavior, clock, &mut unit) {
            Ok(answer) => return Ok(answer),
            Err(fault) if fault.is_busy() && Instant::now() < until => {}
            Err(fault) => return Err(fault.into()),
        }
    }
}

fn once<T, E>(
    connection: &mut Connection,
    behavior: TransactionBehavior,
    clock: &Clock,
    unit: &mut impl FnMut(&Transaction<'_>, Timestamp) -> Result<Result<T, E>, Fault>,
) -> Result<Result<T, E>, Fault> {
    let transaction = connection.transaction_with_behavior(behavior)?;
    // Within the transaction, so that a writer that waited does not act on a time before its turn.
    let answer = unit(&transaction, time(clock)?)?;
    match answer {
        Ok(_) => transaction.commit()?,
        Err(_) => transaction.rollback()?,
    }
    Ok(answer)
}

/// The clock of an embedded database is the clock of its machine: every process that opens the
/// file runs there, so all share it.
pub(crate) fn time(clock: &Clock) -> Result<Timestamp, StoreError> {
    if let Some(now) = clock.parameter() {
        return Ok(now);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    since
        .and_then(|since| i64::try_from(since.as_micros()).ok())
        .and_then(Timestamp::from_unix_micros)
        .ok_or_else(|| StoreError::Refused {
            message: "this machine's clock is not between the years 1970 and 9999; set it"
                .to_owned(),
            source: None,
        })
}

fn unavailable(message: String) -> StoreError {
    StoreError::Unavailable {
        message,
        source: None,
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::{ErrorCode, ffi};

    use super::*;

    fn file() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("app.db");
        let connection = open(&path, Access::Create).unwrap();
        connection
            .execute_batch("CREATE TABLE t (n INTEGER)")
            .unwrap();
        (folder, path)
    }

    fn count(connection: &Connection) -> i64 {
        connection
            .query_row("SELECT count(*) FROM t", [], |row| row.get(0))
            .unwrap()
    }

    #[test]
    fn sql_1_a_busy_unit_runs_again_as_a_whole() {
        let (_folder, path) = file();
        let mut connection = open(&path, Access::Write).unwrap();
        let mut runs = 0;
        let answer = write(&mut connection, &Clock::Database, |transaction, _| {
            runs += 1;
            transaction.execute("INSERT INTO t VALUES (1)", [])?;
            if runs < 3 {
                let busy = ffi::Error::new(ffi::SQLITE_BUSY_SNAPSHOT);
                return Err(Fault::Sql(rusqlite::Error::SqliteFailure(busy, None)));
            }
            Ok(Ok::<_, StoreError>(runs))
        });
        assert_eq!(answer.unwrap().unwrap(), 3);
        assert_eq!(count(&connection), 1, "the first two runs left nothing");
    }

    #[test]
    fn a_unit_that_refuses_leaves_nothing() {
        let (_folder, path) = file();
        let mut connection = open(&path, Access::Write).unwrap();
        let refused = write(&mut connection, &Clock::Database, |transaction, _| {
            transaction.execute("INSERT INTO t VALUES (1)", [])?;
            Ok(Err::<(), _>("no"))
        });
        assert_eq!(refused.unwrap(), Err("no"));
        assert_eq!(count(&connection), 0);
    }

    #[tokio::test]
    async fn work_that_takes_too_long_is_interrupted_and_gives_its_connection_back() {
        let (_folder, path) = file();
        let mut pool = Pool::open(&path, Access::Read, 1).unwrap();
        pool.work_max = Duration::from_millis(20);
        let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let interrupted = pool
            .run(move |connection| {
                read(connection, &Clock::Database, |transaction, _| {
                    Ok(transaction.query_row(endless, [], |row| row.get::<_, i64>(0))?)
                })
            })
            .await;
        let Err(StoreError::Unavailable { source, .. }) = interrupted else {
            panic!("{interrupted:?}");
        };
        let source: &rusqlite::Error = source.as_ref().and_then(|s| s.downcast_ref()).unwrap();
        assert_eq!(
            source.sqlite_error_code(),
            Some(ErrorCode::OperationInterrupted)
        );
        pool.work_max = WORK_MAX;
        let counted = pool.run(|connection| Ok(count(connection))).await;
        assert_eq!(counted.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_panic_costs_one_connection_and_one_answer() {
        let (_folder, path) = file();
        let pool = Pool::open(&path, Access::Read, 1).unwrap();
        let lost = pool.run::<()>(|_| panic!("a bug in the work")).await;
        assert!(
            matches!(lost, Err(StoreError::Unavailable { .. })),
            "{lost:?}"
        );
        let counted = pool.run(|connection| Ok(count(connection))).await;
        assert_eq!(counted.unwrap(), 0);
    }
}
