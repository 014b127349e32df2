//! What the Postgres drivers share: the statements, their arguments, their answers, and the one
//! loop around them.

use std::{borrow::Cow, sync::Arc};

use postrider_contract::{Digest, EventId, EventType, NewEvent};
use serde::Deserialize;

use crate::{
    Appended, batch,
    check::Prepared,
    error::{AppendError, BatchError, LoadError, Source},
    registry::{Limit, Origin, Registry, Snapshot},
};

/// A connection that may be in the middle of the caller's transaction. Each call is one round
/// trip, and a refusal by the server ends the transaction.
pub(crate) trait Connection {
    /// Runs the one statement of an append.
    async fn append(&mut self, sql: &str, batch: &Batch<'_>) -> Result<Vec<Row>, Failure>;

    /// Runs a statement that answers one text.
    async fn registry(&mut self, sql: &str) -> Result<String, Failure>;
}

/// Why a statement gave no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// SQLSTATE, if the server said one.
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// The facts that the outbox's functions put in the place of a constraint's name.
    pub(crate) facts: Option<String>,
    pub(crate) source: Source,
}

/// A row of the append statement, column for column.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) event_id: Option<String>,
    pub(crate) position: Option<i64>,
    pub(crate) already: Option<bool>,
    pub(crate) refusal: Option<String>,
    pub(crate) facts: Option<String>,
}

/// A parameter of the append statement. A column that is null for every event is no array at all.
#[derive(Debug)]
pub(crate) enum Parameter<'a> {
    Integer(Option<i64>),
    Texts(Option<Vec<Option<Cow<'a, str>>>>),
    Integers(Option<Vec<Option<i64>>>),
    Bytes(Vec<&'a [u8]>),
}

/// The parameters of the append statement, in its order.
#[derive(Debug)]
pub(crate) struct Batch<'a>(pub(crate) Vec<Parameter<'a>>);

impl<'a> Batch<'a> {
    fn new(delivery_set: Option<i64>, events: &'a [Prepared], digests: &[Option<Digest>]) -> Self {
        let optional = |of: fn(&NewEvent) -> Option<&String>| {
            texts(
                events
                    .iter()
                    .map(|e| of(&e.event).map(|text| Cow::from(text.as_str()))),
            )
        };
        let required = |of: fn(&NewEvent) -> &String| {
            texts(
                events
                    .iter()
                    .map(|e| Some(Cow::from(of(&e.event).as_str()))),
            )
        };
        let owned = |values: Vec<Option<String>>| {
            texts(values.into_iter().map(|value| value.map(Cow::from)))
        };
        let given = events
            .iter()
            .filter(|e| e.given_id)
            .map(|e| Some(e.event_id.to_string()));
        let ids = events.iter().map(|e| Some(e.event_id.to_string()));
        let digests = digests
            .iter()
            .map(|digest| digest.map(|digest| digest.to_string()));
        let times = events
            .iter()
            .map(|e| e.event.occurred_at.map(|time| time.to_string()));
        Self(vec![
            Parameter::Integer(delivery_set),
            owned(digests.collect()),
            owned(given.collect()),
            required(|e| &e.event_type),
            Parameter::Bytes(events.iter().map(|e| e.event.payload.as_slice()).collect()),
            required(|e| &e.aggregate.kind),
            required(|e| &e.aggregate.id),
            required(|e| &e.schema_version),
            owned(ids.collect()),
            optional(|e| e.tenant.as_ref()),
            versions(events),
            optional(|e| e.content_type.as_ref()),
            optional(|e| e.partition_key.as_ref()),
            optional(|e| e.actor.as_ref()),
            optional(|e| e.request_id.as_ref()),
            optional(|e| e.correlation_id.as_ref()),
            optional(|e| e.causation_id.as_ref()),
            optional(|e| e.operation_id.as_ref()),
            owned(times.collect()),
            optional(|e| e.traceparent.as_ref()),
            optional(|e| e.tracestate.as_ref()),
            owned(events.iter().map(|e| headers(&e.event)).collect()),
        ])
    }
}

fn texts<'a>(values: impl Iterator<Item = Option<Cow<'a, str>>>) -> Parameter<'a> {
    let values: Vec<_> = values.collect();
    Parameter::Texts(values.iter().any(Option::is_some).then_some(values))
}

fn versions(events: &[Prepared]) -> Parameter<'static> {
    // At most 2^53 - 1, as checked before.
    let version = |e: &Prepared| {
        e.event
            .aggregate
            .version
            .and_then(|v| i64::try_from(v).ok())
    };
    let values: Vec<_> = events.iter().map(version).collect();
    Parameter::Integers(values.iter().any(Option::is_some).then_some(values))
}

fn headers(event: &NewEvent) -> Option<String> {
    (!event.headers.is_empty())
        .then(|| serde_json::to_string(&event.headers).expect("pairs of strings serialise"))
}

/// Appends one event.
pub(crate) async fn append_one(
    connection: &mut impl Connection,
    registry: &Registry,
    event: NewEvent,
) -> Result<Appended, AppendError> {
    let appended = append(connection, registry, vec![event])
        .await
        .map_err(|error| error.error)?;
    appended
        .first()
        .copied()
        .ok_or_else(|| unreadable("its answer"))
}

