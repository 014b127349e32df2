//! Append: in the caller's transaction, complete, immutable, and never twice under one id.

use std::time::Duration;

use postrider_contract::{Digest, Envelope, EventId, Timestamp, key, new_event::NewEvent};
use postrider_core::{Lane, Position, delivery::State};
use postrider_store::{
    AppendError,
    inspect::{DeliveryFilter, EventFilter},
};
use uuid::Uuid;

use super::{
    CallerTransaction, StoreHarness, Tampering,
    fixture::{NOTED, PLACED, World, destination, event, plan},
};

pub async fn events_appear_with_the_business_row_or_not_at_all<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let (kept, dropped) = (event("a"), event("b"));
    let (kept_id, dropped_id) = (kept.event_id.unwrap(), dropped.event_id.unwrap());

    let mut transaction = world.harness.begin().await;
    transaction.put_row("order-1", "placed").await;
    let appended = transaction.append(vec![kept]).await.unwrap();
    assert_eq!(
        (appended[0].event_id, appended[0].already),
        (kept_id, false)
    );
    assert!(world.store.event(kept_id).await.unwrap().is_none());
    transaction.commit().await;
    assert_eq!(world.event(kept_id).await.position, appended[0].position);
    assert_eq!(
        world.harness.business_row("order-1").await.unwrap(),
        "placed"
    );

    let mut transaction = world.harness.begin().await;
    transaction.append(vec![dropped]).await.unwrap();
    transaction.put_row("order-2", "placed").await;
    transaction.roll_back().await;
    assert!(world.store.event(dropped_id).await.unwrap().is_none());
    assert_eq!(world.harness.business_row("order-2").await, None);
    let due = world.worker().await.due(world.destinations[0]).await;
    assert_eq!(due, [appended[0].position]);
}

pub async fn a_dropped_transaction_leaves_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let lost = event("a");
    let id = lost.event_id.unwrap();
    let mut transaction = world.harness.begin().await;
    transaction.append(vec![lost.clone()]).await.unwrap();
    drop(transaction);
    assert!(world.store.event(id).await.unwrap().is_none());
    // The id is free again, and no lock stayed behind.
    assert!(!world.append(lost).await.already);
}

pub async fn an_event_has_exactly_the_deliveries_of_its_delivery_set<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let placed = world.append(event("k")).await;
    let mut noted = event("k");
    noted.event_type = NOTED.to_owned();
    let noted = world.append(noted).await;

    let of = |detail: postrider_store::inspect::EventDetail| -> Vec<_> {
        let deliveries = detail.deliveries.into_iter();
        deliveries
            .map(|delivery| (delivery.destination, delivery.state))
            .collect()
    };
    let both: Vec<_> = world
        .destinations
        .iter()
        .map(|id| (*id, State::Pending))
        .collect();
    assert_eq!(of(world.event(placed.event_id).await), both);
    assert_eq!(of(world.event(noted.event_id).await), both[..1]);
    let open = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(open.rows.len(), 3);
}

pub async fn an_unregistered_event_type_is_refused<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut other_type = event("k");
    other_type.event_type = "order.shipped".to_owned();
    let mut other_version = event("k");
    other_version.schema_version = "1.0".to_owned();
    for refused in [other_type, other_version] {
        let expected = (refused.event_type.clone(), refused.schema_version.clone());
        match world.store.append(vec![refused]).await {
            Err(AppendError::UnknownEventType {
                event_type,
                schema_version,
            }) => assert_eq!((event_type, schema_version), expected),
            other => panic!("not refused: {other:?}"),
        }
    }
    assert_nothing_stored(&world).await;
}

pub async fn without_an_active_delivery_set_nothing_is_appended<H: StoreHarness>() {
    let world = World::<H>::empty().await;
    let refused = world.store.append(vec![event("k")]).await;
    assert!(
        matches!(refused, Err(AppendError::NoActiveDeliverySet)),
        "{refused:?}"
    );
    assert_nothing_stored(&world).await;
}

