//! What an append promises, through every driver: each promise is one test per driver.

use std::collections::BTreeSet;

use postrider::{AppendError, NewEvent, Registry, Timestamp};
use postrider_contract::{Digest, envelope::Aggregate};

use crate::support::{
    World, application::Application, blob, control, envelope, for_each_driver, fresh_id, note,
    order, stored,
};

for_each_driver![
    an_event_commits_with_the_business_row,
    a_rollback_leaves_nothing,
    without_a_transaction_begun_nothing_is_half_done,
    events_of_one_transaction_keep_their_order,
    a_thousand_events_go_in_one_call,
    the_same_event_again_is_already_there,
    other_content_under_a_used_id_is_a_conflict_and_the_transaction_goes_on,
    a_batch_is_appended_as_a_whole_or_not_at_all,
    refused_input_leaves_the_transaction_usable,
    payload_bytes_are_stored_exactly,
    what_is_left_out_gets_its_default,
    all_fields_are_kept,
    before_anything_is_registered_nothing_is_appended,
    an_event_type_registered_later_is_found,
    a_changed_schema_judges_from_then_on,
    a_tightened_limit_is_seen,
    a_program_may_bring_its_schemas_along,
    a_program_with_other_schemas_is_told,
];

async fn an_event_commits_with_the_business_row<A: Application>() {
    let mut world = World::<A>::new().await;
    let appended = world
        .application
        .place(&world.registry, "a", order("a"))
        .await;
    assert!(!appended.already);
    let event = stored(world.store(), appended.event_id).await;
    assert_eq!(event.position.0, appended.position);
    assert_eq!(event.deliveries.len(), 2);
    assert_eq!(world.application.rows().await, 1);

    world.application.begin().await;
    let unseen = world.append(order("b")).await.unwrap();
    assert!(
        world
            .store()
            .event(unseen.event_id)
            .await
            .unwrap()
            .is_none()
    );
    world.application.commit().await;
    assert!(
        world
            .store()
            .event(unseen.event_id)
            .await
            .unwrap()
            .is_some()
    );
}

