//! What an application in any language meets when it appends by SQL.

use postrider_conformance::store::fixture::{audit, destination, event, plan};
use postrider_store::{Clock, Store};
use postrider_store_postgres::{Options, PostgresStore};
use postrider_testkit::env;
use tokio_postgres::Client;

use crate::harness::{connect, migrated};

/// A database in which `order.placed` 1 goes to two destinations; a store, and an owner's
/// connection.
async fn registered() -> (PostgresStore, Client, String) {
    let url = migrated().await;
    let mut options = Options::new(&url);
    options.clock = Clock::Database;
    let store = PostgresStore::new(options).expect("usable options");
    let plan = plan(1, &[destination("a"), destination("b")]);
    store.apply(&plan, &audit("set up")).await.expect("applies");
    let client = connect(&url).await;
    (store, client, url)
}

async fn count(client: &Client, table: &str) -> i64 {
    let sql = format!("select count(*) from postrider.{table}");
    client.query_one(&sql, &[]).await.expect("counts").get(0)
}

fn code_of(error: &tokio_postgres::Error) -> String {
    let error = error.as_db_error().expect("the server's error");
    assert!(
        error.detail().is_some() && error.hint().is_some(),
        "{error}"
    );
    error.code().code().to_owned()
}

#[tokio::test]
async fn a_producer_can_append_and_nothing_else() {
    let (_, client, _) = registered().await;
    client
        .batch_execute("set role postrider_producer")
        .await
        .expect("the role is there");
    client
        .query_one(
            "select * from postrider.append('order.placed', '{}', 'order', '1')",
            &[],
        )
        .await
        .expect("appends");
    for forbidden in [
        "select * from postrider.events",
        "select * from postrider.deliveries",
        "insert into postrider.events (event_id) values (gen_random_uuid())",
        "select * from postrider.append_rows(null, null)",
        "select postrider.fence(null, null)",
        "create table postrider.mine (n int)",
    ] {
        let error = client.batch_execute(forbidden).await.expect_err(forbidden);
        let code = error.code().expect("a code").code().to_owned();
        assert_eq!(code, "42501", "{forbidden}: {error}");
    }
}

#[tokio::test]
async fn the_other_roles_have_no_way_to_make_or_change_evidence() {
    let (_, client, _) = registered().await;
    client
        .batch_execute("select postrider.append('order.placed', '{}', 'order', '1')")
        .await
        .expect("appends");
    for role in ["relay", "consumer", "viewer", "operator"] {
        client
            .batch_execute(&format!("set role postrider_{role}"))
            .await
            .expect("the role is there");
        for forbidden in [
            "insert into postrider.events (event_id) values (gen_random_uuid())",
            "insert into postrider.deliveries (event_id) values (gen_random_uuid())",
            "update postrider.events set payload = ''",
            "delete from postrider.receipt_batches",
            "update postrider.attempts set session_id = gen_random_uuid()",
            "delete from postrider.audit_log",
            "update postrider.deliveries set event_id = gen_random_uuid()",
            "truncate postrider.deliveries",
            "create table postrider.mine (n int)",
            "alter table postrider.events add column n int",
            "drop table postrider.sleepers",
            "create index on postrider.events (tenant)",
            "update postrider.schema_migrations set version = 9",
        ] {
            let error = client.batch_execute(forbidden).await.expect_err(forbidden);
            let code = error.code().expect("a code").code().to_owned();
            assert_eq!(code, "42501", "{role}: {forbidden}: {error}");
        }
        client.batch_execute("reset role").await.expect("resets");
    }
}

#[tokio::test]
async fn even_the_owner_cannot_change_or_empty_evidence() {
    let (_, client, _) = registered().await;
    client
        .batch_execute("select postrider.append('order.placed', '{}', 'order', '1')")
        .await
        .expect("appends");
    let partitions = client
        .query(
            "select inhrelid::regclass::text from pg_inherits where inhparent = 'postrider.events'::regclass",
            &[],
        )
        .await
        .expect("lists");
    assert!(partitions.len() >= 5, "a default and four months");
    let mut tables: Vec<String> = partitions.iter().map(|row| row.get(0)).collect();
    tables.push("postrider.events".to_owned());
    for table in &tables {
        for forbidden in [
            format!("update {table} set payload = ''"),
            format!("delete from {table}"),
            format!("truncate {table} cascade"),
        ] {
            let rows = client
                .query_one(&format!("select count(*) from {table}"), &[])
                .await
                .expect("counts")
                .get::<_, i64>(0);
            let done = client.batch_execute(&forbidden).await;
            if rows > 0 || forbidden.starts_with("truncate") {
                let error = done.expect_err(&forbidden);
                assert_eq!(error.code().expect("a code").code(), "PR020", "{forbidden}");
            }
        }
    }
    for forbidden in [
        "truncate postrider.deliveries",
        "update postrider.deliveries set position = 7",
        "update postrider.destinations set lanes = 1",
        "delete from postrider.delivery_set_members",
        "truncate postrider.receipt_batches",
    ] {
        let error = client.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code().expect("a code").code(), "PR020", "{forbidden}");
    }
}

