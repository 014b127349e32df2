//! Field cases that end at the shipped program, named after them.

mod process;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use postrider_contract::Digest;
use postrider_testkit::{
    FaultProxy, Nats, Program, env, eventually,
    postgres::{execute, query_column},
    proxy::{Direction, Flow},
};
use postrider_transport::Secret;
use postrider_transport_http::signature::{self, Key, TOLERANCE};
use process::{Answer, DATABASE_URL, Place, configuration, receiver::Receiver};

const WITHIN: Duration = Duration::from_secs(60);

/// With a destination that is one file.
fn to_file() -> String {
    configuration(
        DATABASE_URL,
        "audit",
        "kind = \"file\"\nfolder = \".\"",
        "target = \"audit.jsonl\"",
    )
}

/// With a destination that is a webhook, which may be in these networks.
fn to_hook(networks: &str) -> String {
    let connection = format!(
        "kind = \"http\"\nurl = {{ env = \"HOOK_URL\" }}\nallow_plain_http = true\n\
         allow_networks = [{networks:?}]\nsigning_secrets = [{{ env = \"SIGNING\" }}]"
    );
    configuration(DATABASE_URL, "audit", &connection, "target = \"/\"")
}

fn lines(place: &Place) -> Vec<String> {
    std::fs::read_to_string(place.file("audit.jsonl"))
        .map(|text| text.lines().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// How often an event is in the file.
fn copies(place: &Place, id: &str) -> usize {
    lines(place).iter().filter(|line| line.contains(id)).count()
}

fn id(number: usize) -> String {
    format!("01980000-0000-7000-8000-{number:012}")
}

fn append(number: usize) -> String {
    let id = id(number);
    format!(
        "select postrider.append('order.placed', '{{}}'::text, 'order', '{number}', event_id => '{id}')"
    )
}

/// Migrated past the pooler, and then reached by `url`.
async fn on_postgres(pooled: bool) -> Result<(Place, String)> {
    let direct = env::postgres().create_database().await?;
    let mut place = Place::new(&to_file());
    place.set("DATABASE_URL", &direct);
    place.done("migrate");
    place.done("apply --yes");
    if pooled {
        place.set("DATABASE_URL", &env::pgbouncer().url_of(&direct)?);
    }
    Ok((place, direct))
}

/// A relay that has passed an id by comes back for it when its transaction commits at last; one
/// that never appears holds up nobody.
#[tokio::test]
async fn ord_1_a_late_commit_is_sent_by_a_relay_that_has_gone_past_it() -> Result<()> {
    let (place, url) = on_postgres(false).await?;
    execute(&url, "create table gate (opened text)").await?;
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    for (early, ends) in [(10, "commit"), (20, "rollback")] {
        let held = format!(
            "begin; {}; create temporary table t_{ends} (); do $$ begin
                while not exists (select from gate where opened = '{ends}') loop
                    perform pg_sleep(0.01);
                end loop;
            end $$; {ends}",
            append(early)
        );
        let open = tokio::spawn({
            let url = url.clone();
            async move { execute(&url, &held).await }
        });
        // It has taken its position once it waits.
        eventually(WITHIN, "the early transaction to wait", || async {
            let waits = "select pid::text from pg_stat_activity where datname = current_database() \
                and query like '%t_' || 'ENDS %pg_sleep%' and wait_event = 'PgSleep'";
            let waits = waits.replace("ENDS", ends);
            query_column(&url, &waits)
                .await
                .is_ok_and(|rows| !rows.is_empty())
        })
        .await?;
        execute(&url, &append(early + 1)).await?;
        eventually(WITHIN, "the later event", || async {
            copies(&place, &id(early + 1)) == 1
        })
        .await?;
        let positions =
            "select position::text from postrider.events order by position desc limit 1";
        let later: i64 = query_column(&url, positions).await?.remove(0).parse()?;
        assert_eq!(copies(&place, &id(early)), 0);
        execute(&url, &format!("insert into gate values ('{ends}')")).await?;
        open.await??;
        if ends == "commit" {
            eventually(WITHIN, "the early event", || async {
                copies(&place, &id(early)) == 1
            })
            .await?;
            let below = format!(
                "select position::text from postrider.events where event_id = '{}' and position < {later}",
                id(early)
            );
            assert_eq!(
                query_column(&url, &below).await?.len(),
                1,
                "it was passed by"
            );
        }
    }
    execute(&url, &append(30)).await?;
    eventually(WITHIN, "one more", || async {
        copies(&place, &id(30)) == 1
    })
    .await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    assert_eq!(lines(&place).len(), 4, "each once: {:?}", lines(&place));
    Ok(())
}

/// Behind a pooler in transaction mode LISTEN succeeds and nothing is ever heard: said once, with
/// the setting, and polling goes on.
#[tokio::test]
async fn ntf_3_a_relay_behind_a_pooler_says_what_to_set_and_polls() -> Result<()> {
    let (place, direct) = on_postgres(true).await?;
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    let said = || {
        let log = relay.stderr().unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains("does not ring"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    eventually(WITHIN, "the warning", || async { !said().is_empty() }).await?;
    for number in 1..=3 {
        execute(&direct, &append(number)).await?;
        eventually(WITHIN, "the event", || async {
            copies(&place, &id(number)) == 1
        })
        .await?;
    }
    let said = said();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("doorbell_url"), "{said:?}");
    let log = relay.stderr()?;
    for code in ["42P05", "26000", "prepared statement"] {
        assert!(!log.contains(code), "{log}");
    }
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));

    // Where it rings, nothing is said.
    let (place, url) = on_postgres(false).await?;
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    execute(&url, &append(1)).await?;
    eventually(WITHIN, "the event", || async {
        copies(&place, &id(1)) == 1
    })
    .await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    assert!(!relay.stderr()?.contains("does not ring"));
    Ok(())
}

fn on_sqlite(configuration: &str) -> Place {
    let mut place = Place::new(configuration);
    place.set("DATABASE_URL", "sqlite:shop.db");
    place
}

const SIGNING: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn hook(url: &str, networks: &str) -> Place {
    let mut place = on_sqlite(&to_hook(networks));
    place.set("SIGNING", SIGNING);
    place.set("HOOK_URL", url);
    place
}

/// One request to a server, in its own protocol and on a connection of its own; the answer's bytes.
fn ask_nats(port: u16, subject: &str, headers: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(WITHIN))?;
    let head = format!("NATS/1.0\r\n{headers}\r\n");
    let (head_bytes, bytes) = (head.len(), head.len() + body.len());
    write!(
        stream,
        "CONNECT {{\"verbose\":false,\"headers\":true}}\r\nSUB answer 1\r\n\
         HPUB {subject} answer {head_bytes} {bytes}\r\n{head}{body}\r\n"
    )?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "the server hung up");
        if line.starts_with("MSG ") {
            let bytes = line
                .split_whitespace()
                .last()
                .context("a length")?
                .parse()?;
            let mut answer = vec![0; bytes];
            reader.read_exact(&mut answer)?;
            return Ok(String::from_utf8(answer)?);
        }
        ensure!(!line.starts_with("-ERR"), "{line}");
    }
}

