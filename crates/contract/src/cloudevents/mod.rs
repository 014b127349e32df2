//! Events as CloudEvents 1.0 messages: which attribute says what, and in which header.
//!
//! | attribute | from the envelope |
//! | --- | --- |
//! | `specversion` | `1.0` |
//! | `id` | eventId |
//! | `source` | `/{tenant}/{aggregate type}`, each percent-encoded but for RFC 3986 unreserved characters |
//! | `type` | eventType |
//! | `subject` | aggregate id |
//! | `time` | occurredAt |
//! | `datacontenttype` | payload content type |
//! | `dataschema` | `urn:postrider:schema:{schemaDigest}`, where there is one |
//! | `partitionkey` | partitionKey; left out when empty |
//! | `traceparent`, `tracestate` | the trace context given at append |
//! | `tenant`, `aggregatetype`, `aggregateversion`, `schemaversion`, `generation` | the same |
//! | `actor`, `requestid`, `correlationid`, `causationid`, `operationid` | the same, where given |
//! | `deliverysetversion`, `deliverysetdigest` | deliverySet |
//! | `payloaddigest`, `envelopedigest`, `destinationdigest` | the digests |
//!
//! Together they are the whole envelope: a receiver can rebuild it and check its digest, see
//! [`read`]. All extension attributes are strings, numbers too: a CloudEvents integer has 32 bits.

mod header;
mod headers;
mod read;
mod structured;

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

pub use header::{NotUtf8, decode_header, encode_header};
pub use headers::Headers;
pub use read::{ReadError, Received, read};

use crate::{Digest, Envelope, destination::Serializer, invalid, media};

/// The media type of structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// The header that carries the event id in raw mode.
pub const RAW_ID: &str = "postrider-event-id";

const SCHEMA_URN: &str = "urn:postrider:schema:";

/// What a message is made from: a committed event and the destination it goes to.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    pub envelope: &'a Envelope,
    pub envelope_digest: &'a Digest,
    pub destination_digest: &'a Digest,
    pub traceparent: Option<&'a str>,
    pub tracestate: Option<&'a str>,
    /// Free headers.
    pub headers: &'a [(String, String)],
    pub payload: &'a [u8],
}

/// A header's name, lower-case, and its value.
pub type Header<'a> = (Cow<'a, str>, Cow<'a, str>);

/// A message in its wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Names are lower-case.
    pub headers: Headers,
    pub body: Body,
}

/// A message's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The payload as it is: nothing was copied.
    Payload,
    /// A body made from the event.
    Made(Vec<u8>),
}

/// How a CloudEvents protocol binding names and writes headers in binary mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Stands before the name of each attribute but `datacontenttype`.
    pub prefix: &'static str,
    /// The header that says the payload's content type.
    pub content_type: &'static str,
    /// Values are percent-encoded, see [`encode_header`]; else they are plain UTF-8.
    pub percent_encoded: bool,
}

impl Binding {
    /// Names as in HTTP, values plain: the form between the relay and its transports.
    pub const PLAIN: Self = Self {
        prefix: "ce-",
        content_type: "content-type",
        percent_encoded: false,
    };
    /// CloudEvents over HTTP.
    pub const HTTP: Self = Self {
        prefix: "ce-",
        content_type: "content-type",
        percent_encoded: true,
    };
    /// Here `content-type` marks structured mode, so binary mode has an attribute of its own.
    pub const NATS: Self = Self {
        prefix: "ce-",
        content_type: "ce-datacontenttype",
        percent_encoded: true,
    };
    /// CloudEvents over Kafka: headers hold plain UTF-8.
    pub const KAFKA: Self = Self {
        prefix: "ce_",
        content_type: "content-type",
        percent_encoded: false,
    };
    /// The content type goes into the message property `content-type`.
    pub const AMQP: Self = Self {
        prefix: "cloudEvents_",
        content_type: "content-type",
        percent_encoded: false,
    };

    fn value<'a>(self, name: &str, value: &'a str) -> Cow<'a, str> {
        if self.percent_encoded {
            encode_header(name, value)
        } else {
            Cow::Borrowed(value)
        }
    }
}

/// Why an event has no such wire format. Sending again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "the payload's content type is {0}, which a receiver would take for structured mode; send \
         it through a destination with the serializer raw or cloudevents-structured"
    )]
    LooksStructured(String),
    #[error("the payload is said to be JSON and is not: {0}")]
    NotJson(crate::canonical::Error),
}