async fn a_rollback_leaves_nothing<A: Application>() {
    let mut world = World::<A>::new().await;
    let named = NewEvent {
        event_id: Some("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()),
        ..order("a")
    };
    world.application.begin().await;
    world.application.put("a").await;
    world.append(named.clone()).await.unwrap();
    let events = vec![order("b"), note("1"), blob("x")];
    world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap();
    world.application.roll_back().await;
    assert_eq!(world.application.rows().await, 0);
    assert!(world.events().await.is_empty());
    // Its id is free again.
    assert!(!world.committed(named).await.already);
}

/// Where a transaction is required, it is asked for; where not, the call is one.
async fn without_a_transaction_begun_nothing_is_half_done<A: Application>() {
    let mut world = World::<A>::new().await;
    let taken = NewEvent {
        event_id: Some("01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()),
        ..order("a")
    };
    world.committed(taken.clone()).await;
    let conflicting = NewEvent {
        payload: br#"{"id":"other"}"#.to_vec(),
        ..taken
    };
    let events = vec![order("b"), conflicting];
    world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap_err();
    assert_eq!(world.events().await.len(), 1);
    match world.append(order("c")).await {
        Ok(appended) => assert_eq!(world.events().await[1], appended.event_id),
        Err(error) => {
            assert!(
                error.to_string().contains("no transaction is open"),
                "{error}"
            );
            assert_eq!(world.events().await.len(), 1);
        }
    }
}

async fn events_of_one_transaction_keep_their_order<A: Application>() {
    let mut world = World::<A>::new().await;
    let mut expected = Vec::new();
    world.application.begin().await;
    for index in 0..5 {
        expected.push(world.append(order(&format!("{index}"))).await.unwrap());
        let events = vec![note("1"), order(&format!("{index}-b")), blob("x")];
        expected.extend(
            world
                .application
                .append_all(&world.registry, events)
                .await
                .unwrap(),
        );
    }
    world.application.commit().await;
    assert!(expected.is_sorted_by(|a, b| a.position < b.position));
    let ids: Vec<_> = expected.iter().map(|appended| appended.event_id).collect();
    assert_eq!(world.events().await, ids);
    assert_eq!(
        world
            .application
            .append_all(&world.registry, Vec::new())
            .await
            .unwrap(),
        []
    );
}

async fn a_thousand_events_go_in_one_call<A: Application>() {
    let mut world = World::<A>::new().await;
    world.application.begin().await;
    let events = (0..1_000).map(|index| order(&format!("{index}"))).collect();
    let appended = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap();
    world.application.commit().await;
    assert_eq!(appended.len(), 1_000);
    assert!(appended.is_sorted_by(|a, b| a.position < b.position));
    let ids: Vec<_> = appended.iter().map(|appended| appended.event_id).collect();
    assert_eq!(world.events().await, ids);
    assert_eq!(envelope(world.store(), ids[999]).await.aggregate.id, "999");
}

async fn the_same_event_again_is_already_there<A: Application>() {
    let mut world = World::<A>::new().await;
    let event = NewEvent {
        event_id: Some(fresh_id()),
        ..order("a")
    };
    let first = world.committed(event.clone()).await;
    let before = stored(world.store(), first.event_id).await;
    let again = world.committed(event.clone()).await;
    assert!(again.already && !first.already);
    assert_eq!(
        (again.event_id, again.position),
        (first.event_id, first.position)
    );

    world.application.begin().await;
    let events = vec![order("b"), event.clone(), event];
    let batch = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap();
    world.application.commit().await;
    let already: Vec<_> = batch.iter().map(|appended| appended.already).collect();
    assert_eq!(already, [false, true, true]);
    assert_eq!(stored(world.store(), first.event_id).await, before);
    assert_eq!(world.events().await.len(), 2);
}

async fn other_content_under_a_used_id_is_a_conflict_and_the_transaction_goes_on<A: Application>() {
    let mut world = World::<A>::new().await;
    let id = fresh_id();
    let event = NewEvent {
        event_id: Some(id),
        ..order("a")
    };
    world.committed(event.clone()).await;
    let before = stored(world.store(), id).await;
    let late: Timestamp = "2020-01-01T00:00:00Z".parse().unwrap();
    for other in [
        NewEvent {
            payload: br#"{"id":"b"}"#.to_vec(),
            ..event.clone()
        },
        NewEvent {
            tenant: Some("other".to_owned()),
            ..event.clone()
        },
        NewEvent {
            occurred_at: Some(late),
            ..event.clone()
        },
        NewEvent {
            event_id: Some(id),
            ..note("1")
        },
    ] {
        world.application.begin().await;
        let refused = world.append(other.clone()).await.unwrap_err();
        assert!(
            matches!(refused, AppendError::Conflict { event_id } if event_id == id),
            "{refused}"
        );
        let events = vec![order("x"), other];
        let refused = world
            .application
            .append_all(&world.registry, events)
            .await
            .unwrap_err();
        assert_eq!(refused.index, Some(1), "{refused}");
        assert!(matches!(refused.error, AppendError::Conflict { event_id } if event_id == id));
        world.the_transaction_goes_on(&fresh_id().to_string()).await;
    }
    assert_eq!(stored(world.store(), id).await, before);
    assert_eq!(world.events().await.len(), 5);
}

async fn a_batch_is_appended_as_a_whole_or_not_at_all<A: Application>() {
    let mut world = World::<A>::new().await;
    world.application.begin().await;
    let events = vec![order("a"), note("not json"), order("b")];
    let refused = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap_err();
    assert_eq!(refused.index, Some(1));
    let taken = NewEvent {
        event_id: Some(fresh_id()),
        ..order("t")
    };
    let other = NewEvent {
        payload: br#"{"id":"x"}"#.to_vec(),
        ..taken.clone()
    };
    world.append(taken).await.unwrap();
    let events = vec![order("a"), order("b"), other];
    let refused = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap_err();
    assert_eq!(refused.index, Some(2));
    world.the_transaction_goes_on("row").await;
    assert_eq!(world.events().await.len(), 2);
}

async fn refused_input_leaves_the_transaction_usable<A: Application>() {
    let mut world = World::<A>::new().await;
    world.application.begin().await;
    world.application.put("before").await;
    let mut version = order("a");
    version.aggregate.version = Some(1 << 53);
    let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(1_000));
    let with = |change: fn(&mut NewEvent)| {
        let mut event = order("a");
        change(&mut event);
        event
    };
    for (event, says) in [
        (
            with(|e| e.event_type = "order.eaten".into()),
            "is not registered",
        ),
        (
            with(|e| e.schema_version = "1.0".into()),
            "is not registered",
        ),
        (
            with(|e| e.aggregate.id = String::new()),
            "aggregate.id: is empty",
        ),
        (with(|e| e.aggregate.id = "\0".into()), "control character"),
        (
            with(|e| e.tenant = Some("a\nb".into())),
            "tenant: holds the control character U+000A",
        ),
        (
            with(|e| e.partition_key = Some("x".repeat(512))),
            "partitionKey: is 512 bytes long",
        ),
        (
            with(|e| e.headers = vec![("x".into(), "\0".into())]),
            "control character",
        ),
        (
            with(|e| e.headers = vec![("nats-id".into(), "x".into())]),
            "reserved",
        ),
        (with(|e| e.traceparent = Some("zero".into())), "traceparent"),
        (
            with(|e| e.content_type = Some("text/plain".into())),
            "contentType",
        ),
        (with(|e| e.payload = b"{".to_vec()), "payload: is not JSON"),
        (
            with(|e| e.payload = b"\xff".to_vec()),
            "payload: is not JSON",
        ),
        (
            with(|e| e.payload = b"{}".to_vec()),
            "breaks \"required\" at \"/id\"",
        ),
        (
            with(|e| e.payload = br#"{"id":4111}"#.to_vec()),
            "breaks \"type\" at \"/id\"",
        ),
        (version, "aggregate.version"),
        (
            NewEvent {
                payload: long.into_bytes(),
                ..order("a")
            },
            "payload of 1009 bytes is over the 1000 bytes that destination \"narrow\" takes",
        ),
    ] {
        let refused = world.append(event.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(says), "{refused}");
        assert!(!refused.contains("4111"), "{refused}");
        let events = vec![order("b"), event];
        let refused = world
            .application
            .append_all(&world.registry, events)
            .await
            .unwrap_err();
        assert_eq!(refused.index, Some(1), "{refused}");
    }
    world.the_transaction_goes_on("after").await;
    assert_eq!(world.application.rows().await, 2);
    assert_eq!(world.events().await.len(), 1);
}

async fn payload_bytes_are_stored_exactly<A: Application>() {
    let mut world = World::<A>::new().await;
    let all_bytes: Vec<u8> = (0..=u8::MAX).collect();
    let odd = r#" { "b":1, "a":1.0,"aa" : 1e2 ,"z":-0,"big":9007199254740993,"x":"\u0000","a":2 }
"#;
    for event in [
        blob(all_bytes.clone()),
        blob(Vec::new()),
        blob(vec![0; 300_000]),
        note(odd),
        note("null"),
        note(" 1e400 "),
    ] {
        let payload = event.payload.clone();
        let appended = world.committed(event).await;
        let event = stored(world.store(), appended.event_id).await.event;
        assert_eq!(event.payload, payload);
        let envelope = envelope(world.store(), appended.event_id).await;
        assert_eq!(envelope.payload.digest, Digest::of_bytes(&payload));
        assert_eq!(envelope.payload.length, payload.len() as u64);
    }
}

async fn what_is_left_out_gets_its_default<A: Application>() {
    let mut world = World::<A>::new().await;
    let before = world.store().now().await.unwrap();
    let appended = world.committed(order("a")).await;
    let after = world.store().now().await.unwrap();
    assert_eq!(appended.event_id.0.get_version_num(), 7);
    let stored = stored(world.store(), appended.event_id).await;
    assert_eq!(stored.event.headers, []);
    assert_eq!(
        (stored.event.traceparent, stored.event.tracestate),
        (None, None)
    );
    let envelope = envelope(world.store(), appended.event_id).await;
    assert_eq!(envelope.tenant, "default");
    assert_eq!(envelope.partition_key, "order/a");
    assert_eq!(envelope.payload.content_type, "application/json");
    assert_eq!(envelope.aggregate.version, None);
    assert_eq!(envelope.actor, None);
    assert!((before..=after).contains(&envelope.occurred_at));
    let schema = world.registry.schema_digest(control::PLACED, "1");
    assert!(schema.is_some());
    assert_eq!(envelope.payload.schema_digest, schema);
}

async fn all_fields_are_kept<A: Application>() {
    let mut world = World::<A>::new().await;
    let text = |text: &str| Some(text.to_owned());
    let event = NewEvent {
        event_id: Some(fresh_id()),
        tenant: text("é\u{1F600}\"\\/ tenant"),
        aggregate: Aggregate {
            kind: "a b".to_owned(),
            id: "\u{2028}<&>".to_owned(),
            version: Some((1 << 53) - 1),
        },
        event_type: control::NOTED.to_owned(),
        schema_version: "1".to_owned(),
        payload: b"[1, 2]".to_vec(),
        content_type: text("application/json; charset=utf-8"),
        partition_key: text(""),
        actor: text("actor"),
        request_id: text("request"),
        correlation_id: text("correlation"),
        causation_id: text("causation"),
        operation_id: text("operation"),
        occurred_at: Some("2016-12-31T15:59:59.1234567-08:00".parse().unwrap()),
        traceparent: text("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        tracestate: text("a=b,c=d"),
        headers: vec![
            ("x-z".to_owned(), String::new()),
            ("x-a".to_owned(), "é \"quoted\"".to_owned()),
        ],
    };
    // In a batch with an event that has none of them, and alone.
    world.application.begin().await;
    let events = vec![order("a"), event.clone(), order("b")];
    let batch = world
        .application
        .append_all(&world.registry, events)
        .await
        .unwrap();
    world.application.commit().await;
    let alone = NewEvent {
        event_id: Some(fresh_id()),
        ..event.clone()
    };
    let alone = world.committed(alone).await;
    for appended in [batch[1], alone] {
        let stored = stored(world.store(), appended.event_id).await.event;
        let mut headers = event.headers.clone();
        headers.sort();
        assert_eq!(stored.headers, headers);
        assert_eq!(stored.traceparent, event.traceparent);
        assert_eq!(stored.tracestate, event.tracestate);
        let envelope = envelope(world.store(), appended.event_id).await;
        assert_eq!(Some(envelope.tenant), event.tenant);
        assert_eq!(envelope.aggregate, event.aggregate);
        assert_eq!(Some(envelope.payload.content_type), event.content_type);
        assert_eq!(Some(envelope.partition_key), event.partition_key);
        assert_eq!(envelope.actor, event.actor);
        assert_eq!(envelope.request_id, event.request_id);
        assert_eq!(envelope.correlation_id, event.correlation_id);
        assert_eq!(envelope.causation_id, event.causation_id);
        assert_eq!(envelope.operation_id, event.operation_id);
        assert_eq!(
            envelope.occurred_at.to_string(),
            "2016-12-31T23:59:59.123456Z"
        );
    }
    let plain = envelope(world.store(), batch[2].event_id).await;
    assert_eq!((plain.tenant.as_str(), plain.actor), ("default", None));
}

async fn before_anything_is_registered_nothing_is_appended<A: Application>() {
    let outbox = A::empty_outbox().await;
    let mut application = A::connect(&outbox).await;
    let registry = application.load().await.unwrap();
    assert_eq!(registry.event_types(), []);
    application.begin().await;
    let refused = application.append(&registry, order("a")).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::NoActiveDeliverySet),
        "{refused}"
    );
    let brought = Registry::from_event_types(&control::event_types()).unwrap();
    let refused = application.append(&brought, order("a")).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::NoActiveDeliverySet),
        "{refused}"
    );
    application.put("row").await;
    application.commit().await;
    assert_eq!(application.rows().await, 1);

    // The same program goes on once something is.
    control::apply(&*outbox.store, &control::plan()).await;
    application.begin().await;
    application.append(&registry, order("a")).await.unwrap();
    application.commit().await;
}

