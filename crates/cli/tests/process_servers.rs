//! The command line on PostgreSQL with JetStream and with RabbitMQ: from nothing to a receipt, and what is said of a
//! stream that does not fit.

mod process;

use std::time::Duration;

use anyhow::Result;
use postrider_testkit::{
    Program, RabbitMq, env, eventually,
    postgres::{execute, query_column},
};
use process::{DATABASE_URL, Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);

/// A configuration on a database and a queue of its own; the queue's name.
async fn place_on_rabbitmq() -> Result<(Place, String)> {
    let url = env::postgres().create_database().await?;
    let queue = url.rsplit('/').next().unwrap_or_default().to_owned();
    let connection = format!(
        "kind = \"rabbitmq\"\ncluster = \"{}\"\nservers = [\"{}\"]",
        RabbitMq::CLUSTER,
        env::rabbitmq_url()
    );
    let destination = format!("target = \"{queue}\"");
    let configuration = configuration(DATABASE_URL, "orders", &connection, &destination);
    let mut place = Place::new(&configuration);
    place.set("DATABASE_URL", &url);
    Ok((place, queue))
}

/// Everything in a queue, read with another client: message id and body.
async fn taken_from(queue: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let url = env::rabbitmq_url().replace("amqp://", "amqp://guest:guest@");
    let properties = lapin::ConnectionProperties::default();
    let connection = lapin::Connection::connect(&url, properties).await?;
    let channel = connection.create_channel().await?;
    let options = lapin::options::BasicGetOptions { no_ack: true };
    let mut taken = Vec::new();
    while let Some(message) = channel.basic_get(queue.into(), options).await? {
        let id = message.properties.message_id().as_ref();
        let id = id.map(ToString::to_string).unwrap_or_default();
        taken.push((id, message.delivery.data));
    }
    Ok(taken)
}

#[tokio::test]
async fn from_nothing_to_a_queue_on_postgres_and_rabbitmq() -> Result<()> {
    let (place, queue) = place_on_rabbitmq().await?;
    place.done("migrate");
    place.done("apply --yes");
    // The queue is not there: said by check, made by provision and by nothing else.
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}", check.stderr);
    assert!(check.stdout.contains("queue_missing"), "{}", check.stdout);
    assert!(place.done("explain unroutable").contains("NO_ROUTE"));
    assert_eq!(place.answer("provision").code, Some(1));
    assert_eq!(place.answer("check").code, Some(1));
    place.done("provision --yes");
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "{}", check.stdout);

    let relay = Program::new("relay")?;
    let ids = [place.append(1, "a"), place.append(2, "a")];
    relay.spawn(place.command(["run"]))?;
    for id in &ids {
        eventually(WITHIN, "the receipt", || async {
            place.done(&format!("why {id}")).contains("amqp.confirm/1")
        })
        .await?;
    }
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    let why = place.answer(&format!("why {} --json", ids[1])).json();
    let receipt = &why["deliveries"][0]["because"][0]["receipt"];
    assert_eq!(receipt["type"], "amqp.confirm/1");
    assert_eq!(receipt["routingKey"], queue.as_str());
    let taken = taken_from(&queue).await?;
    let got: Vec<&str> = taken.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(got, ids, "both, once, in their order");
    Ok(())
}

/// A configuration on a database and a stream of its own.
async fn place() -> Result<Place> {
    let url = env::postgres().create_database().await?;
    // The database's name was never used before, so neither was the stream's.
    let name = url.rsplit('/').next().unwrap_or_default().to_uppercase();
    let connection = format!("kind = \"jetstream\"\nservers = [\"{}\"]", env::nats_url());
    let destination = format!("stream = \"S_{name}\"\ntarget = \"{name}.{{event_type}}\"");
    let configuration = configuration(DATABASE_URL, "orders", &connection, &destination);
    let mut place = Place::new(&configuration);
    place.set("DATABASE_URL", &url);
    Ok(place)
}

