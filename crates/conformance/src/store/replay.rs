//! Quarantine and replay: what a person sees and decides.

use postrider_contract::{Destination, destination::OnQuarantine};
use postrider_core::{Position, delivery::State};
use postrider_store::{
    dispatch::Unfit,
    inspect::{DeliveryFilter, QuarantineRow, ReplaySelection},
};

use super::{
    StoreHarness,
    fixture::{World, acknowledged, audit, destination, event, quarantined, retry},
};

async fn listed<H: StoreHarness>(
    world: &World<H>,
    selection: &ReplaySelection,
) -> Vec<QuarantineRow> {
    let page = world.store.quarantined(selection, None, 100).await.unwrap();
    assert!(!page.more);
    page.rows
}

pub async fn a_selection_matches_all_that_it_names<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let appended = world
        .append_all(vec![event("a"), event("b"), event("c")])
        .await;
    let at: Vec<Position> = appended.iter().map(|appended| appended.position).collect();
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let worker = world.worker().await;
    worker
        .attempt(alpha, vec![quarantined(at[0]), quarantined(at[1])])
        .await;
    let mut exchange = worker.exchange(beta);
    exchange.quarantine = vec![Unfit {
        position: at[0],
        code: "schema",
        detail: String::new(),
    }];
    worker.run(&exchange).await;

    for row in listed(&world, &ReplaySelection::default()).await {
        let event = world.store.event(row.event_id).await.unwrap().unwrap();
        assert_eq!(row.envelope, event.event.envelope);
    }

    let selection = |events: Option<&[usize]>, destination, code: Option<&str>| ReplaySelection {
        events: events.map(|events| events.iter().map(|n| appended[*n].event_id).collect()),
        destination,
        code: code.map(str::to_owned),
    };
    let cases = [
        (
            selection(None, None, None),
            vec![(alpha, at[0]), (alpha, at[1]), (beta, at[0])],
        ),
        (
            selection(Some(&[0, 2]), None, None),
            vec![(alpha, at[0]), (beta, at[0])],
        ),
        (
            selection(None, Some(alpha), None),
            vec![(alpha, at[0]), (alpha, at[1])],
        ),
        (selection(None, None, Some("schema")), vec![(beta, at[0])]),
        (
            selection(Some(&[0]), Some(beta), Some("schema")),
            vec![(beta, at[0])],
        ),
        (selection(Some(&[1]), Some(beta), None), vec![]),
        (selection(Some(&[]), None, None), vec![]),
    ];
    for (selection, expected) in cases {
        let rows = listed(&world, &selection).await;
        let found: Vec<_> = rows
            .iter()
            .map(|row| (row.destination, row.position))
            .collect();
        assert_eq!(found, expected, "{selection:?}");
    }
    // Replaying one member touches no other (SET-1).
    let only_beta = selection(None, Some(beta), None);
    let replayed = world
        .store
        .replay(&only_beta, 10, &audit("fixed"))
        .await
        .unwrap();
    assert_eq!(replayed.deliveries, [(beta, at[0], appended[0].event_id)]);
    assert_eq!(listed(&world, &ReplaySelection::default()).await.len(), 2);
}

pub async fn replay_sends_the_same_event_again<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let before = worker.fetch(alpha).await.remove(0);
    worker
        .attempt(
            alpha,
            vec![retry(appended.position, 4, std::time::Duration::ZERO)],
        )
        .await;
    worker
        .attempt(alpha, vec![quarantined(appended.position)])
        .await;
    world.clock.step_micros(7);
    let replayed = world
        .store
        .replay(&ReplaySelection::default(), 10, &audit("fixed"))
        .await;
    assert_eq!(replayed.unwrap().deliveries.len(), 1);

    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(
        (delivery.state, delivery.quarantine),
        (State::Pending, None)
    );
    assert_eq!(delivery.available_at, Some(world.clock.now()));
    assert_eq!(delivery.attempts.len(), 2, "history stays");
    let again = worker.fetch(alpha).await.remove(0);
    // The budget is new; identity, content, target and the time of the first attempt are not.
    assert_eq!((again.position, again.attempts), (before.position, 0));
    assert_eq!(again.event, before.event);
    assert!(again.first_attempt_ago.is_some());
    worker
        .attempt(alpha, vec![acknowledged(appended.position)])
        .await;
    assert_eq!(
        world.delivery(appended.event_id, 0).await.state,
        State::Acknowledged
    );
}