/// The acknowledgement of the first send is lost, and comes no more before the stream has forgotten
/// the id: the relay looks the event up, and stores nothing a second time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nat_3_a_relay_looks_up_what_the_stream_has_forgotten() -> Result<()> {
    let server = Nats::start(&env::nats_server_old()).await?;
    let proxy = FaultProxy::to_port(server.port()).await?;
    let stream = r#"{"name":"S","subjects":["s.>"],"storage":"file","retention":"limits",
        "discard":"old","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,
        "num_replicas":1,"duplicate_window":1000000000}"#;
    let made = ask_nats(server.port(), "$JS.API.STREAM.CREATE.S", "", stream)?;
    ensure!(!made.contains("\"error\""), "{made}");
    let connection = format!(
        "kind = \"jetstream\"\nservers = [\"nats://127.0.0.1:{}\"]",
        proxy.port()
    );
    let destination = "stream = \"S\"\ntarget = \"s.{event_type}\"";
    let place = on_sqlite(
        &(configuration(DATABASE_URL, "audit", &connection, destination)
            + r#"
[relay.deadlines]
connect = "300ms"
send = "500ms"
hard = "1s"
settle_margin = "500ms"
lease = "6s"
heartbeat = "1s"
shutdown_grace = "3s"
"#),
    );
    place.done("migrate");
    place.done("apply --yes");
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    place.append(1, "a");
    let receipt = |number: usize| {
        let why = place.answer(&format!("why {} --json", id(number))).json();
        why["deliveries"][0]["because"][0]["receipt"]["sequence"].clone()
    };
    eventually(WITHIN, "the first receipt", || async { receipt(1) == 1 }).await?;

    proxy.set(Direction::ServerToClient, Flow::Swallow);
    place.append(2, "a");
    let messages = || -> Result<u64> {
        let info = ask_nats(server.port(), "$JS.API.STREAM.INFO.S", "", "")?;
        let info: serde_json::Value = serde_json::from_str(&info)?;
        info["state"]["messages"].as_u64().context("a number")
    };
    eventually(WITHIN, "the second message", || async {
        messages().is_ok_and(|messages| messages == 2)
    })
    .await?;
    // What was stored before this witness is forgotten no later than the witness is.
    let witness = || ask_nats(server.port(), "s.witness", "Nats-Msg-Id: witness\r\n", "");
    ensure!(!witness()?.contains("\"duplicate\""));
    eventually(WITHIN, "the window to pass", || async {
        witness().is_ok_and(|ack| !ack.contains("\"duplicate\""))
    })
    .await?;
    let before = messages()?;
    proxy.heal().await?;
    eventually(WITHIN, "the second receipt", || async { receipt(2) == 2 }).await?;
    assert_eq!(messages()?, before, "nothing was stored again");
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    Ok(())
}

