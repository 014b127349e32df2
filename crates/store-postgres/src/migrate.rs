//! Migrations: numbered SQL files, forward only, each with a checksum.
//!
//! One migrate runs at a time per schema, by an advisory lock that a connection of its own holds.
//! No statement waits long for a table's lock, because everything that comes after a waiting
//! `ALTER TABLE` waits behind it: each wait is short, and the migration tries again after a pause
//! in which the traffic passes. Safe to run at any time, again, and from several places at once;
//! run it before the new program version. It must reach the server directly, past any pooler.

use std::time::Duration;

use postrider_store::{StoreError, control::SchemaStatus};
use sha2::{Digest as _, Sha256};
use tokio_postgres::{Client, SimpleQueryMessage, error::SqlState};

use crate::{
    PostgresStore, client,
    error::{self, corrupt, refused, unavailable},
    maintain,
    param::params,
    schema::{RolePrefix, Schema},
};

/// How to migrate.
#[derive(Clone, Debug)]
pub struct MigrateOptions {
    /// The schema for all objects.
    pub schema: String,
    /// What the names of the group roles start with: `{prefix}_producer`, and so on.
    pub role_prefix: String,
    /// Longest wait for a table's lock. Queries on that table wait as long.
    pub lock_timeout: Duration,
    /// How often to try a step whose lock was not obtained.
    pub lock_attempts_max: u32,
}

impl Default for MigrateOptions {
    fn default() -> Self {
        Self {
            schema: "postrider".to_owned(),
            role_prefix: "postrider".to_owned(),
            lock_timeout: Duration::from_secs(2),
            lock_attempts_max: 30,
        }
    }
}

/// What a migrate did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migrated {
    /// Versions applied now.
    pub applied: Vec<u32>,
    /// For people: partitions made, indexes repaired.
    pub notes: Vec<String>,
}

/// One numbered file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Migration {
    pub(crate) version: u32,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),* $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            sql: include_str!(concat!("../migrations/", $name, ".sql")),
        }),*]
    };
}

/// In order. A file that was released is never changed.
pub(crate) const MIGRATIONS: &[Migration] = migrations![
    1 "0001_control",
    2 "0002_events",
    3 "0003_dispatch",
    4 "0004_append",
    5 "0005_settle",
    6 "0006_views",
    7 "0007_quarantine_by_code",
    8 "0008_producers",
    9 "0009_refusals",
    10 "0010_nil_event_id",
    11 "0011_order",
];

/// A first line that makes the file one statement outside a transaction: an index built while the
/// table is written. What follows is the index's name.
const CONCURRENT: &str = "-- concurrent index ";

/// Tries of the lock that lets one migrate run at a time, [`PAUSE`] apart.
const TURN_ATTEMPTS_MAX: u32 = 600;
/// Between two tries for a lock: time for the traffic that waited behind the last one.
const PAUSE: Duration = Duration::from_millis(200);
/// Longest time for one migration's statements once they hold their locks.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(600);

impl Migration {
    fn checksum(&self) -> [u8; 32] {
        Sha256::digest(self.sql.as_bytes()).into()
    }

    /// The index that it builds concurrently.
    fn concurrent_index(&self) -> Option<&'static str> {
        self.sql
            .lines()
            .next()?
            .strip_prefix(CONCURRENT)
            .map(str::trim)
    }
}

/// Brings a database to the schema of this program, and makes what must exist ahead of time.
///
/// The URL's role must own the schema, or be able to create it; it needs CREATEROLE unless the
/// group roles exist.
///
/// # Errors
/// `Refused` when the schema was altered or is newer, or a statement was refused; `Unavailable`
/// when a lock was not obtained in the configured number of tries. What was applied stays; run it
/// again.
pub async fn migrate(url: &str, options: &MigrateOptions) -> Result<Migrated, StoreError> {
    migrate_with(url, options, MIGRATIONS).await
}

pub(crate) async fn migrate_with(
    url: &str,
    options: &MigrateOptions,
    migrations: &[Migration],
) -> Result<Migrated, StoreError> {
    let schema = Schema::new(&options.schema).map_err(|error| refused(error.to_string()))?;
    let roles =
        RolePrefix::new(&options.role_prefix).map_err(|error| refused(error.to_string()))?;
    let turn = connect(url).await?;
    take_turn(&turn, &schema).await?;
    let run = Run {
        client: connect(url).await?,
        schema,
        roles,
        options,
    };
    let migrated = run.all(migrations).await?;
    turn.batch_execute("rollback")
        .await
        .map_err(|error| error::store(&error))?;
    Ok(migrated)
}

