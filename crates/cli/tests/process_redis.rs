//! The command line on SQLite and Redis Streams: from nothing to a receipt.

mod process;

use std::time::Duration;

use anyhow::Result;
use postrider_testkit::{Program, Redis, env, eventually};
use process::{Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn from_nothing_to_a_receipt_on_redis_streams() -> Result<()> {
    let server = Redis::start_with(&env::redis_server(), &["requirepass S3CRET"]).await?;
    let connection = format!(
        "kind = \"redis-streams\"\nservers = [\"{}\"]\npassword = {{ env = \"REDIS_PASSWORD\" }}\n\
         groups = [\"shipping\"]",
        server.url()
    );
    let store = "\"sqlite:shop.db\"";
    let configuration = configuration(store, "orders", &connection, "target = \"orders:placed\"");
    let mut place = Place::new(&configuration);
    place.set("REDIS_PASSWORD", "wrong");
    place.done("migrate");
    place.done("apply --yes --reason test");
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    assert!(check.stdout.contains("not_authorized"), "{}", check.stdout);
    place.set("REDIS_PASSWORD", "S3CRET");

    // The stream is not there: said by check, made by provision and by nothing else.
    let check = place.answer("check");
    assert!(check.stdout.contains("stream_missing"), "{}", check.stdout);
    let id = place.append(1, "a");
    let once = place.answer("dispatch-once --json");
    assert_eq!(once.code, Some(3), "{}", once.stderr);
    let preview = place.answer("provision").stdout;
    for change in [
        "create stream",
        "name the data",
        "consumer group \"shipping\"",
    ] {
        assert!(preview.contains(change), "{preview}");
    }
    place.done("provision --yes");
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "{}", check.stdout);

    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    eventually(WITHIN, "the receipt", || async {
        place.done(&format!("why {id}")).contains("redis.entry/1")
    })
    .await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    let why = place.answer(&format!("why {id} --json")).json();
    let receipt = &why["deliveries"][0]["because"][0]["receipt"];
    assert_eq!(receipt["key"], "orders:placed");

    let mut client = std::process::Command::new(env::redis_cli());
    client.args([
        "-p",
        &server.port().to_string(),
        "-a",
        "S3CRET",
        "--no-auth-warning",
    ]);
    let read = client
        .args(["XRANGE", "orders:placed", "-", "+"])
        .output()?;
    let read = String::from_utf8(read.stdout)?;
    let entry_id = receipt["entryId"].as_str().unwrap_or("none");
    assert!(read.contains(entry_id) && read.contains(&id), "{read}");
    assert_eq!(read.matches("postrider-event-id").count(), 1, "{read}");
    Ok(())
}
