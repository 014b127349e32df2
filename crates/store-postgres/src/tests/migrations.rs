//! Migrations: replayed, repeated, interrupted, and run beside traffic.

use std::{path::Path, process::Command, time::Duration};

use postrider_contract::new_event::NewEvent;
use postrider_core::Position;
use postrider_store::{Store, StoreError, control::SchemaStatus, inspect::EventFilter};
use postrider_testkit::eventually;

use super::{connect, empty_database, migrated};
use crate::{
    MigrateOptions, Options, PostgresStore, migrate,
    migrate::{MIGRATIONS, Migration, migrate_with},
};

const STATUS_WITHIN: Duration = Duration::from_secs(20);

fn store(url: &str) -> PostgresStore {
    PostgresStore::new(Options::new(url)).expect("usable options")
}

async fn status(url: &str) -> SchemaStatus {
    store(url).schema_status().await.expect("answers")
}

fn expected() -> u32 {
    MIGRATIONS.last().expect("there are migrations").version
}

#[test]
fn versions_count_from_1_and_files_say_theirs() {
    for (migration, version) in MIGRATIONS.iter().zip(1..) {
        assert_eq!(migration.version, version);
        assert!(migration.name.starts_with(&format!("{version:04}_")));
    }
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let url = empty_database().await;
    assert_eq!(status(&url).await, SchemaStatus::Missing);
    let first = migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates");
    assert_eq!(first.applied.len(), MIGRATIONS.len());
    assert_eq!(
        status(&url).await,
        SchemaStatus::Current {
            version: expected()
        }
    );
    let before = dump(&url);
    let second = migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates");
    assert!(second.applied.is_empty(), "{second:?}");
    assert!(second.notes.is_empty(), "{second:?}");
    assert_eq!(dump(&url), before);
    assert_eq!(
        status(&url).await,
        SchemaStatus::Current {
            version: expected()
        }
    );
}

/// `POSTRIDER_REGENERATE=1` writes the file instead.
#[tokio::test]
async fn replay_equals_the_written_schema() {
    let found = dump(&migrated().await);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.sql");
    if std::env::var("POSTRIDER_REGENERATE").is_ok() {
        std::fs::write(&path, &found).expect("writes");
    }
    let written = std::fs::read_to_string(&path).expect("schema.sql is there");
    assert!(
        found == written,
        "the migrations make another schema than schema.sql says; look at the difference, then \
         write it with POSTRIDER_REGENERATE=1"
    );
}

