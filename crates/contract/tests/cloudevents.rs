//! Every wire format carries the whole event: what is written is read back the same.

use std::borrow::Cow;

use postrider_contract::{
    Digest, EventId, NewEvent, Timestamp,
    cloudevents::{
        Binding, Body, Error, Headers, RAW_ID, ReadError, STRUCTURED, Source, read, rebind, wire,
    },
    destination::Serializer,
    envelope::DeliverySetRef,
    media,
    new_event::Sealed,
};

fn seal(event: &NewEvent) -> Sealed {
    let id: EventId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
    let now: Timestamp = "2026-01-31T09:30:00.5Z".parse().unwrap();
    let set = DeliverySetRef {
        version: 3,
        digest: Digest::of_canonical("{}"),
    };
    event.seal(id, now, &set, None).unwrap()
}

/// An event with everything that can be set, in text that no header carries as it is.
fn full() -> NewEvent {
    let mut event = NewEvent::new(
        "order.placed",
        "2.0",
        "kunden auftrag",
        "a \"b\" 100% é\u{1F600}",
        r#"{ "n":1.0 }"#,
    );
    event.tenant = Some("müller/söhne".into());
    event.aggregate.version = Some((1 << 53) - 1);
    event.partition_key = Some("key\u{2028}".into());
    event.actor = Some("anna".into());
    event.request_id = Some("r 1".into());
    event.correlation_id = Some("c%20".into());
    event.causation_id = Some("\\".into());
    event.operation_id = Some("op".into());
    event.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into());
    event.tracestate = Some("a=1, b=2".into());
    event.headers = vec![
        ("x-note".into(), " grüße ".into()),
        ("x-empty".into(), String::new()),
    ];
    event
}

/// Writes, hands over owned headers and body, and reads back.
fn round_trip(event: &NewEvent, serializer: Serializer, binding: Binding) -> Result<(), ReadError> {
    let sealed = seal(event);
    let destination = Digest::of_canonical("{\"a\":1}");
    let source = Source {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        destination_digest: &destination,
        traceparent: event.traceparent.as_deref(),
        tracestate: event.tracestate.as_deref(),
        headers: &sealed.headers,
        payload: &event.payload,
    };
    let message = wire(&source, serializer, binding).unwrap();
    let body = match &message.body {
        Body::Payload => event.payload.clone(),
        Body::Made(body) => body.clone(),
    };
    let received = read(message.headers.iter(), &body, binding)?;
    assert_eq!(received.envelope, sealed.envelope);
    assert_eq!(received.envelope_digest, sealed.digest);
    assert_eq!(received.destination_digest, destination);
    assert_eq!(received.traceparent, event.traceparent);
    assert_eq!(received.tracestate, event.tracestate);
    assert_eq!(received.payload, Cow::Borrowed(&event.payload[..]));
    for header in &sealed.headers {
        assert!(
            received.headers.contains(header),
            "{header:?} in {:?}",
            received.headers
        );
    }
    Ok(())
}

#[test]
fn every_binding_and_mode_gives_back_the_same_event() {
    let mut bare = NewEvent::new("order.placed", "1", "order", "o-1", "not json");
    bare.content_type = Some("text/plain".into());
    bare.partition_key = Some(String::new());
    let mut binary = bare.clone();
    binary.payload = vec![0, 0xff, b'"'];
    binary.content_type = Some("application/octet-stream".into());
    let mut empty = bare.clone();
    empty.payload = Vec::new();
    let mut tombstone = NewEvent::new("order.gone", "1", "order", "o-1", "");
    tombstone.content_type = Some(media::TOMBSTONE.into());
    let mut suffix = NewEvent::new("order.placed", "1", "order", "o-1", "{broken");
    suffix.content_type = Some("application/vnd.x+json".into());
    let null = NewEvent::new("order.placed", "1", "order", "o-1", "null");
    let padded = NewEvent::new("order.placed", "1", "order", "o-1", " {\"a\": 1}\n");
    for event in [full(), padded, bare, binary, empty, tombstone, suffix, null] {
        for binding in [
            Binding::PLAIN,
            Binding::HTTP,
            Binding::NATS,
            Binding::KAFKA,
            Binding::AMQP,
        ] {
            for serializer in [
                Serializer::CloudeventsBinary,
                Serializer::CloudeventsStructured,
            ] {
                round_trip(&event, serializer, binding).unwrap();
            }
        }
    }
}

