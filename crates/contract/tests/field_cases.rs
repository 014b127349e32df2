//! Cases from the field that end in this crate, each named after its number in the list.

use postrider_contract::{
    Digest, EventId, NewEvent, Timestamp,
    canonical::{self, Problem, Profile},
    cloudevents::{Binding, Body, Source, decode_header, encode_header, read, wire},
    destination::Serializer,
    envelope::DeliverySetRef,
    media,
    new_event::{Sealed, json_payload},
    timestamp::Reason,
};

fn seal(event: &NewEvent) -> Result<Sealed, postrider_contract::Invalid> {
    let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let now: Timestamp = "2026-01-31T09:30:00Z".parse().unwrap();
    event.seal(
        id,
        now,
        &DeliverySetRef {
            version: 1,
            digest: Digest::of_canonical("{}"),
        },
        None,
    )
}

fn event(payload: &[u8]) -> NewEvent {
    NewEvent::new("order.placed", "1", "order", "o-1", payload)
}

/// The body of a message after a round through one wire format.
fn delivered(event: &NewEvent, serializer: Serializer, binding: Binding) -> Vec<u8> {
    let sealed = seal(event).unwrap();
    let destination = Digest::of_canonical("{}");
    let source = Source {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        destination_digest: &destination,
        traceparent: None,
        tracestate: None,
        headers: &sealed.headers,
        payload: &event.payload,
    };
    let message = wire(&source, serializer, binding).unwrap();
    let body = match message.body {
        Body::Payload => event.payload.clone(),
        Body::Made(body) => body,
    };
    let received = read(message.headers.iter(), &body, binding).unwrap();
    received.payload.into_owned()
}

const MODES: [Serializer; 2] = [
    Serializer::CloudeventsBinary,
    Serializer::CloudeventsStructured,
];

