//! The exchange: register before send, settle once, and nothing for the dead.

use std::time::Duration;

use postrider_contract::{EventId, Receipt};
use postrider_core::{AttemptId, Position, delivery::State};
use postrider_store::{
    ExchangeError, StoreError,
    dispatch::{Registration, Settled, SettledAs, Settlement, Suspend, Unfit},
    inspect::{DeliveryFilter, ReplaySelection},
    sessions::{BreakerReport, OpenBreaker},
};
use uuid::Uuid;

use super::{
    StoreHarness,
    fixture::{
        LEASE, World, acknowledged, destination, event, positions, quarantined, receipt, retry,
        unknown,
    },
};

pub async fn an_attempt_is_durable_before_anything_is_sent<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    assert_eq!(worker.fetch(alpha).await[0].first_attempt_ago, None);
    let attempt = worker.register(alpha, &[appended.position]).await;
    // Seen by another program once the exchange has answered (I4).
    let other = world.harness.another_handle().await;
    let detail = other.event(appended.event_id).await.unwrap().unwrap();
    let delivery = &detail.deliveries[0];
    assert_eq!(
        (delivery.state, delivery.attempts_charged),
        (State::Pending, 0)
    );
    assert_eq!(delivery.attempts.len(), 1);
    let row = &delivery.attempts[0];
    assert_eq!((row.attempt, row.session), (attempt, worker.session));
    assert_eq!(
        (row.owner.as_str(), row.registered_at),
        ("worker", world.clock.now())
    );
    assert_eq!(
        (row.finished_at, row.outcome.as_ref(), row.detail.as_ref()),
        (None, None, None)
    );
    let lease = row.lease_until.unix_micros() - world.clock.now().unix_micros();
    assert_eq!(lease, i64::try_from(LEASE.as_micros()).unwrap());
}

pub async fn an_acknowledgement_closes_with_its_receipt<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let attempt = worker.register(alpha, &[appended.position]).await;
    world.clock.step_micros(1000);
    let answer = worker
        .settle(alpha, attempt, vec![acknowledged(appended.position)])
        .await;
    assert_eq!(answer.duplicates, 0);
    assert_eq!((answer.fetched.len(), answer.now), (0, None));

    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(
        (delivery.state, delivery.available_at),
        (State::Acknowledged, None)
    );
    let kept = delivery.receipt.unwrap();
    assert_eq!(
        (kept.attempt, kept.accepted_at),
        (attempt, world.clock.now())
    );
    assert_eq!(
        kept.receipt,
        receipt(u64::try_from(appended.position.0).unwrap())
    );
    assert!(!kept.late);
    assert_eq!(delivery.duplicates, []);
    let row = &delivery.attempts[0];
    assert_eq!(row.finished_at, Some(world.clock.now()));
    assert_eq!(
        (row.outcome.as_deref(), row.detail.as_ref()),
        (Some("acknowledged"), None)
    );
    assert!(worker.due(alpha).await.is_empty());
}

pub async fn receipts_of_every_kind_come_back_as_they_were<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let kinds = [
        receipt(u64::MAX),
        receipt(0),
        Receipt::JetStream {
            stream: "é \"s\"".to_owned(),
            sequence: 7,
            domain: Some("hub".to_owned()),
            duplicate: true,
        },
        Receipt::Http {
            status: 202,
            body_digest: Some(postrider_contract::Digest::of_bytes(b"ok")),
        },
        Receipt::File {
            file: "events.jsonl".to_owned(),
            offset: 4096,
            duplicate: false,
        },
        Receipt::Kafka {
            cluster: "c".to_owned(),
            topic: "t".to_owned(),
            partition: 3,
            offset: 9,
        },
        Receipt::Redis {
            key: "stream".to_owned(),
            entry_id: "1-0".to_owned(),
        },
        Receipt::Handler {
            handler: "h".to_owned(),
            sequence: 1,
        },
    ];
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let events: Vec<_> = keys.iter().map(|key| event(key)).collect();
    let appended = world.append_all(events).await;
    let worker = world.worker().await;
    let members = appended
        .iter()
        .zip(&kinds)
        .map(|(appended, receipt)| Settled {
            position: appended.position,
            next: SettledAs::Acknowledged(receipt.clone()),
        });
    worker
        .attempt(world.destinations[0], members.collect())
        .await;
    for (appended, receipt) in appended.iter().zip(kinds) {
        let delivery = world.delivery(appended.event_id, 0).await;
        assert_eq!(delivery.receipt.unwrap().receipt, receipt);
    }
}