#[tokio::test]
async fn whoever_inserts_an_event_makes_its_deliveries() {
    let (_, client, _) = registered().await;
    for (table, id) in [
        // By the parent into the default partition, and into that by name; both past `append`.
        ("events", "ffffffff-0000-4000-8000-000000000001"),
        ("events_default", "ffffffff-0000-4000-8000-000000000002"),
    ] {
        client
            .batch_execute(&format!(
                "insert into postrider.{table} (event_id, delivery_set_id, appended_at, event_type,
                    schema_version, tenant, aggregate_type, aggregate_id, partition_key, envelope,
                    envelope_digest, payload)
                values ('{id}', 1, now(), 'order.placed', '1', 't', 'o', '1', 'k', '{{}}',
                    sha256('{{}}'), '')"
            ))
            .await
            .expect("the owner may insert");
    }
    assert_eq!(count(&client, "deliveries").await, 4);
}

#[tokio::test]
async fn named_arguments_defaults_and_retries() {
    let (_, client, _) = registered().await;
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    let append = format!(
        "select already from postrider.append(event_type => 'order.placed', payload => '{{\"n\":1}}',
            aggregate_type => 'order', aggregate_id => '42', event_id => '{id}')"
    );
    for already in [false, true] {
        let row = client.query_one(&append, &[]).await.expect("appends");
        assert_eq!(row.get::<_, bool>(0), already);
    }
    assert_eq!(count(&client, "deliveries").await, 2);
    let other = append.replace("{\"n\":1}", "{\"n\":2}");
    let error = client.query_one(&other, &[]).await.expect_err("a conflict");
    assert_eq!(code_of(&error), "PR002");
    for (call, code) in [
        ("'order.lost', '{}', 'order', '1'", "PR001"),
        ("'order.placed', '{', 'order', '1'", "PR004"),
        ("'order.placed', '{}', '', '1'", "PR004"),
        ("'order.placed', '{}', 'order', null", "PR004"),
        ("'order.placed', null::text, 'order', '1'", "PR004"),
        (
            "'order.placed', '{}', 'order', '1', occurred_at => '2026-01-01T12:00:00'",
            "PR004",
        ),
        (
            "'order.placed', '{}', 'order', '1', headers => '[1]'",
            "PR004",
        ),
        (
            "'order.placed', '{}', 'order', '1', headers => '{\"a\":\"\\u0000\"}'",
            "PR004",
        ),
    ] {
        let error = client
            .query(&format!("select postrider.append({call})"), &[])
            .await
            .expect_err(call);
        assert_eq!(code_of(&error), code, "{call}");
    }
    assert_eq!(count(&client, "events").await, 1);
}

#[tokio::test]
async fn a_retry_is_a_retry_when_the_database_gave_time_and_delivery_set() {
    let (store, client, _) = registered().await;
    let append = "select already from postrider.append('order.placed', '{}', 'order', '1',
        event_id => '01890a5d-ac96-774b-bcce-b302099a8057')";
    client.query_one(append, &[]).await.expect("appends");
    let mut without = plan(2, &[destination("a")]);
    without.delivery_set.applicable_events.remove(1);
    without.delivery_set.applicable_event_count = 1;
    without
        .delivery_set
        .members
        .retain(|m| m.event_type == "order.noted");
    without.delivery_set.member_count = without.delivery_set.members.len() as u64;
    store
        .apply(&without, &audit("drop"))
        .await
        .expect("applies");
    let row = client.query_one(append, &[]).await.expect("still a retry");
    assert!(row.get::<_, bool>(0));
}