/// The bytes that were given arrive, under a signature over them, at first, from the dead letters,
/// and once they were exported and appended elsewhere.
#[tokio::test]
async fn jsn_3_the_bytes_that_were_given_arrive_from_every_way() -> Result<()> {
    let original = "{ \"b\":1,\"a\":1.0 ,\"aa\":1e2,\t\"z\":-0,\"big\":9007199254740993,\"e\":1.230e-5, \"n\":\"\\u0000\" }\n";
    let digest = Digest::of_bytes(original.as_bytes());
    let (receiver, address) = Receiver::start(400)?;
    let url = format!("http://{address}/");
    let place = hook(&url, "127.0.0.0/8");
    place.done("migrate");
    place.done("apply --yes");
    std::fs::write(place.file("body.json"), original)?;
    let id = id(1);
    place.done(&format!(
        "append --event-id {id} --event-type order.placed --schema-version 1 --aggregate-type order --aggregate-id 1 --payload @body.json"
    ));
    place.done("dispatch-once");
    let dead = place.answer("dead-letter list --json").json();
    assert_eq!(dead["rows"][0]["eventId"], *id, "{dead}");
    receiver.answer(204);
    place.done("dead-letter replay --all --yes");
    place.done("dispatch-once");

    let shown = place
        .answer(&format!("events show {id} --json --payload"))
        .json();
    assert_eq!(shown["deliveries"][0]["state"], "acknowledged", "{shown}");
    assert_eq!(shown["payload"], original);
    assert_eq!(shown["envelope"]["payload"]["digest"], *digest.to_string());
    let line = serde_json::json!({
        "event_id": id,
        "event_type": "order.placed",
        "aggregate_type": "order",
        "aggregate_id": "1",
        "occurred_at": shown["envelope"]["occurredAt"],
        "payload": shown["payload"],
    });
    let elsewhere = hook(&url, "127.0.0.0/8");
    elsewhere.done("migrate");
    elsewhere.done("apply --yes");
    std::fs::write(elsewhere.file("events.jsonl"), format!("{line}\n"))?;
    elsewhere.done("append --json-lines events.jsonl");
    elsewhere.done("dispatch-once");
    let imported = elsewhere.answer(&format!("events show {id} --json")).json();
    assert_eq!(imported["envelopeDigest"], shown["envelopeDigest"]);

    let key = Key::parse(&Secret::new(SIGNING))?;
    let seen = receiver.seen();
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(request.body, original.as_bytes());
        assert_eq!(Digest::of_bytes(&request.body), digest);
        let sent: i64 = request.header(signature::TIMESTAMP).parse()?;
        let header = |name| Some(request.header(name));
        signature::verify(
            std::slice::from_ref(&key),
            header,
            &request.body,
            sent,
            TOLERANCE,
        )?;
    }
    Ok(())
}

