//! Append in a transaction of its own, sealed by the server's function.

use postrider_contract::{
    Digest, EventId, Timestamp, envelope::DeliverySetRef, new_event::NewEvent,
};
use postrider_store::{AppendError, dispatch::Appended};
use tokio_postgres::types::Json;

use crate::{
    PostgresStore,
    client::Pipeline,
    error,
    param::params,
    read::{event_id, get, position},
};

impl PostgresStore {
    pub(crate) async fn append_events(
        &self,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, AppendError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        for event in &events {
            check(event)?;
        }
        let sql = self.sql.clone();
        let now = self.now_parameter();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let arrays = Arrays::of(&events)?;
                    let mut pipeline = Pipeline::new(&sql.bounds_append);
                    let params = arrays.params();
                    let with_now: Vec<_>;
                    let place = if now.is_some() {
                        with_now = params
                            .iter()
                            .cloned()
                            .chain(params![now].to_vec())
                            .collect();
                        pipeline.add(&sql.append_at, &with_now)
                    } else {
                        pipeline.add(&sql.append, &params)
                    };
                    let rows = pipeline
                        .run(client)
                        .await
                        .map_err(|error| error::append(&error))?;
                    rows[place]
                        .iter()
                        .map(|row| {
                            Ok(Appended {
                                event_id: event_id(row)?,
                                position: position(row, "position")?,
                                already: get(row, "already")?,
                            })
                        })
                        .collect()
                })
            })
            .await
    }
}

/// Events as parallel arrays.
struct Arrays<'a> {
    event_types: Vec<&'a str>,
    payloads: Vec<&'a [u8]>,
    aggregate_types: Vec<&'a str>,
    aggregate_ids: Vec<&'a str>,
    schema_versions: Vec<&'a str>,
    event_ids: Vec<Option<uuid::Uuid>>,
    tenants: Vec<Option<&'a str>>,
    aggregate_versions: Vec<Option<i64>>,
    content_types: Vec<Option<&'a str>>,
    partition_keys: Vec<Option<&'a str>>,
    actors: Vec<Option<&'a str>>,
    request_ids: Vec<Option<&'a str>>,
    correlation_ids: Vec<Option<&'a str>>,
    causation_ids: Vec<Option<&'a str>>,
    operation_ids: Vec<Option<&'a str>>,
    occurred_ats: Vec<Option<String>>,
    traceparents: Vec<Option<&'a str>>,
    tracestates: Vec<Option<&'a str>>,
    headers: Vec<Option<Json<serde_json::Value>>>,
}

impl<'a> Arrays<'a> {
    fn of(events: &'a [NewEvent]) -> Result<Self, AppendError> {
        let versions = events.iter().map(|event| match event.aggregate.version {
            None => Ok(None),
            Some(version) => i64::try_from(version).map(Some).map_err(|_| {
                AppendError::Invalid(format!(
                    "aggregate.version: is {version}, but must be between 0 and {}",
                    postrider_contract::INTEGER_MAX
                ))
            }),
        });
        let all = |field: fn(&'a NewEvent) -> Option<&'a str>| events.iter().map(field).collect();
        Ok(Self {
            event_types: events.iter().map(|e| e.event_type.as_str()).collect(),
            payloads: events.iter().map(|e| e.payload.as_slice()).collect(),
            aggregate_types: events.iter().map(|e| e.aggregate.kind.as_str()).collect(),
            aggregate_ids: events.iter().map(|e| e.aggregate.id.as_str()).collect(),
            schema_versions: events.iter().map(|e| e.schema_version.as_str()).collect(),
            event_ids: events
                .iter()
                .map(|e| e.event_id.map(|EventId(id)| id))
                .collect(),
            tenants: all(|e| e.tenant.as_deref()),
            aggregate_versions: versions.collect::<Result<_, _>>()?,
            content_types: all(|e| e.content_type.as_deref()),
            partition_keys: all(|e| e.partition_key.as_deref()),
            actors: all(|e| e.actor.as_deref()),
            request_ids: all(|e| e.request_id.as_deref()),
            correlation_ids: all(|e| e.correlation_id.as_deref()),
            causation_ids: all(|e| e.causation_id.as_deref()),
            operation_ids: all(|e| e.operation_id.as_deref()),
            occurred_ats: events
                .iter()
                .map(|e| e.occurred_at.map(|at| at.to_string()))
                .collect(),
            traceparents: all(|e| e.traceparent.as_deref()),
            tracestates: all(|e| e.tracestate.as_deref()),
            headers: events.iter().map(headers).collect(),
        })
    }

    fn params(&self) -> Vec<crate::param::Param<'_>> {
        params![
            self.event_types,
            self.payloads,
            self.aggregate_types,
            self.aggregate_ids,
            self.schema_versions,
            self.event_ids,
            self.tenants,
            self.aggregate_versions,
            self.content_types,
            self.partition_keys,
            self.actors,
            self.request_ids,
            self.correlation_ids,
            self.causation_ids,
            self.operation_ids,
            self.occurred_ats,
            self.traceparents,
            self.tracestates,
            self.headers,
        ]
        .to_vec()
    }
}

/// Pairs, so that a name given twice is seen to be.
fn headers(event: &NewEvent) -> Option<Json<serde_json::Value>> {
    (!event.headers.is_empty()).then(|| Json(serde_json::json!(event.headers)))
}

/// The contract's own rules, before anything is sent: the same verdict in the same words as on any
/// other database. The server checks again, for callers in other languages.
fn check(event: &NewEvent) -> Result<(), AppendError> {
    let placeholder = DeliverySetRef {
        version: 1,
        digest: Digest::of_canonical("{}"),
    };
    let epoch = Timestamp::from_unix_micros(0).expect("1970 is in range");
    event
        .seal(EventId(uuid::Uuid::max()), epoch, &placeholder, None)
        .map(drop)
        .map_err(|invalid| AppendError::Invalid(invalid.to_string()))
}
