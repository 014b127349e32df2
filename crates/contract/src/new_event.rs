//! What a producer gives, and how it becomes an envelope.

use serde::Serialize;

use crate::{
    Digest, Envelope, EventId, Timestamp, canonical,
    envelope::{Aggregate, DeliverySetRef, Payload, Schema},
    headers::{self, Headers},
    invalid::Problem,
    key, media,
};

pub use crate::invalid::Invalid;

/// The tenant of events that name none.
pub const TENANT_DEFAULT: &str = "default";
/// The content type of payloads that name none.
pub const CONTENT_TYPE_DEFAULT: &str = media::JSON;

/// An event to append: everything but what the database knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Absent: a fresh UUIDv7. Give one to make a repeated append harmless.
    pub event_id: Option<EventId>,
    /// Absent: [`TENANT_DEFAULT`].
    pub tenant: Option<String>,
    pub aggregate: Aggregate,
    pub event_type: String,
    pub schema_version: String,
    /// Stored and sent exactly as given. With the content type `application/json` it must be
    /// JSON text, see [`canonical::check`].
    pub payload: Vec<u8>,
    /// Absent: [`CONTENT_TYPE_DEFAULT`].
    pub content_type: Option<String>,
    /// Absent: `{aggregate type}/{aggregate id}`. Empty: the event has no key.
    pub partition_key: Option<String>,
    pub actor: Option<String>,
    pub request_id: Option<String>,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub operation_id: Option<String>,
    /// Absent: the database's time at append.
    pub occurred_at: Option<Timestamp>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// In any order; a name may appear once.
    pub headers: Headers,
}

/// An event ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub envelope: Envelope,
    /// The envelope's canonical JSON.
    pub canonical: String,
    /// The envelope's digest.
    pub digest: Digest,
    /// See [`key::hash`].
    pub key_hash: i64,
    /// The free headers, sorted by name.
    pub headers: Headers,
}

impl NewEvent {
    /// An event with everything optional left out. Set the rest on the returned value.
    #[must_use]
    pub fn new(
        event_type: impl Into<String>,
        schema_version: impl Into<String>,
        aggregate_type: impl Into<String>,
        aggregate_id: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Self {
        Self {
            event_id: None,
            tenant: None,
            aggregate: Aggregate {
                kind: aggregate_type.into(),
                id: aggregate_id.into(),
                version: None,
            },
            event_type: event_type.into(),
            schema_version: schema_version.into(),
            payload: payload.into(),
            content_type: None,
            partition_key: None,
            actor: None,
            request_id: None,
            correlation_id: None,
            causation_id: None,
            operation_id: None,
            occurred_at: None,
            traceparent: None,
            tracestate: None,
            headers: Headers::new(),
        }
    }

    /// Checks every field and makes the envelope.
    ///
    /// `event_id` and `occurred_at` stand in where the event gives none of its own;
    /// `schema_digest` is the registered JSON Schema's, if the event type has one.
    ///
    /// # Errors
    /// Names the first field that breaks its rule. Nothing is changed or shortened to fit.
    pub fn seal(
        &self,
        event_id: EventId,
        occurred_at: Timestamp,
        delivery_set: &DeliverySetRef,
        schema_digest: Option<Digest>,
    ) -> Result<Sealed, Invalid> {
        let event_id = self.event_id.unwrap_or(event_id);
        if event_id.0.is_nil() {
            // What many a program writes for "none": every such event would be the same one.
            let rule = "is the nil UUID; leave it out, or give the event an id of its own";
            return Err(Invalid::inconsistent("eventId", rule));
        }
        let or = |given: &Option<String>, default: &str| {
            given.clone().unwrap_or_else(|| default.to_owned())
        };
        let envelope = Envelope {
            schema: Schema::V1,
            event_id,
            generation: 1,
            tenant: or(&self.tenant, TENANT_DEFAULT),
            aggregate: self.aggregate.clone(),
            event_type: self.event_type.clone(),
            schema_version: self.schema_version.clone(),
            payload: Payload {
                content_type: or(&self.content_type, CONTENT_TYPE_DEFAULT),
                schema_digest,
                digest: Digest::of_bytes(&self.payload),
                length: u64::try_from(self.payload.len()).expect("a length fits 64 bits"),
            },
            partition_key: self
                .partition_key
                .clone()
                .unwrap_or_else(|| format!("{}/{}", self.aggregate.kind, self.aggregate.id)),
            actor: self.actor.clone(),
            request_id: self.request_id.clone(),
            correlation_id: self.correlation_id.clone(),
            causation_id: self.causation_id.clone(),
            operation_id: self.operation_id.clone(),
            occurred_at: self.occurred_at.unwrap_or(occurred_at),
            delivery_set: delivery_set.clone(),
        };
        envelope.validate()?;
        if media::is_json(&envelope.payload.content_type) {
            canonical::check(&self.payload)
                .map_err(|error| Invalid::new("payload", Problem::NotJson(error)))?;
        }
        headers::trace_context(self.traceparent.as_deref(), self.tracestate.as_deref())?;
        let mut headers = self.headers.clone();
        headers.sort();
        headers::validate(&headers)?;
        let canonical = envelope.canonical();
        Ok(Sealed {
            digest: Digest::of_canonical(&canonical),
            key_hash: key::hash(&envelope.partition_key),
            canonical,
            envelope,
            headers,
        })
    }
}

/// The payload bytes of a value: its canonical JSON.
///
/// # Errors
/// When the value does not serialise to JSON, or the canonical form would change one of its
/// numbers (an integer past 2^53 - 1): then make the bytes yourself.
pub fn json_payload<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, Invalid> {
    let text = serde_json::to_string(value).map_err(|error| {
        Invalid::inconsistent(
            "payload",
            format!("the value cannot be written as JSON: {error}"),
        )
    })?;
    canonical::payload_value(&text)
        .map(String::into_bytes)
        .map_err(|error| Invalid::new("payload", Problem::NotJson(error)))
}
