//! WHK-3 from end to end: a receiver that answers 410 Gone is asked once and no more, by whichever
//! relay, until a person resumes it.

mod process;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use postrider_testkit::{
    Program, env, eventually,
    postgres::{execute, query_column},
};
use process::{DATABASE_URL, Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);
const KEYS: usize = 5;
const EVENTS: usize = 40;

/// A receiver that says 410 until it is told to take what comes, and keeps the order of what came.
#[derive(Clone, Default)]
struct Receiver {
    takes: Arc<AtomicBool>,
    /// Event id and key.
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Receiver {
    fn start(&self) -> Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let receiver = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let receiver = receiver.clone();
                // A client that went away in the middle is no fault of ours.
                std::thread::spawn(move || stream.and_then(|stream| receiver.serve(stream)));
            }
        });
        Ok(address)
    }

    fn seen(&self) -> Vec<(String, String)> {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, String)>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let mut headers = BTreeMap::new();
            loop {
                line.clear();
                reader.read_line(&mut line)?;
                let Some((name, value)) = line.trim_end().split_once(':') else {
                    break;
                };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
            let length = header("content-length").parse().unwrap_or(0);
            reader.by_ref().take(length).read_to_end(&mut Vec::new())?;
            self.lock()
                .push((header("webhook-id"), header("ce-partitionkey")));
            let status = if self.takes.load(Ordering::SeqCst) {
                "204 No Content"
            } else {
                "410 Gone"
            };
            write!(writer, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
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
    let receiver = Receiver::default();
    let (place, url) = place(receiver.start()?).await?;
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
    assert_eq!(receiver.seen(), [(id(0), key(0))], "one request in all");

    // The destination is shown with its cause; what waits there is parked and uncharged.
    let list = place.answer("destination list --json").json();
    let suspended = &list["rows"][0]["suspended"];
    assert_eq!(suspended["code"], "gone", "{list}");
    assert!(suspended["since"].is_string(), "{list}");
    let dead = place.answer("dead-letter list --json").json();
    assert_eq!(dead["rows"].as_array().map(Vec::len), Some(1), "{dead}");
    assert_eq!(dead["rows"][0]["eventId"], id(0), "{dead}");
    let parked = "select count(*)::text from postrider.deliveries where state = 0 and attempts = 0";
    assert_eq!(number(&url, parked).await?, EVENTS - 1);
    let why = place.done(&format!("why {}", id(1)));
    assert!(why.contains("suspended") && why.contains("gone"), "{why}");

    // Another key goes on by the resumption alone, the key of the refused one after its replay.
    receiver.takes.store(true, Ordering::SeqCst);
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
    let seen = receiver.seen();
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