#[test]
fn encoded_headers_are_printable_ascii() {
    let (event, destination) = (full(), Digest::of_canonical("{}"));
    let sealed = seal(&event);
    let source = Source {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        destination_digest: &destination,
        traceparent: event.traceparent.as_deref(),
        tracestate: event.tracestate.as_deref(),
        headers: &sealed.headers,
        payload: &event.payload,
    };
    for binding in [Binding::HTTP, Binding::NATS] {
        let message = wire(&source, Serializer::CloudeventsBinary, binding).unwrap();
        for (name, value) in message.headers.iter() {
            assert!(
                value.bytes().all(|b| matches!(b, b' '..=b'~')),
                "{name}: {value}"
            );
            assert_eq!(value.trim(), value, "{name}");
        }
    }
    // Attribute names are lower-case letters and digits, at most 20 of them.
    let plain = wire(&source, Serializer::CloudeventsBinary, Binding::PLAIN).unwrap();
    for (name, value) in plain.headers.iter() {
        if let Some(attribute) = name.strip_prefix("ce-") {
            assert!(attribute.len() <= 20, "{attribute}");
            assert!(
                attribute
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
            );
            assert!(!value.is_empty(), "{attribute}");
        }
    }
    // What the relay makes and a transport rebinds is what the binding itself would have made.
    for serializer in [
        Serializer::CloudeventsBinary,
        Serializer::CloudeventsStructured,
        Serializer::Raw,
    ] {
        let plain = wire(&source, serializer, Binding::PLAIN).unwrap();
        for binding in [Binding::HTTP, Binding::NATS, Binding::KAFKA, Binding::AMQP] {
            let direct = wire(&source, serializer, binding).unwrap();
            let rebound: Headers = plain
                .headers
                .iter()
                .map(|(name, value)| rebind(name, value, binding))
                .collect();
            assert_eq!(rebound, direct.headers);
            assert_eq!(plain.body, direct.body);
        }
    }
}