#[test]
fn jsn_1_an_escaped_nul_in_a_body_is_kept_and_a_nul_in_text_is_refused_by_name() {
    let body = event(br#"{"x":"\u0000"}"#);
    for serializer in MODES {
        assert_eq!(
            delivered(&body, serializer, Binding::HTTP),
            br#"{"x":"\u0000"}"#
        );
    }
    // As a value, its canonical form says the same.
    assert_eq!(
        json_payload(&serde_json::json!({"x": "\0"})).unwrap(),
        br#"{"x":"\u0000"}"#
    );

    let text = |change: fn(&mut NewEvent)| {
        let mut changed = event(b"{}");
        change(&mut changed);
        seal(&changed).unwrap_err().to_string()
    };
    for (refusal, field) in [
        (
            text(|e| e.headers = vec![("x-note".into(), "a\0".into())]),
            "headers[\"x-note\"]",
        ),
        (
            text(|e| e.partition_key = Some("a\0".into())),
            "partitionKey",
        ),
        (text(|e| e.aggregate.id = "a\0".into()), "aggregate.id"),
        (text(|e| e.actor = Some("a\0".into())), "actor"),
    ] {
        assert!(
            refusal.starts_with(&format!(
                "{field}: holds the control character U+0000 at byte 1"
            )),
            "{refusal}"
        );
    }
    // A raw NUL is not JSON, whatever the database would say.
    let refusal = seal(&event(b"\"\0\"")).unwrap_err().to_string();
    assert!(
        refusal.starts_with("payload: is not JSON: a string holds the control character U+0000")
    );
}

#[test]
fn jsn_3_the_receiver_gets_the_original_bytes() {
    let original =
        br#"{"b":1, "a":1.0,  "aa":1e2,"z":-0,"big":9007199254740993,"e":1.230e-5,"h":1e400}"#;
    let sealed = seal(&event(original)).unwrap();
    assert_eq!(sealed.envelope.payload.digest, Digest::of_bytes(original));
    assert_eq!(sealed.envelope.payload.length, original.len() as u64);
    for serializer in MODES {
        for binding in [Binding::HTTP, Binding::NATS, Binding::KAFKA, Binding::AMQP] {
            assert_eq!(delivered(&event(original), serializer, binding), original);
        }
    }
    // Given as a value it is canonicalised once, unless that would change a number.
    let error = canonical::payload_value(str::from_utf8(original).unwrap()).unwrap_err();
    assert_eq!(error.pointer, "/big");
    assert!(
        error.to_string().contains("give the payload as bytes"),
        "{error}"
    );
    assert_eq!(
        canonical::payload_value(r#"{"b":1, "a":1.0,  "aa":1e2,"z":-0,"e":1.230e-5}"#).unwrap(),
        r#"{"a":1,"aa":100,"b":1,"e":0.0000123,"z":0}"#
    );
}

#[test]
fn jcs_1_numbers_and_key_order_follow_the_standard() {
    let check = |input: &str, expect: &str| {
        let found = canonical::canonicalise(input.as_bytes(), Profile::Rfc8785).unwrap();
        assert_eq!(found, expect);
    };
    for (input, expect) in [
        ("1e21", "1e+21"),
        ("1e20", "100000000000000000000"),
        ("0.000001", "0.000001"),
        ("1e-7", "1e-7"),
        ("-0", "0"),
        ("295147905179352825856", "295147905179352830000"),
        ("333333333.33333329", "333333333.3333333"),
        ("4.50", "4.5"),
        ("2e-3", "0.002"),
        ("1E2", "100"),
        ("5e-324", "5e-324"),
        ("999999999999999900000", "999999999999999900000"),
    ] {
        check(input, expect);
    }
    check(
        "{\"\u{20ac}\":1,\"\\r\":2,\"\u{fb33}\":3,\"1\":4,\"\u{1f600}\":5,\"\u{80}\":6,\"\u{f6}\":7}",
        "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"\u{f6}\":7,\"\u{20ac}\":1,\"\u{1f600}\":5,\"\u{fb33}\":3}",
    );
    check(
        "\"\\u2028\\u003c\\u0026\\u007f\\u0001\\u0008\"",
        "\"\u{2028}<&\u{7f}\\u0001\\b\"",
    );
}

#[test]
fn tim_3_only_rfc_3339_with_a_zone_is_a_time() {
    let reason = |text: &str| text.parse::<Timestamp>().unwrap_err().reason;
    // One rule for leap seconds, true ones and others: refused, on every database.
    for text in [
        "2016-12-31T23:59:60Z",
        "2016-12-31T15:59:60-08:00",
        "2026-06-30T12:00:60Z",
    ] {
        assert_eq!(reason(text), Reason::LeapSecond, "{text}");
    }
    assert_eq!(reason("2026-01-01T12:00:00"), Reason::NoZone);
    assert_eq!(reason("2026-03-08 02:30:00"), Reason::Syntax);
    assert_eq!(reason("infinity"), Reason::Syntax);
    let canonical = |text: &str| text.parse::<Timestamp>().unwrap().to_string();
    assert_eq!(
        canonical("2026-01-01T00:00:00.123456789Z"),
        "2026-01-01T00:00:00.123456Z"
    );
    assert_eq!(
        canonical("2026-01-01t00:00:00z"),
        "2026-01-01T00:00:00.000000Z"
    );
    // The time given is the time delivered, and it does not move when it is written again.
    let mut given = event(b"{}");
    given.occurred_at = Some("2025-12-31T16:00:00.5-08:00".parse().unwrap());
    let sealed = seal(&given).unwrap();
    assert_eq!(
        sealed.envelope.occurred_at.to_string(),
        "2026-01-01T00:00:00.500000Z"
    );
}

#[test]
fn ids_1_an_event_id_is_an_identity_and_nothing_orders_by_it() {
    // Any UUID but the nil one is taken, and the key's hash, which decides lane and order, ignores it.
    let mut given = event(b"{}");
    let mut hashes = Vec::new();
    for id in [
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
        "00000000-0000-0000-0000-000000000001",
    ] {
        given.event_id = Some(id.parse().unwrap());
        let sealed = seal(&given).unwrap();
        assert_eq!(sealed.envelope.event_id.to_string(), id);
        hashes.push(sealed.key_hash);
    }
    assert_eq!(hashes[0], hashes[1]);
}

#[test]
fn ctr_1_attributes_go_through_headers_and_come_back() {
    for (subject, encoded) in [
        ("a b", "a%20b"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("\"", "%22"),
        ("é", "%C3%A9"),
        ("\u{1F600}", "%F0%9F%98%80"),
    ] {
        let mut given = event(b"{}");
        given.aggregate.id = subject.into();
        given.headers = vec![("x-empty".into(), String::new())];
        let sealed = seal(&given).unwrap();
        let destination = Digest::of_canonical("{}");
        let source = Source {
            envelope: &sealed.envelope,
            envelope_digest: &sealed.digest,
            destination_digest: &destination,
            traceparent: None,
            tracestate: None,
            headers: &sealed.headers,
            payload: b"{}",
        };
        for (binding, name, expect) in [
            (Binding::HTTP, "ce-subject", encoded),
            (Binding::NATS, "ce-subject", encoded),
            (Binding::KAFKA, "ce_subject", subject),
            (Binding::AMQP, "cloudEvents_subject", subject),
        ] {
            let message = wire(&source, Serializer::CloudeventsBinary, binding).unwrap();
            assert_eq!(message.headers.get(name), Some(expect), "{name}");
            assert_eq!(message.headers.get("x-empty"), Some(""));
            let received = read(message.headers.iter(), b"{}", binding).unwrap();
            assert_eq!(received.envelope.aggregate.id, subject);
        }
    }
    // Line breaks never get as far as a header.
    let mut evil = event(b"{}");
    evil.aggregate.id = "a\r\nX-Evil: 1".into();
    let refusal = seal(&evil).unwrap_err().to_string();
    assert!(
        refusal.starts_with("aggregate.id: holds the control character U+000D"),
        "{refusal}"
    );
    // And if they did, they would not end it.
    assert_eq!(
        encode_header("ce-subject", "a\r\nX-Evil: 1"),
        "a%0D%0AX-Evil:%201"
    );

    // Decoding is one round; a percent sign without two hex digits stays as it is.
    for (received, decoded) in [
        ("a%20b", "a b"),
        ("%41", "A"),
        ("%2541", "%41"),
        ("%zz", "%zz"),
        ("\"quoted\"", "quoted"),
    ] {
        assert_eq!(
            decode_header("ce-subject", received).unwrap(),
            decoded,
            "{received}"
        );
    }
    assert!(decode_header("ce-subject", "%ff").is_err());
}

#[test]
fn set_1_a_set_is_frozen_by_its_digest() {
    use postrider_contract::{
        DeliverySet,
        delivery_set::{ApplicableEvent, Member, ProjectionTarget},
    };
    let member = |destination: &str| Member {
        event_type: "order.placed".into(),
        schema_version: "1".into(),
        destination: destination.into(),
        destination_digest: Digest::of_canonical(destination),
        consumer: "c".into(),
        expected_receipt_type: "http.response/1".into(),
        expected_receipt_schema_version: "1".into(),
        projection_target: ProjectionTarget::NotApplicable {},
        mandatory: true,
    };
    let events = vec![ApplicableEvent {
        event_type: "order.placed".into(),
        schema_version: "1".into(),
    }];
    let before = DeliverySet::new(1, events.clone(), ["a", "b", "c", "d"].map(member).to_vec());
    let after = DeliverySet::new(2, events, ["a", "b", "c", "d", "e"].map(member).to_vec());
    // An event that froze the first never owes anything to `e`.
    assert_eq!(before.members_of("order.placed", "1").len(), 4);
    assert_eq!(after.members_of("order.placed", "1").len(), 5);
    assert_ne!(before.reference(), after.reference());
}

#[test]
fn kaf_5_a_tombstone_null_and_nothing_are_three_things() {
    let typed = |payload: &[u8], content_type: &str| {
        let mut event = event(payload);
        event.content_type = Some(content_type.into());
        event
    };
    let null = event(b"null");
    let empty = typed(b"", "text/plain");
    let tombstone = typed(b"", media::TOMBSTONE);
    assert_eq!(seal(&null).unwrap().envelope.payload.length, 4);
    for event in [&null, &empty, &tombstone] {
        let sealed = seal(event).unwrap();
        let is_tombstone = media::is_tombstone(&sealed.envelope.payload.content_type);
        assert_eq!(is_tombstone, event == &tombstone);
        for serializer in MODES {
            assert_eq!(delivered(event, serializer, Binding::KAFKA), event.payload);
        }
    }
    // Nothing at all is not JSON.
    assert!(seal(&event(b"")).is_err());
    let mut keyless = tombstone.clone();
    keyless.partition_key = Some(String::new());
    let refusal = seal(&keyless).unwrap_err().to_string();
    assert!(
        refusal.starts_with("partitionKey: must not be empty in a tombstone"),
        "{refusal}"
    );
}

#[test]
fn deep_nesting_is_refused_without_using_the_stack() {
    let bomb = vec![b'['; 100_000];
    for profile in [Profile::Object, Profile::Value, Profile::Rfc8785] {
        let error = canonical::canonicalise(&bomb, profile).unwrap_err();
        assert_eq!(
            (error.problem, error.offset),
            (Problem::TooDeep, canonical::DEPTH_MAX)
        );
    }
    let closed: Vec<u8> = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
    for text in [&bomb, &closed, &b"{\"a\":".repeat(100_000)] {
        assert!(canonical::check(text).is_err());
    }
    assert_eq!(
        canonical::check(&closed).unwrap_err().offset,
        canonical::DEPTH_MAX
    );
    assert!(seal(&event(&closed)).is_err());
}
