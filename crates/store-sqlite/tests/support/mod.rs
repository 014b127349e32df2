//! A database file of a test's own, with a business table beside postrider's.

use std::{
    any::Any,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use postrider_conformance::store::{
    AuditRow, CallerTransaction, FindingRow, StoreHarness, Tampering,
};
use postrider_contract::new_event::NewEvent;
use postrider_store::{AppendError, Clock, Store, clock::ManualClock, dispatch::Appended};
use postrider_store_sqlite::{Options, SqliteStore, append_in, migrate};
use rusqlite::{Connection, OptionalExtension};
use tempfile::TempDir;

/// How long an application waits for the write lock.
const WAIT: Duration = Duration::from_secs(10);

/// A folder in memory where there is one: thousands of databases need no disk.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let folder = if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    };
    folder.expect("a temporary folder")
}

/// A migrated database with the business table, made once.
fn template() -> &'static [u8] {
    static TEMPLATE: OnceLock<Vec<u8>> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let folder = folder();
        let path = folder.path().join("template.db");
        migrate(&path).expect("the schema is made");
        Connection::open(&path)
            .expect("the file opens")
            .execute_batch(
                "CREATE TABLE orders (id TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT;
                 PRAGMA wal_checkpoint(TRUNCATE)",
            )
            .expect("the business table is made");
        std::fs::read(&path).expect("the template is read")
    })
}

#[derive(Debug)]
pub(crate) struct Sqlite {
    /// Removed when dropped.
    _folder: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) clock: ManualClock,
    store: Arc<SqliteStore>,
    /// For looking past the port.
    outside: Mutex<Connection>,
}

#[derive(Debug)]
pub(crate) struct Caller {
    connection: Connection,
    clock: ManualClock,
}

impl Sqlite {
    /// A connection as an application opens it: no pragma of ours.
    pub(crate) fn connect(&self) -> Connection {
        let connection = Connection::open(&self.path).expect("the file opens");
        connection.busy_timeout(WAIT).expect("the timeout is set");
        connection
    }

    fn outside(&self) -> MutexGuard<'_, Connection> {
        self.outside.lock().expect("no panic while looking")
    }

    pub(crate) fn open_store(&self) -> SqliteStore {
        let mut options = Options::new(&self.path);
        options.clock = Clock::Manual(self.clock.clone());
        SqliteStore::open(&options).expect("the store opens")
    }
}

#[async_trait]
impl StoreHarness for Sqlite {
    type Transaction = Caller;

    const CONCURRENT_WRITERS: bool = false;