/// JSN-1 and JSN-3.
#[tokio::test]
async fn json_payloads_are_kept_byte_for_byte_however_they_are_given() {
    let (_, client, _) = registered().await;
    let odd = r#"{"b":1,  "a":1.0,"aa":1e2,"z":-0,"big":9007199254740993,"e":1.230e-5, "x":"\u0000","b":2}"#;
    // A value inside a document cannot hold an escaped NUL; its text can.
    let value = odd.replace(r"\u0000", "");
    let quoted = serde_json::to_string(odd).expect("a string");
    let common = r#""event_type":"order.placed","aggregate_type":"order","aggregate_id":"1""#;
    let document = format!(
        r#"[{{{common},"payload":{quoted}}}, {{{common},"payload_json":{value}}}, {{{common},"payload_base64":"AP8=","content_type":"image/x"}}]"#
    );
    let one = "select event_id from postrider.append('order.placed', $1::text, 'order', '1')";
    client.query_one(one, &[&odd]).await.expect("as text");
    let bytes = "select event_id from postrider.append('order.placed', $1::bytea, 'order', '1')";
    client
        .query_one(bytes, &[&odd.as_bytes()])
        .await
        .expect("as bytes");
    client
        .query(
            "select * from postrider.append_batch($1::text::json)",
            &[&document],
        )
        .await
        .expect("in a document");
    client
        .query(
            "select * from postrider.append_batch(array['order.placed'], array[$1::bytea], array['o'], array['1'])",
            &[&odd.as_bytes()],
        )
        .await
        .expect("in arrays");
    let stored = client
        .query(
            "select payload from postrider.events order by position",
            &[],
        )
        .await
        .expect("reads");
    let stored: Vec<Vec<u8>> = stored.iter().map(|row| row.get(0)).collect();
    let odd = odd.as_bytes().to_vec();
    assert_eq!(
        stored,
        [
            odd.clone(),
            odd.clone(),
            odd.clone(),
            value.into_bytes(),
            vec![0, 255],
            odd
        ]
    );
}

#[tokio::test]
async fn a_batch_says_which_of_its_events_is_at_fault() {
    let (_, client, _) = registered().await;
    let good =
        r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload":"{}"}"#;
    for (bad, place) in [
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"a\u0000","payload":"{}"}"#,
            "events[1]",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload_json":"\u0000"}"#,
            "events[1]",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1"}"#,
            "events[1].payload",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload":{}}"#,
            "events[1].payload",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload":"","payload_base64":""}"#,
            "events[1].payload",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload":"{}","agregate":1}"#,
            "events[1]",
        ),
        (
            r#"{"event_type":"order.placed","aggregate_type":"o","aggregate_id":"1","payload":"{}","event_id":"x"}"#,
            "events[1]",
        ),
        ("7", "events[1]"),
    ] {
        let document = format!("[{good},{bad}]");
        let error = client
            .query(
                "select * from postrider.append_batch($1::text::json)",
                &[&document],
            )
            .await
            .expect_err(bad);
        assert_eq!(code_of(&error), "PR004", "{bad}");
        let field = error
            .as_db_error()
            .and_then(|e| e.column())
            .map(str::to_owned);
        assert_eq!(field.as_deref(), Some(place), "{bad}");
    }
    let error = client
        .query(
            "select * from postrider.append_batch(array['order.placed','order.placed'], array['{}'::bytea], array['o','o'], array['1','2'])",
            &[],
        )
        .await
        .expect_err("lengths differ");
    assert_eq!(code_of(&error), "PR004");
    assert_eq!(count(&client, "events").await, 0);
}

/// NTF-1: the wake-up carries nothing of the event.
#[tokio::test]
async fn no_append_fails_because_of_the_doorbell() {
    let (_, client, _) = registered().await;
    client
        .batch_execute(
            "insert into postrider.sleepers values (gen_random_uuid(), now() + interval '1 hour')",
        )
        .await
        .expect("somebody sleeps");
    for length in [7_999, 8_000, 100_000] {
        let append = format!(
            "select postrider.append('order.placed', to_json(repeat('é', {length}))::text, repeat('t', 255),
                repeat('i', 255), tenant => repeat('n', 255), actor => repeat('a', 255))"
        );
        client.batch_execute(&append).await.expect("appends");
    }
}

/// TIM-1: no time that a program cannot read gets into a row that is fetched.
#[tokio::test]
async fn unreadable_times_are_refused_by_the_table() {
    let (_, client, _) = registered().await;
    client
        .batch_execute("select postrider.append('order.placed', '{}', 'order', '1')")
        .await
        .expect("appends");
    for time in [
        "infinity",
        "-infinity",
        "294276-12-31 00:00:00+00",
        "4713-01-01 00:00:00+00 BC",
    ] {
        let error = client
            .batch_execute(&format!(
                "update postrider.deliveries set available_at = '{time}'"
            ))
            .await
            .expect_err(time);
        assert_eq!(error.code().expect("a code").code(), "23514", "{time}");
    }
}

