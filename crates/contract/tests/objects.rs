//! The rules of destinations, delivery sets, event types and receipts.

use postrider_contract::{
    DeliverySet, Destination, Digest, Envelope, EventId, EventType, NewEvent, Receipt, Timestamp,
    delivery_set::{ApplicableEvent, Member, ProjectionTarget},
    destination::{
        self, Durability, Key, OnQuarantine, OnUnknown, Ordering, Partitioner, Serializer,
    },
    envelope::DeliverySetRef,
};

fn destination() -> Destination {
    Destination {
        schema: destination::Schema::V1,
        name: "orders".into(),
        generation: 1,
        kind: "jetstream".into(),
        cluster: "eu-1".into(),
        target: "orders.{event_type}".into(),
        container: Some("ORDERS".into()),
        key: Key::PartitionKey,
        partitioner: Partitioner::None,
        serializer: Serializer::CloudeventsBinary,
        durability: Durability::Stored,
        receipt_type: "jetstream.ack/1".into(),
        ordering: Ordering::Key,
        lanes: 64,
        on_unknown: OnUnknown::Resend,
        on_quarantine: OnQuarantine::Hold,
        max_attempts: Some(20),
        max_payload_bytes: Some(1000),
    }
}

fn member(event_type: &str, destination: &str, consumer: &str) -> Member {
    Member {
        event_type: event_type.into(),
        schema_version: "1".into(),
        destination: destination.into(),
        destination_digest: Digest::of_canonical(destination),
        consumer: consumer.into(),
        expected_receipt_type: "jetstream.ack/1".into(),
        expected_receipt_schema_version: "1".into(),
        projection_target: ProjectionTarget::NotApplicable {},
        mandatory: true,
    }
}

fn event(event_type: &str, schema_version: &str) -> ApplicableEvent {
    ApplicableEvent {
        event_type: event_type.into(),
        schema_version: schema_version.into(),
    }
}

fn projection() -> ProjectionTarget {
    ProjectionTarget::Required {
        projection_name: "orders".into(),
        projection_version: "2".into(),
    }
}

#[test]
fn a_destination_keeps_within_its_bounds() {
    destination().validate().unwrap();
    let refused = |change: fn(&mut Destination), says: &str| {
        let mut changed = destination();
        change(&mut changed);
        let text = changed.validate().unwrap_err().to_string();
        assert!(text.starts_with(says), "{text}");
    };
    refused(|d| d.name.clear(), "name: is empty");
    refused(|d| d.name = "a b".into(), "name: holds ' ' at byte 1");
    refused(
        |d| d.generation = 0,
        "generation: is 0, but must be between 1 and 9007199254740991",
    );
    refused(
        |d| d.generation = 1 << 53,
        "generation: is 9007199254740992",
    );
    refused(|d| d.kind = "é".into(), "kind: holds 'é'");
    refused(
        |d| d.cluster = "a\nb".into(),
        "cluster: holds the control character U+000A",
    );
    refused(
        |d| d.target = "x".repeat(1025),
        "target: is 1025 bytes long",
    );
    refused(|d| d.container = Some(String::new()), "container: is empty");
    refused(|d| d.receipt_type.clear(), "receiptType: is empty");
    refused(
        |d| d.lanes = 0,
        "lanes: is 0, but must be between 1 and 1024",
    );
    refused(|d| d.lanes = 1025, "lanes: is 1025");
    refused(|d| d.max_attempts = Some(0), "maxAttempts: is 0");
    refused(|d| d.max_payload_bytes = Some(0), "maxPayloadBytes: is 0");

    let narrow = destination();
    narrow.check_payload(1000).unwrap();
    let text = narrow.check_payload(1001).unwrap_err().to_string();
    assert!(
        text.starts_with("payload: is 1001 bytes long, and destination orders takes at most 1000")
    );
}