/// What a time is does not depend on where the program runs: neither the one that appends, nor the
/// one that lists, nor the relay.
#[test]
fn tim_3_the_zone_of_the_program_does_not_matter() {
    let given = [
        (
            "2026-01-01T00:00:00.123456789Z",
            "2026-01-01T00:00:00.123456Z",
        ),
        ("2026-03-08T02:30:00-05:00", "2026-03-08T07:30:00.000000Z"),
        ("2026-01-01t12:00:00z", "2026-01-01T12:00:00.000000Z"),
    ];
    for zone in ["UTC", "America/New_York", "Asia/Kathmandu"] {
        let mut place = on_sqlite(&to_file());
        place.set("TZ", zone);
        place.done("migrate");
        place.done("apply --yes");
        let append = |number: usize, time: &str| -> Answer {
            let id = id(number);
            place.answer(&format!(
                "append --event-id {id} --event-type order.placed --schema-version 1 --aggregate-type t --aggregate-id i --payload {{}} --occurred-at {time}"
            ))
        };
        for (number, (time, _)) in given.iter().enumerate() {
            assert_eq!(append(number + 1, time).code, Some(0), "{zone}: {time}");
        }
        for time in [
            "2016-12-31T23:59:60Z",
            "2016-12-31T15:59:60-08:00",
            "2026-06-30T12:00:60Z",
            "2026-01-01T12:00:00",
            "2026-03-08T02:30:00",
        ] {
            let refused = append(9, time);
            assert_ne!(refused.code, Some(0), "{zone}: {time}");
        }
        let list = place.answer("events list --json").json();
        let rows = list["rows"].as_array().unwrap();
        let times: Vec<&str> = rows
            .iter()
            .map(|row| row["envelope"]["occurredAt"].as_str().unwrap())
            .collect();
        let expected: Vec<&str> = given.iter().map(|(_, stored)| *stored).collect();
        assert_eq!(times, expected, "{zone}");
        place.done("dispatch-once");
        let sent = lines(&place);
        assert_eq!(sent.len(), given.len());
        for (line, time) in sent.iter().zip(&expected) {
            assert!(line.contains(&format!("\"{time}\"")), "{zone}: {line}");
        }
    }
}

/// A reader that does not end keeps the log: a figure, and a warning over a limit; it shrinks once
/// the reader is gone.
#[test]
fn sql_3_a_log_that_a_reader_keeps_is_said() -> Result<()> {
    let place = on_sqlite(&to_file());
    place.done("migrate");
    place.done("apply --yes");
    let check = place.done("check");
    assert!(!check.contains("log_large"), "{check}");
    let reader = rusqlite::Connection::open(place.file("shop.db"))?;
    reader.execute_batch("begin; select count(*) from postrider_events")?;
    let writer = rusqlite::Connection::open(place.file("shop.db"))?;
    writer.execute_batch(
        "create table export (page blob);
        with recursive n (i) as (select 1 union all select i + 1 from n where i < 72)
            insert into export select zeroblob(1 << 20) from n",
    )?;
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "a warning: {}", check.stdout);
    assert!(
        check.stdout.contains("log_large (warning)"),
        "{}",
        check.stdout
    );
    reader.execute_batch("commit")?;
    let maintained = place.done("maintain");
    assert!(maintained.contains("to 0 bytes"), "{maintained}");
    let check = place.done("check");
    assert!(!check.contains("log_large"), "{check}");
    Ok(())
}

