//! What holds on Postgres beside the promises of every driver: round trips, roles, poolers,
//! isolation, and another transaction at the same moment.

use std::time::Duration;

use postrider::{
    AppendError, EventId, NewEvent, Registry, sqlx_postgres, tokio_postgres as outbox,
};
use postrider_store_postgres::{MigrateOptions, PostgresStore, migrate};
use sqlx::ConnectOptions as _;

use crate::support::{
    application::{Application, Outbox, SqlxPostgres, TokioPostgres, connect},
    blob, control, note, order,
    wire::Meter,
};

fn named(event: NewEvent) -> NewEvent {
    NewEvent {
        event_id: Some(EventId(uuid::Uuid::now_v7())),
        ..event
    }
}

/// Appends one event and a batch, and counts the round trips of each.
async fn round_trips<A: Application>(outbox: &Outbox, meter: &Meter) -> Vec<u64> {
    let metered = outbox.through(meter.url(&outbox.address));
    let mut application = A::connect(&metered).await;
    let registry = application.load().await.unwrap();
    // What a driver prepares once per connection is not counted.
    application.append(&registry, order("first")).await.unwrap();
    let mut counts = Vec::new();
    application.begin().await;
    let given = named(order("a"));
    for events in [
        vec![order("a")],
        vec![given.clone()],
        vec![given],
        (0..1_000).map(|index| order(&format!("{index}"))).collect(),
    ] {
        let before = meter.count();
        application.append_all(&registry, events).await.unwrap();
        counts.push(meter.count() - before);
    }
    let before = meter.count();
    application
        .append(&registry, note("not json"))
        .await
        .unwrap_err();
    counts.push(meter.count() - before);
    application.commit().await;
    counts
}

#[tokio::test]
async fn an_append_is_one_round_trip_and_a_refusal_none() {
    let outbox = Outbox::postgres().await;
    let meter = Meter::before(&outbox.address).await;
    let expected = [1, 1, 1, 1, 0];
    assert_eq!(
        round_trips::<TokioPostgres>(&outbox, &meter).await,
        expected
    );
    assert_eq!(round_trips::<SqlxPostgres>(&outbox, &meter).await, expected);
}

#[tokio::test]
async fn a_producer_needs_its_role_and_sees_nothing_else() {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    client
        .batch_execute("set role postrider_producer")
        .await
        .unwrap();
    let registry = outbox::load(&client).await.unwrap();
    assert_eq!(registry.event_types().len(), 3);
    let again = named(order("a"));
    outbox::append(&client, &registry, again.clone())
        .await
        .unwrap();
    assert!(
        outbox::append(&client, &registry, again)
            .await
            .unwrap()
            .already
    );
    let events = vec![note("1"), blob("x")];
    outbox::append_all(&client, &registry, events)
        .await
        .unwrap();
    for forbidden in [
        "select count(*) from postrider.events",
        "insert into postrider.events default values",
        "select * from postrider.append_rows(null, null)",
    ] {
        let error = client.batch_execute(forbidden).await.unwrap_err();
        let code = error.code().unwrap();
        assert_eq!(code.code(), "42501", "{forbidden}: {error}");
    }
}

#[tokio::test]
async fn append_works_through_a_pooler_in_transaction_mode() {
    let direct = Outbox::postgres().await;
    let url = postrider_testkit::env::pgbouncer()
        .url_of(&direct.address)
        .unwrap();
    let client = connect(&url).await;
    let registry = outbox::load(&client).await.unwrap();
    for index in 0..20 {
        // Outside a transaction, each call may get another server connection.
        let event = order(&format!("{index}"));
        outbox::append(&client, &registry, event).await.unwrap();
    }
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let mut connection = options.statement_cache_capacity(0).connect().await.unwrap();
    for index in 0..20 {
        let event = order(&format!("{index}"));
        sqlx_postgres::append(&mut connection, &registry, event)
            .await
            .unwrap();
    }
    let count = connect(&direct.address).await;
    let count = count
        .query_one("select count(*) from postrider.events", &[])
        .await;
    assert_eq!(count.unwrap().get::<_, i64>(0), 40);
}

