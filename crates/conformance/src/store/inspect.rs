//! What people and metrics ask: every row once, within bounds.

use std::time::Duration;

use postrider_contract::{EventId, key};
use postrider_core::{Position, delivery::State};
use postrider_store::inspect::{ATTEMPTS_SHOWN_MAX, DeliveryFilter, EventFilter, ReplaySelection};
use uuid::Uuid;

use super::{
    StoreHarness,
    fixture::{LEASE, NOTED, World, acknowledged, destination, event, quarantined, retry, unknown},
};

pub async fn ids_1_pages_show_each_event_once_while_more_arrive<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut expected = Vec::new();
    for _ in 0..10 {
        let mut event = event("k");
        event.event_id = Some(EventId(Uuid::new_v4())); // ids in no order at all
        expected.push(world.append(event).await.event_id);
    }
    let mut seen = Vec::new();
    let mut after = Position::START;
    for _ in 0..20 {
        let page = world
            .store
            .events(&EventFilter::default(), after, 2)
            .await
            .unwrap();
        assert!(page.rows.len() <= 2);
        seen.extend(page.rows.iter().map(|row| row.event_id));
        if seen.len() < 14 {
            expected.push(world.append(event("k")).await.event_id);
        }
        if !page.more {
            break;
        }
        after = page.rows.last().unwrap().position;
    }
    let rest = world
        .store
        .events(&EventFilter::default(), after, 100)
        .await
        .unwrap();
    assert!(!rest.more);
    let last_seen: Vec<_> = rest
        .rows
        .iter()
        .map(|row| row.event_id)
        .filter(|id| !seen.contains(id))
        .collect();
    seen.extend(last_seen);
    assert_eq!(seen, expected);
}

pub async fn ids_1_pages_of_deliveries_show_each_once<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["a", "b", "c"]).await;
    let worker = world.worker().await;
    for destination in &world.destinations {
        let members = vec![
            quarantined(sent[0]),
            retry(sent[1], 1, LEASE),
            quarantined(sent[2]),
        ];
        worker.attempt(*destination, members).await;
    }
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let expected: Vec<_> = [alpha, beta]
        .iter()
        .flat_map(|d| sent.iter().map(move |position| (*d, *position)))
        .collect();
    let mut seen = Vec::new();
    for _ in 0..7 {
        let after = seen.last().copied();
        let page = world
            .store
            .deliveries(&DeliveryFilter::default(), after, 2)
            .await
            .unwrap();
        seen.extend(page.rows.iter().map(|row| (row.destination, row.position)));
        assert_eq!(page.more, seen.len() < 6);
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, expected);
    let mut seen = Vec::new();
    for _ in 0..5 {
        let after = seen.last().copied();
        let page = world
            .store
            .quarantined(&ReplaySelection::default(), after, 1)
            .await
            .unwrap();
        seen.extend(page.rows.iter().map(|row| (row.destination, row.position)));
        if !page.more {
            break;
        }
    }
    assert_eq!(
        seen,
        [
            (alpha, sent[0]),
            (alpha, sent[2]),
            (beta, sent[0]),
            (beta, sent[2])
        ]
    );
}

