//! What is registered: compared, versioned, audited.

use postrider_contract::{Digest, Envelope};
use postrider_store::{StoreError, control::SchemaStatus, dispatch::Suspend};

use super::{
    AuditRow, StoreHarness,
    fixture::{PLACED, World, acknowledged, audit, destination, event, plan},
};

pub async fn a_fresh_store_has_the_schema_that_this_program_knows<H: StoreHarness>() {
    let world = World::<H>::empty().await;
    let status = world.store.schema_status().await.unwrap();
    assert!(matches!(status, SchemaStatus::Current { .. }), "{status:?}");
    assert_eq!(world.store.now().await.unwrap(), world.clock.now());
}

pub async fn the_same_plan_again_changes_nothing<H: StoreHarness>() {
    let mut world = World::<H>::empty().await;
    let plan = plan(1, &[destination("alpha"), destination("beta")]);
    let first = world.apply(&plan).await;
    assert_eq!((first.destinations_added, first.event_types_added), (2, 2));
    assert!(first.delivery_set_activated);
    let registry = world.store.registry().await.unwrap();
    let names: Vec<_> = registry
        .destinations
        .iter()
        .map(|d| d.destination.name.clone())
        .collect();
    assert_eq!(names, ["alpha", "beta"]);
    assert!(
        registry
            .destinations
            .iter()
            .all(|d| d.current && d.suspended.is_none())
    );
    assert_eq!(registry.delivery_set.as_ref(), Some(&plan.delivery_set));
    let types: Vec<_> = registry
        .event_types
        .iter()
        .map(|t| t.event_type.clone())
        .collect();
    assert_eq!(types, plan.event_types);
    assert_eq!(world.store.lanes().await.unwrap().len(), 8);

    let again = world.apply(&plan).await;
    assert_eq!(again, postrider_store::control::Applied::default());
    assert_eq!(world.store.registry().await.unwrap(), registry);
    assert_eq!(world.harness.audit_log().await.len(), 1);
}

