//! The SQL functions reproduce the golden vectors, in sessions whose time zone, date style and
//! collation are not the ones that the functions were written under.

use std::path::Path;

use crate::harness::{connect, migrated};
use serde_json::Value;
use tokio_postgres::{Client, types::Json};

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contracts/vectors")
        .join(file);
    let text = std::fs::read_to_string(path).expect("the vectors are there");
    serde_json::from_str(&text).expect("a JSON array")
}

async fn session() -> Client {
    let client = connect(&migrated().await).await;
    client
        .batch_execute(
            "set timezone = 'America/New_York'; set datestyle = 'SQL, DMY';
             set intervalstyle = 'iso_8601'; set extra_float_digits = 0; set bytea_output = 'escape'",
        )
        .await
        .expect("a session with other habits");
    client
}

fn text<'a>(input: &'a Value, member: &str) -> Option<&'a str> {
    input[member].as_str()
}

/// The composite value of a vector's input. `$1` is the input itself.
const EVENT: &str = "row($1::json->>'event_type', decode($1::json->>'payload_base64', 'base64'),
    $1::json->>'aggregate_type', $1::json->>'aggregate_id', $1::json->>'schema_version', ($1::json->>'event_id')::uuid,
    $1::json->>'tenant', ($1::json->>'aggregate_version')::bigint, $1::json->>'content_type', $1::json->>'partition_key',
    $1::json->>'actor', $1::json->>'request_id', $1::json->>'correlation_id', $1::json->>'causation_id',
    $1::json->>'operation_id', $1::json->>'occurred_at', $1::json->>'traceparent', $1::json->>'tracestate',
    $1::json->'headers')::postrider.new_event";

#[tokio::test]
async fn envelopes_are_sealed_byte_for_byte() {
    let client = session().await;
    let seal = format!(
        "with given as (select {EVENT} as e),
        sealed as (
            select e, postrider.fields_hold(e) as holds, postrider.envelope_text(e, (e).event_id,
                postrider.parse_time((e).occurred_at), ($1::json->>'delivery_set_version')::bigint,
                $1::json->>'delivery_set_digest', $1::json->>'schema_digest') as envelope
            from given
        )
        select envelope, 'jcs-sha256-v1:' || encode(sha256(convert_to(envelope, 'UTF8')), 'hex'),
            'sha256:' || encode(sha256((e).payload), 'hex'),
            postrider.key_hash(coalesce((e).partition_key, (e).aggregate_type || '/' || (e).aggregate_id))::text,
            holds, postrider.header_pairs((e).headers)
        from sealed"
    );
    let check = format!("select postrider.check_fields({EVENT})");
    let mut counts = (0, 0);
    for vector in vectors("envelopes.json") {
        let name = text(&vector, "name").expect("a name");
        let input = Json(vector["input"].clone());
        let Some(refused) = text(&vector, "refused") else {
            client.query(&check, &[&input]).await.expect(name);
            let row = client.query_one(&seal, &[&input]).await.expect(name);
            let found = |column| Some(row.get::<_, &str>(column));
            assert_eq!(found(0), text(&vector, "canonical"), "{name}");
            assert_eq!(found(1), text(&vector, "envelopeDigest"), "{name}");
            assert_eq!(found(2), text(&vector, "payloadDigest"), "{name}");
            assert_eq!(found(3), text(&vector, "keyHash"), "{name}");
            assert!(row.get::<_, bool>(4), "{name}");
            let mut headers: Vec<(String, String)> =
                serde_json::from_value(input.0["headers"].clone()).unwrap_or_default();
            headers.sort();
            let stored: Option<&str> = row.get(5);
            assert_eq!(
                stored.map(|stored| serde_json::from_str(stored).expect(name)),
                (!headers.is_empty()).then_some(headers),
                "{name}"
            );
            counts.0 += 1;
            continue;
        };
        let error = client.query(&check, &[&input]).await.expect_err(name);
        let error = error.as_db_error().expect(name);
        match error.code().code() {
            "PR004" => {
                let field = error.column().and_then(|field| field.split('[').next());
                assert_eq!(field, Some(refused), "{name}: {}", error.message());
            }
            // Text with a NUL does not get as far as our rules.
            code => assert_eq!(
                (code, name.contains("NUL")),
                ("22P05", true),
                "{name}: {error}"
            ),
        }
        counts.1 += 1;
    }
    assert!(counts.0 > 50 && counts.1 > 50, "{counts:?}");
}