async fn an_event_type_registered_later_is_found<A: Application>() {
    let mut world = World::<A>::new().await;
    let later = NewEvent {
        event_type: "order.shipped".to_owned(),
        ..order("a")
    };
    world.application.begin().await;
    let refused = world.append(later.clone()).await.unwrap_err();
    assert!(
        matches!(refused, AppendError::UnknownEventType { .. }),
        "{refused}"
    );
    world.application.commit().await;

    let plan = control::plan();
    let mut types = control::event_types();
    types.push(control::event_type(
        "order.shipped",
        "application/json",
        None,
    ));
    control::apply(
        world.store(),
        &control::plan_of(2, types, plan.destinations),
    )
    .await;
    world.committed(later).await;
    assert_eq!(world.registry.event_types().len(), 4);
}

async fn a_changed_schema_judges_from_then_on<A: Application>() {
    let mut world = World::<A>::new().await;
    let old = world.committed(order("a")).await;
    let old_digest = world.registry.schema_digest(control::PLACED, "1").unwrap();

    let mut plan = control::plan();
    plan.event_types[2] = control::event_type(
        control::PLACED,
        "application/json",
        Some(r#"{"type": "object", "required": ["id", "total"]}"#),
    );
    control::apply(world.store(), &plan).await;

    world.application.begin().await;
    let refused = world.append(order("b")).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("breaks \"required\" at \"/total\""),
        "{refused}"
    );
    let good = NewEvent {
        payload: br#"{"id":"b","total":1}"#.to_vec(),
        ..order("b")
    };
    let new = world.append(good).await.unwrap();
    world.application.commit().await;

    let digest = envelope(world.store(), new.event_id)
        .await
        .payload
        .schema_digest;
    assert_eq!(digest, world.registry.schema_digest(control::PLACED, "1"));
    assert_ne!(digest, Some(old_digest));
    // What was committed before keeps the schema it was committed with.
    let digest = envelope(world.store(), old.event_id)
        .await
        .payload
        .schema_digest;
    assert_eq!(digest, Some(old_digest));
}