/// A connection with its task.
pub(crate) async fn connect(url: &str) -> Result<Client, StoreError> {
    let (config, tls) = client::config(url)?;
    let (client, connection) = config
        .connect(tls)
        .await
        .map_err(|error| error::store(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(error = %error::store(&error), "a connection to the database was lost");
        }
    });
    Ok(client)
}

/// Takes the lock in a transaction that stays open: it ends with the connection. Asked by simple
/// queries, whose snapshot ends with them: a portal's would stay, and concurrent index builds wait
/// for every old snapshot.
async fn take_turn(client: &Client, schema: &Schema) -> Result<(), StoreError> {
    let ask = format!(
        "select pg_try_advisory_xact_lock(hashtextextended('postrider migrate {}', 0))",
        schema.name()
    );
    client
        .batch_execute("begin")
        .await
        .map_err(|error| error::store(&error))?;
    for _ in 0..TURN_ATTEMPTS_MAX {
        let messages = client
            .simple_query(&ask)
            .await
            .map_err(|error| error::store(&error))?;
        let taken = messages.iter().any(
            |message| matches!(message, SimpleQueryMessage::Row(row) if row.get(0) == Some("t")),
        );
        if taken {
            return Ok(());
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(unavailable(
        "another migrate has been running for two minutes; wait for it, or end it",
    ))
}

struct Run<'a> {
    client: Client,
    schema: Schema,
    roles: RolePrefix,
    options: &'a MigrateOptions,
}

impl Run<'_> {
    async fn all(&self, migrations: &[Migration]) -> Result<Migrated, StoreError> {
        let name = self.schema.name();
        let plain = self
            .client
            .query_typed_one("select quote_ident($1::text) = $1::text", params![name])
            .await
            .map_err(|error| error::store(&error))?;
        if !plain.get::<_, bool>(0) {
            return Err(refused(format!(
                "{name:?} is a word of SQL and cannot be the schema's name"
            )));
        }
        self.step("roles", include_str!("../sql/roles.sql")).await?;
        self.step("bootstrap", include_str!("../sql/bootstrap.sql"))
            .await?;
        let mut migrated = Migrated::default();
        let applied = applied(&self.client, &self.schema).await?;
        match compare(&applied, migrations) {
            SchemaStatus::Missing | SchemaStatus::Current { .. } | SchemaStatus::Older { .. } => {}
            SchemaStatus::Newer { found, expected } => {
                return Err(refused(format!(
                    "schema {name} has version {found}, this program knows {expected}: migrate with the newer program"
                )));
            }
            SchemaStatus::Altered { version } => {
                return Err(refused(format!(
                    "migration {version} was applied to schema {name} with other content: the database was made by a changed program"
                )));
            }
        }
        for migration in migrations {
            if !applied
                .iter()
                .any(|(version, _)| *version == migration.version)
            {
                self.apply(migration, &mut migrated).await?;
                migrated.applied.push(migration.version);
            }
        }
        migrated
            .notes
            .extend(maintain::partitions(&self.client, &self.schema, None).await?);
        // Only a test stops before the newest migration, whose objects the grants name.
        if migrations.len() >= MIGRATIONS.len() {
            self.step("grants", include_str!("../sql/grants.sql"))
                .await?;
        }
        Ok(migrated)
    }

    async fn apply(
        &self,
        migration: &Migration,
        migrated: &mut Migrated,
    ) -> Result<(), StoreError> {
        let record = format!(
            "insert into {}.schema_migrations (version, name, checksum, applied_at, program) \
             values ({}, '{}', '\\x{}', clock_timestamp(), 'postrider {}');",
            self.schema.name(),
            migration.version,
            migration.name,
            hex(&migration.checksum()),
            env!("CARGO_PKG_VERSION"),
        );
        if let Some(index) = migration.concurrent_index() {
            if self.repair(index).await? {
                migrated
                    .notes
                    .push(format!("index {index} was left half built, built again"));
            }
            self.concurrently(migration).await?;
            return self.step(migration.name, &record).await;
        }
        self.step(migration.name, &format!("{}\n{record}", migration.sql))
            .await
    }

    /// Runs statements as one transaction, again and again while a lock is not obtained.
    async fn step(&self, name: &str, sql: &str) -> Result<(), StoreError> {
        let sql = format!(
            "begin; set local lock_timeout = {}; set local statement_timeout = {}; \
             set local client_min_messages = warning;\n{}\ncommit",
            self.options.lock_timeout.as_millis(),
            STATEMENT_TIMEOUT.as_millis(),
            self.roles.fill(&self.schema.fill(sql)),
        );
        self.patiently(name, || async {
            let result = self.client.batch_execute(&sql).await;
            if result.is_err() {
                self.client.batch_execute("rollback").await?;
            }
            result
        })
        .await
    }

    /// An index build outside a transaction: writes go on meanwhile. A build that did not get its
    /// lock leaves an invalid index, which is dropped before the next try.
    async fn concurrently(&self, migration: &Migration) -> Result<(), StoreError> {
        let index = migration.concurrent_index().unwrap_or_default();
        // Of a session, not of a transaction: there can be none. The connection is our own.
        let set = format!(
            "set lock_timeout = {}; set statement_timeout = 0",
            self.options.lock_timeout.as_millis()
        );
        let sql = self.schema.fill(migration.sql);
        self.patiently(migration.name, || async {
            self.client.batch_execute(&set).await?;
            let result = self.client.batch_execute(&sql).await;
            if result.is_err() {
                self.client
                    .batch_execute(&format!(
                        "drop index concurrently if exists {}.{index}",
                        self.schema.name()
                    ))
                    .await?;
            }
            result
        })
        .await
    }

    async fn patiently<F, R>(&self, name: &str, attempt: F) -> Result<(), StoreError>
    where
        F: Fn() -> R,
        R: Future<Output = Result<(), tokio_postgres::Error>>,
    {
        for tried in 1.. {
            match attempt().await {
                Ok(()) => return Ok(()),
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                    if tried >= self.options.lock_attempts_max {
                        return Err(unavailable(format!(
                            "migration step {name} did not get its lock in {tried} tries; end the \
                             transaction that holds the table (see pg_stat_activity) and run it again"
                        )));
                    }
                }
                Err(error) => {
                    return Err(refused(format!(
                        "migration step {name}: {}",
                        error::store(&error)
                    )));
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Drops an invalid index of this name, which an interrupted build leaves.
    async fn repair(&self, index: &str) -> Result<bool, StoreError> {
        let qualified = format!("{}.{index}", self.schema.name());
        let found = self
            .client
            .query_typed_opt(
                "select i.indisvalid from pg_index i where i.indexrelid = to_regclass($1::text)",
                params![qualified],
            )
            .await
            .map_err(|error| error::store(&error))?;
        let invalid = found.is_some_and(|row| !row.get::<_, bool>(0));
        if invalid {
            let drop = format!("drop index concurrently {qualified}");
            self.patiently("repair", || self.client.batch_execute(&drop))
                .await?;
        }
        Ok(invalid)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a String succeeds");
        text
    })
}

type Applied = Vec<(u32, Vec<u8>)>;

async fn applied(client: &Client, schema: &Schema) -> Result<Applied, StoreError> {
    let rows = client
        .query_typed(
            &schema.fill(include_str!("../sql/migrations_applied.sql")),
            &[],
        )
        .await
        .map_err(|error| error::store(&error))?;
    rows.iter().map(row).collect()
}

fn row(row: &tokio_postgres::Row) -> Result<(u32, Vec<u8>), StoreError> {
    let version: i32 = row.get(0);
    let version =
        u32::try_from(version).map_err(|_| corrupt(format!("migration version {version}")))?;
    Ok((version, row.get(1)))
}

/// The schema of the database against the one this program was built for.
pub(crate) async fn status(store: &PostgresStore) -> Result<SchemaStatus, StoreError> {
    let there = store.ask(&store.sql.schema_there, &[]).await?;
    let there = there.first().is_some_and(|row| row.get::<_, bool>(0));
    if !there {
        return Ok(SchemaStatus::Missing);
    }
    let rows = store.ask(&store.sql.migrations_applied, &[]).await?;
    let applied: Applied = rows.iter().map(row).collect::<Result<_, _>>()?;
    Ok(compare(&applied, MIGRATIONS))
}

fn compare(applied: &Applied, migrations: &[Migration]) -> SchemaStatus {
    let expected = migrations.last().map_or(0, |last| last.version);
    for migration in migrations {
        let altered = applied.iter().any(|(version, checksum)| {
            *version == migration.version && checksum[..] != migration.checksum()
        });
        if altered {
            return SchemaStatus::Altered {
                version: migration.version,
            };
        }
    }
    let newest = applied.iter().map(|(version, _)| *version).max();
    match newest {
        None => SchemaStatus::Missing,
        Some(found) if found > expected => SchemaStatus::Newer { found, expected },
        Some(_) => {
            let next_missing = migrations.iter().find(|migration| {
                !applied
                    .iter()
                    .any(|(version, _)| *version == migration.version)
            });
            match next_missing {
                Some(missing) => SchemaStatus::Older {
                    found: missing.version.saturating_sub(1),
                    expected,
                },
                None => SchemaStatus::Current { version: expected },
            }
        }
    }
}