/// Refused when it is saved, when it is tried, when something is sent and when it is sent again,
/// however the address is spelt, and with no connection made.
#[test]
fn ssr_1_no_spelling_is_saved_tried_sent_or_replayed() -> Result<()> {
    let (receiver, address) = Receiver::start(400)?;
    let port = address.port();
    let mut place = hook(&format!("http://{address}/"), "127.0.0.0/8");
    place.done("migrate");
    place.done("apply --yes");
    // One in the dead letters, one on its way.
    place.append(1, "a");
    place.done("dispatch-once");
    let dead = place.answer("dead-letter list --json").json();
    assert_eq!(dead["rows"].as_array().map(Vec::len), Some(1), "{dead}");
    place.append(2, "b");
    receiver.answer(204);
    let connections = receiver.connections();

    let file = std::fs::read_to_string(place.file("postrider.toml"))?;
    std::fs::write(
        place.file("postrider.toml"),
        file.replace("127.0.0.0/8", "192.0.2.0/24"),
    )?;
    let urls = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "localhost",
        "LOCALHOST",
        "169.254.169.254",
        "[::]",
        "[fd00::1]",
        "10.0.0.1",
        "100.64.0.1",
    ]
    .map(|host| format!("http://{host}:{port}/"));
    let odd = [
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http://u:p@127.0.0.1/",
    ];
    for url in urls.iter().map(String::as_str).chain(odd) {
        place.set("HOOK_URL", url);
        // A name is known by what it resolves to, which is asked when it is tried and sent.
        if !url.to_ascii_lowercase().contains("localhost") {
            for saving in [
                "config check",
                "--set destinations.audit.lanes=3 apply --yes",
            ] {
                let answer = place.answer(saving);
                assert_ne!(answer.code, Some(0), "{saving} of {url}");
                assert!(
                    answer.stderr.contains("destinations.audit"),
                    "{url}: {}",
                    answer.stderr
                );
            }
        }
        let check = place.answer("check");
        assert_eq!(check.code, Some(1), "{url}: {}", check.stdout);
        assert!(
            check.stdout.contains("audit#1: NOT READY"),
            "{url}: {}",
            check.stdout
        );
        let sent = place.answer("dispatch-once --json");
        assert_eq!(sent.code, Some(3), "{url}: {}", sent.stderr);
        assert_eq!(sent.json()["acknowledged"], 0, "{url}: {}", sent.stdout);
    }
    place.done("dead-letter replay --all --yes");
    for url in ["http://127.1", "http://localhost"] {
        place.set("HOOK_URL", &format!("{url}:{port}/"));
        let sent = place.answer("dispatch-once --json");
        assert_eq!(sent.json()["acknowledged"], 0, "{url}: {}", sent.stdout);
    }
    assert_eq!(receiver.connections(), connections, "nobody was there");
    let why = place.done(&format!("why {}", id(2)));
    assert!(!why.contains("acknowledged"), "{why}");

    // It is the address, and nothing else, that was in the way.
    std::fs::write(place.file("postrider.toml"), file)?;
    place.set("HOOK_URL", &format!("http://{address}/"));
    place.done("dispatch-once");
    let ids: Vec<_> = receiver
        .seen()
        .iter()
        .map(|r| r.header("webhook-id").to_owned())
        .collect();
    let last = ids.last().context("a request")?;
    assert!(
        ids.len() > 1 && (last == &id(1) || last == &id(2)),
        "{ids:?}"
    );
    Ok(())
}