pub async fn a_retry_waits_its_delay_and_is_charged_as_told<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let delay = Duration::from_millis(1500);
    let attempt = worker
        .attempt(alpha, vec![retry(appended.position, 3, delay)])
        .await;
    let answer = worker.fetch_with(alpha, worker.front(alpha)).await;
    assert!(answer.fetched.is_empty() && answer.exhausted);
    assert_eq!(
        (answer.next_due, answer.now),
        (Some(delay), Some(world.clock.now()))
    );
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(
        (delivery.state, delivery.attempts_charged),
        (State::Pending, 3)
    );
    let row = &delivery.attempts[0];
    assert_eq!(
        (row.attempt, row.outcome.as_deref()),
        (attempt, Some("refused_for_now"))
    );
    assert_eq!(row.detail.as_deref(), Some("try later"));

    world.clock.advance(delay - Duration::from_micros(1));
    assert!(worker.due(alpha).await.is_empty());
    world.clock.step_micros(1);
    let fetched = worker.fetch(alpha).await;
    assert_eq!(
        (fetched[0].position, fetched[0].attempts),
        (appended.position, 3)
    );
    assert!(fetched[0].first_attempt_ago.is_some());
    worker
        .attempt(alpha, vec![retry(appended.position, 0, Duration::ZERO)])
        .await;
    assert_eq!(worker.fetch(alpha).await[0].attempts, 0);
}

pub async fn unknown_waits_for_the_truth<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    worker
        .attempt(alpha, vec![unknown(appended.position)])
        .await;
    world.clock.advance(Duration::from_secs(3600));
    let worker = {
        world.store.recover_expired(10).await.unwrap();
        drop(worker);
        world.worker().await
    };
    assert!(worker.due(alpha).await.is_empty());
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(
        (delivery.state, delivery.attempts_charged),
        (State::Unknown, 0)
    );
    let row = &delivery.attempts[0];
    assert_eq!(
        (row.outcome.as_deref(), row.detail.as_ref()),
        (Some("deadline"), None)
    );
    assert_eq!(delivery.quarantine, None);
}

pub async fn quarantine_waits_for_a_person<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    worker
        .attempt(alpha, vec![quarantined(appended.position)])
        .await;
    assert!(worker.due(alpha).await.is_empty());
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(
        (delivery.state, delivery.attempts_charged),
        (State::Quarantined, 1)
    );
    let reason = delivery.quarantine.unwrap();
    assert_eq!(
        (reason.code.as_str(), reason.since),
        ("too_large", world.clock.now())
    );
    assert_eq!(reason.detail, "2 MB, the stream takes 1 MB");
    let page = world
        .store
        .quarantined(&ReplaySelection::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.rows.len(), 1);
    assert_eq!(
        (page.rows[0].event_id, &page.rows[0].reason),
        (appended.event_id, &reason)
    );
}

pub async fn what_is_unfit_is_quarantined_without_an_attempt<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b", "c"]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    worker
        .attempt(alpha, vec![unknown(sent[1]), acknowledged(sent[2])])
        .await;
    let mut exchange = worker.exchange(alpha);
    let unfit = |position| Unfit {
        position,
        code: "payload_digest",
        detail: "the stored payload has another digest".to_owned(),
    };
    // Only what is pending; what is unknown or closed stays so.
    exchange.quarantine = vec![unfit(sent[0]), unfit(sent[1]), unfit(sent[2])];
    for _ in 0..2 {
        worker.run(&exchange).await;
        let page = world
            .store
            .deliveries(&DeliveryFilter::default(), None, 10)
            .await
            .unwrap();
        let states: Vec<_> = page
            .rows
            .iter()
            .map(|row| (row.position, row.state))
            .collect();
        assert_eq!(
            states,
            [(sent[0], State::Quarantined), (sent[1], State::Unknown)]
        );
        assert_eq!(page.rows[0].attempts_charged, 0);
        world.clock.step_micros(1);
    }
    let page = world
        .store
        .quarantined(&ReplaySelection::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.rows[0].reason.code, "payload_digest");
    let since = page.rows[0].reason.since.unix_micros();
    assert_eq!(world.clock.now().unix_micros() - since, 2);
}

