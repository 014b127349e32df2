//! `migrate`: the only command that changes tables.

use std::io::Write;

use postrider_store::control::SchemaStatus;
use serde::Serialize;

use crate::{
    args::Migrate,
    backend::store,
    config::Config,
    fault::{Exit, Failure, Outcome},
    output,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    schema: &'static str,
    dry_run: bool,
    /// Versions applied now; with `--dry-run`, none.
    applied: Vec<u32>,
    notes: Vec<String>,
}

pub(super) async fn run(args: &Migrate, config: &Config, out: &mut dyn Write) -> Outcome {
    let database = store::shown(config);
    let (migrated, words) = if args.dry_run {
        let status = store::schema_status(config).await?;
        (
            store::Migrated {
                applied: Vec::new(),
                notes: Vec::new(),
            },
            preview(&status, config)?,
        )
    } else {
        let migrated = store::migrate(config).await?;
        let words = match migrated.applied.last() {
            None => "the schema is up to date".to_owned(),
            Some(version) => format!("the schema is at version {version} now"),
        };
        (migrated, words)
    };
    if args.format.json {
        let report = Report {
            schema: "postrider.cli.migrate/1",
            dry_run: args.dry_run,
            applied: migrated.applied,
            notes: migrated.notes,
        };
        output::json(out, &report)?;
        return Ok(Exit::Done);
    }
    writeln!(out, "{database}: {words}")?;
    for note in migrated.notes {
        writeln!(out, "  {}", output::printable(&note))?;
    }
    Ok(Exit::Done)
}

fn preview(status: &SchemaStatus, config: &Config) -> Result<String, Failure> {
    match status {
        SchemaStatus::Missing => Ok("there is no schema; migrate would create it".to_owned()),
        SchemaStatus::Current { version } => {
            Ok(format!("the schema is up to date at version {version}"))
        }
        SchemaStatus::Older { found, expected } => Ok(format!(
            "migrate would take the schema from version {found} to {expected}"
        )),
        SchemaStatus::Newer { .. } | SchemaStatus::Altered { .. } => {
            match store::schema_fault(status, config) {
                Some(fault) => Err(fault.into()),
                None => Ok("the schema is up to date".to_owned()),
            }
        }
    }
}
