//! What an application gives when it appends an event, and how that becomes an envelope.

use crate::{
    Digest, Envelope, EventId, Timestamp,
    envelope::{Aggregate, DeliverySetRef, Payload, Schema},
    key,
};

/// An event to append. Only what the application knows; the rest is frozen at append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// `None`: a UUIDv7 is made.
    pub event_id: Option<EventId>,
    /// `None`: `default`.
    pub tenant: Option<String>,
    pub aggregate: Aggregate,
    pub event_type: String,
    pub schema_version: String,
    /// Stored and sent byte for byte.
    pub payload: Vec<u8>,
    /// `None`: `application/json`.
    pub content_type: Option<String>,
    /// `None`: `{aggregate type}/{aggregate id}`.
    pub partition_key: Option<String>,
    pub actor: Option<String>,
    pub request_id: Option<String>,
    pub correlation_id: Option<String>,
    pub causation_id: Option<String>,
    pub operation_id: Option<String>,
    /// `None`: the database's now.
    pub occurred_at: Option<Timestamp>,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    pub headers: Vec<(String, String)>,
}

/// A [`NewEvent`] with everything frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub envelope: Envelope,
    /// The envelope's canonical JSON.
    pub canonical: String,
    pub digest: Digest,
    pub key_hash: i64,
}

/// A field that breaks its rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    pub field: String,
    pub problem: String,
}

impl NewEvent {
    /// Freezes the event.
    ///
    /// # Errors
    /// [`Invalid`] names the field that breaks its rule.
    pub fn seal(
        &self,
        event_id: EventId,
        occurred_at: Timestamp,
        delivery_set: &DeliverySetRef,
        schema_digest: Option<Digest>,
    ) -> Result<Sealed, Invalid> {
        let partition_key = self
            .partition_key
            .clone()
            .unwrap_or_else(|| format!("{}/{}", self.aggregate.kind, self.aggregate.id));
        let key_hash = key::hash(&partition_key);
        let envelope = Envelope {
            schema: Schema::V1,
            event_id,
            generation: 1,
            tenant: self.tenant.clone().unwrap_or_else(|| "default".to_owned()),
            aggregate: self.aggregate.clone(),
            event_type: self.event_type.clone(),
            schema_version: self.schema_version.clone(),
            payload: Payload {
                content_type: self
                    .content_type
                    .clone()
                    .unwrap_or_else(|| "application/json".to_owned()),
                schema_digest,
                digest: Digest::of_bytes(&self.payload),
                length: self.payload.len() as u64,
            },
            partition_key,
            actor: self.actor.clone(),
            request_id: self.request_id.clone(),
            correlation_id: self.correlation_id.clone(),
            causation_id: self.causation_id.clone(),
            operation_id: self.operation_id.clone(),
            occurred_at,
            delivery_set: delivery_set.clone(),
        };
        let canonical = envelope.canonical();
        let digest = Digest::of_canonical(&canonical);
        Ok(Sealed {
            envelope,
            canonical,
            digest,
            key_hash,
        })
    }
}