#[test]
fn canonical_objects_are_read_from_any_text_that_says_the_same() {
    let object = destination();
    let spaced = object.canonical().replace(',', " ,\n");
    assert_eq!(Destination::from_json(&spaced).unwrap(), object);
    assert_eq!(
        Destination::from_stored(&object.canonical()).unwrap(),
        object
    );
    let refused = |from: &str, to: &str, says: &str| {
        let text = object.canonical();
        assert!(text.contains(from), "{from} in {text}");
        let error = Destination::from_json(&text.replace(from, to))
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(
        "\"lanes\":64",
        "\"lanes\":64,\"lanes\":64",
        "the member \"lanes\" appears twice",
    );
    refused(
        "\"lanes\":64",
        "\"lanes\":64.0",
        "64.0 is not written as an integer, and canonical objects hold no other numbers; write plain digits, at byte",
    );
    refused("\"lanes\":64", "\"lanes\":64.0", "(/lanes)");
    refused(
        "\"lanes\":64",
        "\"lanes\":9007199254740992",
        "9007199254740992 is past",
    );
    refused("\"lanes\":64", "\"lanes\":null", "leave the member out");
    refused(
        "\"lanes\":64",
        "\"lanes\":0",
        "not a valid postrider.destination/1: lanes: is 0",
    );
    refused("\"lanes\":64", "\"lanse\":64", "unknown field `lanse`");
    refused(",\"lanes\":64", "", "missing field `lanes`");
    refused("destination/1", "destination/2", "postrider.destination/2");
    refused("orders", "\\ud800", "half of a surrogate pair");
    refused("{", "\u{feff}{", "byte order mark");
}

#[test]
fn an_envelope_tells_digests_of_canonical_json_from_those_of_bytes() {
    let (canonical, bytes) = (Digest::of_canonical("{}"), Digest::of_bytes(b"{}"));
    let set = |digest| DeliverySetRef { version: 1, digest };
    let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let now: Timestamp = "2026-01-31T09:30:00Z".parse().unwrap();
    let event = NewEvent::new("order.placed", "1", "order", "o-1", "{}");
    let sealed = event
        .seal(id, now, &set(canonical), Some(canonical))
        .unwrap();
    let refused = |change: &dyn Fn(&mut Envelope), says: &str| {
        let mut changed = sealed.envelope.clone();
        change(&mut changed);
        let text = changed.validate().unwrap_err().to_string();
        assert!(text.starts_with(says), "{text}");
        let error = Envelope::from_json(&changed.canonical())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(says) || error.contains("2^53 - 1"),
            "{error}"
        );
    };
    refused(
        &|e| e.payload.schema_digest = Some(bytes),
        "payload.schemaDigest: is \"sha256:",
    );
    refused(
        &|e| e.payload.digest = canonical,
        "payload.digest: is \"jcs-sha256-v1:",
    );
    refused(
        &|e| e.delivery_set = set(bytes),
        "deliverySet.digest: is \"sha256:",
    );
    refused(&|e| e.delivery_set.version = 0, "deliverySet.version: is 0");
    refused(&|e| e.generation = 0, "generation: is 0");
    refused(
        &|e| e.generation = 1 << 53,
        "generation: is 9007199254740992",
    );
    refused(
        &|e| e.payload.length = 1 << 53,
        "payload.length: is 9007199254740992",
    );
}

