//! The plans of the hot path: their shape, and what they do not read. Not their cost, which is the
//! machine's.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::Client;
use uuid::Uuid;

use super::{connect, migrated};
use crate::{
    Schema,
    param::{Moment, Param, params},
    sql::Sql,
};

/// Appended for the loaded state.
const EVENTS: i64 = 5_000;
/// Buffers that a fetch may touch above a cursor. A page holds about ninety open rows, so to read
/// the dead ones again would touch many more than this.
const BUFFERS_MAX: i64 = 40;

fn sql() -> Sql {
    let schema = Schema::new("postrider").expect("a good name");
    Sql::new(&schema, Duration::from_secs(30))
}

/// A destination that orders by key, and a delivery set of one event type.
async fn registered() -> Client {
    let client = connect(&migrated().await).await;
    client
        .batch_execute(
            "insert into postrider.destinations values
                (1, 'a', 1, sha256('{}'), '{}', 'file', 'key', 4, 'resend', 'hold', null, now());
            insert into postrider.lanes select 1, lane from generate_series(0, 3) lane;
            insert into postrider.delivery_sets (version, digest, canonical, registered_at)
                values (1, sha256('{}'), '{}', now());
            insert into postrider.delivery_set_events values (1, 'order.placed', '1');
            insert into postrider.delivery_set_members values (1, 'order.placed', '1', 1, 'c', true);
            insert into postrider.delivery_set_activations (delivery_set_id, activated_at, actor)
                values (1, now(), 'test')",
        )
        .await
        .expect("registers");
    client
}

async fn append(client: &Client) {
    client
        .batch_execute(&format!(
            "select count(*) from postrider.append_batch(
                array_fill('order.placed'::text, array[{EVENTS}]),
                array_fill('{{}}'::bytea, array[{EVENTS}]), array_fill('o'::text, array[{EVENTS}]),
                array(select i::text from generate_series(1, {EVENTS}) i))"
        ))
        .await
        .expect("appends");
}

