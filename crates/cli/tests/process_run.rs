//! `run` and `dispatch-once` as processes: signals, the exclusive lease, health, refusals.

mod process;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};
use postrider_testkit::{Program, eventually, eventually_some};
use process::Place;

const WITHIN: Duration = Duration::from_secs(60);

const FILES: &str = r#"
[store]
url = "sqlite:shop.db"
[admin]
listen = "127.0.0.1:0"
[connections.files]
kind = "file"
folder = "."
[destinations.audit]
connection = "files"
target = "audit.jsonl"
[[event_types]]
event_type = "order.placed"
schema_version = "1"
[[routes]]
event_type = "order.placed"
schema_version = "1"
destinations = ["audit"]
"#;

fn ready(configuration: &str) -> Place {
    let place = Place::new(configuration);
    place.done("migrate");
    place.done("apply --yes");
    place
}

fn lines(place: &Place) -> usize {
    std::fs::read_to_string(place.file("audit.jsonl"))
        .map(|text| text.lines().count())
        .unwrap_or(0)
}

/// The address that a relay logs.
async fn address(relay: &Program) -> Result<SocketAddr> {
    eventually_some(WITHIN, "the relay to serve", || async {
        let log = relay.stderr().ok()?;
        let line = log.lines().find(|line| line.contains("serving /livez"))?;
        line.split("address=").nth(1)?.trim().parse().ok()
    })
    .await
}

fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[tokio::test]
async fn sigterm_ends_a_relay_well_and_it_says_what_it_did() -> Result<()> {
    let place = ready(FILES);
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run", "--json"]))?;
    let address = address(&relay).await?;
    eventually(WITHIN, "readiness", || async {
        get(address, "/readyz").is_ok_and(|text| text.starts_with("HTTP/1.1 200"))
    })
    .await?;
    place.append(1, "a");
    place.append(2, "b");
    eventually(WITHIN, "both lines", || async { lines(&place) == 2 }).await?;
    eventually(WITHIN, "the figures", || async {
        get(address, "/metrics").is_ok_and(|text| {
            text.contains(
                "postrider_deliveries_total{destination=\"audit\",outcome=\"acknowledged\"} 2",
            ) && text.contains("postrider_pending{destination=\"audit\"} 0")
        })
    })
    .await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    let report: serde_json::Value = serde_json::from_str(&relay.stdout()?)?;
    assert_eq!(report["acknowledged"], 2, "{report}");
    assert_eq!(report["shutdownRequested"], true);
    let sessions = place.done("sessions --json");
    assert!(
        sessions.contains("\"endedBecause\": \"stopped\""),
        "{sessions}"
    );
    Ok(())
}

#[tokio::test]
async fn the_second_exclusive_dispatcher_reports_zero_and_claims_nothing() -> Result<()> {
    let place = ready(FILES);
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run", "--exclusive", "--set", "relay.owner=the first"]))?;
    eventually(WITHIN, "the lease", || async {
        place.done("sessions --json").contains("\"live\"")
    })
    .await?;
    let second = place.answer("dispatch-once --exclusive --json");
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    let report = second.json();
    for figure in [
        "claimed",
        "acknowledged",
        "retried",
        "unknown",
        "quarantined",
        "duplicates",
    ] {
        assert_eq!(report[figure], 0, "{figure}");
    }
    assert_eq!(report["exclusiveHeldBy"], "the first");

    // The same for `run`, which waits; with a bound it ends.
    let second = place.answer("run --exclusive --iterations-max 1 --json");
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    assert_eq!(second.json()["claimed"], 0);

    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    place.append(1, "a");
    let third = place.answer("dispatch-once --exclusive --json");
    assert_eq!(third.json()["acknowledged"], 1, "{}", third.stderr);
    Ok(())
}

#[test]
fn a_bounded_run_ends_by_itself() {
    let place = ready(FILES);
    place.append(1, "a");
    let run = place.answer("run --iterations-max 3 --json");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let report = run.json();
    assert_eq!(report["acknowledged"], 1, "{report}");
    assert_eq!(report["shutdownRequested"], false);
    assert_eq!(lines(&place), 1);
}