#[test]
fn a_delivery_set_is_sorted_counted_and_exact() {
    let good = DeliverySet::new(
        1,
        vec![
            event("b", "1"),
            event("a", "10"),
            event("a", "1"),
            event("a", "2"),
        ],
        vec![
            member("b", "d2", "c"),
            member("a", "d2", "c"),
            member("a", "d1", "c"),
        ],
    );
    good.validate().unwrap();
    let pairs: Vec<_> = good
        .applicable_events
        .iter()
        .map(|e| &e.schema_version[..])
        .collect();
    assert_eq!(
        pairs,
        ["1", "10", "2", "1"],
        "versions are text, sorted by bytes"
    );
    assert_eq!(good.members_of("a", "1").len(), 2);
    assert_eq!(good.members_of("a", "2").len(), 0);
    assert_eq!(good.members_of("b", "1")[0].destination, "d2");
    assert!(good.applies_to("a", "10") && !good.applies_to("a", "1.0"));
    assert_eq!(DeliverySet::from_json(&good.canonical()).unwrap(), good);

    let refused = |change: fn(&mut DeliverySet), says: &str| {
        let mut changed = good.clone();
        change(&mut changed);
        let text = changed.validate().unwrap_err().to_string();
        assert!(text.starts_with(says), "{text}");
    };
    refused(|s| s.version = 0, "version: is 0");
    refused(
        |s| s.applicable_event_count = 5,
        "applicableEventCount: is 5, but there are 4",
    );
    refused(|s| s.member_count = 2, "memberCount: is 2, but there are 3");
    refused(
        |s| s.applicable_events.swap(0, 1),
        "applicableEvents[1]: must come before",
    );
    refused(
        |s| s.applicable_events[1] = event("a", "1"),
        "applicableEvents[1]: is the same",
    );
    refused(|s| s.members.swap(0, 1), "members[1]: must come before");
    refused(
        |s| s.members[1] = s.members[0].clone(),
        "members[1]: is the same",
    );
    refused(
        |s| s.members[0].event_type = "Z".into(),
        "members[0].eventType: names Z version 1, which is not in applicableEvents",
    );
    refused(
        |s| s.members[0].schema_version = "*".into(),
        "members[0].schemaVersion: holds '*'",
    );
    refused(
        |s| {
            s.members[1] = s.members[0].clone();
            s.members[1].consumer = "other".into();
        },
        "members[1].consumer: is the second consumer (other, after c) of a version 1 at destination d1",
    );
    refused(
        |s| s.members[2].destination_digest = Digest::of_canonical("x"),
        "members[2].destinationDigest: is another version of destination d2",
    );
    refused(
        |s| s.members[0].destination_digest = Digest::of_bytes(b"x"),
        "members[0].destinationDigest: is \"sha256:",
    );
    refused(
        |s| s.members[0].projection_target = projection(),
        "members[0].projectionTarget: requires a projection, which a jetstream.ack/1 receipt",
    );
    refused(
        |s| {
            for member in &mut s.members {
                member.expected_receipt_type = "applied".into();
            }
            s.members[0].projection_target = projection();
        },
        "members[1].projectionTarget: does not fit: other members that expect applied version 1 require",
    );
    let mut projected = good.clone();
    projected.members[0].expected_receipt_type = "applied".into();
    projected.members[0].projection_target = projection();
    projected.validate().unwrap();
    assert_eq!(
        DeliverySet::from_json(&projected.canonical()).unwrap(),
        projected
    );
    let unknown = projected.canonical().replace(
        "\"state\":\"not_applicable\"",
        "\"state\":\"not_applicable\",\"x\":1",
    );
    assert!(
        DeliverySet::from_json(&unknown)
            .unwrap_err()
            .to_string()
            .contains("unknown field")
    );
}

#[test]
fn an_event_type_refers_to_nothing_outside_itself() {
    let new = |schema: &str| EventType::new("order.placed", "1", "application/json", Some(schema));
    let good = new(r##"{"type": "object", "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"a": {"$ref": "#/$defs/a"}, "$ref": {"type": "string"}}, "$defs": {"a": {"maximum": 1.0}}}"##)
    .unwrap();
    assert_eq!(
        good.json_schema.as_deref().unwrap(),
        r##"{"$defs":{"a":{"maximum":1}},"$schema":"http://json-schema.org/draft-07/schema#","properties":{"$ref":{"type":"string"},"a":{"$ref":"#/$defs/a"}},"type":"object"}"##
    );
    new("true").unwrap();
    EventType::new("a", "1", "image/png", None).unwrap();
    for (schema, says) in [
        (
            r#"{"$ref": "https://example.com/s.json"}"#,
            "jsonSchema/$ref: refers to \"https://example.com/s.json\", outside",
        ),
        (
            r#"{"properties": {"a": {"$ref": "other.json#/a"}}}"#,
            "jsonSchema/properties/a/$ref: refers to",
        ),
        (
            r#"{"anyOf": [true, {"$dynamicRef": "file:///etc/passwd"}]}"#,
            "jsonSchema/anyOf/1/$dynamicRef: refers to",
        ),
        (
            r#"{"$schema": "https://example.com/dialect"}"#,
            "jsonSchema/$schema: names the dialect",
        ),
        (
            r#"{"maximum": 9007199254740993}"#,
            "jsonSchema: is not JSON: the canonical form would change 9007199254740993",
        ),
        (
            r#"{"a": 1, "a": 2}"#,
            "jsonSchema: is not JSON: the member \"a\" appears twice",
        ),
        ("3", "jsonSchema: is neither an object nor true or false"),
        ("{", "jsonSchema: is not JSON: the text ends too early"),
    ] {
        let text = new(schema).unwrap_err().to_string();
        assert!(text.starts_with(says), "{text}");
    }
    let text = EventType::new("a", "1", "image/png", Some("{}"))
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("jsonSchema: is given for payloads of type image/png"),
        "{text}"
    );
    let mut spaced = good.clone();
    spaced.json_schema = Some("{ }".into());
    assert!(
        spaced
            .validate()
            .unwrap_err()
            .to_string()
            .contains("is not canonical JSON")
    );
    let text = serde_json::to_string(&good).unwrap();
    assert_eq!(EventType::from_json(&text).unwrap(), good);
}