/// The schema as `pg_dump` tells it, without what differs between runs: the months' partitions,
/// and the server's version.
fn dump(url: &str) -> String {
    let output = Command::new("pg_dump")
        .args([
            "--schema-only",
            "--schema=postrider",
            "--no-owner",
            "--exclude-table=postrider.events_2*",
        ])
        .arg(url)
        .output()
        .expect("pg_dump is installed beside the server");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let mut kept = String::from(
        "-- What the migrations make, for reading. A test writes and compares it; nothing runs it.\n",
    );
    for line in text.lines() {
        let noise = line.is_empty()
            || line.starts_with("--")
            || line.starts_with("SET ")
            || line.starts_with("SELECT pg_catalog.set_config")
            || line.starts_with("\\restrict")
            || line.starts_with("\\unrestrict");
        if !noise {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[tokio::test]
async fn the_status_tells_older_newer_and_altered() {
    let url = empty_database().await;
    let older = MIGRATIONS.len() - 1;
    migrate_with(&url, &MigrateOptions::default(), &MIGRATIONS[..older])
        .await
        .expect("migrates");
    let before_last = expected() - 1;
    assert_eq!(
        status(&url).await,
        SchemaStatus::Older {
            found: before_last,
            expected: expected()
        }
    );
    migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates on");
    let client = connect(&url).await;
    client
        .batch_execute(
            "insert into postrider.schema_migrations values (1000, 'later', '\\x00', now(), 'x')",
        )
        .await
        .expect("a later program was here");
    assert_eq!(
        status(&url).await,
        SchemaStatus::Newer {
            found: 1000,
            expected: expected()
        }
    );
    let refused = migrate(&url, &MigrateOptions::default()).await;
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
    client
        .batch_execute(
            "delete from postrider.schema_migrations where version = 1000;
            update postrider.schema_migrations set checksum = '\\x00' where version = 2",
        )
        .await
        .expect("somebody was here");
    assert_eq!(status(&url).await, SchemaStatus::Altered { version: 2 });
    let refused = migrate(&url, &MigrateOptions::default()).await;
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn several_migrates_at_once_make_one_schema() {
    let url = empty_database().await;
    let other = empty_database().await;
    let run = |url: &str| {
        let url = url.to_owned();
        tokio::spawn(async move { migrate(&url, &MigrateOptions::default()).await })
    };
    // The same database twice, and another that wants the same roles.
    let runs = [run(&url), run(&url), run(&other)];
    let mut applied = 0;
    for run in runs {
        applied += run.await.expect("runs").expect("migrates").applied.len();
    }
    assert_eq!(applied, 2 * MIGRATIONS.len());
}

#[tokio::test]
async fn another_schema_and_other_roles_stand_beside_the_first() {
    let url = migrated().await;
    let options = MigrateOptions {
        schema: "orders_outbox".to_owned(),
        role_prefix: "orders".to_owned(),
        ..MigrateOptions::default()
    };
    migrate(&url, &options).await.expect("migrates");
    let client = connect(&url).await;
    client
        .batch_execute("set role orders_viewer; select * from orders_outbox.events")
        .await
        .expect("the second role reads the second schema");
    assert!(
        client
            .batch_execute("select * from postrider.events")
            .await
            .is_err()
    );
    for bad in ["user", "Orders", "pg_mine"] {
        let options = MigrateOptions {
            schema: bad.to_owned(),
            ..MigrateOptions::default()
        };
        assert!(migrate(&url, &options).await.is_err(), "{bad}");
    }
}

/// DEP-3: the migration waits in short turns, and appends pass between them.
#[tokio::test]
async fn dep_3_a_migration_behind_a_long_read_lets_appends_pass() {
    let url = migrated().await;
    let client = connect(&url).await;
    register(&client).await;
    // A relay of the version before, which has been running for a while.
    let running = store(&url);
    running.append(vec![placed()]).await.expect("appends");
    let reader = connect(&url).await;
    for statement in ["begin", "select count(*) from postrider.events"] {
        reader
            .batch_execute(statement)
            .await
            .expect("reads for long");
    }
    let mut migrations = MIGRATIONS.to_vec();
    migrations.push(Migration {
        version: expected() + 1,
        name: "alter",
        sql: "alter table {schema}.events add column note text;",
    });
    let options = MigrateOptions {
        lock_timeout: Duration::from_millis(200),
        lock_attempts_max: 1000,
        ..MigrateOptions::default()
    };
    let migration = {
        let url = url.clone();
        let migrations: &'static [Migration] = migrations.leak();
        tokio::spawn(async move { migrate_with(&url, &options, migrations).await })
    };
    eventually(
        STATUS_WITHIN,
        "the migration to wait for the reader",
        || async { waits_for_lock(&client).await },
    )
    .await
    .expect("waits");
    // Longer than one wait for a lock, much shorter than the reader stays. Fails with 57014 if an
    // append is stuck behind the migration.
    client
        .batch_execute("set statement_timeout = '5s'")
        .await
        .expect("sets");
    for n in 0..20 {
        let append = format!("select postrider.append('order.placed', '{{}}', 'order', '{n}')");
        client.batch_execute(&append).await.expect("appends");
    }
    assert!(!migration.is_finished());
    reader.batch_execute("commit").await.expect("ends");
    let migrated = migration.await.expect("runs").expect("migrates");
    assert_eq!(migrated.applied, [expected() + 1]);
    // It goes on, and so do its statements that were prepared before.
    let appended = running.append(vec![placed()]).await.expect("appends");
    let filter = EventFilter::default();
    let page = running.events(&filter, Position::START, 100).await;
    let last = page.expect("reads").rows.pop().expect("an event");
    assert_eq!(last.position, appended[0].position);
    let found = status(&url).await;
    assert_eq!(
        found,
        SchemaStatus::Newer {
            found: expected() + 1,
            expected: expected()
        }
    );
}

fn placed() -> NewEvent {
    NewEvent::new("order.placed", "1", "order", "running", "{}")
}

async fn register(client: &tokio_postgres::Client) {
    client
        .batch_execute(
            "insert into postrider.delivery_sets (version, digest, canonical, registered_at)
                values (1, sha256('{}'), '{}', now());
            insert into postrider.delivery_set_events values (1, 'order.placed', '1');
            insert into postrider.delivery_set_activations (delivery_set_id, activated_at, actor)
                values (1, now(), 'test')",
        )
        .await
        .expect("registers");
}

async fn waits_for_lock(client: &tokio_postgres::Client) -> bool {
    client
        .query_one(
            "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                where not l.granted and a.datname = current_database())",
            &[],
        )
        .await
        .expect("looks")
        .get(0)
}

/// DEP-3: a half-built index is not taken for the index.
#[tokio::test]
async fn dep_3_an_invalid_leftover_index_is_built_again() {
    let url = empty_database().await;
    let before = MIGRATIONS
        .iter()
        .position(|migration| migration.sql.starts_with("-- concurrent index"))
        .expect("an index is built concurrently");
    migrate_with(&url, &MigrateOptions::default(), &MIGRATIONS[..before])
        .await
        .expect("migrates");
    let client = connect(&url).await;
    client
        .batch_execute(
            "create index quarantine_code on postrider.quarantine (code);
            update pg_index set indisvalid = false
                where indexrelid = 'postrider.quarantine_code'::regclass",
        )
        .await
        .expect("leaves it half built");
    let migrated = migrate(&url, &MigrateOptions::default())
        .await
        .expect("migrates");
    assert!(
        migrated
            .notes
            .iter()
            .any(|note| note.contains("quarantine_code")),
        "{migrated:?}"
    );
    let row = client
        .query_one(
            "select indisvalid, indnatts from pg_index where indexrelid = 'postrider.quarantine_code'::regclass",
            &[],
        )
        .await
        .expect("is there");
    assert!(row.get::<_, bool>(0));
    assert_eq!(row.get::<_, i16>(1), 3);
}

/// Partitions are made ahead, behind a long read too, and a month whose events are in the default
/// partition already is left there.
#[tokio::test]
async fn partitions_are_made_ahead_and_what_is_in_the_way_is_told() {
    let url = migrated().await;
    let client = connect(&url).await;
    register(&client).await;
    let store = store(&url);
    assert!(store.maintain().await.expect("maintains").is_empty());
    let partition: String = client
        .query_one("select 'postrider.events_' || to_char(now() at time zone 'UTC' + interval '2 months', 'YYYYMM')", &[])
        .await
        .expect("a name")
        .get(0);
    client
        .batch_execute(&format!("drop table {partition}"))
        .await
        .expect("drops");
    let notes = store.maintain().await.expect("maintains");
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].ends_with(" made"), "{notes:?}");
    client
        .batch_execute(&format!(
            "drop table {partition};
            select postrider.append('order.placed', '{{}}', 'order', '1',
                event_id => postrider.uuid_v7(date_trunc('month', now()) + interval '2 months 3 days'))"
        ))
        .await
        .expect("an event from the future");
    let notes = store.maintain().await.expect("maintains");
    assert!(notes[0].contains("default partition"), "{notes:?}");
}