pub async fn the_publish_slot_is_won_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let first = worker.register(alpha, &[appended.position]).await;
    let second = worker.register(alpha, &[appended.position]).await;
    let with = |sequence| {
        vec![Settled {
            position: appended.position,
            next: SettledAs::Acknowledged(receipt(sequence)),
        }]
    };
    assert_eq!(worker.settle(alpha, second, with(8)).await.duplicates, 0);
    world.clock.step_micros(1);
    assert_eq!(worker.settle(alpha, first, with(7)).await.duplicates, 1);
    let delivery = world.delivery(appended.event_id, 0).await;
    let primary = delivery.receipt.unwrap();
    assert_eq!((primary.attempt, primary.receipt), (second, receipt(8)));
    assert_eq!(delivery.duplicates.len(), 1);
    let duplicate = &delivery.duplicates[0];
    assert_eq!(
        (duplicate.attempt, &duplicate.receipt),
        (first, &receipt(7))
    );
    assert_eq!(
        (duplicate.late, duplicate.accepted_at),
        (false, world.clock.now())
    );
}

pub async fn a_mixed_batch_settles_each_member_for_itself<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let events: Vec<_> = (0..1000).map(|n| event(&format!("key-{n}"))).collect();
    let sent: Vec<Position> = world
        .append_all(events)
        .await
        .iter()
        .map(|appended| appended.position)
        .collect();
    let worker = world.worker().await;
    let attempt = worker.register(alpha, &sent).await;
    let members = sent.iter().enumerate().map(|(n, position)| match n % 10 {
        3 => retry(*position, 1, Duration::from_secs(1)),
        5 => unknown(*position),
        7 => quarantined(*position),
        _ => acknowledged(*position),
    });
    assert_eq!(
        worker
            .settle(alpha, attempt, members.collect())
            .await
            .duplicates,
        0
    );
    let backlog = world.store.backlog().await.unwrap().remove(0);
    let figures = [backlog.pending, backlog.unknown, backlog.quarantined].map(|c| c.value);
    assert_eq!(figures, [100, 100, 100]);
    assert!(worker.due(alpha).await.is_empty());
    let page = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 1000)
        .await
        .unwrap();
    for (row, n) in page
        .rows
        .iter()
        .zip((0..1000).filter(|n| matches!(n % 10, 3 | 5 | 7)))
    {
        assert_eq!(row.position, sent[n]);
    }
    for n in [0, 1, 499, 999] {
        let filter = postrider_store::inspect::EventFilter {
            partition_key: Some(format!("key-{n}")),
            ..Default::default()
        };
        let rows = world
            .store
            .events(&filter, Position::START, 2)
            .await
            .unwrap()
            .rows;
        let kept = world.delivery(rows[0].event_id, 0).await.receipt.unwrap();
        let sequence = u64::try_from(sent[n].0).unwrap();
        assert_eq!((kept.attempt, kept.receipt), (attempt, receipt(sequence)));
    }
}

pub async fn the_same_exchange_again_changes_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b", "c", "d", "e"]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let first = worker.register(alpha, &sent[..4]).await;
    let mut exchange = worker.exchange(alpha);
    exchange.settle = vec![Settlement {
        attempt: first,
        members: vec![
            acknowledged(sent[0]),
            retry(sent[1], 1, Duration::from_secs(1)),
            unknown(sent[2]),
            quarantined(sent[3]),
        ],
    }];
    exchange.register = vec![Registration {
        attempt: AttemptId(Uuid::new_v4()),
        members: sent[4..].to_vec(),
    }];
    exchange.fetch = Some(worker.front(alpha));
    // The answer was lost after the commit, and the worker asks again, a little later.
    let answer = worker.run(&exchange).await;
    let after = everything(&world).await;
    for _ in 0..2 {
        world.clock.step_micros(1000);
        let again = worker.run(&exchange).await;
        assert_eq!(again.duplicates, 0);
        assert_eq!(positions(&again.fetched), positions(&answer.fetched));
        assert_eq!(everything(&world).await, after);
    }
}