pub async fn the_same_event_again_is_already_there<H: StoreHarness>() {
    let mut world = World::<H>::new().await;
    let mut given = event("k");
    given.actor = Some("user-1".to_owned());
    let first = world.append(given.clone()).await;
    let stored = world.event(first.event_id).await;

    // Later, so that a defaulted time would differ; and under another delivery set that does not
    // even know the type any more.
    world.clock.advance(Duration::from_secs(5));
    let mut next = plan(2, &[destination("alpha")]);
    next.delivery_set
        .applicable_events
        .retain(|a| a.event_type != PLACED);
    next.delivery_set.members.retain(|m| m.event_type != PLACED);
    next.delivery_set.applicable_event_count = 1;
    next.delivery_set.member_count = 1;
    world.apply(&next).await;

    let again = world.append_all(vec![given.clone(), given.clone()]).await;
    for answer in again {
        assert_eq!(
            (answer.event_id, answer.position, answer.already),
            (first.event_id, first.position, true)
        );
    }
    let mut transaction = world.harness.begin().await;
    assert!(transaction.append(vec![given]).await.unwrap()[0].already);
    transaction.commit().await;
    assert_eq!(world.event(first.event_id).await, stored);
}

pub async fn the_same_event_twice_in_one_batch_is_stored_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let given = event("k");
    let answers = world
        .append_all(vec![given.clone(), event("l"), given])
        .await;
    assert_eq!(answers[0].position, answers[2].position);
    let already: Vec<bool> = answers.iter().map(|answer| answer.already).collect();
    assert_eq!(already, [false, false, true]);
    assert_eq!(stored_events(&world).await, 2);
}

pub async fn another_event_under_the_same_id_is_a_conflict<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let given = event("k");
    let first = world.append(given.clone()).await;
    let stored = world.event(first.event_id).await;

    let mut other_payload = given.clone();
    other_payload.payload = br#"{"total":2}"#.to_vec();
    let mut other_time = given.clone();
    other_time.occurred_at = Some("2020-01-01T00:00:00Z".parse().unwrap());
    for offered in [other_payload, other_time] {
        match world.store.append(vec![event("x"), offered]).await {
            Err(AppendError::Conflict {
                event_id,
                existing,
                offered,
            }) => {
                assert_eq!(event_id, first.event_id);
                assert_eq!(existing, stored.event.envelope_digest);
                assert_ne!(offered, existing);
            }
            other => panic!("no conflict: {other:?}"),
        }
    }
    assert_eq!(world.event(first.event_id).await, stored);
    assert_eq!(stored_events(&world).await, 1);
}

pub async fn one_id_in_two_transactions_is_stored_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let given = event("k");
    let mut first = world.harness.begin().await;
    first.append(vec![given.clone()]).await.unwrap();
    let other = world.harness.another_handle().await;
    let second = tokio::spawn({
        let given = given.clone();
        async move { other.append(vec![given]).await }
    });
    tokio::task::yield_now().await;
    first.commit().await;
    // It waited for the first one, or was told to come back; never a second copy.
    match second.await.unwrap() {
        Ok(appended) => assert!(appended[0].already),
        Err(AppendError::Store(error)) => {
            assert!(
                matches!(error, postrider_store::StoreError::Unavailable { .. }),
                "{error}"
            );
        }
        Err(error) => panic!("{error}"),
    }
    assert_eq!(stored_events(&world).await, 1);
}

pub async fn a_batch_is_all_or_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut bad = event("k");
    bad.event_type = "order.shipped".to_owned();
    let refused = world.store.append(vec![event("a"), bad, event("b")]).await;
    assert!(refused.is_err());
    assert_nothing_stored(&world).await;
}

pub async fn an_empty_batch_is_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    assert_eq!(world.append_all(Vec::new()).await, []);
    assert_nothing_stored(&world).await;
}