#[tokio::test]
async fn an_append_in_a_business_transaction_lives_and_dies_with_it() {
    let (store, client, _) = registered().await;
    for end in ["rollback", "commit"] {
        client
            .batch_execute(&format!(
                "begin; insert into business values ('{end}', '');
                select postrider.append('order.placed', '{{}}', 'order', '{end}'); {end}"
            ))
            .await
            .expect("runs");
    }
    assert_eq!(count(&client, "events").await, 1);
    assert_eq!(count(&client, "deliveries").await, 2);
    assert_eq!(
        store.append(vec![event("k")]).await.expect("appends").len(),
        1
    );
}

/// What people see of an event that nobody has sent yet, and of one that is not there.
#[tokio::test]
async fn the_views_tell_where_an_event_is() {
    let (_, client, _) = registered().await;
    let id: uuid::Uuid = client
        .query_one(
            "select event_id from postrider.append('order.placed', '{}', 'order', '1')",
            &[],
        )
        .await
        .expect("appends")
        .get(0);
    let states = client
        .query("select state, dispatch, lease, outbox from postrider.deliveries_status where event_id = $1", &[&id])
        .await
        .expect("reads");
    assert_eq!(states.len(), 2);
    let words: Vec<&str> = (0..4).map(|column| states[0].get(column)).collect();
    assert_eq!(words, ["pending", "PENDING", "pending", "pending"]);
    let why = client
        .query("select because from postrider.why($1)", &[&id])
        .await
        .expect("answers");
    assert_eq!(why[0].get::<_, &str>(0), "no worker holds its lane");
    let absent = client
        .query_one("select state from postrider.why(gen_random_uuid())", &[])
        .await
        .expect("answers");
    assert_eq!(absent.get::<_, &str>(0), "absent");
}

/// The functions are called as each driver's users would.
#[tokio::test]
async fn python_and_node_call_the_functions_with_their_own_values() {
    let (_, client, url) = registered().await;
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
    for (mut command, script) in [(env::python(), "append.py"), (env::node(), "append.js")] {
        let url = url.clone();
        let output = tokio::task::spawn_blocking(move || {
            command.arg(format!("{folder}/{script}")).arg(url).output()
        })
        .await
        .expect("runs")
        .expect("the interpreter is there");
        assert!(
            output.status.success(),
            "{script}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let rows = client
        .query(
            "select payload, headers, aggregate_id from postrider.events order by position",
            &[],
        )
        .await
        .expect("reads");
    let rows: Vec<(Vec<u8>, Option<String>, String)> = rows
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect();
    let headers = Some(r#"[["x-a","1"]]"#.to_owned());
    for client in rows.chunks(5) {
        assert_eq!(
            client[0],
            (b"{\"n\": 1}".to_vec(), headers.clone(), "42".to_owned())
        );
        assert_eq!(client[1], (vec![0, 1, 255], None, "42".to_owned()));
        assert_eq!(
            client[2..]
                .iter()
                .map(|row| row.2.as_str())
                .collect::<Vec<_>>(),
            ["1", "2", "3"]
        );
    }
    assert_eq!(rows.len(), 10);
}

#[tokio::test]
async fn a_transaction_has_its_number_before_it_draws_a_position() {
    let (_, client, _) = registered().await;
    // The server gives it one by itself, for the sequence's log, at every 32nd position.
    client
        .batch_execute(
            "create table public.numbered (before boolean);
            create function note() returns trigger language plpgsql as $$ begin
                insert into public.numbered values (pg_current_xact_id_if_assigned() is not null);
                return new;
            end $$;
            create trigger note before insert on postrider.events for each row execute function note()",
        )
        .await
        .expect("a trigger that sees each row after its position was drawn");
    for key in 0..40 {
        let append = format!("select postrider.append('order.placed', '{{}}', 'order', '{key}')");
        client.batch_execute(&append).await.expect("appends");
    }
    let counts = "select count(*), count(*) filter (where before) from public.numbered";
    let counts = client.query_one(counts, &[]).await.expect("counts");
    assert_eq!((counts.get::<_, i64>(0), counts.get::<_, i64>(1)), (40, 40));
}