pub async fn rep_1_replay_keeps_the_order_of_a_key<H: StoreHarness>() {
    let pass = Destination {
        on_quarantine: OnQuarantine::Pass,
        ..destination("alpha")
    };
    let world = World::<H>::with(&[pass]).await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "K", "K", "K", "K"]).await;
    let worker = world.worker().await;
    let dead = sent[..3].iter().copied().map(quarantined);
    worker
        .attempt(alpha, dead.chain([acknowledged(sent[3])]).collect())
        .await;

    // Sequence 4 went out already: the listing says so, before anybody confirms.
    let rows = listed(&world, &ReplaySelection::default()).await;
    let overtaken: Vec<bool> = rows.iter().map(|row| row.overtaken).collect();
    assert_eq!(overtaken, [true, true, true]);
    let tails: Vec<u64> = rows.iter().map(|row| row.tail.value).collect();
    assert_eq!(tails, [3, 2, 1]);

    // Two consoles at once: each delivery is replayed by exactly one.
    let selection = ReplaySelection::default();
    let other = world.harness.another_handle().await;
    let audit_a = audit("console a");
    let audit_b = audit("console b");
    let (a, b) = tokio::join!(
        world.store.replay(&selection, 10, &audit_a),
        other.replay(&selection, 10, &audit_b)
    );
    let (a, b) = (a.unwrap().deliveries, b.unwrap().deliveries);
    assert!(a.is_empty() != b.is_empty());
    let replayed: Vec<Position> = a
        .iter()
        .chain(&b)
        .map(|(_, position, _)| *position)
        .collect();
    assert_eq!(replayed, sent[..3]);
    let replays = world.harness.audit_log().await.into_iter();
    let replays: Vec<u64> = replays
        .filter(|row| row.action == "replay")
        .map(|row| row.changed)
        .collect();
    assert_eq!(replays, [3]);

    assert_eq!(
        worker.drain(alpha).await,
        [sent[0], sent[1], sent[2], sent[4]]
    );
}

pub async fn rep_1_one_replayed_delivery_leaves_the_others<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let appended = world
        .append_all(vec![event("K"), event("K"), event("K")])
        .await;
    let at: Vec<Position> = appended.iter().map(|appended| appended.position).collect();
    let worker = world.worker().await;
    worker
        .attempt(alpha, at.iter().copied().map(quarantined).collect())
        .await;
    let rows = listed(&world, &ReplaySelection::default()).await;
    assert!(rows.iter().all(|row| !row.overtaken));
    let second = ReplaySelection {
        events: Some(vec![appended[1].event_id]),
        ..ReplaySelection::default()
    };
    world
        .store
        .replay(&second, 10, &audit("only this"))
        .await
        .unwrap();
    // Its key is still held by the first: visibly, and by policy.
    assert!(worker.due(alpha).await.is_empty());
    assert_eq!(
        world
            .store
            .held_by(alpha, at[1])
            .await
            .unwrap()
            .unwrap()
            .head,
        at[0]
    );
    world
        .store
        .replay(&ReplaySelection::default(), 10, &audit("all"))
        .await
        .unwrap();
    assert_eq!(worker.drain(alpha).await, at);
}

pub async fn replay_releases_head_and_tail_in_order<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["K", "L", "K", "K"]).await;
    let worker = world.worker().await;
    worker.attempt(alpha, vec![quarantined(sent[0])]).await;
    assert_eq!(
        listed(&world, &ReplaySelection::default()).await[0]
            .tail
            .value,
        2
    );
    assert_eq!(worker.drain(alpha).await, [sent[1]]);
    world
        .store
        .replay(&ReplaySelection::default(), 10, &audit("fixed"))
        .await
        .unwrap();
    assert_eq!(worker.drain(alpha).await, [sent[0], sent[2], sent[3]]);
}

pub async fn replay_takes_the_lowest_positions_up_to_its_limit<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let appended = world.append_all(vec![event("a"), event("b")]).await;
    let at: Vec<Position> = appended.iter().map(|appended| appended.position).collect();
    let worker = world.worker().await;
    for destination in [alpha, beta] {
        worker
            .attempt(destination, at.iter().copied().map(quarantined).collect())
            .await;
    }
    let all = ReplaySelection::default();
    let none = world.store.replay(&all, 0, &audit("none")).await.unwrap();
    assert_eq!(none.deliveries, []);
    let replayed = world
        .store
        .replay(&all, 3, &audit("three"))
        .await
        .unwrap()
        .deliveries;
    let expected = [
        (alpha, at[0], appended[0].event_id),
        (beta, at[0], appended[0].event_id),
        (alpha, at[1], appended[1].event_id),
    ];
    assert_eq!(replayed, expected);
    let quarantined = DeliveryFilter {
        state: Some(State::Quarantined),
        ..DeliveryFilter::default()
    };
    let left = world
        .store
        .deliveries(&quarantined, None, 10)
        .await
        .unwrap()
        .rows;
    assert_eq!(
        (left.len(), left[0].destination, left[0].position),
        (1, beta, at[1])
    );
}
