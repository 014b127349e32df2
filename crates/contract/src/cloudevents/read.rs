//! Reading a message back: the envelope is rebuilt and both digests are checked.

use std::{borrow::Cow, collections::BTreeMap};

use super::{Binding, SCHEMA_URN, decode_header, looks_structured, structured};
use crate::{
    Digest, Envelope, EventId, Invalid, Timestamp, canonical,
    envelope::{Aggregate, DeliverySetRef, Payload, Schema},
    headers::Headers,
};

/// A message that holds together: payload, envelope and digests agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    pub envelope: Envelope,
    pub envelope_digest: Digest,
    pub destination_digest: Digest,
    pub traceparent: Option<String>,
    pub tracestate: Option<String>,
    /// Headers that are not attributes, sorted by name, names in lower case: the free headers,
    /// and whatever the transport added.
    pub headers: Headers,
    pub payload: Cow<'a, [u8]>,
}

/// Why a message is not an event of postrider.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("the attribute {0} is missing; is this message from postrider, and not in raw mode?")]
    Missing(&'static str),
    #[error("the attribute {name} cannot be read: {message}")]
    Attribute { name: String, message: String },
    #[error("the header {0} is there twice")]
    Twice(String),
    #[error("the body cannot be read as a structured CloudEvent: {0}")]
    Structured(String),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// What arrived is not what was committed.
    #[error("the {what} digest is {found}, but the message says {said}: it was changed on its way")]
    Digest {
        what: &'static str,
        found: Digest,
        said: Digest,
    },
}

/// Reads a message in binary or structured mode, whichever its content type says.
///
/// # Errors
/// When an attribute is missing or unreadable, or a digest does not match.
pub fn read<'a, 'h>(
    headers: impl IntoIterator<Item = (&'h str, &'h str)>,
    body: &'a [u8],
    binding: Binding,
) -> Result<Received<'a>, ReadError> {
    let mut attributes = Attributes(BTreeMap::new());
    let mut free = Headers::new();
    let mut structured = false;
    let prefix = binding.prefix.to_ascii_lowercase();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let value = if binding.percent_encoded {
            decode_header(&name, value).map_err(|error| ReadError::Attribute {
                name: name.clone(),
                message: error.to_string(),
            })?
        } else {
            value.into()
        };
        if name == "content-type" && looks_structured(&value) {
            structured = true;
        } else if name == binding.content_type {
            attributes.add("datacontenttype", value)?;
        } else if let Some(attribute) = name.strip_prefix(&prefix) {
            attributes.add(attribute, value)?;
        } else {
            free.push((name, value.into_owned()));
        }
    }
    free.sort();
    let payload = if structured {
        // Nothing but the body counts in structured mode.
        attributes = Attributes(BTreeMap::new());
        Cow::Owned(attributes.unpack(body)?)
    } else {
        Cow::Borrowed(body)
    };
    let envelope = attributes.envelope(&payload)?;
    let envelope_digest = envelope.digest();
    for (what, found, said) in [
        (
            "payload",
            envelope.payload.digest,
            attributes.parse("payloaddigest")?,
        ),
        (
            "envelope",
            envelope_digest,
            attributes.parse("envelopedigest")?,
        ),
    ] {
        if found != said {
            return Err(ReadError::Digest { what, found, said });
        }
    }
    Ok(Received {
        envelope,
        envelope_digest,
        destination_digest: attributes.parse("destinationdigest")?,
        traceparent: attributes.optional("traceparent"),
        tracestate: attributes.optional("tracestate"),
        headers: free,
        payload,
    })
}

/// Attribute values by attribute name.
struct Attributes(BTreeMap<String, String>);

impl Attributes {
    fn add(&mut self, name: &str, value: Cow<'_, str>) -> Result<(), ReadError> {
        match self.0.insert(name.to_owned(), value.into_owned()) {
            None => Ok(()),
            Some(_) => Err(ReadError::Twice(name.to_owned())),
        }
    }

    /// Takes the attributes out of a structured body and answers its payload.
    fn unpack(&mut self, body: &[u8]) -> Result<Vec<u8>, ReadError> {
        let unreadable = |error: serde_json::Error| ReadError::Structured(error.to_string());
        canonical::check(body).map_err(|error| ReadError::Structured(error.to_string()))?;
        let (mut data, mut data_base64) = (None, None);
        let structured::Members(members) = serde_json::from_slice(body).map_err(unreadable)?;
        for (name, value) in members {
            let twice = match name.as_str() {
                "data" => data.replace(value).is_some(),
                "data_base64" => data_base64.replace(value).is_some(),
                _ => {
                    let text: String = serde_json::from_str(value.get()).map_err(unreadable)?;
                    self.0.insert(name.clone(), text).is_some()
                }
            };
            if twice {
                return Err(ReadError::Twice(name));
            }
        }
        match (data, data_base64) {
            (Some(data), None) => Ok(data.get().as_bytes().to_vec()),
            (None, Some(text)) => {
                let text: String = serde_json::from_str(text.get()).map_err(unreadable)?;
                structured::from_base64(&text)
                    .ok_or_else(|| ReadError::Structured("data_base64 is not base64".into()))
            }
            (Some(_), Some(_)) => Err(ReadError::Structured(
                "it has both data and data_base64".into(),
            )),
            (None, None) => Err(ReadError::Structured("it has no data".into())),
        }
    }

    fn optional(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    fn required(&self, name: &'static str) -> Result<String, ReadError> {
        self.optional(name).ok_or(ReadError::Missing(name))
    }

    fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &'static str,
    ) -> Result<T, ReadError> {
        self.required(name)?
            .parse()
            .map_err(|error: T::Err| ReadError::Attribute {
                name: name.to_owned(),
                message: error.to_string(),
            })
    }

    fn envelope(&self, payload: &[u8]) -> Result<Envelope, ReadError> {
        let schema_digest = match self.optional("dataschema") {
            None => None,
            Some(urn) => {
                let digest = urn
                    .strip_prefix(SCHEMA_URN)
                    .and_then(|digest| digest.parse().ok());
                Some(digest.ok_or_else(|| ReadError::Attribute {
                    name: "dataschema".into(),
                    message: format!("it does not start with {SCHEMA_URN} and end in a digest"),
                })?)
            }
        };
        let version = match self.0.contains_key("aggregateversion") {
            true => Some(self.parse("aggregateversion")?),
            false => None,
        };
        let envelope = Envelope {
            schema: Schema::V1,
            event_id: self.parse::<EventId>("id")?,
            generation: self.parse("generation")?,
            tenant: self.required("tenant")?,
            aggregate: Aggregate {
                kind: self.required("aggregatetype")?,
                id: self.required("subject")?,
                version,
            },
            event_type: self.required("type")?,
            schema_version: self.required("schemaversion")?,
            payload: Payload {
                content_type: self.required("datacontenttype")?,
                schema_digest,
                digest: Digest::of_bytes(payload),
                length: u64::try_from(payload.len()).expect("a length fits 64 bits"),
            },
            // The attribute may not be empty, so an empty key is left out.
            partition_key: self.optional("partitionkey").unwrap_or_default(),
            actor: self.optional("actor"),
            request_id: self.optional("requestid"),
            correlation_id: self.optional("correlationid"),
            causation_id: self.optional("causationid"),
            operation_id: self.optional("operationid"),
            occurred_at: self.parse::<Timestamp>("time")?,
            delivery_set: DeliverySetRef {
                version: self.parse("deliverysetversion")?,
                digest: self.parse("deliverysetdigest")?,
            },
        };
        envelope.validate()?;
        Ok(envelope)
    }
}