pub async fn other_content_under_a_registered_name_is_refused<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let before = world.store.registry().await.unwrap();
    let mut changed = destination("alpha");
    changed.target = "elsewhere".to_owned();
    let other_destination = plan(2, &[destination("beta"), changed]);
    let mut other_set = plan(1, &[destination("alpha")]);
    other_set.delivery_set.members.truncate(1);
    other_set.delivery_set.member_count = 1;
    for plan in [other_destination, other_set] {
        let refused = world.store.apply(&plan, &audit("no")).await;
        assert!(
            matches!(refused, Err(StoreError::AlreadyDifferent { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(world.store.registry().await.unwrap(), before);
    assert_eq!(world.harness.audit_log().await.len(), 1);
}

pub async fn a_member_without_a_registered_destination_is_refused<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let before = world.store.registry().await.unwrap();
    let mut orphan = plan(2, &[destination("alpha"), destination("beta")]);
    orphan.destinations.pop();
    let refused = world.store.apply(&orphan, &audit("no")).await;
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
    assert_eq!(world.store.registry().await.unwrap(), before);
}

pub async fn a_changed_schema_applies_to_later_events<H: StoreHarness>() {
    let mut world = World::<H>::new().await;
    let before = world.append(event("k")).await;
    let mut changed = plan(1, &[destination("alpha")]);
    let narrower = r#"{"required":["total"],"type":"object"}"#;
    changed.event_types[1].json_schema = Some(narrower.to_owned());
    assert_eq!(world.apply(&changed).await.event_types_added, 1);
    let after = world.append(event("k")).await;

    let mut frozen = Vec::new();
    for appended in [before, after] {
        let stored = world.event(appended.event_id).await.event.envelope;
        frozen.push(
            Envelope::from_stored(&stored)
                .unwrap()
                .payload
                .schema_digest
                .unwrap(),
        );
    }
    assert_eq!(frozen[0], Digest::of_canonical(r#"{"type":"object"}"#));
    assert_eq!(frozen[1], Digest::of_canonical(narrower));
    let current = async |world: &World<H>| -> Vec<(String, bool)> {
        let registry = world.store.registry().await.unwrap();
        let of_type = registry.event_types.into_iter();
        of_type
            .filter(|registered| registered.event_type.event_type == PLACED)
            .map(|registered| {
                (
                    registered.event_type.json_schema.unwrap(),
                    registered.current,
                )
            })
            .collect()
    };
    let wide = r#"{"type":"object"}"#.to_owned();
    let both = [(wide.clone(), false), (narrower.to_owned(), true)];
    assert_eq!(current(&world).await, both);

    // Back to the first: it is current again, not registered twice.
    assert_eq!(
        world
            .apply(&plan(1, &[destination("alpha")]))
            .await
            .event_types_added,
        1
    );
    assert_eq!(
        current(&world).await,
        [(wide, true), (narrower.to_owned(), false)]
    );
}

pub async fn set_1_a_changed_delivery_set_serves_new_events_only<H: StoreHarness>() {
    let mut world = World::<H>::new().await;
    let before = world.append(event("a")).await;
    let applied = world
        .apply(&plan(2, &[destination("alpha"), destination("echo")]))
        .await;
    assert_eq!(
        (applied.destinations_added, applied.event_types_added),
        (1, 0)
    );
    assert!(applied.delivery_set_activated);
    let after = world.append(event("b")).await;

    let worker = world.worker().await;
    assert_eq!(
        worker.due(world.destinations[0]).await,
        [before.position, after.position]
    );
    assert_eq!(worker.due(world.destinations[1]).await, [after.position]);
    assert_eq!(world.event(before.event_id).await.deliveries.len(), 1);
    let stored = world.event(before.event_id).await.event.envelope;
    assert_eq!(
        Envelope::from_stored(&stored).unwrap().delivery_set.version,
        1
    );

    // Back to the first set: an audited move of the pointer, and "echo" gets nothing new.
    assert!(
        world
            .apply(&plan(1, &[destination("alpha")]))
            .await
            .delivery_set_activated
    );
    world.append(event("c")).await;
    assert_eq!(worker.due(world.destinations[1]).await, [after.position]);
}

pub async fn a_new_generation_leaves_the_old_one_its_events<H: StoreHarness>() {
    let mut world = World::<H>::new().await;
    let old = world.append(event("a")).await;
    let mut second = destination("alpha");
    second.generation = 2;
    second.target = "elsewhere".to_owned();
    world.apply(&plan(2, &[second])).await;
    let new = world.append(event("a")).await;
    let registry = world.store.registry().await.unwrap();
    let current: Vec<bool> = registry.destinations.iter().map(|d| d.current).collect();
    assert_eq!(current, [false, true]);
    let worker = world.worker().await;
    assert_eq!(worker.drain(world.destinations[0]).await, [old.position]);
    assert_eq!(worker.drain(world.destinations[1]).await, [new.position]);
}

pub async fn nothing_is_due_at_a_suspended_destination<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["a", "b"]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let worker = world.worker().await;
    let attempt = worker.register(alpha, &sent[..1]).await;
    let suspend = |detail: &str| {
        Some(Suspend {
            code: "gone",
            detail: detail.to_owned(),
        })
    };
    let mut exchange = worker.exchange(alpha);
    exchange.suspend = suspend("410");
    exchange.fetch = Some(worker.front(alpha));
    let answer = worker.run(&exchange).await;
    assert!(answer.fetched.is_empty() && answer.exhausted && answer.next_due.is_none());
    let since = world.clock.now();

    // The first reason stays; what is in flight is settled as ever; others are not touched.
    world.clock.step_micros(1_000_000);
    exchange.suspend = suspend("again");
    worker.run(&exchange).await;
    let registry = world.store.registry().await.unwrap();
    let suspension = registry.destinations[0].suspended.clone().unwrap();
    assert_eq!(
        (suspension.code.as_str(), suspension.detail.as_str()),
        ("gone", "410")
    );
    assert_eq!(suspension.since, since);
    let shares = world
        .store
        .heartbeat(worker.session, super::fixture::LEASE, &[])
        .await
        .unwrap();
    let suspended: Vec<bool> = shares.iter().map(|share| share.suspended).collect();
    assert_eq!(suspended, [true, false]);
    worker
        .settle(alpha, attempt, vec![acknowledged(sent[0])])
        .await;
    assert_eq!(worker.due(beta).await, sent);

    assert!(
        world
            .store
            .resume_destination(alpha, &audit("back"))
            .await
            .unwrap()
    );
    assert!(
        !world
            .store
            .resume_destination(alpha, &audit("twice"))
            .await
            .unwrap()
    );
    assert_eq!(worker.due(alpha).await, sent[1..]);
}

pub async fn changes_by_people_are_audited<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    worker
        .attempt(alpha, vec![super::fixture::quarantined(appended.position)])
        .await;
    let mut exchange = worker.exchange(alpha);
    exchange.suspend = Some(Suspend {
        code: "gone",
        detail: String::new(),
    });
    worker.run(&exchange).await;
    world
        .store
        .resume_destination(alpha, &audit("back"))
        .await
        .unwrap();
    let selection = postrider_store::inspect::ReplaySelection::default();
    for _ in 0..2 {
        world
            .store
            .replay(&selection, 10, &audit("fixed"))
            .await
            .unwrap();
    }
    let row = |action: &str, reason: &str, changed| AuditRow {
        action: action.to_owned(),
        actor: "ops@example".to_owned(),
        reason: reason.to_owned(),
        changed,
    };
    assert_eq!(
        world.harness.audit_log().await,
        [
            row("apply", "apply", 4),
            row("resume_destination", "back", 1),
            row("replay", "fixed", 1)
        ]
    );
}
