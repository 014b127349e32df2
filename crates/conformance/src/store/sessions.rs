//! Sessions and lanes: who may work, for how long, on what.

use std::{collections::BTreeSet, time::Duration};

use postrider_core::{DestinationId, Lane, SessionId};
use postrider_store::{
    ExchangeError, OpenError, SessionError, StoreError,
    sessions::{BreakerReport, OpenBreaker},
};
use uuid::Uuid;

use super::{
    StoreHarness,
    fixture::{LEASE, World, destination, event},
};

pub async fn a_session_lives_as_long_as_its_lease<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let worker = world.worker().await;
    let almost = LEASE - Duration::from_micros(1);
    world.clock.advance(almost);
    world
        .store
        .heartbeat(worker.session, LEASE, &[])
        .await
        .unwrap();
    world.clock.advance(almost);
    worker.due(world.destinations[0]).await;
    let row = &world.store.sessions(10).await.unwrap()[0];
    assert_eq!((row.id, row.ended.as_ref()), (worker.session, None));
    assert_eq!(row.lanes, 4);

    world.clock.step_micros(1);
    let beat = world.store.heartbeat(worker.session, LEASE, &[]).await;
    assert!(matches!(beat, Err(SessionError::Ended)), "{beat:?}");
    let exchange = world
        .store
        .exchange(&worker.exchange(world.destinations[0]))
        .await;
    assert!(
        matches!(exchange, Err(ExchangeError::Ended)),
        "{exchange:?}"
    );
    let lanes = world
        .store
        .claim_lanes(worker.session, &[(world.destinations[0], 1)])
        .await;
    assert!(matches!(lanes, Err(SessionError::Ended)), "{lanes:?}");
    let release = world
        .store
        .release_lanes(worker.session, world.destinations[0], &[Lane(0)])
        .await;
    assert!(matches!(release, Err(SessionError::Ended)), "{release:?}");
}

pub async fn lse_1_only_the_stores_clock_ends_a_lease<H: StoreHarness>() {
    let world = World::<H>::new().await;
    world.append_keys(&["a", "b"]).await;
    let alpha = world.destinations[0];
    let alive = world.worker().await;
    let other = world.session("other").await;

    // Nothing in the port takes a worker's time. The store's own clock stepping back keeps the
    // lease; a second worker gets nothing of a live one, recovered or claimed.
    for step in [10_000_000, -3_600_000_000, 3_619_999_999] {
        world.clock.step_micros(step);
        assert_eq!(world.store.recover_expired(10).await.unwrap(), []);
        let other = other.clone().claim_all(&world.destinations).await;
        assert_eq!(other.lanes[&alpha], []);
        assert_eq!(alive.due(alpha).await.len(), 2);
    }
    // Dead: taken over at the first poll after the lease.
    world.clock.advance(LEASE);
    let late = world.session("late").await;
    let recovered = world.store.recover_expired(10).await.unwrap();
    let ended: BTreeSet<SessionId> = recovered.iter().map(|r| r.session).collect();
    assert_eq!(ended, BTreeSet::from([alive.session, other.session]));
    let late = late.claim_all(&world.destinations).await;
    assert_eq!(late.due(alpha).await.len(), 2);
}

pub async fn opening_an_open_session_changes_nothing<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let session = world.new_session("a");
    world.store.open_session(&session).await.unwrap();
    let before = world.store.sessions(10).await.unwrap();
    world.clock.step_micros(5);
    world.store.open_session(&session).await.unwrap();
    assert_eq!(world.store.sessions(10).await.unwrap(), before);

    world
        .store
        .end_session(session.id, "shutdown")
        .await
        .unwrap();
    // As by a worker that never heard that it was opened the first time.
    let again = world.store.open_session(&session).await;
    assert!(matches!(again, Err(OpenError::Ended)), "{again:?}");
}