/// Makes the message. Only what must be made is copied.
///
/// - Binary: one header per attribute, the payload as body.
/// - Structured: `content-type: application/cloudevents+json`, one JSON object as body; the
///   payload stands in it as it is when its content type is JSON, in base64 otherwise (and where
///   white space stands around the JSON value).
/// - Raw: the id in [`RAW_ID`], the content type where the binding has it, the payload as body.
///
/// In every mode trace context (`traceparent`, `tracestate`) and free headers follow as headers
/// of their own.
///
/// # Errors
/// When a receiver could not read the message as what it is.
pub fn wire(source: &Source<'_>, serializer: Serializer, binding: Binding) -> Result<Wire, Error> {
    /// What the headers of a usual message take.
    const HEADERS: (usize, usize) = (28, 1_500);
    let content_type = source.envelope.payload.content_type.as_str();
    let mut headers = Headers::with_capacity(HEADERS.0, HEADERS.1);
    let body = match serializer {
        Serializer::CloudeventsBinary => {
            if looks_structured(content_type) {
                return Err(Error::LooksStructured(invalid::quote(content_type)));
            }
            let name = binding.content_type;
            headers.push(name, binding.value(name, content_type));
            attributes(source, |name, value| {
                if name != "datacontenttype" {
                    // None of these names is one whose values stay as they are.
                    headers.push_joined(binding.prefix, name, binding.value("", value));
                }
            });
            Body::Payload
        }
        Serializer::CloudeventsStructured => {
            headers.push("content-type", STRUCTURED);
            Body::Made(structured::write(source)?)
        }
        Serializer::Raw => {
            let name = if looks_structured(content_type) {
                Binding::PLAIN.content_type
            } else {
                binding.content_type
            };
            headers.push(name, binding.value(name, content_type));
            headers.push(RAW_ID, source.envelope.event_id);
            Body::Payload
        }
    };
    let trace = [
        ("traceparent", source.traceparent),
        ("tracestate", source.tracestate),
    ];
    for (name, value) in trace {
        if let Some(value) = value {
            headers.push(name, binding.value(name, value));
        }
    }
    for (name, value) in source.headers {
        headers.push(name, binding.value(name, value));
    }
    Ok(Wire { headers, body })
}

/// A header of [`Binding::PLAIN`] as another binding has it.
#[must_use]
pub fn rebind<'a>(name: &'a str, value: &'a str, binding: Binding) -> Header<'a> {
    let name: Cow<'a, str> = match name.strip_prefix(Binding::PLAIN.prefix) {
        Some(attribute) if binding.prefix != Binding::PLAIN.prefix => {
            format!("{}{attribute}", binding.prefix).into()
        }
        None if name == Binding::PLAIN.content_type && !looks_structured(value) => {
            binding.content_type.into()
        }
        Some(_) | None => name.into(),
    };
    let value = binding.value(&name, value);
    (name, value)
}

/// Gives the attributes of an event, in the order of the table above.
pub fn attributes(source: &Source<'_>, mut give: impl FnMut(&'static str, &str)) {
    let Source {
        envelope,
        envelope_digest,
        destination_digest,
        traceparent,
        tracestate,
        ..
    } = *source;
    give("specversion", "1.0");
    let mut made = Made::default();
    give("id", made.of(envelope.event_id));
    give(
        "source",
        made.of(UriReference(&envelope.tenant, &envelope.aggregate.kind)),
    );
    give("type", &envelope.event_type);
    give("subject", &envelope.aggregate.id);
    give("time", made.of(envelope.occurred_at));
    give("datacontenttype", &envelope.payload.content_type);
    if let Some(digest) = &envelope.payload.schema_digest {
        give("dataschema", made.of(format_args!("{SCHEMA_URN}{digest}")));
    }
    if !envelope.partition_key.is_empty() {
        give("partitionkey", &envelope.partition_key);
    }
    let given = [
        ("traceparent", traceparent),
        ("tracestate", tracestate),
        ("tenant", Some(envelope.tenant.as_str())),
        ("aggregatetype", Some(&envelope.aggregate.kind)),
        ("schemaversion", Some(&envelope.schema_version)),
        ("actor", envelope.actor.as_deref()),
        ("requestid", envelope.request_id.as_deref()),
        ("correlationid", envelope.correlation_id.as_deref()),
        ("causationid", envelope.causation_id.as_deref()),
        ("operationid", envelope.operation_id.as_deref()),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            give(name, value);
        }
    }
    if let Some(version) = envelope.aggregate.version {
        give("aggregateversion", made.of(version));
    }
    give("generation", made.of(envelope.generation));
    give("deliverysetversion", made.of(envelope.delivery_set.version));
    give("deliverysetdigest", made.of(envelope.delivery_set.digest));
    give("payloaddigest", made.of(envelope.payload.digest));
    give("envelopedigest", made.of(envelope_digest));
    give("destinationdigest", made.of(destination_digest));
}

/// One text after the other, in the same memory.
#[derive(Default)]
struct Made(String);

impl Made {
    fn of(&mut self, value: impl fmt::Display) -> &str {
        self.0.clear();
        write!(self.0, "{value}").expect("text is written to memory");
        &self.0
    }
}

/// `/{tenant}/{aggregate type}`, a relative reference as RFC 3986 has it.
struct UriReference<'a>(&'a str, &'a str);

impl fmt::Display for UriReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut reference = String::with_capacity(self.0.len() + self.1.len() + 2);
        for segment in [self.0, self.1] {
            reference.push('/');
            for byte in segment.bytes() {
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    reference.push(char::from(byte));
                } else {
                    header::push_percent(&mut reference, byte);
                }
            }
        }
        f.write_str(&reference)
    }
}

/// Whether the payload is embedded as JSON in structured mode.
fn embeds_json(source: &Source<'_>) -> Result<bool, Error> {
    let content_type = &source.envelope.payload.content_type;
    let is_json = media::is_json(content_type);
    if !is_json && !media::has_json_suffix(content_type) {
        return Ok(false);
    }
    // White space around the value would be lost between the members of the object.
    let space = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
    match crate::canonical::check(source.payload) {
        Ok(()) if space(source.payload.first()) || space(source.payload.last()) => Ok(false),
        Ok(()) => Ok(true),
        // Only `application/json` is checked at append; base64 is right for anything.
        Err(_) if !is_json => Ok(false),
        Err(error) => Err(Error::NotJson(error)),
    }
}

/// Whether a receiver takes a message with this content type for structured mode.
fn looks_structured(content_type: &str) -> bool {
    const START: &str = "application/cloudevents";
    content_type
        .get(..START.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(START))
}
