//! `lanes`: who holds which lane.

use std::io::Write;

use postrider_contract::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{failed, open};
use crate::{
    args::Format,
    config::Config,
    fault::{Exit, Outcome},
    names,
    output::{self, List, Table},
};

#[derive(Serialize)]
struct Row {
    destination: String,
    lane: u16,
    session: Option<Uuid>,
    owner: Option<String>,
    since: Option<Timestamp>,
}

pub(super) async fn run(format: Format, config: &Config, out: &mut dyn Write) -> Outcome {
    let store = open(config).await?;
    let registry = store.registry().await.map_err(failed)?;
    let rows: Vec<Row> = store
        .lanes()
        .await
        .map_err(failed)?
        .into_iter()
        .map(|row| Row {
            destination: names::label(&registry, row.destination),
            lane: row.lane.0,
            session: row.session.map(|session| session.0),
            owner: row.owner,
            since: row.since,
        })
        .collect();
    if format.json {
        let list = List {
            schema: "postrider.cli.lanes/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["DESTINATION", "LANE", "OWNER", "SINCE"]);
    for row in rows {
        table.row([
            row.destination,
            row.lane.to_string(),
            row.owner.unwrap_or_else(|| "-".to_owned()),
            row.since.map_or("-".to_owned(), |since| since.to_string()),
        ]);
    }
    table.print(out, "no lanes: no destination is registered")?;
    Ok(Exit::Done)
}
