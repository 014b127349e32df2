//! What the SQLite drivers share: statements, how their rows are read, and what errors mean. The
//! append itself is the store's.

use std::{
    collections::BTreeSet,
    time::{SystemTime, UNIX_EPOCH},
};

use postrider_contract::{Digest, EventType, Timestamp, media};
use postrider_store::StoreError;

use crate::{
    check::Prepared,
    error::{AppendError, LoadError, Source},
    registry::{Limit, Origin, Snapshot},
};

pub(crate) const REGISTRY: &str = include_str!("../sql/sqlite/registry.sql");
pub(crate) const CURRENT: &str = include_str!("../sql/sqlite/current.sql");

/// `SQLITE_BUSY_SNAPSHOT`: the transaction read, somebody else wrote, and now it wants to write.
pub(crate) const BUSY_SNAPSHOT: i32 = 517;

/// A row of [`REGISTRY`], column for column.
#[derive(Debug)]
pub(crate) struct RegistryRow {
    pub(crate) delivery_set: i64,
    pub(crate) event_type: Option<String>,
    pub(crate) schema_version: Option<String>,
    pub(crate) content_type: Option<String>,
    pub(crate) json_schema: Option<String>,
    pub(crate) destination: Option<String>,
    pub(crate) payload_bytes_max: Option<i64>,
}

pub(crate) fn snapshot(rows: Vec<RegistryRow>) -> Result<Snapshot, LoadError> {
    let origin = Origin::Database {
        delivery_set: rows.first().map(|row| row.delivery_set),
    };
    let mut event_types = Vec::with_capacity(rows.len());
    let mut limits = Vec::new();
    for row in rows {
        let (Some(event_type), Some(schema_version)) = (row.event_type, row.schema_version) else {
            continue;
        };
        if let (Some(destination), Some(bytes)) = (row.destination, row.payload_bytes_max) {
            let payload_bytes_max = u64::try_from(bytes).map_err(|_| {
                LoadError::Corrupt(format!("destination {destination:?} has the limit {bytes}"))
            })?;
            let limit = Limit {
                destination,
                payload_bytes_max,
            };
            limits.push((event_type.clone(), schema_version.clone(), limit));
        }
        event_types.push(EventType {
            event_type,
            schema_version,
            content_type: row.content_type.unwrap_or_else(|| media::JSON.to_owned()),
            json_schema: row.json_schema,
        });
    }
    let mut snapshot = Snapshot::new(&event_types, origin)?;
    for (event_type, schema_version, limit) in limits {
        snapshot.limit(&event_type, &schema_version, limit);
    }
    Ok(snapshot)
}

/// A row of [`CURRENT`], column for column.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) delivery_set: i64,
    pub(crate) registered: bool,
    pub(crate) schema_digest: Option<String>,
}

impl Current {
    /// Whether an event that was checked with this snapshot and schema would be appended under
    /// the same ones.
    pub(crate) fn is(&self, snapshot: &Snapshot, schema_digest: Option<Digest>) -> bool {
        let same_set = snapshot
            .delivery_set()
            .is_none_or(|checked| checked == self.delivery_set);
        let checked = schema_digest.map(|digest| digest.to_string());
        same_set && (!self.registered || self.schema_digest == checked)
    }
}

/// The distinct event types of a batch, with the schema that their payloads were checked with.
pub(crate) fn used<'a>(
    events: &'a [Prepared],
    digests: &[Option<Digest>],
) -> BTreeSet<(&'a str, &'a str, Option<Digest>)> {
    let events = events.iter().zip(digests);
    let used = events.map(|(Prepared { event, .. }, digest)| {
        (
            event.event_type.as_str(),
            event.schema_version.as_str(),
            *digest,
        )
    });
    used.collect()
}

/// The clock of a database that is a file on this machine.
pub(crate) fn now() -> Result<Timestamp, AppendError> {
    let micros = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_micros()).ok(),
        Err(before) => i64::try_from(before.duration().as_micros())
            .ok()
            .map(|micros| -micros),
    };
    micros.and_then(Timestamp::from_unix_micros).ok_or_else(|| {
        let message = "this machine's clock is outside the years 0001 to 9999; set it".to_owned();
        AppendError::Database {
            source: message.clone().into(),
            message,
        }
    })
}

/// What went wrong when the registry was read, with what is usually the matter.
pub(crate) fn load_advice(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    if text.contains("no such table") {
        format!("{text}; the file has no outbox, make it with `postrider migrate`")
    } else {
        text
    }
}

pub(crate) fn failed(message: String, code: Option<i32>, source: Source) -> AppendError {
    if code == Some(BUSY_SNAPSHOT) {
        AppendError::Outdated { source }
    } else {
        AppendError::Database { message, source }
    }
}

/// The store's error in this crate's words.
pub(crate) fn refused(error: postrider_store::AppendError) -> AppendError {
    use postrider_store::AppendError as Refused;
    match error {
        Refused::UnknownEventType {
            event_type,
            schema_version,
        } => AppendError::UnknownEventType {
            event_type,
            schema_version,
        },
        Refused::NoActiveDeliverySet => AppendError::NoActiveDeliverySet,
        Refused::Conflict { event_id, .. } => AppendError::Conflict { event_id },
        Refused::TooLarge {
            destination,
            length,
            limit,
        } => AppendError::TooLarge {
            destination,
            length,
            limit,
        },
        // Fields were checked before, by the same code.
        Refused::Invalid(message) => AppendError::Database {
            source: message.clone().into(),
            message,
        },
        Refused::Store(error) => store(error),
    }
}

fn store(error: StoreError) -> AppendError {
    let message = error.to_string();
    let source: Source = match error {
        StoreError::Unavailable {
            source: Some(source),
            ..
        }
        | StoreError::Refused {
            source: Some(source),
            ..
        } => source,
        StoreError::Unavailable { .. }
        | StoreError::Refused { .. }
        | StoreError::Corrupt { .. }
        | StoreError::AlreadyDifferent { .. } => message.clone().into(),
    };
    let code = source
        .downcast_ref::<rusqlite::Error>()
        .and_then(extended_code);
    failed(message, code, source)
}

pub(crate) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