#[tokio::test]
async fn envelopes_are_appended_byte_for_byte() {
    let client = session().await;
    client
        .batch_execute(
            "insert into postrider.delivery_sets (version, digest, canonical, registered_at)
                values (7, sha256('{}'), '{}', now());
            insert into postrider.delivery_set_activations (delivery_set_id, activated_at, actor)
                values (1, now(), 'test')",
        )
        .await
        .expect("a delivery set");
    let event_type = "insert into postrider.delivery_set_events values (1, $1, $2)
        on conflict do nothing";
    let append = "select * from postrider.append(
        event_type => $1::json->>'event_type', payload => decode($1::json->>'payload_base64', 'base64'),
        aggregate_type => $1::json->>'aggregate_type', aggregate_id => $1::json->>'aggregate_id',
        schema_version => $1::json->>'schema_version', event_id => ($1::json->>'event_id')::uuid,
        tenant => $1::json->>'tenant', aggregate_version => ($1::json->>'aggregate_version')::bigint,
        content_type => $1::json->>'content_type', partition_key => $1::json->>'partition_key',
        actor => $1::json->>'actor', request_id => $1::json->>'request_id',
        correlation_id => $1::json->>'correlation_id', causation_id => $1::json->>'causation_id',
        operation_id => $1::json->>'operation_id', occurred_at => $1::json->>'occurred_at',
        traceparent => $1::json->>'traceparent', tracestate => $1::json->>'tracestate',
        headers => $1::json->'headers')";
    // The id is the same in most vectors, and an id is used once.
    let forget = "rollback; begin";
    client.batch_execute("begin").await.expect("begins");
    let mut appended = 0;
    for vector in vectors("envelopes.json") {
        let name = text(&vector, "name").expect("a name");
        let input = &vector["input"];
        // What has a schema is compared without the append above: its text is not in the vectors.
        let (Some(canonical), None) = (text(&vector, "canonical"), text(input, "schema_digest"))
        else {
            continue;
        };
        let given = [text(input, "event_type"), text(input, "schema_version")];
        client
            .execute(event_type, &[&given[0], &given[1]])
            .await
            .expect(name);
        client
            .query_one(append, &[&Json(input.clone())])
            .await
            .expect(name);
        let stored = client
            .query_one(
                "select envelope from postrider.events where event_id = $1::text::uuid",
                &[&text(input, "event_id")],
            )
            .await
            .expect(name);
        assert_eq!(stored.get::<_, &str>(0), canonical, "{name}");
        client.batch_execute(forget).await.expect("rolls back");
        appended += 1;
    }
    assert!(appended > 50, "{appended}");
}

#[tokio::test]
async fn times_are_read_alike() {
    let client = session().await;
    for vector in vectors("timestamps.json") {
        let input = text(&vector, "input").expect("an input");
        let row = client
            .query_one(
                "select postrider.time_text(postrider.parse_time($1)),
                    (extract(epoch from postrider.parse_time($1)) * 1000000)::bigint::text",
                &[&input],
            )
            .await
            .expect(input);
        assert_eq!(
            row.get::<_, Option<&str>>(0),
            text(&vector, "canonical"),
            "{input}"
        );
        assert_eq!(
            row.get::<_, Option<&str>>(1),
            text(&vector, "unixMicros"),
            "{input}"
        );
    }
}

#[tokio::test]
async fn keys_have_the_same_hash_and_lane() {
    let client = session().await;
    for vector in vectors("keys.json") {
        let key = text(&vector, "partitionKey").expect("a key");
        for lane in vector["lanes"].as_array().expect("lanes") {
            let lanes = lane["lanes"].as_i64().expect("a count");
            let row = client
                .query_one(
                    "select postrider.key_hash($1)::text, postrider.key_hash($1) % $2",
                    &[&key, &lanes],
                )
                .await
                .expect(key);
            assert_eq!(
                Some(row.get::<_, &str>(0)),
                text(&vector, "keyHash"),
                "{key}"
            );
            assert_eq!(Some(row.get::<_, i64>(1)), lane["lane"].as_i64(), "{key}");
        }
    }
}
