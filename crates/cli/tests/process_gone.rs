//! WHK-3 from end to end: a receiver that answers 410 Gone is asked once and no more, by whichever
//! relay, until a person resumes it.

mod process;

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, Result, ensure};
use postrider_testkit::{
    Program, env, eventually,
    postgres::{execute, query_column},
};
use process::{
    DATABASE_URL, Place, configuration,
    receiver::{Receiver, Request},
};

const WITHIN: Duration = Duration::from_secs(60);
const KEYS: usize = 5;
const EVENTS: usize = 40;

/// Event id and key of each request, in order.
fn seen(receiver: &Receiver) -> Vec<(String, String)> {
    let of = |request: Request| {
        let header = |name| request.header(name).to_owned();
        (header("webhook-id"), header("ce-partitionkey"))
    };
    receiver.seen().into_iter().map(of).collect()
}

async fn place(receiver: SocketAddr) -> Result<(Place, String)> {
    let url = env::postgres().create_database().await?;
    let connection = format!(
        r#"kind = "http"
url = "http://{receiver}/"
allow_plain_http = true
allow_networks = ["127.0.0.0/8"]"#
    );
    let configuration = configuration(DATABASE_URL, "hook", &connection, r#"target = "/""#)
        + r#"
[relay.deadlines]
connect = "500ms"
send = "1s"
hard = "1500ms"
settle_margin = "500ms"
lease = "3s"
heartbeat = "300ms"
shutdown_grace = "2s"
"#;
    let mut place = Place::new(&configuration);
    place.set("DATABASE_URL", &url);
    place.done("migrate");
    place.done("apply --yes --reason test");
    Ok((place, url))
}

fn id(number: usize) -> String {
    format!("01980000-0000-7000-8000-{number:012}")
}

fn key(number: usize) -> String {
    format!("key-{}", number % KEYS)
}

/// In one transaction, in this order.
async fn append(url: &str, numbers: std::ops::Range<usize>) -> Result<()> {
    let one = |number| {
        let (id, key) = (id(number), key(number));
        format!(
            "select postrider.append('order.placed', '{{}}', 'order', '{number}', \
             event_id => '{id}', partition_key => '{key}');"
        )
    };
    execute(url, &numbers.map(one).collect::<String>()).await
}

async fn number(url: &str, query: &str) -> Result<usize> {
    let found = query_column(url, query).await?;
    Ok(found.first().context("a row")?.parse()?)
}

/// Waits until every live session has been granted its lease `times` more, so that each has read
/// what the store says of suspensions, and had the time to act on it.
async fn heartbeats(url: &str, sessions: usize, times: usize) -> Result<()> {
    let live = "select session_id || ' ' || expires_at from postrider.sessions \
         where ended_at is null and expires_at > now() order by 1";
    for _ in 0..times {
        let before = query_column(url, live).await?;
        eventually(WITHIN, "a heartbeat of each session", || async {
            query_column(url, live).await.is_ok_and(|after| {
                after.len() == sessions && after.iter().all(|row| !before.contains(row))
            })
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn whk_3_gone_is_one_request_in_all_until_a_person_resumes() -> Result<()> {
    let (receiver, address) = Receiver::start(410)?;
    let (place, url) = place(address).await?;
    append(&url, 0..EVENTS / 2).await?;
    let first = Program::new("first")?;
    first.spawn(place.command(["run"]))?;
    eventually(WITHIN, "the suspension", || async {
        number(&url, "select count(*)::text from postrider.suspensions")
            .await
            .is_ok_and(|rows| rows == 1)
    })
    .await?;
    heartbeats(&url, 1, 3).await?;
    // More events, a second relay, and the first one anew.
    append(&url, EVENTS / 2..EVENTS).await?;
    let second = Program::new("second")?;
    second.spawn(place.command(["run"]))?;
    heartbeats(&url, 2, 3).await?;
    first.terminate()?;
    ensure!(first.wait(WITHIN).await?.success());
    first.spawn(place.command(["run"]))?;
    heartbeats(&url, 2, 3).await?;
    assert_eq!(seen(&receiver), [(id(0), key(0))], "one request in all");

    // The destination is shown with its cause; what waits there is parked and uncharged.
    let list = place.answer("destination list --json").json();
    let suspended = &list["rows"][0]["suspended"];
    assert_eq!(suspended["code"], "gone", "{list}");
    assert!(suspended["since"].is_string(), "{list}");
    let dead = place.answer("dead-letter list --json").json();
    assert_eq!(dead["rows"].as_array().map(Vec::len), Some(1), "{dead}");
    assert_eq!(dead["rows"][0]["eventId"], id(0), "{dead}");
    assert_eq!(dead["rows"][0]["code"], "gone", "{dead}");
    let parked = "select count(*)::text from postrider.deliveries where state = 0 and attempts = 0";
    assert_eq!(number(&url, parked).await?, EVENTS - 1);
    let why = place.done(&format!("why {}", id(1)));
    assert!(why.contains("suspended") && why.contains("gone"), "{why}");

    // Another key goes on by the resumption alone, the key of the refused one after its replay.
    receiver.answer(204);
    place.done("destination resume hook --yes --reason test");
    let open = "select count(*)::text from postrider.deliveries";
    eventually(WITHIN, "the other keys", || async {
        number(&url, open)
            .await
            .is_ok_and(|open| open == EVENTS / KEYS)
    })
    .await?;
    place.done("dead-letter replay --all --yes --reason test");
    eventually(WITHIN, "everything to be delivered", || async {
        number(&url, open).await.is_ok_and(|open| open == 0)
    })
    .await?;
    let seen = seen(&receiver);
    for first in 0..KEYS {
        let of_key: Vec<&String> = seen[1..]
            .iter()
            .filter(|(_, key_of)| *key_of == key(first))
            .map(|(id, _)| id)
            .collect();
        let expected: Vec<String> = (first..EVENTS).step_by(KEYS).map(id).collect();
        assert_eq!(of_key, expected.iter().collect::<Vec<_>>());
    }
    assert_eq!(seen.len(), EVENTS + 1);
    for relay in [&first, &second] {
        relay.terminate()?;
        ensure!(relay.wait(WITHIN).await?.success());
    }
    Ok(())
}