#[tokio::test]
async fn from_nothing_to_a_receipt_on_postgres_and_jetstream() -> Result<()> {
    let place = place().await?;
    let refused = place.answer("events list");
    assert!(refused.stderr.contains("P0011"), "{}", refused.stderr);
    place.done("migrate");
    place.done("apply --yes --reason test");

    // The stream is not there: said by check, made by provision and by nothing else.
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}", check.stderr);
    assert!(check.stdout.contains("stream_missing"), "{}", check.stdout);
    let id = place.append(1, "a");
    let once = place.answer("dispatch-once --json");
    assert_eq!(once.json()["claimed"], 0, "{}", once.stderr);
    assert_eq!(once.code, Some(3), "{}", once.stderr);
    assert!(
        once.stderr.contains("orders#1: stream_missing"),
        "{}",
        once.stderr
    );
    let preview = place.answer("provision");
    assert_eq!(preview.code, Some(1), "{}", preview.stdout);
    assert!(
        preview.stdout.contains("create stream") && preview.stdout.contains("duplicate window"),
        "{}",
        preview.stdout
    );
    assert_eq!(place.answer("check").code, Some(1));
    place.done("provision --yes");
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "{}", check.stdout);

    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    eventually(WITHIN, "the receipt", || async {
        place.done(&format!("why {id}")).contains("jetstream.ack/1")
    })
    .await?;
    // While it runs and sleeps, the doorbell or a poll wakes it.
    let second = place.append(2, "a");
    eventually(WITHIN, "the second receipt", || async {
        place
            .done(&format!("why {second}"))
            .contains("jetstream.ack/1")
    })
    .await?;
    let lanes = place.done("lanes --json");
    assert!(lanes.contains("\"owner\": \""), "{lanes}");
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));

    let why = place.answer(&format!("why {second} --json")).json();
    let receipt = &why["deliveries"][0]["because"][0]["receipt"];
    assert_eq!(receipt["type"], "jetstream.ack/1");
    assert_eq!(receipt["sequence"], 2);
    assert_eq!(
        place
            .done("deliveries list --json")
            .matches("eventId")
            .count(),
        0
    );
    place.done("maintain");
    Ok(())
}

#[tokio::test]
async fn a_stream_that_does_not_fit_is_named_with_both_values() -> Result<()> {
    let mut place = place().await?;
    place.done("migrate");
    place.done("apply --yes");
    place.done("provision --yes");
    // Retries that go on for longer than the stream remembers ids.
    place.set("POSTRIDER_RELAY__BACKOFF_FIRST", "1h");
    place.set("POSTRIDER_RELAY__BACKOFF_MAX", "1h");
    let check = place.answer("check --json");
    let text = &check.stdout;
    assert!(text.contains("duplicate"), "{text}");
    // A target outside the stream's subjects.
    place.set(
        "POSTRIDER_DESTINATIONS__ORDERS__TARGET",
        "elsewhere.{event_type}",
    );
    place.done("apply --yes");
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    assert!(
        check.stdout.contains("orders#2: NOT READY"),
        "{}",
        check.stdout
    );
    Ok(())
}

#[tokio::test]
async fn hlt_1_who_holds_a_snapshot_is_named() -> Result<()> {
    let place = place().await?;
    place.done("migrate");
    let url = place.variable("DATABASE_URL");
    // Reads once, and then stays.
    let holder = tokio::spawn(async move {
        let named = format!("{url}?application_name=nightly_report");
        let statements = "begin isolation level repeatable read; \
                          select count(*) from postrider.events; select pg_sleep(600)";
        execute(&named, statements).await
    });
    eventually(WITHIN, "the holder to be named", || async {
        let check = place.answer("check --json").stdout;
        check.contains("oldest_snapshot") && check.contains("nightly_report")
    })
    .await?;
    let check = place.answer("check");
    for says in ["snapshots: ok", "pid ", "dead rows in the outbox: "] {
        assert!(check.stdout.contains(says), "{}", check.stdout);
    }
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where application_name = 'nightly_report' and datname = current_database()";
    query_column(&place.variable("DATABASE_URL"), end).await?;
    assert!(holder.await?.is_err(), "its connection was ended");
    Ok(())
}