#[test]
fn a_receipt_fits_the_destination_it_closes() {
    let ack = |stream: &str, sequence| Receipt::JetStream {
        stream: stream.into(),
        sequence,
        domain: None,
        duplicate: false,
    };
    let destination = destination();
    ack("ORDERS", 1).fits(&destination).unwrap();
    let refused = |receipt: Receipt, says: &str| {
        let text = receipt.fits(&destination).unwrap_err().to_string();
        assert!(text.starts_with(says), "{text}");
    };
    refused(
        ack("OTHER", 1),
        "stream: is \"OTHER\", but destination orders says \"ORDERS\"",
    );
    refused(ack("", 1), "stream: is empty");
    refused(ack("ORDERS", 1 << 53), "sequence: is 9007199254740992");
    refused(
        Receipt::Http {
            status: 200,
            body_digest: None,
        },
        "type: is http.response/1, but destination orders is closed by jetstream.ack/1",
    );
    refused(
        Receipt::Http {
            status: 302,
            body_digest: None,
        },
        "status: is 302",
    );

    let mut typed = destination.clone();
    let own = Receipt::Consumer {
        consumer: "projector".into(),
        receipt_type: "OperationsProjectionAppliedReceipt".into(),
        receipt_schema_version: "1".into(),
        receipt_digest: Digest::of_canonical("{}"),
        committed_at: "2026-01-31T09:30:00Z".parse().unwrap(),
    };
    for receipt_type in ["OperationsProjectionAppliedReceipt", "consumer.receipt/1"] {
        typed.receipt_type = receipt_type.into();
        own.fits(&typed).unwrap();
    }
    assert!(own.fits(&destination).is_err());
}

#[test]
fn receipts_of_every_type_pack_and_unpack() {
    let time = "2026-01-31T09:30:00Z".parse().unwrap();
    let digest = Digest::of_canonical("{}");
    let receipts = [
        Receipt::JetStream {
            stream: "S".into(),
            sequence: u64::MAX,
            domain: Some("d".into()),
            duplicate: true,
        },
        Receipt::JetStream {
            stream: "S".into(),
            sequence: 9_007_199_254_740_993,
            domain: None,
            duplicate: false,
        },
        Receipt::Http {
            status: 204,
            body_digest: Some(Digest::of_bytes(b"")),
        },
        Receipt::File {
            file: "f".into(),
            offset: 0,
            duplicate: false,
        },
        Receipt::Handler {
            handler: "h".into(),
            sequence: 7,
        },
        Receipt::Kafka {
            cluster: "c".into(),
            topic: "t".into(),
            partition: 3,
            offset: 9,
        },
        Receipt::Amqp {
            exchange: String::new(),
            routing_key: "k".into(),
            delivery_tag: 2,
        },
        Receipt::Redis {
            key: "k".into(),
            entry_id: "1-0".into(),
        },
        Receipt::Sqs {
            queue: "q".into(),
            message_id: "m".into(),
        },
        Receipt::Consumer {
            consumer: "c".into(),
            receipt_type: "r".into(),
            receipt_schema_version: "1".into(),
            receipt_digest: digest,
            committed_at: time,
        },
    ];
    for receipt in receipts {
        let packed = receipt.pack();
        assert_eq!(Receipt::unpack(&packed).unwrap(), receipt, "{packed:?}");
        assert!(packed.shared.contains(receipt.kind()));
        assert_eq!(
            Receipt::is_transport_kind(receipt.kind()),
            receipt.kind() != "consumer.receipt/1"
        );
    }
}