pub async fn filters_match_all_that_they_name<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut first = event("a");
    first.tenant = Some("acme".to_owned());
    let mut second = event("b");
    second.event_type = NOTED.to_owned();
    second.aggregate.kind = "cart".to_owned();
    let appended = world.append_all(vec![first, second, event("a")]).await;
    let ids: Vec<EventId> = appended.iter().map(|appended| appended.event_id).collect();
    let text = |text: &str| Some(text.to_owned());
    let all = EventFilter::default();
    let cases = [
        (all.clone(), vec![ids[0], ids[1], ids[2]]),
        (
            EventFilter {
                tenant: text("acme"),
                ..all.clone()
            },
            vec![ids[0]],
        ),
        (
            EventFilter {
                tenant: text("default"),
                ..all.clone()
            },
            vec![ids[1], ids[2]],
        ),
        (
            EventFilter {
                event_type: text(NOTED),
                ..all.clone()
            },
            vec![ids[1]],
        ),
        (
            EventFilter {
                aggregate_type: text("cart"),
                ..all.clone()
            },
            vec![ids[1]],
        ),
        (
            EventFilter {
                aggregate_id: text("a"),
                ..all.clone()
            },
            vec![ids[0], ids[2]],
        ),
        (
            EventFilter {
                partition_key: text("b"),
                ..all.clone()
            },
            vec![ids[1]],
        ),
        (
            EventFilter {
                partition_key: text("a"),
                tenant: text("default"),
                ..all.clone()
            },
            vec![ids[2]],
        ),
        (
            EventFilter {
                tenant: text("%"),
                ..all
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        let page = world
            .store
            .events(&filter, Position::START, 10)
            .await
            .unwrap();
        let found: Vec<_> = page.rows.iter().map(|row| row.event_id).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let page = world
        .store
        .events(&EventFilter::default(), Position::START, 1)
        .await
        .unwrap();
    let stored = world.event(ids[0]).await;
    let row = &page.rows[0];
    assert_eq!((row.position, row.open), (stored.position, 1));
    assert_eq!(
        (&row.envelope, row.appended_at),
        (&stored.event.envelope, world.clock.now())
    );
    assert_eq!(
        world.store.event(EventId(Uuid::new_v4())).await.unwrap(),
        None
    );
}

pub async fn deliveries_are_filtered_by_destination_state_and_key<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["a", "b", "c", "d"]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let members = vec![
        unknown(sent[0]),
        quarantined(sent[1]),
        acknowledged(sent[2]),
    ];
    worker.attempt(alpha, members).await;
    let in_state = |state| DeliveryFilter {
        destination: Some(alpha),
        state: Some(state),
        ..DeliveryFilter::default()
    };
    let of_key = DeliveryFilter {
        key_hash: Some(key::hash("a")),
        ..DeliveryFilter::default()
    };
    let cases = [
        (in_state(State::Unknown), vec![sent[0]]),
        (in_state(State::Quarantined), vec![sent[1]]),
        (in_state(State::Pending), vec![sent[3]]),
        (in_state(State::Acknowledged), vec![]),
        (of_key, vec![sent[0], sent[0]]),
    ];
    for (filter, expected) in cases {
        let page = world.store.deliveries(&filter, None, 10).await.unwrap();
        let found: Vec<_> = page.rows.iter().map(|row| row.position).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
}

pub async fn the_backlog_counts_each_state<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["a", "b", "c", "d"]).await;
    world.clock.step_micros(3_000_000);
    world.append_keys(&["e"]).await;
    let alpha = world.destinations[0];
    let worker = world.session("w").await;
    world
        .store
        .claim_lanes(worker.session, &[(alpha, 3)])
        .await
        .unwrap();
    let members = vec![
        acknowledged(sent[0]),
        unknown(sent[1]),
        quarantined(sent[2]),
    ];
    worker.attempt(alpha, members).await;

    let backlog = world.store.backlog().await.unwrap();
    let ids: Vec<_> = backlog.iter().map(|row| row.destination).collect();
    assert_eq!(ids, world.destinations);
    let figures: Vec<_> = backlog
        .iter()
        .map(|row| {
            let counts = [row.pending, row.unknown, row.quarantined].map(|c| (c.value, c.capped));
            (counts, row.lanes, row.lanes_held)
        })
        .collect();
    let count = |value| (value, false);
    assert_eq!(figures[0], ([count(2), count(1), count(1)], 4, 3));
    assert_eq!(figures[1], ([count(5), count(0), count(0)], 4, 0));
    assert_eq!(backlog[0].oldest_pending, Some(Duration::from_secs(3)));
    let worker = world.worker().await;
    worker.attempt(alpha, vec![acknowledged(sent[3])]).await;
    let backlog = world.store.backlog().await.unwrap();
    assert_eq!(backlog[0].oldest_pending, Some(Duration::ZERO));
    assert_eq!(backlog[1].oldest_pending, Some(Duration::from_secs(3)));
    worker.drain(world.destinations[1]).await;
    let backlog = world.store.backlog().await.unwrap();
    assert_eq!(
        (backlog[1].pending.value, backlog[1].oldest_pending),
        (0, None)
    );
}

pub async fn sessions_are_listed_newest_first<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut expected = Vec::new();
    for owner in ["a", "b", "c"] {
        world.clock.step_micros(1);
        expected.insert(0, world.session(owner).await.session);
    }
    world
        .store
        .end_session(expected[1], "shutdown")
        .await
        .unwrap();
    let rows = world.store.sessions(10).await.unwrap();
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    assert_eq!(ids, expected);
    assert_eq!(
        (rows[0].owner.as_str(), rows[0].version.as_str()),
        ("c", "0.1.0")
    );
    assert_eq!(rows[0].opened_at, world.clock.now());
    let lease = rows[0].expires_at.unix_micros() - rows[0].opened_at.unix_micros();
    assert_eq!(lease, i64::try_from(LEASE.as_micros()).unwrap());
    assert_eq!(
        rows[1].ended,
        Some((world.clock.now(), "shutdown".to_owned()))
    );
    assert_eq!(world.store.sessions(2).await.unwrap(), rows[..2]);
}

pub async fn an_event_shows_its_newest_attempts<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let mut attempts = Vec::new();
    for _ in 0..ATTEMPTS_SHOWN_MAX + 3 {
        world.clock.step_micros(1);
        let members = vec![retry(appended.position, 1, Duration::ZERO)];
        attempts.push(worker.attempt(alpha, members).await);
    }
    let delivery = world.delivery(appended.event_id, 0).await;
    let shown: Vec<_> = delivery.attempts.iter().map(|row| row.attempt).collect();
    assert_eq!(shown, attempts[3..]);
}

pub async fn maintenance_leaves_everything_in_place<H: StoreHarness>() {
    let world = World::<H>::new().await;
    world.append(event("a")).await;
    let before = super::exchange::everything(&world).await;
    world.store.maintain().await.unwrap();
    world.store.maintain().await.unwrap();
    assert_eq!(super::exchange::everything(&world).await, before);
}