async fn a_tightened_limit_is_seen<A: Application>() {
    let mut world = World::<A>::new().await;
    let payload = format!(r#"{{"id":"{}"}}"#, "x".repeat(90)).into_bytes();
    let event = NewEvent {
        payload,
        ..order("a")
    };
    world.committed(event.clone()).await;
    let mut narrow = control::destination("narrow", Some(50));
    narrow.generation = 2;
    let destinations = vec![narrow, control::destination("wide", None)];
    let plan = control::plan_of(2, control::event_types(), destinations);
    control::apply(world.store(), &plan).await;

    world.application.begin().await;
    let refused = world.append(event).await.unwrap_err();
    assert!(
        matches!(&refused, AppendError::TooLarge { destination, length: 99, limit: 50 }
            if destination == "narrow"),
        "{refused}"
    );
    world.the_transaction_goes_on("row").await;
}

async fn a_program_may_bring_its_schemas_along<A: Application>() {
    let mut world = World::<A>::new().await;
    world.registry = Registry::from_event_types(&control::event_types()).unwrap();
    world.application.begin().await;
    let refused = world.append(note("x")).await.unwrap_err();
    assert!(refused.to_string().contains("is not JSON"), "{refused}");
    world.append(order("a")).await.unwrap();
    world
        .application
        .append_all(&world.registry, vec![note("1"), blob("x")])
        .await
        .unwrap();
    world.application.commit().await;
    assert_eq!(world.events().await.len(), 3);
    let known: BTreeSet<_> = world
        .registry
        .event_types()
        .into_iter()
        .map(|pair| pair.0)
        .collect();
    assert_eq!(
        known,
        BTreeSet::from([control::BLOB, control::NOTED, control::PLACED].map(String::from))
    );
}

async fn a_program_with_other_schemas_is_told<A: Application>() {
    let mut world = World::<A>::new().await;
    let mut types = control::event_types();
    types[2] = control::event_type(control::PLACED, "application/json", Some("{}"));
    types.push(control::event_type(
        "order.shipped",
        "application/json",
        None,
    ));
    world.registry = Registry::from_event_types(&types).unwrap();
    world.application.begin().await;
    let refused = world.append(order("a")).await.unwrap_err();
    assert!(matches!(refused, AppendError::StaleRegistry), "{refused}");
    let unknown = NewEvent {
        event_type: "order.shipped".to_owned(),
        ..order("a")
    };
    let refused = world.append(unknown).await.unwrap_err();
    assert!(
        matches!(&refused, AppendError::UnknownEventType { event_type, .. }
            if event_type == "order.shipped"),
        "{refused}"
    );
    world.append(note("1")).await.unwrap();
    world.application.commit().await;
    assert_eq!(world.events().await.len(), 1);
    world.application.refresh(&world.registry).await.unwrap();
    world.committed(order("a")).await;
}