    async fn open(clock: ManualClock) -> Self {
        let folder = folder();
        let path = folder.path().join("app.db");
        std::fs::write(&path, template()).expect("the database is copied");
        let mut options = Options::new(&path);
        options.clock = Clock::Manual(clock.clone());
        let store = Arc::new(SqliteStore::open(&options).expect("the store opens"));
        let outside = Connection::open(&path).expect("the file opens");
        outside.busy_timeout(WAIT).expect("the timeout is set");
        Self {
            _folder: folder,
            path,
            clock,
            store,
            outside: Mutex::new(outside),
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    async fn another_handle(&self) -> Arc<dyn Store> {
        Arc::new(self.open_store())
    }

    async fn begin(&self) -> Caller {
        let connection = self.connect();
        connection
            .execute_batch("BEGIN IMMEDIATE")
            .expect("the transaction begins");
        Caller {
            connection,
            clock: self.clock.clone(),
        }
    }

    async fn business_row(&self, key: &str) -> Option<String> {
        self.outside()
            .query_row("SELECT state FROM orders WHERE id = ?1", [key], |row| {
                row.get(0)
            })
            .optional()
            .expect("the row is read")
    }

    /// A reader: a second writer is what SQLite cannot have.
    async fn foreign_transaction(&self) -> Box<dyn Any + Send> {
        let connection = self.connect();
        connection
            .execute_batch("BEGIN; SELECT count(*) FROM orders")
            .expect("the snapshot is taken");
        Box::new(connection)
    }

    async fn tamper(&self, with: Tampering) -> Result<(), String> {
        let connection = self.outside();
        for statement in statements(with) {
            match connection.execute(statement, []) {
                Ok(_) => return Ok(()),
                Err(error) if error.to_string().contains("postrider: ") => {}
                Err(error) => panic!("refused for another reason: {error}"),
            }
        }
        Err("refused by a trigger".to_owned())
    }

    async fn audit_log(&self) -> Vec<AuditRow> {
        let connection = self.outside();
        let mut statement = connection
            .prepare(
                "SELECT action, actor, reason, changed FROM postrider_audit_log ORDER BY audit_id",
            )
            .expect("the audit log is read");
        let rows = statement.query_map([], |row| {
            Ok(AuditRow {
                action: row.get(0)?,
                actor: row.get(1)?,
                reason: row.get(2)?,
                changed: u64::from(row.get::<_, u32>(3)?),
            })
        });
        rows.expect("rows").collect::<Result<_, _>>().expect("rows")
    }

    async fn findings(&self) -> Vec<FindingRow> {
        let connection = self.outside();
        let mut statement = connection
            .prepare("SELECT code, detail FROM postrider_findings ORDER BY finding")
            .expect("the findings are read");
        let rows = statement.query_map([], |row| {
            Ok(FindingRow {
                code: row.get(0)?,
                detail: row.get(1)?,
            })
        });
        rows.expect("rows").collect::<Result<_, _>>().expect("rows")
    }
}

fn statements(with: Tampering) -> &'static [&'static str] {
    match with {
        Tampering::ChangePayload => &["UPDATE postrider_events SET payload = x'00'"],
        Tampering::ChangeEnvelope => &["UPDATE postrider_events SET envelope = '{}'"],
        Tampering::ChangeEnvelopeDigest => {
            &["UPDATE postrider_events SET envelope_digest = randomblob(32)"]
        }
        Tampering::ChangePosition => &[
            "UPDATE postrider_events SET position = position + 1000",
            "UPDATE postrider_deliveries SET position = position + 1000",
            "UPDATE postrider_deliveries SET lane = 3 - lane",
        ],
        Tampering::DeleteEvents => &[
            "DELETE FROM postrider_events",
            "INSERT OR REPLACE INTO postrider_events SELECT * FROM postrider_events",
        ],
        Tampering::ChangeDestination => {
            &["UPDATE postrider_destinations SET on_unknown = 'resend', canonical = '{}'"]
        }
        Tampering::DeleteDestinations => &[
            "DELETE FROM postrider_destinations",
            "INSERT OR REPLACE INTO postrider_destinations SELECT * FROM postrider_destinations",
        ],
        Tampering::ChangeDeliverySet => &[
            "UPDATE postrider_delivery_sets SET canonical = '{}'",
            "DELETE FROM postrider_delivery_sets",
            "UPDATE postrider_delivery_set_activations SET version = version",
            "DELETE FROM postrider_delivery_set_activations",
        ],
        Tampering::ChangeDeliverySetMembers => &[
            "UPDATE postrider_delivery_set_members SET destination_id = 1",
            "DELETE FROM postrider_delivery_set_members",
            "UPDATE postrider_delivery_set_events SET event_type = 'x'",
            "DELETE FROM postrider_delivery_set_events",
        ],
        Tampering::ChangeEventTypeSchema => &[
            "UPDATE postrider_event_types SET json_schema = '{}', schema_digest = 'x'",
            "DELETE FROM postrider_event_types",
        ],
        Tampering::ChangeAttemptMembers => &[
            "UPDATE postrider_attempts SET registered_at = 0",
            "DELETE FROM postrider_attempts",
            "UPDATE postrider_attempt_runs SET length = 2",
            "DELETE FROM postrider_attempt_runs",
            "UPDATE postrider_attempt_finishes SET reason = 'x'",
            "DELETE FROM postrider_attempt_finishes",
        ],
        Tampering::ChangeReceipts => &[
            "UPDATE postrider_receipt_batches SET shared = '{}'",
            "UPDATE postrider_receipt_runs SET number = 1",
        ],
        Tampering::DeleteReceipts => &[
            "DELETE FROM postrider_receipt_batches",
            "DELETE FROM postrider_receipt_runs",
        ],
        Tampering::ChangeAuditLog => &[
            "UPDATE postrider_audit_log SET actor = 'nobody'",
            "DELETE FROM postrider_audit_log",
        ],
    }
}

#[async_trait]
impl CallerTransaction for Caller {
    async fn append(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, AppendError> {
        append_in(&self.connection, &events, self.clock.now())
    }

    async fn put_row(&mut self, key: &str, value: &str) {
        self.connection
            .execute(
                "INSERT INTO orders (id, state) VALUES (?1, ?2)",
                [key, value],
            )
            .expect("the row is written");
    }

    async fn commit(self) {
        self.connection
            .execute_batch("COMMIT")
            .expect("the transaction commits");
    }

    async fn roll_back(self) {
        self.connection
            .execute_batch("ROLLBACK")
            .expect("the transaction rolls back");
    }
}