/// The connection of the first request. A preflight only connects.
fn first_request(listener: &TcpListener) -> std::io::Result<TcpStream> {
    loop {
        let (mut stream, _) = listener.accept()?;
        if stream.read(&mut [0; 1])? == 1 {
            return Ok(stream);
        }
    }
}

#[tokio::test]
async fn a_second_signal_leaves_at_once() -> Result<()> {
    // A receiver that takes a request and never answers keeps a graceful stop waiting.
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    let configuration = FILES
        .replace("kind = \"file\"\nfolder = \".\"", "kind = \"http\"\nurl = \"URL\"\nallow_plain_http = true\nallow_networks = [\"127.0.0.0/8\"]")
        .replace("URL", &url)
        .replace("audit.jsonl", "/")
        + "[relay.deadlines]\nsend = \"50s\"\nhard = \"55s\"\nlease = \"2m\"\nshutdown_grace = \"1m\"\n";
    let place = ready(&configuration);
    place.append(1, "a");
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    let request = tokio::task::spawn_blocking(move || first_request(&listener));
    let stream = tokio::time::timeout(WITHIN, request).await???;
    relay.terminate()?;
    eventually(WITHIN, "the relay to stop fetching", || async {
        relay.stderr().is_ok_and(|log| log.contains("stopping"))
    })
    .await?;
    assert!(relay.pid().is_some(), "it waits for the answer");
    relay.interrupt()?;
    // Long before the grace is over.
    assert_eq!(relay.wait(Duration::from_secs(20)).await?.code(), Some(130));
    drop(stream);
    Ok(())
}

#[test]
fn an_address_that_is_taken_stops_the_relay_before_it_starts() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut place = ready(FILES);
    place.set(
        "POSTRIDER_ADMIN__LISTEN",
        &listener.local_addr()?.to_string(),
    );
    let run = place.answer("run");
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("P0031"), "{}", run.stderr);
    let sessions = place.done("sessions --json");
    assert!(sessions.contains("\"rows\": []"), "{sessions}");
    Ok(())
}

#[test]
fn every_command_but_migrate_refuses_a_schema_that_it_does_not_know() -> Result<()> {
    let commands = [
        "plan",
        "apply --yes",
        "provision",
        "check",
        "run --iterations-max 1",
        "dispatch-once",
        "maintain",
        "append --event-type a --schema-version 1 --aggregate-type t --aggregate-id i --payload {}",
        "events list",
        "events show 01980000-0000-7000-8000-000000000001",
        "deliveries list",
        "dead-letter list",
        "dead-letter replay --all --yes",
        "destination list",
        "destination resume audit --yes",
        "sessions",
        "lanes",
        "why 01980000-0000-7000-8000-000000000001",
    ];
    let refuses = |place: &Place, code: &str| {
        for command in commands {
            let answer = place.answer(command);
            assert_eq!(answer.code, Some(2), "{command}: {}", answer.stderr);
            let said = answer.stdout + &answer.stderr;
            assert!(said.contains(code), "{command}: {said}");
        }
    };
    let place = Place::new(FILES);
    refuses(&place, "P0011");
    place.done("migrate");
    place.done("apply --yes");
    let database = rusqlite::Connection::open(place.file("shop.db"))?;
    let newest: u32 = database
        .query_row("select max(version) from postrider_migrations", [], |row| {
            row.get(0)
        })
        .context("the table of migrations")?;

    // A program of the future was here.
    database.execute(
        "insert into postrider_migrations (version, checksum, applied_at)
         select version + 1, checksum, applied_at from postrider_migrations where version = ?1",
        [newest],
    )?;
    refuses(&place, "P0013");
    let migrate = place.answer("migrate");
    assert_eq!(migrate.code, Some(2), "{}", migrate.stderr);
    assert!(migrate.stderr.contains("P0037"), "{}", migrate.stderr);
    let preview = place.answer("migrate --dry-run");
    assert!(preview.stderr.contains("P0013"), "{}", preview.stderr);

    // Back to ours, without the last migration.
    database.execute(
        "delete from postrider_migrations where version >= ?1",
        [newest],
    )?;
    refuses(&place, "P0012");
    Ok(())
}
