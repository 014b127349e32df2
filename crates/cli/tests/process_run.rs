//! `run` and `dispatch-once` as processes: signals, the exclusive lease, health, refusals.

mod process;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};
use postrider_contract::{DeliverySet, delivery_set::Member};
use postrider_store::{
    Store,
    control::{Audit, ControlPlane},
};
use postrider_store_sqlite::{Options, SqliteStore};
use postrider_testkit::{Program, eventually, eventually_some};
use process::{Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);

/// Lines of `audit.jsonl`, and an address that the relay logs.
fn files() -> String {
    let connection = "kind = \"file\"\nfolder = \".\"";
    let destination = "target = \"audit.jsonl\"";
    configuration(r#""sqlite:shop.db""#, "audit", connection, destination)
        .replace(r#"listen = "off""#, r#"listen = "127.0.0.1:0""#)
}

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
    let place = ready(&files());
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
    let place = ready(&files());
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
    let place = ready(&files());
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
    let configuration = files()
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
    let mut place = ready(&files());
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
    let place = Place::new(&files());
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
    assert!(migrate.stderr.contains("P0013"), "{}", migrate.stderr);
    let preview = place.answer("migrate --dry-run");
    assert!(preview.stderr.contains("P0013"), "{}", preview.stderr);

    // Back to ours, without the last migration.
    database.execute(
        "delete from postrider_migrations where version >= ?1",
        [newest],
    )?;
    refuses(&place, "P0012");

    // Somebody edited what is recorded.
    database.execute("update postrider_migrations set checksum = 'sha256:00'", [])?;
    refuses(&place, "P0014");
    let migrate = place.answer("migrate");
    assert_eq!(migrate.code, Some(2), "{}", migrate.stderr);
    assert!(migrate.stderr.contains("P0014"), "{}", migrate.stderr);
    Ok(())
}

#[tokio::test]
async fn dep_1_a_kind_of_a_newer_program_is_left_alone_and_named() -> Result<()> {
    let place = ready(&files());
    // A newer program registers a kind that this one does not know, and routes to it.
    let store = SqliteStore::open(&Options::new(place.file("shop.db")))?;
    let registry = store.registry().await?;
    let mut newer = registry.destinations[0].destination.clone();
    newer.name = "future".to_owned();
    newer.kind = "pulsar".to_owned();
    newer.cluster = "somewhere".to_owned();
    let set = registry.delivery_set.context("a delivery set")?;
    let mut members = set.members.clone();
    members.push(Member {
        destination: newer.name.clone(),
        destination_digest: newer.digest(),
        consumer: newer.name.clone(),
        ..members[0].clone()
    });
    let plan = ControlPlane {
        event_types: registry
            .event_types
            .into_iter()
            .map(|row| row.event_type)
            .collect(),
        destinations: vec![registry.destinations[0].destination.clone(), newer],
        delivery_set: DeliverySet::new(2, set.applicable_events, members),
    };
    let audit = Audit {
        actor: "test".to_owned(),
        reason: "test".to_owned(),
    };
    store.apply(&plan, &audit).await?;

    let id = place.append(1, "a");
    let once = place.answer("dispatch-once --json");
    assert_eq!(once.code, Some(0), "{}", once.stderr);
    assert_eq!(once.json()["acknowledged"], 1, "{}", once.stdout);
    let open = place.answer("deliveries list --json").json();
    let rows = open["rows"].as_array().context("rows")?;
    assert_eq!(rows.len(), 1, "{open}");
    assert_eq!(rows[0]["destination"], "future#1");
    assert_eq!(rows[0]["state"], "pending");
    assert_eq!(rows[0]["attemptsCharged"], 0);
    let check = place.answer("check");
    assert_eq!(check.code, Some(1));
    assert!(check.stdout.contains("kind \"pulsar\""), "{}", check.stdout);
    let why = place.done(&format!("why {id}"));
    assert!(
        why.contains("does not know destinations of kind \"pulsar\""),
        "{why}"
    );
    Ok(())
}

#[test]
fn tim_1_a_time_that_is_none_is_refused_and_every_listed_one_can_be_given_again() {
    let place = ready(&files());
    let append = |id: &str, time: &str| {
        let line = format!(
            "append --event-id {id} --event-type order.placed --schema-version 1 --aggregate-type t --aggregate-id i --payload {{}} --occurred-at {time}"
        );
        place.answer(&line)
    };
    for time in [
        "infinity",
        "-infinity",
        "294276-01-01T00:00:00Z",
        "-4713-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2026-01-31T09:30:00",
    ] {
        let answer = append("01980000-0000-7000-8000-000000000001", time);
        assert_ne!(answer.code, Some(0), "{time}");
        assert!(!answer.stderr.is_empty(), "{time}");
    }
    assert!(place.done("events list --json").contains("\"rows\": []"));
    for (number, time) in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
        .iter()
        .enumerate()
    {
        let id = format!("01980000-0000-7000-8000-00000000000{number}");
        assert_eq!(append(&id, time).code, Some(0), "{time}");
    }
    let list = place.answer("events list --json").json();
    let rows = list["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    for row in rows {
        // Given again exactly as it is listed, it is the same event.
        let id = row["eventId"].as_str().unwrap();
        let time = row["envelope"]["occurredAt"].as_str().unwrap();
        let again = append(id, time);
        assert_eq!(again.code, Some(0), "{}", again.stderr);
        assert!(
            again.stdout.contains("was there already"),
            "{}",
            again.stdout
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_success() {
    let place = ready(&files());
    // More than a pipe holds, so that the program is still writing.
    let script = r#"{ "$0" completions zsh; echo "status $?" > status; } | true
        cat status"#;
    let mut command = std::process::Command::new("sh");
    let output = command
        .args(["-c", script, env!("CARGO_BIN_EXE_postrider")])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "status 0\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[tokio::test]
async fn a_relay_with_nothing_registered_says_so() -> Result<()> {
    let place = Place::new(&files());
    place.done("migrate");
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    let address = address(&relay).await?;
    eventually(WITHIN, "the reason", || async {
        get(address, "/readyz").is_ok_and(|text| {
            text.starts_with("HTTP/1.1 503") && text.contains("\"what\":\"registry\"")
        })
    })
    .await?;
    let log = relay.stderr()?;
    assert!(log.contains("nothing is registered"), "{log}");
    // Once something is, it goes to work by itself.
    place.done("apply --yes");
    place.append(1, "a");
    eventually(WITHIN, "the line", || async { lines(&place) == 1 }).await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_relay_that_must_not_send_leaves_the_lanes_to_one_that_may() -> Result<()> {
    let place = ready(&files());
    let (first, second) = (Program::new("first")?, Program::new("second")?);
    first.spawn(place.command(["run"]))?;
    place.append(0, "0");
    eventually(WITHIN, "the first line", || async { lines(&place) == 1 }).await?;
    // It has the file, as it should.
    let check = place.answer("check");
    assert_eq!(check.code, Some(0), "{}{}", check.stdout, check.stderr);
    assert!(check.stdout.contains("in_use (note)"), "{}", check.stdout);
    second.spawn(place.command(["run"]))?;
    eventually(WITHIN, "the file to be refused to the second", || async {
        second
            .stderr()
            .is_ok_and(|log| log.contains("code=\"locked\""))
    })
    .await?;
    // Many keys, so that some are in every lane.
    let ids: Vec<String> = (1..=32)
        .map(|number| place.append(number, &number.to_string()))
        .collect();
    eventually(WITHIN, "every key", || async { lines(&place) == 33 }).await?;
    eventually(WITHIN, "the last receipt", || async {
        place
            .done(&format!("why {}", ids[31]))
            .contains("acknowledged")
    })
    .await?;

    // When the first one is gone, the second one takes over.
    first.terminate()?;
    assert_eq!(first.wait(WITHIN).await?.code(), Some(0));
    place.append(40, "1");
    eventually(WITHIN, "the last line", || async { lines(&place) == 34 }).await?;
    second.terminate()?;
    assert_eq!(second.wait(WITHIN).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn what_a_relay_refuses_is_said_by_why() -> Result<()> {
    let place = ready(&files());
    // Some other program has the file.
    let file = std::fs::File::create(place.file("audit.jsonl"))?;
    file.lock()?;
    let relay = Program::new("relay")?;
    relay.spawn(place.command(["run"]))?;
    let id = place.append(1, "a");
    eventually(WITHIN, "the reason", || async {
        let why = place.done(&format!("why {id}"));
        why.contains("must not send") && why.contains("locked") && why.contains("looks at the")
    })
    .await?;
    let check = place.answer("check");
    assert_eq!(check.code, Some(1), "{}{}", check.stdout, check.stderr);
    file.unlock()?;
    eventually(WITHIN, "the line", || async { lines(&place) == 1 }).await?;
    relay.terminate()?;
    assert_eq!(relay.wait(WITHIN).await?.code(), Some(0));
    Ok(())
}
