//! From a frozen event and its frozen destination to the message that is sent.

use bytes::Bytes;
use postrider_contract::{
    Destination, Digest, Envelope,
    cloudevents::{self, Binding, Body, Source},
    destination::Serializer,
};

use crate::{Earlier, Message, Routing};

/// A destination with what every message to it needs of it.
#[derive(Clone, Debug)]
pub struct Place {
    pub destination: Destination,
    pub digest: Digest,
}

impl Place {
    #[must_use]
    pub fn new(destination: Destination) -> Self {
        let digest = destination.digest();
        Self {
            destination,
            digest,
        }
    }
}

/// A committed event, as its store gives it back.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    pub envelope: &'a Envelope,
    pub envelope_digest: &'a Digest,
    pub payload: &'a Bytes,
    pub traceparent: Option<&'a str>,
    pub tracestate: Option<&'a str>,
    /// Free headers.
    pub headers: &'a [(String, String)],
}

/// Makes the message. In binary and raw mode the payload is shared, not copied.
///
/// Header names are those of CloudEvents over HTTP and values are plain UTF-8: each transport
/// rebinds them to its own protocol.
///
/// # Errors
/// When a receiver could not read the event in the destination's format. Sending again changes
/// nothing.
pub fn message(
    place: &Place,
    event: &Event<'_>,
    earlier: Option<Earlier>,
) -> Result<Message, cloudevents::Error> {
    let envelope = event.envelope;
    let source = Source {
        envelope,
        envelope_digest: event.envelope_digest,
        destination_digest: &place.digest,
        traceparent: event.traceparent,
        tracestate: event.tracestate,
        headers: event.headers,
        payload: event.payload,
    };
    let wire = cloudevents::wire(&source, place.destination.serializer, Binding::PLAIN)?;
    Ok(Message {
        event_id: envelope.event_id,
        partition_key: envelope.partition_key.clone(),
        headers: wire.headers,
        body: match wire.body {
            Body::Payload => event.payload.clone(),
            Body::Made(body) => body.into(),
        },
        routing: Routing {
            event_type: envelope.event_type.clone(),
            tenant: envelope.tenant.clone(),
            aggregate_type: envelope.aggregate.kind.clone(),
            aggregate_id: envelope.aggregate.id.clone(),
        },
        earlier,
    })
}

/// The digest of the payload in a message's body, for a probe that looks at what it found. `None`:
/// a structured body that does not say.
#[must_use]
pub fn payload_digest(serializer: Serializer, body: &[u8]) -> Option<Digest> {
    #[derive(serde::Deserialize)]
    struct Stated {
        payloaddigest: Digest,
    }
    match serializer {
        Serializer::CloudeventsBinary | Serializer::Raw => Some(Digest::of_bytes(body)),
        Serializer::CloudeventsStructured => serde_json::from_slice::<Stated>(body)
            .ok()
            .map(|stated| stated.payloaddigest),
    }
}