pub async fn an_exclusive_session_keeps_another_out<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let exclusive = |owner: &str| {
        let mut session = world.new_session(owner);
        session.exclusive = true;
        session
    };
    let first = exclusive("first");
    world.store.open_session(&first).await.unwrap();
    world.store.open_session(&first).await.unwrap();
    match world
        .harness
        .another_handle()
        .await
        .open_session(&exclusive("second"))
        .await
    {
        Err(OpenError::ExclusiveHeld { owner }) => assert_eq!(owner, "first"),
        other => panic!("not kept out: {other:?}"),
    }
    world.session("not exclusive").await;

    // A dead holder is recovered first.
    world
        .store
        .claim_lanes(first.id, &[(world.destinations[0], 4)])
        .await
        .unwrap();
    world.clock.advance(LEASE);
    world.store.open_session(&exclusive("third")).await.unwrap();
    let rows = world.store.sessions(10).await.unwrap();
    let dead = rows.iter().find(|row| row.id == first.id).unwrap();
    assert!(dead.ended.is_some());
    assert_eq!(dead.lanes, 0);
    assert_eq!(
        rows.iter()
            .filter(|row| row.exclusive && row.ended.is_none())
            .count(),
        1
    );
}

pub async fn only_one_of_many_exclusive_sessions_opens<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let mut tasks = Vec::new();
    for number in 0..6 {
        let handle = world.harness.another_handle().await;
        let mut session = world.new_session(&format!("dispatcher {number}"));
        session.exclusive = true;
        tasks.push(tokio::spawn(
            async move { handle.open_session(&session).await },
        ));
    }
    let mut opened = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(()) => opened += 1,
            Err(OpenError::ExclusiveHeld { .. }) => {}
            Err(error @ (OpenError::Ended | OpenError::Store(_))) => panic!("{error}"),
        }
    }
    assert_eq!(opened, 1);
}

pub async fn lanes_are_held_by_one_session_at_most<H: StoreHarness>() {
    let mut wide = destination("alpha");
    wide.lanes = 64;
    let world = World::<H>::with(&[wide]).await;
    let alpha = world.destinations[0];
    let mut tasks = Vec::new();
    for number in 0..4 {
        let mut worker = world.session(&format!("worker {number}")).await;
        worker.store = world.harness.another_handle().await;
        tasks.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            for _ in 0..8 {
                let claimed = worker
                    .store
                    .claim_lanes(worker.session, &[(alpha, 3)])
                    .await;
                taken.extend(claimed.unwrap().remove(0).1);
            }
            (worker.session, taken)
        }));
    }
    let mut all = BTreeSet::new();
    let mut taken_by = Vec::new();
    for task in tasks {
        let (session, lanes) = task.await.unwrap();
        for lane in lanes {
            assert!(all.insert(lane), "lane {lane} was given twice");
            taken_by.push((lane, session));
        }
    }
    taken_by.sort();
    let rows = world.store.lanes().await.unwrap();
    let held: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.lane, row.session?)))
        .collect();
    assert_eq!(held, taken_by);
    let rest = world
        .session("rest")
        .await
        .claim_all(&world.destinations)
        .await;
    assert!(rest.lanes[&alpha].iter().all(|lane| all.insert(*lane)));
    assert_eq!(all.len(), 64);
}

pub async fn a_claim_takes_the_lowest_free_lanes_it_wants<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let a = world.session("a").await;
    let b = world.session("b").await;
    let claim = async |session: SessionId, wanted: &[(DestinationId, u16)]| {
        world.store.claim_lanes(session, wanted).await.unwrap()
    };
    let lanes = |numbers: &[u16]| -> Vec<Lane> { numbers.iter().copied().map(Lane).collect() };
    assert_eq!(
        claim(a.session, &[(beta, 1), (alpha, 3)]).await,
        [(beta, lanes(&[0])), (alpha, lanes(&[0, 1, 2]))]
    );
    assert_eq!(
        claim(b.session, &[(alpha, 9)]).await,
        [(alpha, lanes(&[3]))]
    );
    assert_eq!(
        claim(b.session, &[(alpha, 1), (beta, 0)]).await,
        [(alpha, vec![]), (beta, vec![])]
    );

    // Only the holder frees a lane.
    world
        .store
        .release_lanes(b.session, alpha, &lanes(&[0, 3]))
        .await
        .unwrap();
    assert_eq!(
        claim(a.session, &[(alpha, 9)]).await,
        [(alpha, lanes(&[3]))]
    );
    world
        .store
        .release_lanes(a.session, alpha, &lanes(&[1, 2]))
        .await
        .unwrap();
    assert_eq!(
        claim(b.session, &[(alpha, 9)]).await,
        [(alpha, lanes(&[1, 2]))]
    );
    let rows = world.store.lanes().await.unwrap();
    assert_eq!(rows.len(), 8);
    assert_eq!(rows[1].owner.as_deref(), Some("b"));
    assert_eq!(rows[1].since, Some(world.clock.now()));
    assert_eq!(
        (rows[5].session, rows[5].owner.as_ref(), rows[5].since),
        (None, None, None)
    );
}