/// Appends the events, in order, all or nothing.
pub(crate) async fn append(
    connection: &mut impl Connection,
    registry: &Registry,
    events: Vec<NewEvent>,
) -> Result<Vec<Appended>, BatchError> {
    let events = batch::prepare(events)?;
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let mut snapshot = registry.snapshot();
    let mut refreshed = false;
    loop {
        let outcome = match batch::judge(&snapshot, &events) {
            Ok(digests) => {
                let batch = Batch::new(snapshot.delivery_set(), &events, &digests);
                let sql = registry.statement(include_str!("../sql/postgres/append.sql"));
                let rows = connection.append(&sql, &batch).await;
                let rows = rows.map_err(|failure| failed(failure, &events))?;
                answer(rows, &events)
            }
            Err(error) => Err(error),
        };
        let stale = match outcome {
            Err(error) if error.error.may_be_stale() => error,
            done => return done,
        };
        if refreshed || !snapshot.is_from_database() {
            return Err(stale);
        }
        snapshot = refresh(connection, registry)
            .await
            .map_err(|error| BatchError::of_all(error.into()))?;
        refreshed = true;
    }
}

/// Reads the registry and keeps it.
pub(crate) async fn refresh(
    connection: &mut impl Connection,
    registry: &Registry,
) -> Result<Arc<Snapshot>, LoadError> {
    let sql = registry.statement(include_str!("../sql/postgres/registry.sql"));
    let text = connection
        .registry(&sql)
        .await
        .map_err(|failure| LoadError::Database {
            message: failure.message,
            source: failure.source,
        })?;
    Ok(registry.replace(read_registry(&text)?))
}

/// What `event_registry()` answers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredRegistry {
    delivery_set_id: Option<i32>,
    event_types: Vec<StoredEventType>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredEventType {
    event_type: String,
    schema_version: String,
    content_type: String,
    json_schema: Option<String>,
    limit: Option<StoredLimit>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StoredLimit {
    destination: String,
    payload_bytes: u64,
}

fn read_registry(text: &str) -> Result<Snapshot, LoadError> {
    let stored: StoredRegistry =
        serde_json::from_str(text).map_err(|error| LoadError::Corrupt(error.to_string()))?;
    let mut limits = Vec::new();
    let event_types: Vec<EventType> = stored
        .event_types
        .into_iter()
        .map(|stored| {
            limits.push(stored.limit);
            EventType {
                event_type: stored.event_type,
                schema_version: stored.schema_version,
                content_type: stored.content_type,
                json_schema: stored.json_schema,
            }
        })
        .collect();
    let origin = Origin::Database {
        delivery_set: stored.delivery_set_id.map(i64::from),
    };
    let mut snapshot = Snapshot::new(&event_types, origin)?;
    for (event_type, limit) in event_types.iter().zip(limits) {
        if let Some(limit) = limit {
            let limit = Limit {
                destination: limit.destination,
                payload_bytes_max: limit.payload_bytes,
            };
            snapshot.limit(&event_type.event_type, &event_type.schema_version, limit);
        }
    }
    Ok(snapshot)
}

fn answer(rows: Vec<Row>, events: &[Prepared]) -> Result<Vec<Appended>, BatchError> {
    if let Some(row) = rows.iter().find(|row| row.refusal.is_some()) {
        let error = match row.refusal.as_deref() {
            Some("stale") => Some(AppendError::StaleRegistry),
            Some("conflict") => conflict(row.facts.as_deref()),
            Some("no_delivery_set") => Some(AppendError::NoActiveDeliverySet),
            Some("unknown_event_type") => unknown_event_type(row.facts.as_deref()),
            Some(_) | None => None,
        };
        return Err(batch::located(
            error.unwrap_or_else(|| unreadable("its refusal")),
            events,
        ));
    }
    let appended = rows.into_iter().map(|row| {
        Some(Appended {
            event_id: row.event_id?.parse().ok()?,
            position: row.position?,
            already: row.already?,
        })
    });
    match appended.collect::<Option<Vec<_>>>() {
        Some(appended) if appended.len() == events.len() => Ok(appended),
        Some(_) | None => Err(BatchError::of_all(unreadable("its answer"))),
    }
}

fn unreadable(what: &str) -> AppendError {
    let message = format!("{what} is not what this version of the library understands");
    AppendError::Database {
        source: message.clone().into(),
        message,
    }
}

/// The error that the outbox's functions raised, or the database's own.
fn failed(failure: Failure, events: &[Prepared]) -> BatchError {
    let facts = failure.facts.as_deref();
    let known = match failure.code.as_deref() {
        Some("PR001") => unknown_event_type(facts),
        Some("PR002") => conflict(facts),
        Some("PR003") => too_large(facts),
        Some("PR005") => Some(AppendError::NoActiveDeliverySet),
        // PR004, an invalid field, is for SQL's own callers: here all were checked before.
        Some(_) | None => None,
    };
    let error = known.unwrap_or_else(|| AppendError::Database {
        message: failure.message,
        source: failure.source,
    });
    batch::located(error, events)
}

fn conflict(facts: Option<&str>) -> Option<AppendError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Facts {
        event_id: EventId,
    }
    let Facts { event_id } = serde_json::from_str(facts?).ok()?;
    Some(AppendError::Conflict { event_id })
}

fn unknown_event_type(facts: Option<&str>) -> Option<AppendError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Facts {
        event_type: String,
        schema_version: String,
    }
    let Facts {
        event_type,
        schema_version,
    } = serde_json::from_str(facts?).ok()?;
    Some(AppendError::UnknownEventType {
        event_type,
        schema_version,
    })
}

fn too_large(facts: Option<&str>) -> Option<AppendError> {
    #[derive(Deserialize)]
    struct Facts {
        destination: String,
        length: u64,
        limit: u64,
    }
    let Facts {
        destination,
        length,
        limit,
    } = serde_json::from_str(facts?).ok()?;
    Some(AppendError::TooLarge {
        destination,
        length,
        limit,
    })
}