pub async fn an_ended_session_can_do_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b", "c"]).await;
    let alpha = world.destinations[0];
    let ended = world.worker().await;
    let attempt = ended.register(alpha, &sent[..1]).await;
    let mut settle = ended.exchange(alpha);
    settle.settle = vec![Settlement {
        attempt,
        members: vec![acknowledged(sent[0])],
    }];
    let mut register = ended.exchange(alpha);
    register.register = vec![Registration {
        attempt: AttemptId(Uuid::new_v4()),
        members: vec![sent[1]],
    }];
    let mut quarantine = ended.exchange(alpha);
    quarantine.quarantine = vec![Unfit {
        position: sent[2],
        code: "schema",
        detail: String::new(),
    }];
    let mut fetch = ended.exchange(alpha);
    fetch.fetch = Some(ended.front(alpha));

    // First merely past its lease and not recovered, then recovered.
    world.clock.advance(LEASE);
    for recovered in [false, true] {
        if recovered {
            assert_eq!(world.store.recover_expired(10).await.unwrap().len(), 1);
        }
        let before = everything(&world).await;
        for exchange in [&settle, &register, &quarantine, &fetch] {
            let refused = world.store.exchange(exchange).await;
            assert!(matches!(refused, Err(ExchangeError::Ended)), "{refused:?}");
        }
        assert_eq!(everything(&world).await, before);
    }
    let mut stranger = ended.exchange(alpha);
    stranger.session = postrider_core::SessionId(Uuid::new_v4());
    let refused = world.store.exchange(&stranger).await;
    assert!(matches!(refused, Err(ExchangeError::Ended)), "{refused:?}");
}

pub async fn only_what_was_registered_can_be_settled<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let sent = world.append_keys(&["a", "b"]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let worker = world.worker().await;
    let other = world.session("other").await;
    let attempt = worker.register(alpha, &sent).await;
    let before = everything(&world).await;
    let both = vec![acknowledged(sent[0]), acknowledged(sent[1])];
    let made_up = AttemptId(Uuid::new_v4());
    let refusals = [
        worker.try_settle(alpha, made_up, both.clone()).await,
        worker.try_settle(beta, attempt, both.clone()).await,
        other.try_settle(alpha, attempt, both.clone()).await,
        worker.try_settle(alpha, attempt, both[..1].to_vec()).await,
        worker
            .try_settle(alpha, attempt, vec![acknowledged(sent[0])])
            .await,
    ];
    for refused in refusals {
        assert!(
            matches!(
                refused,
                Err(ExchangeError::Store(StoreError::Refused { .. }))
            ),
            "{refused:?}"
        );
    }
    assert_eq!(everything(&world).await, before);
    worker.settle(alpha, attempt, both).await;
}

pub async fn a_refused_exchange_does_none_of_its_parts<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b"]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let attempt = worker.register(alpha, &sent[..1]).await;
    let before = everything(&world).await;
    let mut exchange = worker.exchange(alpha);
    exchange.settle = vec![
        Settlement {
            attempt,
            members: vec![acknowledged(sent[0])],
        },
        Settlement {
            attempt: AttemptId(Uuid::new_v4()),
            members: vec![acknowledged(sent[1])],
        },
    ];
    exchange.register = vec![Registration {
        attempt: AttemptId(Uuid::new_v4()),
        members: vec![sent[1]],
    }];
    let refused = world.store.exchange(&exchange).await;
    assert!(matches!(
        refused,
        Err(ExchangeError::Store(StoreError::Refused { .. }))
    ));
    assert_eq!(everything(&world).await, before);
}

pub async fn an_outcome_does_not_reopen_what_was_closed<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let appended = world.append(event("a")).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let mut late = Vec::new();
    for _ in 0..3 {
        late.push(worker.register(alpha, &[appended.position]).await);
    }
    worker
        .attempt(alpha, vec![acknowledged(appended.position)])
        .await;
    worker
        .settle(
            alpha,
            late[0],
            vec![retry(appended.position, 1, Duration::ZERO)],
        )
        .await;
    worker
        .settle(alpha, late[1], vec![unknown(appended.position)])
        .await;
    worker
        .settle(alpha, late[2], vec![quarantined(appended.position)])
        .await;
    let delivery = world.delivery(appended.event_id, 0).await;
    assert_eq!(delivery.state, State::Acknowledged);
    assert_eq!(delivery.attempts.len(), 4);
    let outcomes: Vec<_> = delivery
        .attempts
        .iter()
        .map(|row| row.outcome.as_deref().unwrap())
        .collect();
    for outcome in ["acknowledged", "refused_for_now", "deadline", "too_large"] {
        assert!(outcomes.contains(&outcome), "{outcome} of {outcomes:?}");
    }
}

