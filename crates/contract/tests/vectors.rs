//! The golden vectors, which Node.js made without any of this code.

use std::{collections::BTreeMap, fmt::Debug, fs, path::PathBuf, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};
use postrider_contract::{
    DeliverySet, Destination, Digest, Envelope, EventId, Invalid, NewEvent, Receipt,
    canonical::{self, Profile, ReadError},
    cloudevents::{self, Binding, Body, decode_header, encode_header},
    destination::Serializer,
    envelope::DeliverySetRef,
    key,
    new_event::Sealed,
    receipt::Packed,
    timestamp::Timestamp,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

fn folder() -> PathBuf {
    [
        env!("CARGO_MANIFEST_DIR"),
        "..",
        "..",
        "contracts",
        "vectors",
    ]
    .iter()
    .collect()
}

fn vectors<T: DeserializeOwned>(file: &str) -> Vec<T> {
    let path = folder().join(file);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What a canonical form is expected to be.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Expected {
    Refused { refused: String },
    Canonical { canonical: String, digest: Digest },
}

#[derive(Deserialize)]
struct Text {
    name: String,
    profile: String,
    input: Option<String>,
    #[serde(rename = "inputHex")]
    input_hex: Option<String>,
    #[serde(flatten)]
    expected: Expected,
}

#[test]
fn canonical_json() {
    for vector in vectors::<Text>("canonical.json") {
        let name = &vector.name;
        let input = match (&vector.input, &vector.input_hex) {
            (Some(text), None) => text.clone().into_bytes(),
            (None, Some(hex)) => hex
                .as_bytes()
                .chunks(2)
                .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect(),
            _ => panic!("{name}: one of input and inputHex"),
        };
        let profile = match vector.profile.as_str() {
            "object" => Profile::Object,
            "value" => Profile::Value,
            "rfc8785" => Profile::Rfc8785,
            other => panic!("{name}: profile {other}"),
        };
        let found = canonical::canonicalise(&input, profile);
        match (vector.expected, found) {
            (Expected::Canonical { canonical, digest }, Ok(found)) => {
                assert_eq!(found, canonical, "{name}");
                assert_eq!(Digest::of_canonical(&found), digest, "{name}");
                let again = canonical::canonicalise(found.as_bytes(), Profile::Rfc8785);
                assert_eq!(again.unwrap(), canonical, "{name}");
            }
            (Expected::Refused { refused }, Err(error)) => {
                assert_eq!(error.problem.word(), refused, "{name}: {error}");
                assert!(error.offset <= input.len(), "{name}: {error}");
            }
            (expected, found) => panic!("{name}: {expected:?}, {found:?}"),
        }
    }
}

#[derive(Deserialize)]
struct Double {
    bits: String,
    canonical: String,
}

#[test]
fn doubles() {
    for Double { bits, canonical } in vectors("doubles.json") {
        let double = f64::from_bits(u64::from_str_radix(&bits, 16).unwrap());
        // Rust's own text of the double: other digits than the canonical form, same value.
        let text = format!("{double:e}");
        let found = canonical::canonicalise(text.as_bytes(), Profile::Rfc8785).unwrap();
        assert_eq!(found, canonical, "{bits}");
        assert_eq!(canonical::to_string(&double), canonical, "{bits}");
    }
}

#[derive(Deserialize)]
struct Time {
    input: String,
    canonical: Option<String>,
    #[serde(rename = "unixMicros")]
    unix_micros: Option<String>,
    refused: Option<String>,
}

#[test]
fn timestamps() {
    for vector in vectors::<Time>("timestamps.json") {
        match vector.input.parse::<Timestamp>() {
            Ok(time) => {
                assert_eq!(Some(time.to_string()), vector.canonical, "{}", vector.input);
                assert_eq!(Some(time.unix_micros().to_string()), vector.unix_micros);
                assert_eq!(time.to_string().parse(), Ok(time));
            }
            Err(error) => {
                let refused = vector.refused.as_deref();
                assert_eq!(
                    Some(error.reason.word()),
                    refused,
                    "{}: {error}",
                    vector.input
                );
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Key {
    partition_key: String,
    key_hash: String,
    lanes: Vec<Lane>,
}

#[derive(Deserialize)]
struct Lane {
    lanes: u16,
    lane: u16,
}

#[test]
fn keys_and_lanes() {
    for vector in vectors::<Key>("keys.json") {
        let hash = key::hash(&vector.partition_key);
        assert_eq!(
            hash.to_string(),
            vector.key_hash,
            "{:?}",
            vector.partition_key
        );
        for Lane { lanes, lane } in vector.lanes {
            assert_eq!(
                key::lane(hash, lanes),
                lane,
                "{:?} of {lanes}",
                vector.partition_key
            );
        }
    }
}

/// An event as the flat table has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Flat {
    event_id: String,
    event_type: String,
    schema_version: String,
    aggregate_type: String,
    aggregate_id: String,
    payload_base64: String,
    occurred_at: String,
    delivery_set_version: String,
    delivery_set_digest: Digest,
    schema_digest: Option<Digest>,
    tenant: Option<String>,
    aggregate_version: Option<String>,
    content_type: Option<String>,
    partition_key: Option<String>,
    actor: Option<String>,
    request_id: Option<String>,
    correlation_id: Option<String>,
    causation_id: Option<String>,
    operation_id: Option<String>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    #[serde(default)]
    headers: Vec<(String, String)>,
}

impl Flat {
    fn seal(self) -> (NewEvent, Result<Sealed, Invalid>) {
        let payload = STANDARD.decode(&self.payload_base64).unwrap();
        let mut event = NewEvent::new(
            self.event_type,
            self.schema_version,
            self.aggregate_type,
            self.aggregate_id,
            payload,
        );
        event.tenant = self.tenant;
        event.aggregate.version = self
            .aggregate_version
            .map(|version| version.parse().unwrap());
        event.content_type = self.content_type;
        event.partition_key = self.partition_key;
        event.actor = self.actor;
        event.request_id = self.request_id;
        event.correlation_id = self.correlation_id;
        event.causation_id = self.causation_id;
        event.operation_id = self.operation_id;
        event.traceparent = self.traceparent;
        event.tracestate = self.tracestate;
        event.headers = self.headers;
        let event_id: EventId = self.event_id.parse().unwrap();
        let occurred_at: Timestamp = self.occurred_at.parse().unwrap();
        let set = DeliverySetRef {
            version: self.delivery_set_version.parse().unwrap(),
            digest: self.delivery_set_digest,
        };
        let sealed = event.seal(event_id, occurred_at, &set, self.schema_digest);
        (event, sealed)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EnvelopeVector {
    name: String,
    input: Flat,
    refused: Option<String>,
    canonical: Option<String>,
    envelope_digest: Option<Digest>,
    payload_digest: Option<Digest>,
    key_hash: Option<String>,
}

#[test]
fn envelopes() {
    for vector in vectors::<EnvelopeVector>("envelopes.json") {
        let name = &vector.name;
        match (vector.input.seal().1, vector.refused) {
            (Ok(sealed), None) => {
                assert_eq!(Some(&sealed.canonical), vector.canonical.as_ref(), "{name}");
                assert_eq!(Some(sealed.digest), vector.envelope_digest, "{name}");
                assert_eq!(
                    Some(sealed.envelope.payload.digest),
                    vector.payload_digest,
                    "{name}"
                );
                assert_eq!(Some(sealed.key_hash.to_string()), vector.key_hash, "{name}");
                assert_eq!(
                    Envelope::from_json(&sealed.canonical).unwrap(),
                    sealed.envelope
                );
                assert_eq!(
                    Envelope::from_stored(&sealed.canonical).unwrap(),
                    sealed.envelope
                );
            }
            (Err(error), Some(refused)) => {
                let field = error.field.split('[').next();
                assert_eq!(field, Some(refused.as_str()), "{name}: {error}");
            }
            (found, refused) => panic!("{name}: {refused:?}, {found:?}"),
        }
    }
}

#[derive(Deserialize)]
struct Object {
    name: String,
    input: String,
    #[serde(flatten)]
    expected: Expected,
}

fn objects<T: Debug + PartialEq>(
    file: &str,
    read: impl Fn(&str) -> Result<T, ReadError>,
    write: impl Fn(&T) -> (String, Digest),
) {
    for vector in vectors::<Object>(file) {
        let name = &vector.name;
        match (read(&vector.input), vector.expected) {
            (Ok(object), Expected::Canonical { canonical, digest }) => {
                assert_eq!(write(&object), (canonical.clone(), digest), "{name}");
                assert_eq!(read(&canonical).unwrap(), object, "{name}");
            }
            (Err(error), Expected::Refused { refused }) => {
                assert!(error.to_string().contains(&refused), "{name}: {error}");
            }
            (found, expected) => panic!("{name}: {expected:?}, {found:?}"),
        }
    }
}

#[test]
fn destinations() {
    objects("destinations.json", Destination::from_json, |d| {
        (d.canonical(), d.digest())
    });
}

#[test]
fn delivery_sets() {
    objects("delivery-sets.json", DeliverySet::from_json, |set| {
        (set.canonical(), set.digest())
    });
    // The constructor arrives at the same set from any order.
    let first = vectors::<Object>("delivery-sets.json").remove(0);
    let seed = DeliverySet::from_json(&first.input).unwrap();
    assert_eq!((seed.applicable_events.len(), seed.members.len()), (13, 14));
    let reversed = |set: &DeliverySet| {
        let events = set.applicable_events.iter().rev().cloned().collect();
        DeliverySet::new(
            set.version,
            events,
            set.members.iter().rev().cloned().collect(),
        )
    };
    assert_eq!(reversed(&seed), seed);
}

#[derive(Deserialize)]
struct PackedVector {
    input: String,
    packed: Option<PackedForm>,
}

#[derive(Deserialize)]
struct PackedForm {
    shared: String,
    number: Option<String>,
}

#[test]
fn receipts() {
    objects("receipts.json", Receipt::from_json, |r| {
        (r.canonical(), r.digest())
    });
    for vector in vectors::<PackedVector>("receipts.json") {
        if let Some(packed) = vector.packed {
            let receipt = Receipt::from_json(&vector.input).unwrap();
            let number = packed.number.map(|number| number.parse().unwrap());
            let packed = Packed {
                shared: packed.shared,
                number,
            };
            assert_eq!(receipt.pack(), packed);
            assert_eq!(Receipt::unpack(&packed).unwrap(), receipt);
        }
    }
}

#[derive(Deserialize)]
struct Header {
    decoded: Option<String>,
    encoded: Option<String>,
    received: Option<String>,
    refused: Option<String>,
}

#[test]
fn header_values() {
    for Header {
        decoded,
        encoded,
        received,
        refused,
    } in vectors("headers.json")
    {
        if let (Some(decoded), Some(encoded)) = (&decoded, &encoded) {
            assert_eq!(encode_header("ce-subject", decoded), *encoded);
        }
        let received = encoded.or(received).unwrap();
        let found = decode_header("ce-subject", &received);
        assert_eq!(found.is_err(), refused.is_some(), "{received}: {found:?}");
        assert_eq!(found.ok().map(String::from), decoded, "{received}");
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CloudEvent {
    name: String,
    input: Flat,
    destination_digest: Digest,
    attributes: BTreeMap<String, String>,
    structured: BTreeMap<String, String>,
}

#[test]
fn cloudevents_attributes_and_modes() {
    for vector in vectors::<CloudEvent>("cloudevents.json") {
        let name = &vector.name;
        let (event, sealed) = vector.input.seal();
        let sealed = sealed.unwrap();
        let source = cloudevents::Source {
            envelope: &sealed.envelope,
            envelope_digest: &sealed.digest,
            destination_digest: &vector.destination_digest,
            traceparent: event.traceparent.as_deref(),
            tracestate: event.tracestate.as_deref(),
            headers: &[],
            payload: &event.payload,
        };
        let mut found = BTreeMap::new();
        cloudevents::attributes(&source, |name, value| {
            found.insert(name.to_owned(), value.to_owned());
        });
        assert_eq!(found, vector.attributes, "{name}");

        let serializer = Serializer::CloudeventsStructured;
        let wire = cloudevents::wire(&source, serializer, Binding::HTTP).unwrap();
        let Body::Made(body) = wire.body else {
            panic!("{name}: a structured body is made")
        };
        let body: BTreeMap<String, Box<serde_json::value::RawValue>> =
            serde_json::from_slice(&body).unwrap();
        for (attribute, value) in &vector.attributes {
            let found: Value = serde_json::from_str(body[attribute].get()).unwrap();
            assert_eq!(found, Value::from(value.as_str()), "{name}: {attribute}");
        }
        assert_eq!(
            body.len(),
            vector.attributes.len() + vector.structured.len(),
            "{name}"
        );
        for (member, text) in &vector.structured {
            let found = body[member].get();
            match member.as_str() {
                "data" => assert_eq!(found, text, "{name}"),
                _ => assert_eq!(found, format!("{text:?}"), "{name}"),
            }
        }

        let wire =
            cloudevents::wire(&source, Serializer::CloudeventsBinary, Binding::HTTP).unwrap();
        for (attribute, value) in &vector.attributes {
            let header = match attribute.as_str() {
                "datacontenttype" => "content-type".to_owned(),
                attribute => format!("ce-{attribute}"),
            };
            let found = wire.headers.get(&header).unwrap();
            assert_eq!(found, encode_header(&header, value), "{name}: {header}");
        }
    }
}

/// Nobody changes an expected value by hand, or the generator without its files.
#[test]
fn the_files_are_what_the_generator_makes() {
    let node = std::env::var("POSTRIDER_TEST_NODE").unwrap_or_else(|_| "node".into());
    let output = Command::new(&node)
        .arg(folder().join("generate.mjs"))
        .arg("--check")
        .output()
        .unwrap_or_else(|error| {
            panic!("{node}: {error}; install Node.js, or name it in POSTRIDER_TEST_NODE")
        });
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