#[tokio::test]
async fn another_transaction_with_the_same_id_is_waited_for() {
    let outbox = Outbox::postgres().await;
    let (mut first, second) = (
        connect(&outbox.address).await,
        connect(&outbox.address).await,
    );
    let registry = outbox::load(&first).await.unwrap();
    let event = named(order("a"));

    for (other, is_retry) in [
        (event.clone(), true),
        (
            NewEvent {
                tenant: Some("x".to_owned()),
                ..event.clone()
            },
            false,
        ),
    ] {
        let event = named(event.clone());
        let other = NewEvent {
            event_id: event.event_id,
            ..other
        };
        let transaction = first.transaction().await.unwrap();
        outbox::append(&transaction, &registry, event)
            .await
            .unwrap();
        let (late, ()) = tokio::join!(outbox::append(&second, &registry, other), async {
            wait_until_blocked(&outbox.address).await;
            transaction.commit().await.unwrap();
        });
        match late {
            Ok(appended) => assert!(is_retry && appended.already),
            Err(AppendError::Conflict { .. }) => assert!(!is_retry),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Until one connection of this database waits for another's transaction.
async fn wait_until_blocked(url: &str) {
    let client = connect(url).await;
    let client = &client;
    let blocked = || async move {
        let waiting = "select count(*) from pg_stat_activity
            where datname = current_database() and wait_event_type = 'Lock'";
        let row = client.query_one(waiting, &[]).await;
        row.is_ok_and(|row| row.get::<_, i64>(0) > 0)
    };
    postrider_testkit::eventually(Duration::from_secs(20), "an append waits", blocked)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_transaction_with_an_old_snapshot_appends_what_it_can_see() {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    let registry = outbox::load(&client).await.unwrap();
    client
        .batch_execute("begin isolation level repeatable read; select count(*) from business")
        .await
        .unwrap();
    let mut plan = control::plan();
    plan.delivery_set.version = 2;
    control::apply(&*outbox.store, &plan).await;
    // Everybody else has the new registry already; this transaction cannot see it.
    outbox::refresh(&connect(&outbox.address).await, &registry)
        .await
        .unwrap();
    outbox::append(&client, &registry, order("a"))
        .await
        .unwrap();
    client.batch_execute("commit").await.unwrap();
    // And who comes next is not held back by what it loaded.
    outbox::append(&client, &registry, order("b"))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_outbox_may_live_in_another_schema() {
    let server = postrider_testkit::env::postgres();
    let url = server.create_database().await.unwrap();
    let options = MigrateOptions {
        schema: "outbox".to_owned(),
        ..MigrateOptions::default()
    };
    migrate(&url, &options).await.unwrap();
    let mut options = postrider_store_postgres::Options::new(&url);
    options.schema = "outbox".to_owned();
    control::apply(&PostgresStore::new(options).unwrap(), &control::plan()).await;

    let client = connect(&url).await;
    let missing = outbox::load(&client).await.unwrap_err();
    assert!(
        missing.to_string().contains("\"postrider\" does not exist"),
        "{missing}"
    );
    let registry = Registry::from_event_types(&[])
        .unwrap()
        .in_schema("outbox")
        .unwrap();
    outbox::refresh(&client, &registry).await.unwrap();
    outbox::append(&client, &registry, order("a"))
        .await
        .unwrap();
    for name in ["", "a\"b", "pg_x", "a;b", "A", &"a".repeat(41)] {
        let registry = Registry::from_event_types(&[]).unwrap();
        assert!(registry.in_schema(name).is_err(), "{name}");
    }
}

#[tokio::test]
async fn a_database_error_keeps_its_source() {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    let registry = outbox::load(&client).await.unwrap();
    client.batch_execute("begin read only").await.unwrap();
    let error = outbox::append(&client, &registry, order("a"))
        .await
        .unwrap_err();
    let AppendError::Database { source, .. } = &error else {
        panic!("{error}");
    };
    let source = source.downcast_ref::<tokio_postgres::Error>().unwrap();
    assert_eq!(source.code().unwrap().code(), "25006");
}
