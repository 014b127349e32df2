//! From a fetched delivery to something that can be sent: checked, and in its wire form.

use std::{sync::Arc, time::Duration};

use postrider_contract::{Digest, Envelope, EventId, Timestamp};
use postrider_core::{Outcome, dispatcher::Candidate, outcome::bounded_detail};
use postrider_schema::Schemas;
use postrider_store::dispatch::Fetched;
use postrider_transport::{Earlier, Message, Transport, wire};

/// What the relay carries of an event while its delivery is in the pipeline.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) event_id: EventId,
    pub(crate) generation: u64,
    pub(crate) payload_digest: Digest,
    /// By the database's clock: how old the event was when it was fetched.
    pub(crate) age_at_fetch: Duration,
    pub(crate) fetched_at: tokio::time::Instant,
    /// `None` only for a delivery that is unfit, whatever its destination takes.
    pub(crate) message: Option<Arc<Message>>,
}

/// A fetched delivery whose envelope was read and checked, or why it cannot be.
#[derive(Debug)]
pub(crate) struct Opened {
    fetched: Fetched,
    envelope: Result<Envelope, Unfit>,
}

impl Opened {
    /// Checks the envelope against its digest and reads it.
    pub(crate) fn new(fetched: Fetched) -> Self {
        let envelope = read(&fetched);
        Self { fetched, envelope }
    }

    /// Whether the event was committed under a schema that is not among these.
    pub(crate) fn lacks_schema(&self, schemas: &Schemas) -> bool {
        let digest = |envelope: &Envelope| envelope.payload.schema_digest;
        let digest = self.envelope.as_ref().ok().and_then(digest);
        digest.is_some_and(|digest| !schemas.contains(&digest))
    }
}

fn read(fetched: &Fetched) -> Result<Envelope, Unfit> {
    let stored = &fetched.event;
    let found = Digest::of_canonical(&stored.envelope);
    if found != stored.envelope_digest {
        let detail = format!(
            "the envelope has digest {found}, not {}",
            stored.envelope_digest
        );
        return Err(("envelope_digest_mismatch", detail));
    }
    serde_json::from_str(&stored.envelope)
        .map_err(|error| ("envelope_unreadable", bounded_detail(&error.to_string())))
}

fn age(now: Option<Timestamp>, appended_at: Timestamp) -> Duration {
    let now = now.map_or(appended_at, |now| now);
    let micros = now.unix_micros().saturating_sub(appended_at.unix_micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

type Unfit = (&'static str, String);

/// Checks a payload against its digest and the schema that it was committed under, and makes the
/// message. What does not hold is quarantined, never retried.
pub(crate) fn prepare(
    Opened { fetched, envelope }: Opened,
    now: Option<Timestamp>,
    place: &wire::Place,
    schemas: &Schemas,
    transport: &dyn Transport,
) -> Candidate<Outgoing> {
    let stored = &fetched.event;
    let mut outgoing = Outgoing {
        event_id: stored.event_id,
        generation: 0,
        payload_digest: stored.envelope_digest,
        age_at_fetch: age(now, stored.appended_at),
        fetched_at: tokio::time::Instant::now(),
        message: None,
    };
    let message = envelope.and_then(|envelope| {
        outgoing.generation = envelope.generation;
        outgoing.payload_digest = envelope.payload.digest;
        check(&fetched, &envelope, place, schemas)
    });
    let unfit = match message {
        Ok(message) => {
            let unfit = fits(&message, transport).err();
            outgoing.message = Some(Arc::new(message));
            unfit
        }
        Err(unfit) => Some(unfit),
    };
    Candidate {
        position: fetched.position,
        lane: fetched.lane,
        key_hash: fetched.key_hash,
        attempts: fetched.attempts,
        bytes: fetched.event.payload.len() as u64,
        unfit,
        event: outgoing,
    }
}

fn check(
    fetched: &Fetched,
    envelope: &Envelope,
    place: &wire::Place,
    schemas: &Schemas,
) -> Result<Message, Unfit> {
    let stored = &fetched.event;
    let found = Digest::of_bytes(&stored.payload);
    if found != envelope.payload.digest {
        let detail = format!(
            "the payload has digest {found}, not {}",
            envelope.payload.digest
        );
        return Err(("payload_digest_mismatch", detail));
    }
    if let Some(schema_digest) = &envelope.payload.schema_digest {
        schemas
            .validate(schema_digest, &stored.payload)
            .map_err(|violation| (violation.code(), bounded_detail(&violation.to_string())))?;
    }
    let event = wire::Event {
        envelope,
        envelope_digest: &stored.envelope_digest,
        payload: &stored.payload,
        traceparent: stored.traceparent.as_deref(),
        tracestate: stored.tracestate.as_deref(),
        headers: &stored.headers,
    };
    let earlier = fetched.first_attempt_ago.map(|first_sent_ago| Earlier {
        first_sent_ago,
        anchor: None,
    });
    wire::message(place, &event, earlier)
        .map_err(|error| ("wire_format", bounded_detail(&error.to_string())))
}

/// Only the transport refuses it, by what it knows of its destination.
pub(crate) fn is_refused_by_transport(candidate: &Candidate<Outgoing>) -> bool {
    candidate.unfit.is_some() && candidate.event.message.is_some()
}

/// The transport looked at its destination again.
pub(crate) fn judge_again(candidate: &mut Candidate<Outgoing>, transport: &dyn Transport) {
    if let Some(message) = &candidate.event.message {
        candidate.unfit = fits(message, transport).err();
    }
}

fn fits(message: &Message, transport: &dyn Transport) -> Result<(), Unfit> {
    match transport.check(message) {
        Ok(()) => Ok(()),
        Err(
            Outcome::Rejected { code, detail, .. }
            | Outcome::Retryable { code, detail, .. }
            | Outcome::Unknown { code, detail },
        ) => Err((code, bounded_detail(&detail))),
        Err(Outcome::Acknowledged(_)) => Err((
            "transport_fault",
            "a check before sending answered with a receipt".to_owned(),
        )),
    }
}