/// Runs a statement as the store does, and rolls it back; answers its plan.
async fn explain(client: &Client, sql: &Sql, statement: &str, params: &[Param<'_>]) -> Value {
    client
        .batch_execute(&format!("begin;\n{}", sql.bounds))
        .await
        .expect("begins");
    let explain = format!("explain (analyze, buffers, costs off, format json) {statement}");
    let row = client
        .query_typed_one(&explain, params)
        .await
        .expect("explains");
    client.batch_execute("rollback").await.expect("rolls back");
    row.get::<_, Value>(0)[0]["Plan"].clone()
}

/// Node types with the indexes they use, one a line, indented as they nest. What differs with the
/// number of partitions is left out: of equal neighbours, one is shown.
fn shape(plan: &Value) -> String {
    fn write(plan: &Value, depth: usize) -> String {
        let node = plan["Node Type"].as_str().unwrap_or("?");
        let index = plan["Index Name"].as_str().unwrap_or_default();
        let line = format!("{:depth$}{node} {}", "", name(index), depth = depth * 2);
        let mut out = format!("{}\n", line.trim_end());
        let children = plan["Plans"].as_array().into_iter().flatten();
        let mut children: Vec<_> = children.map(|child| write(child, depth + 1)).collect();
        children.dedup();
        out.extend(children);
        out
    }
    write(plan, 0)
}

/// An index's name, without the partition's.
fn name(index: &str) -> &str {
    match index.strip_prefix("events_") {
        Some(of_events) if of_events.ends_with("_position_idx") => "events by position",
        Some(_) | None => index,
    }
}

/// How many rows were read by an index.
fn rows_by(plan: &Value, index: &str) -> u64 {
    let own = name(plan["Index Name"].as_str().unwrap_or_default()) == index;
    let number = |key: &str| plan[key].as_f64().unwrap_or(0.0);
    let filtered = number("Rows Removed by Filter");
    let rows = (number("Actual Rows") + filtered) * number("Actual Loops");
    let children = plan["Plans"].as_array().into_iter().flatten();
    let below: u64 = children.map(|child| rows_by(child, index)).sum();
    if own { rows as u64 + below } else { below }
}

async fn explain_fetch(client: &Client, after: i64) -> Value {
    let sql = sql();
    let now: Option<Moment> = None;
    let lanes: Vec<i16> = vec![0, 1, 2, 3];
    let none = "{}";
    explain(
        client,
        &sql,
        &sql.fetch,
        params![1_i32, lanes, after, none, none, 500_i64, 1_i64 << 30, now],
    )
    .await
}

async fn explain_acknowledge(client: &Client) -> Value {
    let sql = sql();
    let (first, last): (Vec<i64>, Vec<i64>) = (vec![1, 100], vec![90, 100]);
    // No row is there when the table is empty; the check of the count is not what is looked at.
    let statement = sql
        .acknowledge
        .replace("$4::bigint", "(select count(*) from closed) + $4::bigint");
    explain(client, &sql, &statement, params![1_i32, first, last, 0_i64]).await
}

/// Open rows by the primary key, exceptions by their partial index, events by ranges of positions.
const FETCH: &str = "\
Append
\x20 Result
\x20 Result
\x20   Index Only Scan suspensions_pkey
\x20   Index Scan destinations_pkey
\x20 Limit
\x20   CTE Scan
\x20   WindowAgg
\x20     Result
\x20       Index Scan deliveries_pkey
\x20         Index Scan deliveries_exceptions
\x20           CTE Scan
\x20 CTE Scan
\x20 Aggregate
\x20   CTE Scan
\x20 Nested Loop
\x20   Index Only Scan suspensions_pkey
\x20   Nested Loop
\x20     CTE Scan
\x20     Index Only Scan destinations_pkey
\x20   Aggregate
\x20     Aggregate
\x20       CTE Scan
\x20     CTE Scan
\x20   Limit
\x20     Index Scan deliveries_due
\x20 Nested Loop
\x20   CTE Scan
\x20   Append
\x20     Index Scan events by position
";

/// One index range for each run.
const ACKNOWLEDGE: &str = "\
Result
\x20 ModifyTable
\x20   Nested Loop
\x20     Function Scan
\x20     Index Scan deliveries_pkey
\x20 Aggregate
\x20   CTE Scan
";

/// Whatever the statistics say: made when the table was empty, when it was full, or never. Every
/// statement is planned when it runs, for the size that the table has then.
#[tokio::test]
async fn fetch_and_settle_keep_their_plans() {
    let client = registered().await;
    client.batch_execute("analyze").await.expect("analyses");
    append(&client).await;
    for (state, before) in [
        ("full, analysed as empty", "select 1"),
        ("full, analysed", "analyze"),
        (
            "emptied, analysed as full",
            "delete from postrider.deliveries",
        ),
    ] {
        client.batch_execute(before).await.expect(state);
        assert_eq!(shape(&explain_fetch(&client, 0).await), FETCH, "{state}");
        let plan = explain_acknowledge(&client).await;
        assert_eq!(shape(&plan), ACKNOWLEDGE, "{state}");
    }
}

/// Only what is fetched is read, whether the positions are dense or not.
#[tokio::test]
async fn no_event_is_read_in_vain() {
    let client = registered().await;
    append(&client).await;
    let plan = explain_fetch(&client, 0).await;
    assert_eq!(rows_by(&plan, "events by position"), 500);
    client
        .batch_execute("delete from postrider.deliveries where position % 11 = 0")
        .await
        .expect("deletes");
    let plan = explain_fetch(&client, 0).await;
    assert_eq!(rows_by(&plan, "events by position"), 500);
}

/// HLT-1: an old snapshot elsewhere keeps every dead row, and a fetch above them reads none: what
/// it costs has a bound that does not know how many there are.
#[tokio::test]
async fn hlt_1_dead_rows_below_the_scan_cost_a_fetch_nothing() {
    let (mut above, mut front) = (Vec::new(), Vec::new());
    for rounds in [0, 1, 3] {
        let (from_above, from_front) = fetch_beside_dead_rows(rounds).await;
        above.push(from_above);
        front.push(from_front);
    }
    assert!(
        above.iter().all(|buffers| *buffers <= BUFFERS_MAX),
        "{above:?} buffers"
    );
    // The dead rows are there, and only a read from the front steps over them.
    assert!(front.is_sorted_by(|a, b| a < b), "{front:?} buffers");
}

/// Delivers `rounds` times [`EVENTS`] events under an old snapshot, then one more is due: what a
/// fetch of it touches, above all that is dead and from the front.
async fn fetch_beside_dead_rows(rounds: usize) -> (i64, i64) {
    let client = registered().await;
    let snapshot = connect(&url_of(&client).await).await;
    for statement in [
        "begin isolation level repeatable read",
        "select count(*) from postrider.deliveries",
    ] {
        snapshot.batch_execute(statement).await.expect("holds");
    }
    for _ in 0..rounds {
        append(&client).await;
        client
            .batch_execute("delete from postrider.deliveries")
            .await
            .expect("delivers");
    }
    let last: i64 = client
        .query_one(
            "select coalesce(max(position), 0) from postrider.events",
            &[],
        )
        .await
        .expect("reads")
        .get(0);
    for statement in [
        "vacuum postrider.deliveries",
        "select postrider.append('order.placed', '{}', 'o', 'new')",
    ] {
        client.batch_execute(statement).await.expect(statement);
    }
    let mut touched = [last, 0].into_iter().map(async |after| {
        let plan = explain_fetch(&client, after).await;
        // What the delivery says, and the event.
        assert_eq!(plan["Actual Rows"].as_f64(), Some(2.0));
        let blocks = |kind: &str| plan[kind].as_i64().unwrap_or(0);
        blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
    });
    let above = touched.next().expect("the first").await;
    let front = touched.next().expect("the second").await;
    snapshot.batch_execute("commit").await.expect("ends");
    (above, front)
}

async fn url_of(client: &Client) -> String {
    let row = client
        .query_one("select current_database()::text", &[])
        .await
        .expect("reads");
    postrider_testkit::env::postgres()
        .url_of(row.get(0))
        .expect("the server's URL")
}

/// The client library sends what is polled first first, which the pipeline leans on.
#[tokio::test]
async fn statements_of_a_pipeline_run_in_order() {
    let client = registered().await;
    client
        .batch_execute("create table seen (n bigint generated always as identity, said int)")
        .await
        .expect("creates");
    let statement = "insert into seen (said) values ($1::integer)";
    let numbers: Vec<i32> = (0..20).collect();
    let mut pipeline = crate::client::Pipeline::new("set local lock_timeout = 1000");
    let params: Vec<[Param<'_>; 1]> = numbers.iter().map(|n| [crate::param::typed(n)]).collect();
    for params in &params {
        pipeline.add(statement, params);
    }
    pipeline.run(&client).await.expect("runs");
    let rows = client
        .query("select said from seen order by n", &[])
        .await
        .expect("reads");
    let said: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(said, numbers);
}

/// The commit that is on its way already undoes everything when a statement before it failed.
#[tokio::test]
async fn a_pipeline_whose_statement_fails_does_nothing() {
    let client = registered().await;
    let session = Uuid::new_v4();
    let now: Option<Moment> = None;
    let sql = sql();
    let mut pipeline = crate::client::Pipeline::new(&sql.bounds);
    let id = 1_i32;
    let code = "c";
    pipeline.add(&sql.suspend, params![id, code, code, now]);
    pipeline.add(&sql.fence, params![session, now]);
    pipeline.add(&sql.suspend, params![id, code, code, now]);
    let error = pipeline.run(&client).await.expect_err("no such session");
    assert!(crate::error::is(&error, crate::error::code::SESSION_ENDED));
    let row = client
        .query_one("select count(*) from postrider.suspensions", &[])
        .await
        .expect("reads");
    assert_eq!(row.get::<_, i64>(0), 0);
}