pub async fn dep_1_a_session_takes_no_lane_of_what_it_cannot_serve<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let mut narrow = world.new_session("narrow");
    narrow.serves = vec![beta];
    world.store.open_session(&narrow).await.unwrap();
    let claimed = world
        .store
        .claim_lanes(narrow.id, &[(alpha, 4), (beta, 4)])
        .await
        .unwrap();
    assert_eq!(claimed[0], (alpha, vec![]));
    assert_eq!(claimed[1].1.len(), 4);
    let shares = world.store.heartbeat(narrow.id, LEASE, &[]).await.unwrap();
    let served: Vec<_> = shares.iter().map(|share| share.destination).collect();
    assert_eq!(served, [beta]);

    let mut nowhere = world.new_session("nowhere");
    nowhere.serves = vec![DestinationId(99)];
    let refused = world.store.open_session(&nowhere).await;
    assert!(
        matches!(refused, Err(OpenError::Store(StoreError::Refused { .. }))),
        "{refused:?}"
    );
}

pub async fn shares_tell_what_a_fair_share_needs<H: StoreHarness>() {
    let world = World::<H>::with(&[destination("alpha"), destination("beta")]).await;
    let (alpha, beta) = (world.destinations[0], world.destinations[1]);
    let a = world.session("a").await;
    let mut only_alpha = world.new_session("b");
    only_alpha.serves = vec![alpha];
    world.store.open_session(&only_alpha).await.unwrap();
    world
        .store
        .claim_lanes(a.session, &[(alpha, 1), (beta, 4)])
        .await
        .unwrap();
    world
        .store
        .claim_lanes(only_alpha.id, &[(alpha, 2)])
        .await
        .unwrap();

    let shares = world.store.heartbeat(a.session, LEASE, &[]).await.unwrap();
    let figures: Vec<_> = shares
        .iter()
        .map(|s| {
            (
                s.destination,
                s.lanes,
                s.sessions,
                s.held.len(),
                s.free,
                s.suspended,
            )
        })
        .collect();
    assert_eq!(
        figures,
        [(alpha, 4, 2, 1, 1, false), (beta, 4, 1, 4, 0, false)]
    );
    assert_eq!(shares[0].held, [Lane(0)]);

    // A dead session is not counted; what it held is not free before it is recovered.
    world.clock.advance(LEASE - Duration::from_secs(1));
    world.store.heartbeat(a.session, LEASE, &[]).await.unwrap();
    world.clock.advance(Duration::from_secs(1));
    let shares = world.store.heartbeat(a.session, LEASE, &[]).await.unwrap();
    assert_eq!((shares[0].sessions, shares[0].free), (1, 1));
    world.store.recover_expired(10).await.unwrap();
    let shares = world.store.heartbeat(a.session, LEASE, &[]).await.unwrap();
    assert_eq!((shares[0].sessions, shares[0].free), (1, 3));
}

pub async fn an_ended_session_frees_its_lanes_once<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let worker = world.worker().await;
    world.clock.step_micros(1);
    world
        .store
        .end_session(worker.session, "shutdown")
        .await
        .unwrap();
    let ended_at = world.clock.now();
    assert!(
        world
            .store
            .lanes()
            .await
            .unwrap()
            .iter()
            .all(|row| row.session.is_none())
    );
    world.clock.step_micros(1);
    world
        .store
        .end_session(worker.session, "again")
        .await
        .unwrap();
    world
        .store
        .end_session(SessionId(Uuid::new_v4()), "unheard of")
        .await
        .unwrap();
    let rows = world.store.sessions(10).await.unwrap();
    assert_eq!(rows[0].ended, Some((ended_at, "shutdown".to_owned())));
    let beat = world.store.heartbeat(worker.session, LEASE, &[]).await;
    assert!(matches!(beat, Err(SessionError::Ended)), "{beat:?}");
    world.clock.advance(LEASE);
    assert_eq!(world.store.recover_expired(10).await.unwrap(), []);
}

