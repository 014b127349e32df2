//! Opening and migrating the database that `store.url` names.

use std::{path::PathBuf, sync::Arc};

use postrider_store::{Store, StoreError, control::SchemaStatus};
use postrider_store_postgres as postgres;
use postrider_store_sqlite as sqlite;

use crate::{
    code::Code,
    config::{Config, secret},
    fault::Fault,
};

/// Which database, with all that opening it takes.
enum Address {
    Sqlite(PathBuf),
    Postgres {
        url: String,
        doorbell_url: Option<String>,
    },
}

fn address(config: &Config) -> Result<Address, Fault> {
    let url = config.store.url.read("store.url", &config.base)?;
    if let Some(path) = url.strip_prefix("sqlite:") {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('?') {
            return Err(bad_url(
                "store.url names no file",
                "write for example \"sqlite:postrider.db\"; options after ? are not known",
            ));
        }
        return Ok(Address::Sqlite(config.base.join(path)));
    }
    if url.starts_with("postgresql://") || url.starts_with("postgres://") {
        let doorbell_url = config
            .store
            .doorbell_url
            .as_ref()
            .map(|url| url.read("store.doorbell_url", &config.base))
            .transpose()?;
        return Ok(Address::Postgres { url, doorbell_url });
    }
    // The text may hold a password, whatever it is.
    Err(bad_url(
        "store.url is of no known database",
        "start it with sqlite: or postgresql://",
    ))
}

fn bad_url(what: &str, fix: &str) -> Fault {
    Fault::new(Code::BadValue, what, "", fix)
}

/// What the database is, for messages: never a secret.
pub(crate) fn shown(config: &Config) -> String {
    match config.store.url.read("store.url", &config.base) {
        Ok(url) => secret::shown(&url),
        Err(_) => config.store.url.to_string(),
    }
}

/// Opens the database whatever its schema is.
///
/// # Errors
/// When the settings do not lead to one.
pub(crate) fn open_unchecked(config: &Config) -> Result<Arc<dyn Store>, Fault> {
    Ok(match address(config)? {
        Address::Sqlite(path) => {
            if !path.exists() {
                return Err(schema_missing(config));
            }
            let options = sqlite::Options::new(path);
            Arc::new(sqlite::SqliteStore::open(&options).map_err(|error| fault(&error))?)
        }
        Address::Postgres { url, doorbell_url } => {
            let options = postgres::Options {
                doorbell_url,
                schema: config.store.schema.clone(),
                pool_max: usize::try_from(config.store.connections_max).unwrap_or(usize::MAX),
                ..postgres::Options::new(url)
            };
            Arc::new(postgres::PostgresStore::new(options).map_err(|error| fault(&error))?)
        }
    })
}

/// Opens the database, and refuses one whose schema is not exactly the one this program knows.
///
/// # Errors
/// Says what the schema is and what to do.
pub(crate) async fn open(config: &Config) -> Result<Arc<dyn Store>, Fault> {
    let store = open_unchecked(config)?;
    let status = store.schema_status().await.map_err(|error| fault(&error))?;
    match schema_fault(&status, config) {
        None => Ok(store),
        Some(fault) => Err(fault),
    }
}

/// What is wrong with a schema, if anything is.
pub(crate) fn schema_fault(status: &SchemaStatus, config: &Config) -> Option<Fault> {
    let database = shown(config);
    let untouched = "Nothing was read or written.";
    match *status {
        SchemaStatus::Current { .. } => None,
        SchemaStatus::Missing => Some(schema_missing(config)),
        SchemaStatus::Older { found, expected } => Some(Fault::new(
            Code::SchemaOlder,
            format!("{database} is at schema version {found}; this program needs {expected}"),
            untouched,
            "run `postrider migrate`",
        )),
        SchemaStatus::Newer { found, expected } => Some(Fault::new(
            Code::SchemaNewer,
            format!("{database} is at schema version {found}; this program knows {expected}"),
            untouched,
            "use the postrider that migrated it, or a newer one",
        )),
        SchemaStatus::Altered { version } => Some(Fault::new(
            Code::SchemaAltered,
            format!(
                "migration {version} of {database} is recorded with other content than this program has"
            ),
            untouched,
            "put back what was changed by hand; `postrider explain P0014` says how",
        )),
    }
}