pub async fn a_payload_over_the_limit_of_a_destination_is_refused<H: StoreHarness>() {
    let mut small = destination("beta");
    small.max_payload_bytes = Some(11);
    let world = World::<H>::with(&[destination("alpha"), small]).await;
    world.append(event("k")).await; // 11 bytes fit
    let mut large = event("k");
    large.payload = br#"{"total":12}"#.to_vec();
    match world.store.append(vec![large.clone()]).await {
        Err(AppendError::TooLarge {
            destination,
            length,
            limit,
        }) => assert_eq!((destination.as_str(), length, limit), ("beta", 12, 11)),
        other => panic!("not refused: {other:?}"),
    }
    // The event type that does not go there has no such limit.
    large.event_type = NOTED.to_owned();
    world.append(large).await;
}

pub async fn a_broken_field_is_named<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut control = event("k");
    control.aggregate.id = "a\nb".to_owned();
    let mut json = event("k");
    json.payload = b"{".to_vec();
    let mut header = event("k");
    header.headers = vec![("authorization".to_owned(), "x".to_owned())];
    for (broken, field) in [
        (control, "aggregate.id"),
        (json, "payload"),
        (header, "headers"),
    ] {
        match world.store.append(vec![broken]).await {
            Err(AppendError::Invalid(message)) => {
                assert!(message.starts_with(field), "{message}");
            }
            other => panic!("not refused: {other:?}"),
        }
    }
    assert_nothing_stored(&world).await;
}

pub async fn payload_and_headers_are_kept_exactly<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let bytes: Vec<u8> = (0..=255).collect();
    let mut binary = event("k");
    binary.content_type = Some("application/octet-stream".to_owned());
    binary.payload = bytes.clone();
    binary.headers = vec![
        ("x-b".to_owned(), "é \"quoted\" \\".to_owned()),
        ("x-a".to_owned(), String::new()),
    ];
    binary.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    binary.tracestate = Some("vendor=1".to_owned());
    let mut spaced = event("k");
    spaced.payload = b"{ \"b\": 1,\n  \"a\": 1.50 }".to_vec();
    let mut empty = event("k");
    empty.content_type = Some("text/plain".to_owned());
    empty.payload = Vec::new();
    let given = [binary.clone(), spaced, empty];
    let appended = world.append_all(given.to_vec()).await;

    let fetched = world.worker().await.fetch(world.destinations[0]).await;
    assert_eq!(fetched.len(), 3);
    for ((given, appended), fetched) in given.iter().zip(&appended).zip(&fetched) {
        let stored = world.event(appended.event_id).await.event;
        assert_eq!(*fetched.event, stored);
        assert_eq!(stored.payload, given.payload);
        assert_eq!(
            stored.envelope_digest,
            Digest::of_canonical(&stored.envelope)
        );
        let envelope = Envelope::from_json(&stored.envelope).unwrap();
        assert_eq!(envelope.canonical(), stored.envelope);
        assert_eq!(envelope.payload.digest, Digest::of_bytes(&given.payload));
        assert_eq!(envelope.occurred_at, stored.appended_at);
        assert_eq!(stored.appended_at, world.clock.now());
    }
    let stored = &fetched[0].event;
    assert_eq!(stored.traceparent, binary.traceparent);
    assert_eq!(stored.tracestate, binary.tracestate);
    let names: Vec<&str> = stored
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, ["x-a", "x-b"]);
    assert_eq!(stored.headers[1].1, binary.headers[0].1);
}

pub async fn an_event_without_an_id_gets_one<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut nameless = event("k");
    nameless.event_id = None;
    let appended = world.append_all(vec![nameless.clone(), nameless]).await;
    assert_ne!(appended[0].event_id, appended[1].event_id);
    for answer in appended {
        assert_eq!(answer.event_id.0.get_version_num(), 7);
        assert_eq!(
            world.event(answer.event_id).await.event.event_id,
            answer.event_id
        );
    }
}

pub async fn lanes_follow_the_hash_of_the_key<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let keys = ["", "k", "order/7", "é", "\u{1F600}"];
    let events: Vec<NewEvent> = keys.iter().map(|key| event_with_any_key(key)).collect();
    world.append_all(events).await;
    let fetched = world.worker().await.fetch(world.destinations[0]).await;
    for (fetched, key) in fetched.iter().zip(keys) {
        let hash = key::hash(key);
        assert_eq!(
            (fetched.key_hash, fetched.lane),
            (hash, Lane(key::lane(hash, 4))),
            "{key:?}"
        );
    }
}

