//! The command line on SQLite and Kafka: from nothing to a receipt.

mod process;

use std::time::Duration;

use anyhow::Result;
use postrider_testkit::{Kafka, Program, env, eventually};
use process::{Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn from_nothing_to_a_receipt_on_sqlite_and_kafka() -> Result<()> {
    let broker = Kafka::start(&env::nisshi()).await?;
    let connection = format!(
        "kind = \"kafka\"\ncluster = \"{}\"\nbrokers = [\"{}\"]\nprovision_partitions = 3",
        Kafka::CLUSTER,
        broker.address()
    );
    let place = Place::new(&configuration(
        r#""sqlite:shop.db""#,
        "orders",
        &connection,
        "target = \"orders\"",
    ));
    place.done("migrate");
    place.done("apply --yes");

    // The topic is not there: said by check, made by provision and by nothing else.
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}", check.stderr);
    assert!(check.stdout.contains("topic_missing"), "{}", check.stdout);
    let id = place.append(1, "a");
    let once = place.answer("dispatch-once --json");
    assert_eq!(once.code, Some(3), "{}", once.stderr);
    let preview = place.answer("provision");
    assert!(
        preview
            .stdout
            .contains("create topic orders with 3 partitions"),
        "{}",
        preview.stdout
    );
    place.done("provision --yes");
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "{}", check.stdout);

    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    eventually(WITHIN, "the receipt", || async {
        place.done(&format!("why {id}")).contains("kafka.offset/1")
    })
    .await?;
    // Killed and back: what is appended meanwhile waits, and arrives behind the first.
    broker.kill().await?;
    let second = place.append(2, "a");
    broker.restart().await?;
    eventually(WITHIN, "the second receipt", || async {
        place
            .done(&format!("why {second}"))
            .contains("kafka.offset/1")
    })
    .await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));

    let why = place.answer(&format!("why {second} --json")).json();
    let receipt = &why["deliveries"][0]["because"][0]["receipt"];
    assert_eq!(receipt["type"], "kafka.offset/1");
    assert_eq!(receipt["cluster"], Kafka::CLUSTER);
    assert_eq!(receipt["topic"], "orders");
    assert_eq!(receipt["offset"], 1, "{receipt}");
    Ok(())
}