pub async fn an_acknowledgement_closes_what_another_outcome_left_open<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let sent = world.append_keys(&["a", "b"]).await;
    let alpha = world.destinations[0];
    let worker = world.worker().await;
    let slow = worker.register(alpha, &sent).await;
    worker
        .attempt(alpha, vec![unknown(sent[0]), quarantined(sent[1])])
        .await;
    let both = vec![acknowledged(sent[0]), acknowledged(sent[1])];
    assert_eq!(worker.settle(alpha, slow, both).await.duplicates, 0);
    let page = world
        .store
        .deliveries(&DeliveryFilter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.rows, []);
    let quarantined = world
        .store
        .quarantined(&ReplaySelection::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(quarantined.rows, []);
}

pub async fn outcomes_at_one_destination_touch_no_other<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let appended = world.append(event("a")).await;
    let worker = world.worker().await;
    let at = appended.position;
    worker
        .attempt(world.destinations[0], vec![quarantined(at)])
        .await;
    assert_eq!(worker.due(world.destinations[1]).await, [at]);
    worker
        .attempt(world.destinations[1], vec![acknowledged(at)])
        .await;
    let states: Vec<State> = world
        .event(appended.event_id)
        .await
        .deliveries
        .iter()
        .map(|delivery| delivery.state)
        .collect();
    assert_eq!(states, [State::Quarantined, State::Acknowledged]);
}

/// All that the port shows of events and deliveries.
pub(super) async fn everything<H: StoreHarness>(
    world: &World<H>,
) -> Vec<postrider_store::inspect::EventDetail> {
    let filter = postrider_store::inspect::EventFilter::default();
    let page = world
        .store
        .events(&filter, Position::START, 1000)
        .await
        .unwrap();
    let ids: Vec<EventId> = page.rows.iter().map(|row| row.event_id).collect();
    let mut all = Vec::new();
    for id in ids {
        all.push(world.event(id).await);
    }
    all
}

/// What a destination said may hold anything, and the exchange that writes it down carries the
/// outcomes of others too.
pub async fn jsn_1_a_nul_in_an_error_text_stops_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let sent = world.append_keys(&["a", "b", "c", "d", "e"]).await;
    let worker = world.worker().await;
    let said = || "no\0thanks".to_owned();
    let shown = "no thanks";
    let settled = |position, next| Settled { position, next };
    let members = vec![
        settled(
            sent[0],
            SettledAs::Retry {
                attempts: 1,
                delay: LEASE,
                code: "refused",
                detail: said(),
            },
        ),
        settled(
            sent[1],
            SettledAs::Unknown {
                code: "deadline",
                detail: said(),
            },
        ),
        settled(
            sent[2],
            SettledAs::Quarantined {
                attempts: 1,
                code: "rejected",
                detail: said(),
            },
        ),
        acknowledged(sent[3]),
    ];
    let attempt = worker.register(alpha, &sent[..4]).await;
    let mut exchange = worker.exchange(alpha);
    exchange.settle = vec![Settlement { attempt, members }];
    exchange.quarantine = vec![Unfit {
        position: sent[4],
        code: "unfit",
        detail: said(),
    }];
    exchange.suspend = Some(Suspend {
        code: "gone",
        detail: said(),
    });
    worker.run(&exchange).await;
    let report = BreakerReport {
        destination: alpha,
        open: Some(OpenBreaker {
            code: "refused".to_owned(),
            refused: false,
            detail: said(),
            next_probe_in: LEASE,
        }),
    };
    let beat = world
        .store
        .heartbeat(worker.session, LEASE, &[report])
        .await;
    beat.unwrap();

    let filter = DeliveryFilter::default();
    let page = world.store.deliveries(&filter, None, 10).await.unwrap();
    let open: Vec<_> = page.rows.iter().map(|row| row.position).collect();
    assert_eq!(open, [sent[0], sent[1], sent[2], sent[4]]);
    for row in &page.rows[..3] {
        let delivery = world.delivery(row.event_id, 0).await;
        assert_eq!(delivery.attempts[0].detail.as_deref(), Some(shown));
    }
    let selection = ReplaySelection::default();
    let page = world.store.quarantined(&selection, None, 10).await.unwrap();
    let details: Vec<_> = page.rows.iter().map(|row| &row.reason.detail).collect();
    assert_eq!(details, [shown, shown]);
    let registry = world.store.registry().await.unwrap();
    let suspended = registry.destinations[0].suspended.clone().unwrap();
    assert_eq!(suspended.detail, shown);
    let breaker = world.store.backlog().await.unwrap().remove(0).breaker;
    assert_eq!(breaker.unwrap().detail, shown);
}