fn event_with_any_key(key: &str) -> NewEvent {
    let mut event = event("id");
    event.partition_key = Some(key.to_owned());
    event
}

pub async fn ids_1_positions_order_a_key_whatever_the_ids<H: StoreHarness>() {
    let world = World::<H>::new().await;
    // Ids of two machines 5 s apart, and of a clock that stepped back 30 s: none in order.
    let id = |offset: i64| {
        let seconds = u64::try_from(1_800_000_000 + offset).unwrap();
        EventId(Uuid::new_v7(uuid::Timestamp::from_unix(
            uuid::NoContext,
            seconds,
            0,
        )))
    };
    let mut expected = Vec::new();
    for offset in [0, 5, 0, 5, -30, -25, -30, 0, 0, 0] {
        let mut event = event("k");
        event.event_id = Some(id(offset));
        expected.push(world.append(event).await.position);
        world.clock.step_micros(offset);
    }
    assert!(expected.is_sorted());
    assert_eq!(
        world.worker().await.due(world.destinations[0]).await,
        expected
    );
}

pub async fn what_is_committed_never_changes<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append(event("a")).await;
    let open = world.append(event("b")).await;
    let worker = world.worker().await;
    let members = vec![super::fixture::acknowledged(sent.position)];
    worker.attempt(world.destinations[0], members).await;
    worker
        .register(world.destinations[0], &[open.position])
        .await;
    let before = (
        world.event(sent.event_id).await,
        world.event(open.event_id).await,
        world.store.registry().await.unwrap(),
        world.harness.audit_log().await,
    );
    for tampering in Tampering::ALL {
        let refused = world.harness.tamper(tampering).await;
        assert!(refused.is_err(), "{tampering:?} was not refused");
    }
    let after = (
        world.event(sent.event_id).await,
        world.event(open.event_id).await,
        world.store.registry().await.unwrap(),
        world.harness.audit_log().await,
    );
    assert_eq!(before, after);
}

pub async fn tim_1_extreme_times_do_not_stop_a_batch<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let worker = world.worker().await;
    let mut events = Vec::new();
    for time in [
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "1970-01-01T00:00:00Z",
    ] {
        let mut event = event(time);
        event.occurred_at = Some(time.parse::<Timestamp>().unwrap());
        events.push(event);
    }
    world.append_all(events).await;
    let due = worker.due(world.destinations[0]).await;
    assert_eq!(due.len(), 3);

    // A delay without end is "not before the year 9999", for this delivery alone.
    let mut members: Vec<_> = due
        .iter()
        .copied()
        .map(super::fixture::acknowledged)
        .collect();
    members[1] = super::fixture::retry(due[1], 1, Duration::MAX);
    worker.attempt(world.destinations[0], members).await;
    let page = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    let available: Vec<_> = page
        .rows
        .iter()
        .map(|row| (row.position, row.available_at.to_string()))
        .collect();
    assert_eq!(
        available,
        [(due[1], "9999-12-31T23:59:59.999999Z".to_owned())]
    );
    let next = world.append(event("next")).await;
    let exchanged = worker
        .fetch_with(world.destinations[0], worker.front(world.destinations[0]))
        .await;
    assert_eq!(
        super::fixture::positions(&exchanged.fetched),
        [next.position]
    );
    assert!(exchanged.next_due.is_some());
    let events = world
        .store
        .events(&EventFilter::default(), Position::START, 10)
        .await
        .unwrap();
    assert_eq!(events.rows.len(), 4);
    assert_eq!(events.rows[0].open, 0);
}

async fn stored_events<H: StoreHarness>(world: &World<H>) -> usize {
    let filter = EventFilter::default();
    world
        .store
        .events(&filter, Position::START, 100)
        .await
        .unwrap()
        .rows
        .len()
}

async fn assert_nothing_stored<H: StoreHarness>(world: &World<H>) {
    assert_eq!(stored_events(world).await, 0);
    let open = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(open.rows, []);
}