pub async fn breakers_are_reported_while_they_last<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let worker = world.session("a").await;
    let report = |open: Option<OpenBreaker>| {
        [BreakerReport {
            destination: alpha,
            open,
        }]
    };
    let open = |code: &str| OpenBreaker {
        code: code.to_owned(),
        detail: "connection refused".to_owned(),
        next_probe_in: Duration::from_secs(2),
        refused: false,
    };
    let beat = async |reports: &[BreakerReport]| {
        world
            .store
            .heartbeat(worker.session, LEASE, reports)
            .await
            .unwrap();
        world.store.backlog().await.unwrap().remove(0).breaker
    };
    assert_eq!(beat(&[]).await, None);
    let since = world.clock.now();
    beat(&report(Some(open("connect")))).await;
    world.clock.step_micros(1_000_000);
    let row = beat(&report(Some(open("timeout")))).await.unwrap();
    assert_eq!(
        (row.session, row.since, row.code.as_str()),
        (worker.session, since, "timeout")
    );
    assert_eq!(row.detail, "connection refused");
    let probe = row.next_probe_at.unix_micros() - world.clock.now().unix_micros();
    assert_eq!(probe, 2_000_000);
    assert_eq!(beat(&[]).await.unwrap(), row);
    assert_eq!(beat(&report(None)).await, None);

    // Of two, the one open longest; those of an ended session are forgotten.
    beat(&report(Some(open("first")))).await;
    world.clock.step_micros(1);
    let second = world.session("b").await;
    let reports = report(Some(open("second")));
    world
        .store
        .heartbeat(second.session, LEASE, &reports)
        .await
        .unwrap();
    assert_eq!(beat(&[]).await.unwrap().code, "first");
    world
        .store
        .end_session(worker.session, "shutdown")
        .await
        .unwrap();
    let left = world
        .store
        .backlog()
        .await
        .unwrap()
        .remove(0)
        .breaker
        .unwrap();
    assert_eq!(
        (left.code.as_str(), left.session),
        ("second", second.session)
    );
    world.clock.advance(LEASE);
    world.store.recover_expired(10).await.unwrap();
    assert_eq!(world.store.backlog().await.unwrap().remove(0).breaker, None);
}

pub async fn who_refuses_a_destination_has_no_share_of_it<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let alpha = world.destinations[0];
    let able = world.session("able").await;
    let refusing = world.session("refusing").await;
    let report = |refused: bool| {
        [BreakerReport {
            destination: alpha,
            open: Some(OpenBreaker {
                code: "locked".to_owned(),
                detail: "another process has it".to_owned(),
                next_probe_in: Duration::from_secs(1),
                refused,
            }),
        }]
    };
    let sessions = async |session: SessionId, reports: &[BreakerReport]| {
        let shares = world.store.heartbeat(session, LEASE, reports).await;
        let shares = shares.unwrap();
        let share = shares.iter().find(|share| share.destination == alpha);
        share.unwrap().sessions
    };
    let breaker = async || world.store.backlog().await.unwrap().remove(0).breaker;
    assert_eq!(sessions(refusing.session, &report(true)).await, 1);
    assert_eq!(sessions(able.session, &[]).await, 1);
    assert!(breaker().await.unwrap().refused);
    // An outage is the destination's: it keeps its share, and is what people are told of.
    world.clock.step_micros(1);
    assert_eq!(sessions(able.session, &report(false)).await, 1);
    assert_eq!(breaker().await.unwrap().session, able.session);
    assert_eq!(sessions(refusing.session, &report(false)).await, 2);
}

pub async fn the_doorbell_rings_for_a_sleeper<H: StoreHarness>() {
    let world = World::<H>::new().await;
    let worker = world.worker().await;
    let Some(mut listener) = world.store.listen().await.unwrap() else {
        return; // this store is polled
    };
    world.store.set_asleep(worker.session, true).await.unwrap();
    world.append(event("a")).await;
    let rung = tokio::time::timeout(Duration::from_secs(20), listener.rung()).await;
    rung.expect("it rings within 20 s").unwrap();
    world.store.set_asleep(worker.session, false).await.unwrap();
    world
        .store
        .set_asleep(SessionId(Uuid::new_v4()), true)
        .await
        .unwrap();
}
