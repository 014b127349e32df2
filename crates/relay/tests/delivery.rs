//! The relay over the memory store and the memory broker, in virtual time: what it must keep
//! whatever fails around it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use postrider_conformance::store::fixture;
use postrider_contract::{
    Destination, EventId, Timestamp,
    destination::{OnUnknown, Ordering},
};
use postrider_core::{Class, Position, deadline, delivery::State};
use postrider_relay::{Meters, Relay, Report, Settings, Stop, TransportFactory};
use postrider_store::{
    Clock, Store,
    clock::ManualClock,
    control::RegisteredDestination,
    inspect::{DeliveryFilter, EventFilter, ReplaySelection},
};
use postrider_store_memory::{
    MemoryStore,
    faults::{Call, Fate as StoreFate},
};
use postrider_transport::Transport;
use postrider_transport_memory::{Broker, Decision, Fate, Memory, Options};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

#[derive(Debug)]
struct Factory(BTreeMap<String, Broker>);

impl TransportFactory for Factory {
    fn kinds(&self) -> &[&'static str] {
        &["jetstream"]
    }

    fn open(
        &self,
        destination: &RegisteredDestination,
    ) -> Result<Arc<dyn Transport>, postrider_transport::Error> {
        Ok(Arc::new(Memory::open(
            &self.0[&destination.destination.name],
        )))
    }
}

struct World {
    store: MemoryStore,
    brokers: BTreeMap<String, Broker>,
    settings: Settings,
}

impl World {
    async fn new(destinations: &[Destination], options: Options) -> Self {
        let start: Timestamp = "2026-01-31T09:30:00Z".parse().expect("a time");
        let clock = ManualClock::at(start);
        let store = MemoryStore::new(Clock::Manual(clock.clone()));
        // The database's clock follows the runtime's.
        tokio::spawn(async move {
            const TICK: Duration = Duration::from_millis(2);
            loop {
                tokio::time::sleep(TICK).await;
                clock.advance(TICK);
            }
        });
        let plan = fixture::plan(1, destinations);
        store
            .apply(&plan, &fixture::audit("test"))
            .await
            .expect("applies");
        let delay: postrider_transport_memory::Delay =
            Arc::new(|time| Box::pin(tokio::time::sleep(time)));
        let brokers = destinations
            .iter()
            .map(|destination| {
                let broker = Broker::with_delay(options.clone(), Arc::clone(&delay));
                (destination.name.clone(), broker)
            })
            .collect();
        let deadlines = deadline::Deadlines::new(deadline::Settings {
            connect: Duration::from_millis(100),
            send: Duration::from_millis(500),
            hard: Duration::from_secs(1),
            settle_margin: Duration::from_millis(500),
            lease: Duration::from_secs(6),
            heartbeat: Duration::from_secs(1),
            shutdown_grace: Duration::from_secs(3),
        })
        .expect("consistent");
        let mut settings = Settings::new("test".to_owned(), deadlines);
        settings.batch_max = 50;
        settings.backoff.first = Duration::from_millis(50);
        settings.backoff.max = Duration::from_millis(400);
        Self {
            store,
            brokers,
            settings,
        }
    }

    fn relay(&self) -> Arc<Relay> {
        Arc::new(Relay::new(
            Arc::new(self.store.clone()),
            Arc::new(Factory(self.brokers.clone())),
            self.settings.clone(),
            Arc::new(Meters::new()),
        ))
    }

    /// Appends `count` events over `keys` keys, in one order for all.
    async fn append(&self, count: usize, keys: usize) -> Vec<EventId> {
        let events: Vec<_> = (0..count)
            .map(|n| fixture::event(&format!("key-{}", n % keys)))
            .collect();
        let appended = self.store.append(events).await.expect("appended");
        appended.iter().map(|appended| appended.event_id).collect()
    }

    async fn open_deliveries(&self) -> u64 {
        self.store
            .backlog()
            .await
            .expect("a backlog")
            .iter()
            .map(|backlog| backlog.pending.value + backlog.unknown.value)
            .sum()
    }

