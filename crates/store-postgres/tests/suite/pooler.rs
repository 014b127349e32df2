//! NTF-3: behind a pooler in transaction mode nothing leans on a session, and the doorbell is only
//! believed where it rings.

use std::time::Duration;

use postrider_conformance::store::fixture::{PLACED, V1, audit, destination, plan};
use postrider_contract::new_event::NewEvent;
use postrider_core::{AttemptId, DestinationId, Position, SessionId};
use postrider_store::{
    Store,
    dispatch::{Exchange, Fetch, Registration, Settled, SettledAs, Settlement},
    sessions::NewSession,
};
use postrider_store_postgres::{Options, PostgresStore};
use postrider_testkit::env;
use uuid::Uuid;

use crate::harness::{connect, migrated};

/// Cycles of each worker.
const CYCLES: usize = 100;
const LEASE: Duration = Duration::from_secs(60);

fn store(url: &str, doorbell_url: Option<&str>) -> PostgresStore {
    let mut options = Options::new(url);
    options.doorbell_url = doorbell_url.map(str::to_owned);
    PostgresStore::new(options).expect("usable options")
}

/// Opens a session with every lane of one destination.
async fn worker(store: &PostgresStore, destination: DestinationId) -> SessionId {
    let id = SessionId(Uuid::new_v4());
    let session = NewSession {
        id,
        owner: "worker".to_owned(),
        lease: LEASE,
        serves: vec![destination],
        exclusive: false,
        version: "0".to_owned(),
    };
    store.open_session(&session).await.expect("opens");
    store
        .claim_lanes(id, &[(destination, 1024)])
        .await
        .expect("claims");
    id
}

/// Fetches what is due, and in the next exchange registers it, and in the one after settles it.
/// Answers what that was.
async fn cycle(
    store: &PostgresStore,
    session: SessionId,
    destination: DestinationId,
) -> Vec<Position> {
    let mut exchange = Exchange {
        session,
        destination,
        settle: Vec::new(),
        quarantine: Vec::new(),
        suspend: None,
        register: Vec::new(),
        fetch: Some(Fetch {
            lanes: (0..4).map(postrider_core::Lane).collect(),
            after: Position::START,
            exclude: Vec::new(),
            busy_keys: Vec::new(),
            limit: 10,
            bytes_max: 1 << 20,
        }),
    };
    let fetched = store.exchange(&exchange).await.expect("fetches").fetched;
    if fetched.is_empty() {
        return Vec::new();
    }
    let members: Vec<_> = fetched.iter().map(|fetched| fetched.position).collect();
    let attempt = AttemptId(Uuid::new_v4());
    exchange.fetch = None;
    exchange.register = vec![Registration {
        attempt,
        members: members.clone(),
    }];
    store.exchange(&exchange).await.expect("registers");
    exchange.register.clear();
    exchange.settle = vec![Settlement {
        attempt,
        members: members
            .iter()
            .map(|position| Settled {
                position: *position,
                next: SettledAs::Acknowledged(postrider_contract::Receipt::JetStream {
                    stream: "S".to_owned(),
                    sequence: u64::try_from(position.0).expect("positive"),
                    domain: None,
                    duplicate: false,
                }),
            })
            .collect(),
    }];
    store.exchange(&exchange).await.expect("settles");
    members
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ntf_3_two_workers_cycle_behind_a_pooler() {
    let direct = migrated().await;
    let pooled = env::pgbouncer().url_of(&direct).expect("the pooler's URL");
    let owner = store(&pooled, None);
    owner
        .apply(
            &plan(1, &[destination("a"), destination("b")]),
            &audit("set up"),
        )
        .await
        .expect("applies");
    let work = |destination: i32| {
        let store = store(&pooled, None);
        tokio::spawn(async move {
            let destination = DestinationId(destination);
            let session = worker(&store, destination).await;
            let (mut appended, mut sent) = (Vec::new(), Vec::new());
            for n in 0..CYCLES {
                let id = format!("{destination}-{n}");
                let event = NewEvent::new(PLACED, V1, "order", id, "{}");
                let new = store.append(vec![event]).await.expect("appends");
                appended.push(new[0].position);
                sent.extend(cycle(&store, session, destination).await);
            }
            (session, appended, sent)
        })
    };
    let workers = [(1, work(1)), (2, work(2))];
    let (mut appended, mut sent) = (Vec::new(), Vec::new());
    for (destination, working) in workers {
        let (session, by_it, sent_by_it) = working.await.expect("works");
        appended.extend(by_it);
        sent.push((DestinationId(destination), session, sent_by_it));
    }
    appended.sort();
    assert_eq!(appended.len(), 2 * CYCLES);
    // Each event went once to each destination, whoever appended it.
    for (destination, session, mut sent) in sent {
        loop {
            let rest = cycle(&owner, session, destination).await;
            if rest.is_empty() {
                break;
            }
            sent.extend(rest);
        }
        sent.sort();
        assert_eq!(sent, appended);
    }
    for backlog in owner.backlog().await.expect("counts") {
        assert_eq!(backlog.pending.value, 0);
    }
}

#[tokio::test]
async fn ntf_3_a_doorbell_that_does_not_ring_is_found_out() {
    let direct = migrated().await;
    let pooled = env::pgbouncer().url_of(&direct).expect("the pooler's URL");
    assert!(
        store(&pooled, None)
            .listen()
            .await
            .expect("answers")
            .is_none()
    );
    let mut doorbell = store(&pooled, Some(&direct))
        .listen()
        .await
        .expect("answers")
        .expect("rings past the pooler");
    let client = connect(&direct).await;
    client
        .batch_execute("select pg_notify('postrider_doorbell', '')")
        .await
        .expect("rings");
    doorbell.rung().await.expect("is heard");
}
