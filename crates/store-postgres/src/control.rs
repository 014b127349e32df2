//! What is registered: insert or compare, all or nothing.

use postrider_contract::{
    DeliverySet, Destination, EventType,
    destination::{OnQuarantine, OnUnknown, Ordering},
};
use postrider_core::DestinationId;
use postrider_store::{
    StoreError,
    control::{
        Applied, Audit, ControlPlane, RegisteredDestination, RegisteredEventType, Registry,
        Suspension,
    },
};
use tokio_postgres::Transaction;

use crate::{
    PostgresStore,
    client::begin,
    error::{self, corrupt, refused},
    param::{Moment, params},
    read::{self, get},
    sql::Sql,
};

impl PostgresStore {
    pub(crate) async fn read_registry(&self) -> Result<Registry, StoreError> {
        let mut registry = Registry::default();
        for row in self.ask(&self.sql.registry_destinations, &[]).await? {
            registry.destinations.push(destination(&row)?);
        }
        for row in self.ask(&self.sql.registry_event_types, &[]).await? {
            registry.event_types.push(RegisteredEventType {
                event_type: EventType {
                    event_type: get(&row, "event_type")?,
                    schema_version: get(&row, "schema_version")?,
                    content_type: get(&row, "content_type")?,
                    json_schema: get(&row, "json_schema")?,
                },
                current: get(&row, "current")?,
            });
        }
        for row in self.ask(&self.sql.registry_delivery_set, &[]).await? {
            registry.delivery_set =
                Some(serde_json::from_str(get(&row, "canonical")?).map_err(corrupt)?);
        }
        Ok(registry)
    }

    pub(crate) async fn apply_plan(
        &self,
        plan: &ControlPlane,
        audit: &Audit,
    ) -> Result<Applied, StoreError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let plan = plan.clone();
        let audit = audit.clone();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let db = |error| error::store(&error);
                    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
                    let applied = apply(&transaction, &sql, &plan, &audit, now).await?;
                    transaction.commit().await.map_err(db)?;
                    Ok(applied)
                })
            })
            .await
    }

    pub(crate) async fn resume(
        &self,
        destination: DestinationId,
        audit: &Audit,
    ) -> Result<bool, StoreError> {
        let sql = self.sql.clone();
        let now = self.now_parameter();
        let audit = audit.clone();
        self.connections
            .call(move |client| {
                Box::pin(async move {
                    let db = |error| error::store(&error);
                    let transaction = begin(client, &sql.bounds).await.map_err(db)?;
                    let resumed = transaction
                        .query_typed_opt(&sql.resume, params![destination.0])
                        .await
                        .map_err(db)?;
                    if resumed.is_none() {
                        return Ok(false);
                    }
                    let subject = format!("destination {destination}");
                    write_audit(
                        &transaction,
                        &sql,
                        &audit,
                        "resume_destination",
                        1,
                        &subject,
                        now,
                    )
                    .await?;
                    transaction.commit().await.map_err(db)?;
                    Ok(true)
                })
            })
            .await
    }
}

fn destination(row: &tokio_postgres::Row) -> Result<RegisteredDestination, StoreError> {
    let code: Option<String> = get(row, "code")?;
    let detail: Option<String> = get(row, "detail")?;
    let since = read::time_opt(row, "since")?;
    Ok(RegisteredDestination {
        id: read::destination(row)?,
        destination: serde_json::from_str(get(row, "canonical")?).map_err(corrupt)?,
        digest: read::jcs_digest(row, "digest")?,
        current: get(row, "current")?,
        suspended: match (code, detail, since) {
            (Some(code), Some(detail), Some(since)) => Some(Suspension {
                code,
                detail,
                since,
            }),
            _ => None,
        },
    })
}

async fn apply(
    transaction: &Transaction<'_>,
    sql: &Sql,
    plan: &ControlPlane,
    audit: &Audit,
    now: Option<Moment>,
) -> Result<Applied, StoreError> {
    transaction
        .query_typed(&sql.apply_lock, &[])
        .await
        .map_err(|error| error::store(&error))?;
    let mut applied = Applied::default();
    for destination in &plan.destinations {
        let added = add_destination(transaction, sql, destination, now).await?;
        applied.destinations_added += u32::from(added);
    }
    for event_type in &plan.event_types {
        let set = set_event_type(transaction, sql, event_type, now).await?;
        applied.event_types_added += u32::from(set);
    }
    let set = add_delivery_set(transaction, sql, &plan.delivery_set, now).await?;
    let activated = transaction
        .query_typed_opt(&sql.delivery_set_activate, params![set, audit.actor, now])
        .await
        .map_err(|error| error::store(&error))?;
    applied.delivery_set_activated = activated.is_some();
    let changed = i64::from(applied.destinations_added)
        + i64::from(applied.event_types_added)
        + i64::from(applied.delivery_set_activated);
    if changed > 0 {
        let subject = format!(
            "{} destinations, {} event types, delivery set {}",
            applied.destinations_added, applied.event_types_added, plan.delivery_set.version
        );
        write_audit(transaction, sql, audit, "apply", changed, &subject, now).await?;
    }
    Ok(applied)
}

