//! The schema: made by migrations, known by checksums, and never touched when it is not ours.

use std::{fs, path::Path};

use postrider_store::{Store, StoreError, control::SchemaStatus};
use postrider_store_sqlite::{Options, SqliteStore, migrate};
use rusqlite::Connection;
use tempfile::TempDir;

fn schema_of(path: &Path) -> String {
    let connection = Connection::open(path).unwrap();
    let mut statement = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE name LIKE 'postrider\\_%' ESCAPE '\\' AND sql IS NOT NULL ORDER BY rowid")
        .unwrap();
    let parts = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    let parts: Vec<String> = parts.map(|part| part.unwrap() + ";\n").collect();
    parts.join("\n")
}

async fn status_of(path: &Path) -> SchemaStatus {
    let mut options = Options::new(path);
    options.read_only = true;
    SqliteStore::open(&options)
        .unwrap()
        .schema_status()
        .await
        .unwrap()
}

#[test]
fn the_migrations_make_schema_sql() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("app.db");
    assert_eq!(migrate(&path).unwrap(), [1, 2, 3, 4]);
    let made = schema_of(&path);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema.sql");
    let heading =
        "-- The schema that the migrations make, for reading. A test compares it with them.\n\n";
    if std::env::var_os("POSTRIDER_REGENERATE").is_some() {
        fs::write(&file, format!("{heading}{made}")).unwrap();
    }
    let known = fs::read_to_string(&file).unwrap_or_default();
    assert!(
        known == format!("{heading}{made}"),
        "schema.sql is not what the migrations make; run this test with POSTRIDER_REGENERATE=1"
    );
}

#[tokio::test]
async fn migrating_again_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("app.db");
    let application = Connection::open(&path).unwrap();
    application
        .execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .unwrap();
    assert_eq!(status_of(&path).await, SchemaStatus::Missing);
    migrate(&path).unwrap();
    let made = schema_of(&path);
    assert_eq!(migrate(&path).unwrap(), Vec::<u32>::new());
    assert_eq!(schema_of(&path), made);
    assert_eq!(status_of(&path).await, SchemaStatus::Current { version: 4 });
    // The application's own table is where it was.
    application
        .execute_batch("INSERT INTO orders VALUES (1)")
        .unwrap();
}

#[tokio::test]
async fn a_schema_of_another_version_is_told_apart() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("app.db");
    migrate(&path).unwrap();
    let outside = Connection::open(&path).unwrap();
    outside
        .execute_batch("DELETE FROM postrider_migrations WHERE version = 4")
        .unwrap();
    let older = SchemaStatus::Older {
        found: 3,
        expected: 4,
    };
    assert_eq!(status_of(&path).await, older);

    outside
        .execute_batch(
            "INSERT INTO postrider_migrations VALUES (4, 'sha256:00', 0), (9, 'sha256:00', 0)",
        )
        .unwrap();
    assert_eq!(status_of(&path).await, SchemaStatus::Altered { version: 4 });
    let refused = migrate(&path).unwrap_err();
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("migration 4"), "{refused}");

    outside
        .execute_batch("DELETE FROM postrider_migrations WHERE version = 4")
        .unwrap();
    let newer = SchemaStatus::Newer {
        found: 9,
        expected: 4,
    };
    assert_eq!(status_of(&path).await, newer);
    let refused = migrate(&path).unwrap_err().to_string();
    assert!(
        refused.contains("version 9, this program knows 4"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_missing_file_is_not_made_by_opening_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("absent.db");
    let refused = SqliteStore::open(&Options::new(&path)).unwrap_err();
    assert!(
        refused.to_string().contains("postrider migrate"),
        "{refused}"
    );
    assert!(!path.exists());
}

#[tokio::test]
async fn a_file_that_is_no_database_is_said_to_be_none() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("letter.txt");
    fs::write(
        &path,
        "Dear reader, this file is long enough to be read as a page. ".repeat(100),
    )
    .unwrap();
    let mut options = Options::new(&path);
    options.read_only = true;
    let store = SqliteStore::open(&options).unwrap();
    let status = store.schema_status().await;
    assert!(
        matches!(status, Err(StoreError::Corrupt { .. })),
        "{status:?}"
    );
    assert!(migrate(&path).is_err());
}

#[tokio::test]
async fn read_only_reads_and_refuses_to_write() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("app.db");
    migrate(&path).unwrap();
    let mut options = Options::new(&path);
    options.read_only = true;
    let store = SqliteStore::open(&options).unwrap();
    assert!(store.registry().await.unwrap().destinations.is_empty());
    let refused = store.recover_expired(1).await.unwrap();
    assert!(refused.is_empty(), "nothing to recover is nothing to write");
    let refused = store.maintain().await.unwrap_err().to_string();
    assert!(refused.contains("read-only"), "{refused}");
}
