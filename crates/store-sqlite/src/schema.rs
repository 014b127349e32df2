//! The schema: numbered migrations, forward only, each applied once and known by its checksum.

use std::path::Path;

use postrider_contract::Digest;
use postrider_store::{Clock, StoreError, control::SchemaStatus};
use rusqlite::{Connection, OptionalExtension, params};

use crate::{
    column::read,
    connection::{self, Access},
    fault::Fault,
    filesystem, sql,
};

/// The migrations, by version from 1.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_control.sql"),
    include_str!("../migrations/0002_events.sql"),
    include_str!("../migrations/0003_dispatch.sql"),
    include_str!("../migrations/0004_refusals.sql"),
];

/// Creates the database if need be and brings its schema up to date. Answers the versions that
/// were applied: none when there was nothing to do.
///
/// All of it is one transaction, which waits for the write lock and holds it for milliseconds;
/// an application and a relay may be running.
///
/// # Errors
/// `Refused` when the database was made by a newer postrider, when its schema was changed by
/// hand, or when it is on a network file system.
pub fn migrate(path: &Path) -> Result<Vec<u32>, StoreError> {
    filesystem::check(path, false)?;
    let mut connection = connection::open(path, Access::Create)?;
    connection::write(&mut connection, &Clock::Database, |transaction, now| {
        let found = match status(transaction)? {
            SchemaStatus::Missing => 0,
            SchemaStatus::Current { .. } => return Ok(Ok(Vec::new())),
            SchemaStatus::Older { found, .. } => found,
            SchemaStatus::Newer { found, expected } => {
                return Ok(Err(refused(format!(
                    "the database has schema version {found}, this program knows {expected}; use the postrider that made it, or a newer one"
                ))));
            }
            SchemaStatus::Altered { version } => {
                return Ok(Err(refused(format!(
                    "migration {version} of the database is not this program's; restore the schema before migrating"
                ))));
            }
        };
        let mut applied = Vec::new();
        for (version, migration) in (1..)
            .zip(MIGRATIONS)
            .filter(|(version, _)| *version > found)
        {
            transaction.execute_batch(migration)?;
            transaction.execute(
                sql::MIGRATION_RECORD,
                params![version, checksum(migration), now.unix_micros()],
            )?;
            applied.push(version);
        }
        Ok(Ok(applied))
    })?
}

/// Compares what is applied with what this program knows.
pub(crate) fn status(connection: &Connection) -> Result<SchemaStatus, Fault> {
    let exists = connection
        .query_row(
            "SELECT 1 FROM sqlite_schema WHERE name = 'postrider_migrations'",
            [],
            |_| Ok(()),
        )
        .optional()?;
    if exists.is_none() {
        return Ok(SchemaStatus::Missing);
    }
    let mut statement = connection.prepare_cached(sql::MIGRATIONS_APPLIED)?;
    let mut rows = statement.query([])?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        let version: u32 = read(row, 0)?;
        let applied: String = read(row, 1)?;
        found = version;
        let known = usize::try_from(version)
            .ok()
            .and_then(|version| version.checked_sub(1));
        if let Some(known) = known.and_then(|index| MIGRATIONS.get(index))
            && checksum(known) != applied
        {
            return Ok(SchemaStatus::Altered { version });
        }
    }
    let expected = u32::try_from(MIGRATIONS.len()).expect("few migrations");
    Ok(match found.cmp(&expected) {
        std::cmp::Ordering::Less => SchemaStatus::Older { found, expected },
        std::cmp::Ordering::Equal => SchemaStatus::Current { version: found },
        std::cmp::Ordering::Greater => SchemaStatus::Newer { found, expected },
    })
}

fn checksum(migration: &str) -> String {
    Digest::of_bytes(migration.as_bytes()).to_string()
}

fn refused(message: String) -> StoreError {
    StoreError::Refused {
        message,
        source: None,
    }
}