async fn add_destination(
    transaction: &Transaction<'_>,
    sql: &Sql,
    destination: &Destination,
    now: Option<Moment>,
) -> Result<bool, StoreError> {
    let db = |error| error::store(&error);
    let generation = number(destination.generation, "generation")?;
    let digest = destination.digest();
    let known = transaction
        .query_typed_opt(
            &sql.destination_known,
            params![destination.name, generation],
        )
        .await
        .map_err(db)?;
    if let Some(row) = known {
        let existing = read::jcs_digest(&row, "digest")?;
        if existing == digest {
            return Ok(false);
        }
        return Err(StoreError::AlreadyDifferent {
            what: format!(
                "destination {:?} generation {}",
                destination.name, destination.generation
            ),
            existing: existing.to_string(),
            offered: digest.to_string(),
        });
    }
    let limit = destination
        .max_payload_bytes
        .map(|limit| number(limit, "maxPayloadBytes"))
        .transpose()?;
    transaction
        .query_typed(
            &sql.destination_add,
            params![
                destination.name,
                generation,
                destination.canonical(),
                destination.kind,
                ordering(destination.ordering),
                i32::from(destination.lanes),
                on_unknown(destination.on_unknown),
                on_quarantine(destination.on_quarantine),
                limit,
                now
            ],
        )
        .await
        .map_err(db)?;
    Ok(true)
}

fn ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::None => "none",
        Ordering::Key => "key",
        Ordering::Strict => "strict",
    }
}

fn on_unknown(on_unknown: OnUnknown) -> &'static str {
    match on_unknown {
        OnUnknown::Resend => "resend",
        OnUnknown::Probe => "probe",
        OnUnknown::Hold => "hold",
    }
}

fn on_quarantine(on_quarantine: OnQuarantine) -> &'static str {
    match on_quarantine {
        OnQuarantine::Hold => "hold",
        OnQuarantine::Pass => "pass",
    }
}

/// Whether it was added or became current again.
async fn set_event_type(
    transaction: &Transaction<'_>,
    sql: &Sql,
    event_type: &EventType,
    now: Option<Moment>,
) -> Result<bool, StoreError> {
    transaction
        .query_typed_opt(
            &sql.event_type_set,
            params![
                event_type.event_type,
                event_type.schema_version,
                event_type.content_type,
                event_type.json_schema,
                now
            ],
        )
        .await
        .map(|set| set.is_some())
        .map_err(|error| error::store(&error))
}

/// Answers its id.
async fn add_delivery_set(
    transaction: &Transaction<'_>,
    sql: &Sql,
    set: &DeliverySet,
    now: Option<Moment>,
) -> Result<i32, StoreError> {
    let db = |error| error::store(&error);
    let digests: Vec<&[u8]> = set
        .members
        .iter()
        .map(|member| &member.destination_digest.bytes[..])
        .collect();
    let missing = transaction
        .query_typed_opt(&sql.digests_missing, params![digests])
        .await
        .map_err(db)?;
    if let Some(row) = missing {
        let n: usize = read::number(get(&row, "n")?, "member")?;
        let member = n
            .checked_sub(1)
            .and_then(|n| set.members.get(n))
            .ok_or_else(|| corrupt(format!("member {n}")))?;
        return Err(refused(format!(
            "delivery set {} names destination {:?} with digest {}, which is not registered",
            set.version, member.destination, member.destination_digest
        )));
    }
    let version = number(set.version, "version")?;
    let known = transaction
        .query_typed_opt(&sql.delivery_set_known, params![version])
        .await
        .map_err(db)?;
    if let Some(row) = known {
        let existing = read::jcs_digest(&row, "digest")?;
        if existing == set.digest() {
            return get(&row, "delivery_set_id");
        }
        return Err(StoreError::AlreadyDifferent {
            what: format!("delivery set version {}", set.version),
            existing: existing.to_string(),
            offered: set.digest().to_string(),
        });
    }
    let added = transaction
        .query_typed_one(
            &sql.delivery_set_add,
            params![version, set.canonical(), now],
        )
        .await
        .map_err(db)?;
    let id: i32 = get(&added, "delivery_set_id")?;
    let events = &set.applicable_events;
    let types: Vec<&str> = events.iter().map(|e| e.event_type.as_str()).collect();
    let versions: Vec<&str> = events.iter().map(|e| e.schema_version.as_str()).collect();
    let members = &set.members;
    let member_types: Vec<&str> = members.iter().map(|m| m.event_type.as_str()).collect();
    let member_versions: Vec<&str> = members.iter().map(|m| m.schema_version.as_str()).collect();
    let consumers: Vec<&str> = members.iter().map(|m| m.consumer.as_str()).collect();
    let mandatory: Vec<bool> = members.iter().map(|m| m.mandatory).collect();
    transaction
        .query_typed(
            &sql.delivery_set_fill,
            params![
                id,
                types,
                versions,
                member_types,
                member_versions,
                digests,
                consumers,
                mandatory
            ],
        )
        .await
        .map_err(db)?;
    Ok(id)
}

pub(crate) async fn write_audit(
    transaction: &Transaction<'_>,
    sql: &Sql,
    audit: &Audit,
    action: &str,
    changed: i64,
    subject: &str,
    now: Option<Moment>,
) -> Result<(), StoreError> {
    transaction
        .query_typed(
            &sql.audit,
            params![audit.actor, audit.reason, action, changed, subject, now],
        )
        .await
        .map(drop)
        .map_err(|error| error::store(&error))
}

fn number(value: u64, what: &str) -> Result<i64, StoreError> {
    i64::try_from(value).map_err(|_| refused(format!("{what} {value} is too large")))
}
