//! `plan` and `apply`: from the file to the database.

use std::{io::Write, sync::Arc};

use postrider_store::control::Applied;
use serde::Serialize;

use super::{audit, failed, not_confirmed, open};
use crate::{
    args::{Apply, Format},
    config::Config,
    fault::{Exit, Failure, Outcome},
    output,
    plan::{self, Change, Plan},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    schema: &'static str,
    changes: &'a [Change],
    notes: &'a [String],
    /// `None` for a plan.
    applied: Option<AppliedRow>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AppliedRow {
    destinations_added: u32,
    event_types_added: u32,
    delivery_set_activated: bool,
}

pub(super) async fn plan(format: Format, config: Arc<Config>, out: &mut dyn Write) -> Outcome {
    let registry = open(&config).await?.registry().await.map_err(failed)?;
    let plan = plan::tried(&config, &registry).map_err(Failure::of)?;
    print(format, &plan, None, out)?;
    if !format.json && !plan.changes.is_empty() {
        writeln!(
            out,
            "{}; `postrider apply --yes` registers {}",
            changes(&plan),
            if plan.changes.len() == 1 {
                "it"
            } else {
                "them"
            }
        )?;
    }
    Ok(Exit::Done)
}

pub(super) async fn apply(args: &Apply, config: Arc<Config>, out: &mut dyn Write) -> Outcome {
    let store = open(&config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let plan = plan::tried(&config, &registry).map_err(Failure::of)?;
    if plan.changes.is_empty() {
        print(args.format, &plan, Some(Applied::default()), out)?;
        return Ok(Exit::Done);
    }
    if !args.change.yes {
        print(args.format, &plan, None, out)?;
        return Err(not_confirmed(&format!("{} to register", changes(&plan))));
    }
    let applied = store
        .apply(&plan.control_plane, &audit(&args.change))
        .await
        .map_err(failed)?;
    print(args.format, &plan, Some(applied), out)?;
    if !args.format.json {
        writeln!(out, "registered")?;
    }
    Ok(Exit::Done)
}

fn changes(plan: &Plan) -> String {
    match plan.changes.len() {
        1 => "1 change".to_owned(),
        count => format!("{count} changes"),
    }
}

fn print(
    format: Format,
    plan: &Plan,
    applied: Option<Applied>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if format.json {
        let report = Report {
            schema: "postrider.cli.plan/1",
            changes: &plan.changes,
            notes: &plan.notes,
            applied: applied.map(|applied| AppliedRow {
                destinations_added: applied.destinations_added,
                event_types_added: applied.event_types_added,
                delivery_set_activated: applied.delivery_set_activated,
            }),
        };
        output::json(out, &report)?;
        return Ok(());
    }
    plan.describe(out)?;
    if plan.changes.is_empty() {
        writeln!(
            out,
            "nothing to change: the database has what the file says"
        )?;
    }
    Ok(())
}