#[test]
fn structured_mode_keeps_json_byte_for_byte_and_raw_mode_adds_only_an_id() {
    let (event, destination) = (full(), Digest::of_canonical("{}"));
    let sealed = seal(&event);
    let source = Source {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        destination_digest: &destination,
        traceparent: None,
        tracestate: None,
        headers: &[],
        payload: &event.payload,
    };
    let message = wire(&source, Serializer::CloudeventsStructured, Binding::HTTP).unwrap();
    let headers: Vec<_> = message.headers.iter().collect();
    assert_eq!(headers, [("content-type", STRUCTURED)]);
    let Body::Made(body) = message.body else {
        panic!("a structured body is made")
    };
    let body = String::from_utf8(body).unwrap();
    assert!(body.ends_with(r#","data":{ "n":1.0 }}"#), "{body}");
    assert!(body.starts_with(r#"{"specversion":"1.0","id":"01890a5d-ac96-774b-bcce-b302099a8057","source":"/m%C3%BCller%2Fs%C3%B6hne/kunden%20auftrag","type":"order.placed""#), "{body}");

    let raw = wire(&source, Serializer::Raw, Binding::HTTP).unwrap();
    assert_eq!(raw.body, Body::Payload);
    let headers: Vec<_> = raw.headers.iter().collect();
    assert_eq!(
        headers,
        [
            ("content-type", "application/json"),
            (RAW_ID, "01890a5d-ac96-774b-bcce-b302099a8057"),
        ]
    );

    // Said to be JSON, and not: the transport must not send it as data.
    let broken = Source {
        payload: b"{broken",
        ..source
    };
    let error = wire(&broken, Serializer::CloudeventsStructured, Binding::HTTP).unwrap_err();
    assert!(matches!(error, Error::NotJson(_)), "{error}");

    // Binary mode with this content type would be read as structured mode.
    let mut inner = NewEvent::new("a", "1", "a", "a", "{}");
    inner.content_type = Some("Application/CloudEvents+json".into());
    let sealed = seal(&inner);
    let source = Source {
        envelope: &sealed.envelope,
        payload: b"{}",
        ..source
    };
    let error = wire(&source, Serializer::CloudeventsBinary, Binding::HTTP).unwrap_err();
    assert!(matches!(error, Error::LooksStructured(_)), "{error}");
    wire(&source, Serializer::Raw, Binding::HTTP).unwrap();
}

#[test]
fn a_message_that_was_changed_on_its_way_is_refused() {
    let (event, destination) = (full(), Digest::of_canonical("{}"));
    let sealed = seal(&event);
    let source = Source {
        envelope: &sealed.envelope,
        envelope_digest: &sealed.digest,
        destination_digest: &destination,
        traceparent: None,
        tracestate: None,
        headers: &[],
        payload: &event.payload,
    };
    let message = wire(&source, Serializer::CloudeventsBinary, Binding::HTTP).unwrap();
    let given: Vec<_> = message.headers.iter().collect();
    let with = |name: &str, change: Option<&'static str>| {
        let changed = given.iter().filter_map(|&(n, v)| match change {
            _ if n != name => Some((n, v)),
            change => change.map(|v| (n, v)),
        });
        read(changed, &event.payload, Binding::HTTP).map(|received| received.envelope)
    };
    assert!(with("", None).is_ok());
    for (name, value) in [
        ("ce-subject", "b"),
        ("ce-generation", "2"),
        ("ce-tenant", "c"),
        ("ce-time", "2026-01-31T09:30:00.6Z"),
    ] {
        let error = with(name, Some(value)).unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::Digest {
                    what: "envelope",
                    ..
                }
            ),
            "{name}: {error}"
        );
    }
    assert!(matches!(
        with("ce-actor", None).unwrap_err(),
        ReadError::Digest { .. }
    ));
    assert_eq!(with("ce-id", None).unwrap_err(), ReadError::Missing("id"));
    assert!(matches!(
        with("ce-id", Some("x")).unwrap_err(),
        ReadError::Attribute { .. }
    ));
    assert!(matches!(
        with("ce-subject", Some("%ff")).unwrap_err(),
        ReadError::Attribute { .. }
    ));
    assert!(matches!(
        with("ce-subject", Some("a%0A")).unwrap_err(),
        ReadError::Invalid(_)
    ));
    let error = read(given.iter().copied(), b"{ \"n\":2.0 }", Binding::HTTP).unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::Digest {
                what: "payload",
                ..
            }
        ),
        "{error}"
    );
    let twice = given.iter().copied().chain([("CE-Subject", "x")]);
    assert_eq!(
        read(twice, &event.payload, Binding::HTTP).unwrap_err(),
        ReadError::Twice("subject".into())
    );
    for body in [
        "",
        "[]",
        "{}",
        r#"{"data":1,"data":2}"#,
        r#"{"data":1,"data_base64":"MQ=="}"#,
        r#"{"data_base64":"*"}"#,
        r#"{"id":1,"data":1}"#,
        r#"{"id":"a","id":"a","data":1}"#,
    ] {
        let error = read(
            [("content-type", STRUCTURED)],
            body.as_bytes(),
            Binding::HTTP,
        )
        .unwrap_err();
        assert!(
            matches!(
                error,
                ReadError::Structured(_) | ReadError::Twice(_) | ReadError::Missing(_)
            ),
            "{body}: {error}"
        );
    }
}