fn schema_missing(config: &Config) -> Fault {
    Fault::new(
        Code::SchemaMissing,
        format!("{} has no postrider schema", shown(config)),
        "Nothing was read or written.",
        "run `postrider migrate`, or correct store.url",
    )
}

/// What a migration did.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Migrated {
    /// The versions applied now, in order.
    pub(crate) applied: Vec<u32>,
    /// For people.
    pub(crate) notes: Vec<String>,
}

/// The schema's status, for a preview. A SQLite file that is not there lacks everything.
///
/// # Errors
/// When the database cannot be asked.
pub(crate) async fn schema_status(config: &Config) -> Result<SchemaStatus, Fault> {
    match open_unchecked(config) {
        Ok(store) => store.schema_status().await.map_err(|error| fault(&error)),
        Err(fault) if fault.code == Code::SchemaMissing => Ok(SchemaStatus::Missing),
        Err(fault) => Err(fault),
    }
}

/// Brings the schema up to date.
///
/// # Errors
/// [`Code::SchemaNewer`], [`Code::SchemaAltered`], [`Code::MigrationFailed`], or why the database cannot be used at all.
pub(crate) async fn migrate(config: &Config) -> Result<Migrated, Fault> {
    // What no migration can bring up to date has a code and a remedy of its own.
    match schema_status(config).await? {
        SchemaStatus::Missing | SchemaStatus::Current { .. } | SchemaStatus::Older { .. } => {}
        status @ (SchemaStatus::Newer { .. } | SchemaStatus::Altered { .. }) => {
            if let Some(fault) = schema_fault(&status, config) {
                return Err(fault);
            }
        }
    }
    match address(config)? {
        Address::Sqlite(path) => {
            let applied = tokio::task::spawn_blocking(move || sqlite::migrate(&path))
                .await
                .map_err(|error| migration_failed(&error.to_string()))?
                .map_err(|error| migration_fault(&error))?;
            Ok(Migrated {
                applied,
                notes: Vec::new(),
            })
        }
        Address::Postgres { url, .. } => {
            let options = postgres::MigrateOptions {
                schema: config.store.schema.clone(),
                ..postgres::MigrateOptions::default()
            };
            let migrated = postgres::migrate(&url, &options)
                .await
                .map_err(|error| migration_fault(&error))?;
            Ok(Migrated {
                applied: migrated.applied,
                notes: migrated.notes,
            })
        }
    }
}

fn migration_fault(error: &StoreError) -> Fault {
    match error {
        StoreError::Unavailable { .. } => fault(error),
        StoreError::Refused { .. }
        | StoreError::Corrupt { .. }
        | StoreError::AlreadyDifferent { .. } => migration_failed(&error.to_string()),
    }
}

fn migration_failed(why: &str) -> Fault {
    Fault::new(
        Code::MigrationFailed,
        format!("the migration was not applied: {why}"),
        "Each migration is applied whole or not at all.",
        "settle what the message says, and run `postrider migrate` again",
    )
}

/// The fault of a failed call.
pub(crate) fn fault(error: &StoreError) -> Fault {
    let what = error.to_string();
    match error {
        StoreError::Unavailable { .. } => Fault::new(
            Code::StoreUnavailable,
            what,
            "If the command changes something, whether it did is unknown; it is safe to repeat.",
            "check store.url and that the database runs, and repeat the command",
        ),
        StoreError::Refused { .. } => Fault::new(
            Code::StoreRefused,
            what,
            "",
            "settle what the message says; repeating alone changes nothing",
        ),
        StoreError::Corrupt { .. } => Fault::new(
            Code::StoredDataUnreadable,
            what,
            "",
            "do not repair it by hand; `postrider explain P0016` says what to look at",
        ),
        StoreError::AlreadyDifferent { .. } => Fault::new(
            Code::RegisteredDifferently,
            what,
            "Nothing was registered.",
            "run `postrider plan` again: somebody else applied at the same time",
        ),
    }
}
