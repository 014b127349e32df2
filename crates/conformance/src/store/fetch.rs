//! Fetch: exactly what is due, within the limits, and whether there is more.

use std::time::Duration;

use postrider_core::{Lane, Position};
use postrider_store::dispatch::Fetch;

use super::{
    StoreHarness,
    fixture::{World, acknowledged, destination, event, positions, retry, unknown},
};

pub async fn due_deliveries_come_in_position_order<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["d", "b", "a", "c", "b", "a"]).await;
    let worker = world.worker().await;
    let answer = worker
        .fetch_with(world.destinations[0], worker.front(world.destinations[0]))
        .await;
    assert_eq!(positions(&answer.fetched), sent);
    assert!(answer.exhausted);
    assert_eq!(
        (answer.next_due, answer.now),
        (None, Some(world.clock.now()))
    );
}

pub async fn only_the_lanes_asked_for_are_read<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let keys: Vec<String> = (0..40).map(|n| format!("key-{n}")).collect();
    world
        .append_keys(&keys.iter().map(String::as_str).collect::<Vec<_>>())
        .await;
    let worker = world.worker().await;
    let all = worker.fetch(alpha).await;
    assert_eq!(all.len(), 40);
    for lanes in [vec![Lane(2)], vec![Lane(0), Lane(3)], vec![]] {
        let fetch = Fetch {
            lanes: lanes.clone(),
            ..worker.front(alpha)
        };
        let expected: Vec<Position> = all
            .iter()
            .filter(|fetched| lanes.contains(&fetched.lane))
            .map(|fetched| fetched.position)
            .collect();
        let answer = worker.fetch_with(alpha, fetch).await;
        assert_eq!(positions(&answer.fetched), expected);
        assert!(answer.exhausted);
    }
}

pub async fn after_exclude_and_busy_keys_are_left_out<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["a", "b", "c", "b", "d", "e"]).await;
    let worker = world.worker().await;
    let due = async |fetch: Fetch| {
        let answer = worker.fetch_with(alpha, fetch).await;
        assert!(answer.exhausted);
        positions(&answer.fetched)
    };
    let front = worker.front(alpha);
    let after = Fetch {
        after: sent[2],
        ..front.clone()
    };
    assert_eq!(due(after).await, sent[3..]);
    let exclude = Fetch {
        exclude: vec![sent[0], sent[3], sent[5]],
        ..front.clone()
    };
    assert_eq!(due(exclude).await, [sent[1], sent[2], sent[4]]);
    let mut busy_keys = vec![
        postrider_contract::key::hash("b"),
        postrider_contract::key::hash("e"),
    ];
    busy_keys.sort_unstable();
    let busy = Fetch { busy_keys, ..front };
    assert_eq!(due(busy).await, [sent[0], sent[2], sent[4]]);
}

pub async fn the_limit_stops_a_fetch<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["a", "b", "c"]).await;
    let worker = world.worker().await;
    for (limit, exhausted) in [(0, false), (1, false), (2, false), (3, false), (4, true)] {
        let fetch = Fetch {
            limit,
            ..worker.front(alpha)
        };
        let answer = worker.fetch_with(alpha, fetch).await;
        assert_eq!(
            positions(&answer.fetched),
            sent[..sent.len().min(limit as usize)]
        );
        assert_eq!(
            (answer.exhausted, answer.next_due),
            (exhausted, None),
            "limit {limit}"
        );
    }
}

pub async fn bytes_stop_a_fetch_but_never_the_first<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let mut sent = Vec::new();
    for (key, length) in [("a", 10), ("b", 20), ("c", 0), ("d", 5)] {
        let mut event = event(key);
        event.content_type = Some("text/plain".to_owned());
        event.payload = vec![b'x'; length];
        sent.push(world.append(event).await.position);
    }
    let worker = world.worker().await;
    let cases = [
        (0, 1),
        (9, 1),
        (29, 1),
        (30, 3),
        (34, 3),
        (35, 4),
        (u64::MAX, 4),
    ];
    for (bytes_max, expected) in cases {
        let fetch = Fetch {
            bytes_max,
            ..worker.front(alpha)
        };
        let answer = worker.fetch_with(alpha, fetch).await;
        assert_eq!(
            positions(&answer.fetched),
            sent[..expected],
            "{bytes_max} bytes"
        );
        assert_eq!(answer.exhausted, expected == 4, "{bytes_max} bytes");
    }
}

pub async fn next_due_is_the_first_retry_of_these_lanes<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let alpha = world.destinations[0];
    let keys = ["a", "b", "c", "d"];
    let sent = world.append_keys(&keys).await;
    let worker = world.worker().await;
    let fetched = worker.fetch(alpha).await;
    let second = Duration::from_secs(1);
    worker
        .attempt(
            alpha,
            vec![
                retry(sent[0], 1, 3 * second),
                retry(sent[1], 1, 2 * second),
                unknown(sent[2]),
                acknowledged(sent[3]),
            ],
        )
        .await;
    let next_due = async |lanes: Vec<Lane>, after: Position| {
        let fetch = Fetch {
            lanes,
            after,
            ..worker.front(alpha)
        };
        let answer = worker.fetch_with(alpha, fetch).await;
        assert!(answer.exhausted && answer.fetched.is_empty());
        answer.next_due
    };
    let all = worker.lanes[&alpha].clone();
    assert_eq!(
        next_due(all.clone(), Position::START).await,
        Some(2 * second)
    );
    // Above the scan or below it: a retry waits where it is.
    assert_eq!(next_due(all.clone(), sent[3]).await, Some(2 * second));
    assert_eq!(next_due(vec![], Position::START).await, None);
    let without_b: Vec<Lane> = all
        .into_iter()
        .filter(|lane| *lane != fetched[1].lane)
        .collect();
    let expected = (fetched[0].lane != fetched[1].lane).then_some(3 * second);
    assert_eq!(next_due(without_b, Position::START).await, expected);

    // Another destination has its own.
    let answer = worker
        .fetch_with(world.destinations[1], worker.front(world.destinations[1]))
        .await;
    assert_eq!((answer.fetched.len(), answer.next_due), (4, None));
}

pub async fn what_is_in_an_attempt_is_still_offered<H: StoreHarness>() {
    // Being sent is no column: whoever holds the lane excludes what it has in flight.
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["a"]).await;
    let worker = world.worker().await;
    worker.register(alpha, &sent).await;
    assert_eq!(worker.due(alpha).await, sent);
}
