//! Every statement is one that the server takes.

use std::{collections::BTreeSet, path::Path, time::Duration};

use super::{connect, migrated};
use crate::{Schema, sql::Sql};

/// Not prepared: bounds of transactions, and what migrate runs.
const NOT_PREPARED: [&str; 8] = [
    "bounds",
    "bounds_append",
    "bounds_read",
    "bootstrap",
    "grants",
    "months",
    "partition",
    "roles",
];

#[tokio::test]
async fn every_statement_prepares() {
    let client = connect(&migrated().await).await;
    let schema = Schema::new("postrider").expect("a good name");
    let sql = Sql::new(&schema, Duration::from_secs(30));
    for (name, text) in sql.all() {
        if NOT_PREPARED.contains(&name) {
            let all = format!("begin;\n{text};\nrollback");
            client.batch_execute(&all).await.expect(name);
        } else {
            client.prepare(text).await.expect(name);
        }
        assert!(!text.contains('{') || !text.contains("{schema}"), "{name}");
    }
}

#[test]
fn every_file_is_a_statement_in_use() {
    let schema = Schema::new("postrider").expect("a good name");
    let sql = Sql::new(&schema, Duration::from_secs(30));
    let mut known: BTreeSet<String> = sql
        .all()
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    known.extend(NOT_PREPARED.map(str::to_owned));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql");
    let files: BTreeSet<String> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            let name = name.to_str().expect("a plain name");
            name.strip_suffix(".sql").expect("SQL only").to_owned()
        })
        .collect();
    assert_eq!(files, known);
}
