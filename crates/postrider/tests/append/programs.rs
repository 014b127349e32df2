//! Programs in other languages append in their own transactions, and the database holds what they
//! say it does.

use std::process::Command;

use postrider::EventId;
use postrider_core::Position;
use postrider_store::inspect::EventFilter;
use serde_json::Value;

use crate::support::{
    application::{Outbox, connect},
    stored,
};

#[tokio::test]
async fn a_python_program_appends_with_psycopg() {
    appends_with(
        postrider_testkit::env::python(),
        "python/append.py",
        "py",
        None,
    )
    .await;
}

#[tokio::test]
async fn a_node_program_appends_with_node_postgres() {
    appends_with(postrider_testkit::env::node(), "node/append.js", "js", None).await;
}

#[tokio::test]
async fn a_program_that_is_only_a_producer_may_do_all_that() {
    let role = Some("postrider_producer");
    appends_with(
        postrider_testkit::env::python(),
        "python/append.py",
        "py",
        role,
    )
    .await;
}

async fn appends_with(mut command: Command, script: &str, prefix: &str, role: Option<&str>) {
    let outbox = Outbox::postgres().await;
    let client = connect(&outbox.address).await;
    let table = "create table orders (id text primary key, total integer not null);
        grant insert on orders to postrider_producer";
    client.batch_execute(table).await.unwrap();
    if let Some(role) = role {
        command.env("PGOPTIONS", format!("-c role={role}"));
    }
    let script = format!("{}/../../examples/{script}", env!("CARGO_MANIFEST_DIR"));
    command.arg(script).arg(&outbox.address);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();

    let id = |of: &Value| of["event_id"].as_str().unwrap().parse::<EventId>().unwrap();
    // psycopg gives a bigint as a number, node-postgres as text.
    let position = |of: &Value| of["position"].to_string().replace('"', "").parse().unwrap();

    let committed = stored(&*outbox.store, id(&report["committed"])).await;
    assert_eq!(committed.position, Position(position(&report["committed"])));
    let payload: Value = serde_json::from_slice(&committed.event.payload).unwrap();
    assert_eq!(
        payload,
        serde_json::json!({"id": format!("{prefix}-1"), "total": 10})
    );
    assert_eq!(committed.deliveries.len(), 2);
    assert_eq!(report["committed"]["already"], false);

    let rolled_back = id(&report["rolled_back"]);
    assert!(outbox.store.event(rolled_back).await.unwrap().is_none());
    let orders = client.query("select id from orders", &[]).await.unwrap();
    let orders: Vec<String> = orders.iter().map(|row| row.get(0)).collect();
    assert_eq!(orders, [format!("{prefix}-1")]);

    assert_eq!(report["again"]["already"], true);
    assert_eq!(id(&report["again"]), id(&report["committed"]));
    assert_eq!(report["again"]["position"], report["committed"]["position"]);

    for (name, sqlstate, message) in [
        ("conflict", "PR002", id(&report["committed"]).to_string()),
        ("unknown_type", "PR001", "order.eaten".to_owned()),
        ("time_without_zone", "PR004", "occurredAt".to_owned()),
    ] {
        let error = &report[name];
        assert_eq!(error["sqlstate"], sqlstate, "{error}");
        assert!(
            error["message"].as_str().unwrap().contains(&message),
            "{error}"
        );
        for part in ["detail", "hint"] {
            assert!(
                error[part].as_str().is_some_and(|text| !text.is_empty()),
                "{error}"
            );
        }
    }

    let nul = stored(&*outbox.store, id(&report["nul_in_payload"])).await;
    assert_eq!(
        nul.event.payload,
        format!(r#"{{"id":"{prefix}-4\u0000"}}"#).into_bytes()
    );
    assert!(!report["nul_in_text"].as_str().unwrap().is_empty());

    let batch = report["batch"].as_array().unwrap();
    let page = outbox
        .store
        .events(&EventFilter::default(), Position(0), 100)
        .await
        .unwrap();
    let listed: Vec<EventId> = page.rows.iter().map(|row| row.event_id).collect();
    let mut expected = vec![id(&report["committed"]), id(&report["nul_in_payload"])];
    expected.extend(batch.iter().map(id));
    assert_eq!(listed, expected);
}