    async fn until_delivered(&self) {
        for _ in 0..6_000 {
            if self.open_deliveries().await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let open = self
            .store
            .deliveries(&DeliveryFilter::default(), None, 20)
            .await
            .expect("reads");
        panic!(
            "still open: {:#?}; sessions: {:#?}",
            open.rows,
            self.store.sessions(10).await
        );
    }
}

struct Running {
    stop: tokio::sync::watch::Sender<bool>,
    task: tokio::task::JoinHandle<Result<Report, postrider_relay::Error>>,
}

fn start(relay: &Arc<Relay>) -> Running {
    let (stop, stopped) = Stop::new();
    let relay = Arc::clone(relay);
    Running {
        stop,
        task: tokio::spawn(async move { relay.run(stopped).await }),
    }
}

impl Running {
    async fn stop(self) -> Report {
        self.stop.send(true).expect("it runs");
        self.task.await.expect("no panic").expect("it ran")
    }
}

fn stored(broker: &Broker) -> Vec<EventId> {
    broker.log().iter().map(|stored| stored.event_id).collect()
}

/// Per key, the first copies stand in append order.
fn assert_order(broker: &Broker, appended: &[EventId]) {
    let place: BTreeMap<EventId, usize> = appended
        .iter()
        .enumerate()
        .map(|(index, id)| (*id, index))
        .collect();
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for stored in broker.log() {
        if !seen.insert(stored.event_id) {
            continue;
        }
        let index = place[&stored.event_id];
        if let Some(before) = last.insert(stored.partition_key.clone(), index) {
            assert!(
                before < index,
                "key {} is out of order",
                stored.partition_key
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn everything_committed_is_delivered_once_and_in_order() {
    let world = World::new(&[fixture::destination("a")], Options::default()).await;
    let appended = world.append(2_000, 20).await;
    let running = start(&world.relay());
    world.until_delivered().await;
    let report = running.stop().await;
    assert_eq!(report.acknowledged, 2_000);
    assert_eq!(stored(&world.brokers["a"]), appended);
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_nothing_is_lost_and_strict_keys_keep_their_order() {
    for seed in 0..40 {
        let mut destination = fixture::destination("a");
        destination.ordering = Ordering::Strict;
        destination.on_unknown = OnUnknown::Resend;
        let world = World::new(&[destination], Options::default()).await;
        let mut rng = StdRng::seed_from_u64(seed);
        let mut store_rng = StdRng::seed_from_u64(seed + 1000);
        let broker = world.brokers["a"].clone();
        broker.decide_by(move |_, _| {
            let fate = match rng.random_range(0..100) {
                0..4 => Fate::LoseAck,
                4..8 => Fate::LoseMessage,
                8..12 => Fate::Refuse(Class::Outage),
                12..18 => Fate::Refuse(Class::Refusal),
                18..20 => Fate::BlackHole {
                    stored: rng.random_bool(0.5),
                },
                _ => Fate::Accept,
            };
            Decision {
                travel: Duration::from_millis(rng.random_range(0..5)),
                fate,
                answer: Duration::from_millis(rng.random_range(0..5)),
            }
        });
        world.store.set_faults(move |call| match call {
            Call::Apply | Call::Read | Call::Append => StoreFate::Proceed,
            Call::Commit
            | Call::ResumeDestination
            | Call::OpenSession
            | Call::Heartbeat
            | Call::ClaimLanes
            | Call::ReleaseLanes
            | Call::EndSession
            | Call::RecoverExpired
            | Call::Exchange
            | Call::AcceptReceipts
            | Call::SetAsleep
            | Call::Replay => match store_rng.random_range(0..100) {
                0..3 => StoreFate::FailBefore,
                3..6 => StoreFate::FailAfter,
                _ => StoreFate::Proceed,
            },
        });
        let appended = world.append(150, 12).await;
        let (first, second) = (start(&world.relay()), start(&world.relay()));
        world.until_delivered().await;
        world.store.clear_faults();
        first.stop().await;
        second.stop().await;
        let delivered: BTreeSet<EventId> = stored(&broker).into_iter().collect();
        assert_eq!(delivered, appended.iter().copied().collect(), "seed {seed}");
        assert_order(&broker, &appended);
        for event in &appended {
            let detail = world
                .store
                .event(*event)
                .await
                .expect("reads")
                .expect("is there");
            assert!(
                detail.deliveries[0].receipt.is_some(),
                "seed {seed}: no receipt for {event}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_poisoned_key_holds_its_own_tail_and_nothing_else() {
    let destinations = [fixture::destination("a"), fixture::destination("b")];
    let world = World::new(&destinations, Options::default()).await;
    let events: Vec<_> = (0..300)
        .map(|n| fixture::event(&format!("key-{}", n % 10)))
        .collect();
    let poison = events[0].event_id.expect("given");
    world.brokers["a"].script(poison, [Fate::Reject { suspends: false }]);
    let appended: Vec<EventId> = world
        .store
        .append(events)
        .await
        .expect("appended")
        .iter()
        .map(|appended| appended.event_id)
        .collect();
    let running = start(&world.relay());
    // Its tail was in the same attempts, or is held; either way the rest is through.
    for _ in 0..10_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let at_b = stored(&world.brokers["b"]).len();
        let at_a: BTreeSet<_> = stored(&world.brokers["a"]).into_iter().collect();
        let others = appended
            .iter()
            .enumerate()
            .filter(|(index, _)| index % 10 != 0);
        if at_b == 300 && others.clone().all(|(_, id)| at_a.contains(id)) {
            break;
        }
    }
    assert_eq!(
        stored(&world.brokers["b"]).len(),
        300,
        "the other destination is not delayed"
    );
    let held = world.open_deliveries().await;
    assert!(
        held > 0 && held < 30,
        "{held} deliveries of the poisoned key wait"
    );
    let selection = ReplaySelection::default();
    let replayed = world
        .store
        .replay(&selection, 10, &fixture::audit("fixed"))
        .await
        .expect("replays");
    assert_eq!(replayed.deliveries.len(), 1);
    world.until_delivered().await;
    running.stop().await;
    let at_a: BTreeSet<_> = stored(&world.brokers["a"]).into_iter().collect();
    assert_eq!(at_a.len(), 300);
    assert_eq!(
        stored(&world.brokers["b"]),
        appended,
        "each went to b once, in order"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_too_large_is_sent_once_the_limit_is_raised() {
    let options = Options {
        message_bytes_max: Some(10),
        ..Options::default()
    };
    let world = World::new(&[fixture::destination("a")], options).await;
    let appended = world.append(1, 1).await;
    let relay = world.relay();
    let running = start(&relay);
    let quarantined = async || world.store.backlog().await.expect("a backlog")[0].quarantined;
    for _ in 0..6_000 {
        if quarantined().await.value == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(quarantined().await.value, 1);

    world.brokers["a"].set_message_bytes_max(None);
    let selection = ReplaySelection::default();
    let audit = fixture::audit("the limit was raised");
    let replayed = world.store.replay(&selection, 10, &audit).await;
    assert_eq!(replayed.expect("replays").deliveries.len(), 1);
    world.until_delivered().await;
    assert_eq!(quarantined().await.value, 0);
    assert_eq!(stored(&world.brokers["a"]), appended);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_no_attempts_and_ends_by_itself() {
    let mut destination = fixture::destination("a");
    destination.max_attempts = Some(2);
    let world = World::new(&[destination], Options::default()).await;
    world.brokers["a"].set_down(true);
    world.append(200, 7).await;
    let running = start(&world.relay());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.open_deliveries().await, 200);
    world.brokers["a"].set_down(false);
    world.until_delivered().await;
    let report = running.stop().await;
    assert_eq!((report.acknowledged, report.quarantined), (200, 0));
}

#[tokio::test(start_paused = true)]
async fn dispatch_once_sends_one_batch_and_ends_its_session() {
    let world = World::new(&[fixture::destination("a")], Options::default()).await;
    world.append(120, 7).await;
    let report = world.relay().dispatch_once().await.expect("dispatches");
    assert_eq!((report.claimed, report.acknowledged), (50, 50));
    let sessions = world.store.sessions(10).await.expect("reads");
    assert!(sessions.iter().all(|session| session.ended.is_some()));
}

#[tokio::test(start_paused = true)]
async fn a_second_exclusive_dispatcher_claims_nothing() {
    let mut world = World::new(&[fixture::destination("a")], Options::default()).await;
    world.settings.exclusive = true;
    let running = start(&world.relay());
    while world.store.sessions(10).await.expect("reads").is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.append(10, 2).await;
    let report = world.relay().dispatch_once().await.expect("answers");
    assert_eq!((report.claimed, report.acknowledged), (0, 0));
    assert_eq!(report.exclusive_held_by.as_deref(), Some("test"));
    world.until_delivered().await;
    assert_eq!(running.stop().await.acknowledged, 10);
}

#[tokio::test(start_paused = true)]
async fn an_ended_session_hands_in_what_it_still_hears() {
    let mut world = World::new(&[fixture::destination("a")], Options::default()).await;
    // Longer than a heartbeat, so that the session ends while the send is under way.
    world.settings.deadlines = deadline::Deadlines::new(deadline::Settings {
        connect: Duration::from_millis(100),
        send: Duration::from_secs(20),
        hard: Duration::from_secs(21),
        settle_margin: Duration::from_millis(500),
        lease: Duration::from_secs(30),
        heartbeat: Duration::from_secs(1),
        shutdown_grace: Duration::from_secs(22),
    })
    .expect("consistent");
    let broker = world.brokers["a"].clone();
    let event = fixture::event("key");
    let id = event.event_id.expect("given");
    broker.script(
        id,
        [Fate::BlackHole { stored: true }, Fate::Accept, Fate::Accept],
    );
    let running = start(&world.relay());
    world.store.append(vec![event]).await.expect("appended");
    while broker.sends(id) == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let session = world.store.sessions(1).await.expect("reads")[0].id;
    world
        .store
        .end_session(session, "somebody else did")
        .await
        .expect("ended");
    world.until_delivered().await;
    assert_eq!(broker.release(id), 1, "the first send still waits");
    for _ in 0..1_000 {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let detail = world.store.event(id).await.expect("reads");
        if detail.expect("is there").deliveries[0].duplicates.len() == 1 {
            running.stop().await;
            return;
        }
    }
    panic!("the late receipt is nowhere");
}

/// Waits in virtual time, and says what never came.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..6_000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain for: {what}");
}

/// What a relay claims is bounded by its bytes too, and not only by its number.
#[tokio::test(start_paused = true)]
async fn res_1_a_batch_is_bounded_by_its_bytes() {
    const BYTES: usize = 20_000;
    const FIT: usize = 5;
    let mut world = World::new(&[fixture::destination("a")], Options::default()).await;
    world.settings.batch_bytes_max = (FIT * BYTES) as u64;
    let events: Vec<_> = (0..100)
        .map(|n| {
            let mut event = fixture::event(&format!("key-{n}"));
            event.payload = format!("{{\"x\":\"{}\"}}", "x".repeat(BYTES - 8)).into_bytes();
            assert_eq!(event.payload.len(), BYTES);
            event
        })
        .collect();
    let appended = world.store.append(events).await.expect("appended");
    let running = start(&world.relay());
    world.until_delivered().await;
    let mut members: BTreeMap<_, usize> = BTreeMap::new();
    for one in &appended {
        let detail = world.store.event(one.event_id).await.expect("reads");
        for attempt in &detail.expect("is there").deliveries[0].attempts {
            *members.entry(attempt.attempt).or_default() += 1;
        }
    }
    assert_eq!(members.values().sum::<usize>(), appended.len());
    assert!(members.values().all(|count| *count <= FIT), "{members:?}");
    // One larger than all of it still goes, alone.
    let mut large = fixture::event("large");
    large.payload = format!("{{\"x\":\"{}\"}}", "x".repeat(2 * FIT * BYTES)).into_bytes();
    world.store.append(vec![large]).await.expect("appended");
    world.until_delivered().await;
    running.stop().await;
}

/// While a relay lives, another one sends nothing of it, however long both work side by side; when
/// it dies, what it held goes on within its lease and one look for the dead. All in virtual time.
#[tokio::test(start_paused = true)]
async fn lse_1_a_live_relay_keeps_its_work_and_a_dead_one_is_followed_in_time() {
    let world = World::new(&[fixture::destination("a")], Options::default()).await;
    let broker = &world.brokers["a"];
    // Each send takes most of the time that it has, over many leases.
    broker.decide_by(|_, _| Decision {
        travel: Duration::ZERO,
        fate: Fate::Accept,
        answer: Duration::from_millis(400),
    });
    let (first, second) = (start(&world.relay()), start(&world.relay()));
    until("both to hold lanes", async || {
        let lanes = world.store.lanes().await.expect("reads");
        let held: BTreeSet<_> = lanes.iter().filter_map(|lane| lane.session).collect();
        held.len() == 2
    })
    .await;
    let mut appended = Vec::new();
    for _ in 0..20 {
        appended.extend(world.append(10, 10).await);
        world.until_delivered().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    for id in &appended {
        let detail = world.store.event(*id).await.expect("reads");
        let attempts = &detail.expect("is there").deliveries[0].attempts;
        assert_eq!(broker.sends(*id), 1, "{attempts:#?}");
    }

    let limits = *world.settings.deadlines.settings();
    first.task.abort();
    let died = tokio::time::Instant::now();
    world.append(100, 100).await;
    world.until_delivered().await;
    // Its last heartbeat may have been just now; after that one look, and the sending itself.
    let bound = limits.lease + limits.heartbeat + 2 * limits.send;
    let took = died.elapsed();
    assert!(took <= bound, "{took:?}, and {bound:?} are promised");
    second.stop().await;
}

/// A relay that has gone past a position comes back for it, once, and waits for nobody on the way.
#[tokio::test(start_paused = true)]
async fn ord_1_a_late_commit_reaches_a_relay_that_has_gone_past_it() {
    let world = World::new(&[fixture::destination("a")], Options::default()).await;
    let broker = &world.brokers["a"];
    let running = start(&world.relay());
    for ends in ["commits", "rolls back"] {
        let early = world.store.begin();
        let inside = early.append(&[fixture::event("early")]).expect("appends")[0];
        let later = world.append(120, 7).await;
        // Nobody waits for the hole: all of the later ones go out while it is open.
        until("the later ones", async || {
            later.iter().all(|id| stored(broker).contains(id))
        })
        .await;
        assert_eq!(broker.sends(inside.event_id), 0);
        if ends == "commits" {
            early.commit().expect("commits");
            until("the early one", async || {
                stored(broker).contains(&inside.event_id)
            })
            .await;
        } else {
            early.roll_back();
            let next = world.append(1, 1).await;
            until("the next one", async || stored(broker).contains(&next[0])).await;
        }
        world.until_delivered().await;
        let expected = u64::from(ends == "commits");
        assert_eq!(broker.sends(inside.event_id), expected, "{ends}");
    }
    assert_eq!(running.stop().await.acknowledged, 120 + 1 + 120 + 1);
}

#[tokio::test(start_paused = true)]
async fn set_1_each_member_of_a_delivery_set_has_its_own_fate() {
    for crash in [false, true] {
        members_fare_alone(crash).await;
    }
}

/// `a` takes it (and its relay crashes before that is written down), `b` refuses twice, `c` never
/// takes it, `d` loses an acknowledgement; `e` joins the set meanwhile.
async fn members_fare_alone(crash: bool) {
    let options = Options {
        dedup_window: Some(Duration::from_secs(3600)),
        ..Options::default()
    };
    let set = ["a", "b", "c", "d", "e"].map(fixture::destination);
    // The brokers of all five are there; the first set has four.
    let world = World::new(&set, options).await;
    let apply = async |version, destinations: &[Destination]| {
        let plan = fixture::plan(version, destinations);
        let audit = fixture::audit("test");
        world.store.apply(&plan, &audit).await.expect("applies");
    };
    apply(2, &set[..4]).await;
    let event = fixture::event("key");
    let id = event.event_id.expect("given");
    let broker = |name: &str| &world.brokers[name];
    let refusal = Fate::Refuse(Class::Refusal);
    broker("b").script(id, [refusal, refusal]);
    broker("c").script(id, [Fate::Reject { suspends: false }]);
    broker("d").script(id, [Fate::LoseAck]);
    if crash {
        broker("a").script(id, [Fate::BlackHole { stored: true }]);
    }
    let states = async || -> Vec<State> {
        let detail = world.store.event(id).await.expect("reads");
        let deliveries = detail.expect("is there").deliveries;
        deliveries.iter().map(|delivery| delivery.state).collect()
    };
    let running = start(&world.relay());
    world.store.append(vec![event]).await.expect("appended");
    let running = if crash {
        until("a stores it", async || broker("a").sends(id) == 1).await;
        running.task.abort();
        start(&world.relay())
    } else {
        running
    };
    // In the middle of it: for what is appended from here on.
    apply(3, &set).await;
    let (done, dead) = (State::Acknowledged, State::Quarantined);
    until("each to end", async || {
        states().await == [done, done, dead, done]
    })
    .await;
    // The set as a whole is what its members make it: with one of them dead it is not delivered.
    let open = async || {
        let all = EventFilter::default();
        let page = world.store.events(&all, Position::START, 10).await;
        let rows = page.expect("reads").rows;
        let row = rows.iter().find(|row| row.event_id == id);
        row.expect("is listed").open
    };
    assert_eq!(open().await, 1);
    let sends = || set.each_ref().map(|member| broker(&member.name).sends(id));
    let of_a = if crash { 2 } else { 1 };
    assert_eq!(sends(), [of_a, 3, 1, 2, 0], "crash: {crash}");
    for (name, copies) in [("a", 1), ("b", 1), ("c", 0), ("d", 1), ("e", 0)] {
        assert_eq!(stored(broker(name)).len(), copies, "{name}, crash: {crash}");
    }
    world.append(1, 1).await;
    until("the next one at e", async || stored(broker("e")).len() == 1).await;

    let registry = world.store.registry().await.expect("reads");
    let member = |name: &str| {
        let mut all = registry.destinations.iter();
        all.find(|registered| registered.destination.name == name)
    };
    let selection = ReplaySelection {
        events: Some(vec![id]),
        destination: member("c").map(|registered| registered.id),
        ..ReplaySelection::default()
    };
    let audit = fixture::audit("fixed");
    let replayed = world.store.replay(&selection, 10, &audit).await;
    assert_eq!(replayed.expect("replays").deliveries.len(), 1);
    until("c", async || states().await == [done; 4]).await;
    assert_eq!(open().await, 0);
    assert_eq!(sends(), [of_a, 3, 2, 2, 0], "crash: {crash}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn fai_1_a_slow_destination_delays_no_other() {
    let names = ["slow", "b", "c", "d"];
    let set = names.map(fixture::destination);
    let world = World::new(&set, Options::default()).await;
    // Each answer comes long after the time that is waited for it.
    world.brokers["slow"].decide_by(|_, _| Decision {
        travel: Duration::ZERO,
        fate: Fate::Accept,
        answer: Duration::from_secs(30),
    });
    let running = start(&world.relay());
    world.append(500, 50).await;
    let appended = tokio::time::Instant::now();
    until("the others", async || {
        names[1..]
            .iter()
            .all(|name| stored(&world.brokers[*name]).len() == 500)
    })
    .await;
    // Virtual time.
    assert!(appended.elapsed() < Duration::from_secs(2));
    running.stop().await;
}
