//! `sessions`: the workers, live and ended.

use std::io::Write;

use postrider_contract::Timestamp;
use postrider_store::inspect::SessionRow;
use serde::Serialize;
use uuid::Uuid;

use super::{failed, open};
use crate::{
    args::Sessions,
    config::Config,
    fault::{Exit, Outcome},
    output::{self, List, Table},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: Uuid,
    owner: String,
    version: String,
    exclusive: bool,
    /// `live`, `expired` (nobody has recovered it yet) or `ended`.
    state: &'static str,
    opened_at: Timestamp,
    expires_at: Timestamp,
    ended_at: Option<Timestamp>,
    ended_because: Option<String>,
    lanes: u64,
}

impl Row {
    fn of(row: SessionRow, now: Timestamp) -> Self {
        let state = match &row.ended {
            Some(_) => "ended",
            None if row.expires_at <= now => "expired",
            None => "live",
        };
        let (ended_at, ended_because) = row.ended.unzip();
        Self {
            id: row.id.0,
            owner: row.owner,
            version: row.version,
            exclusive: row.exclusive,
            state,
            opened_at: row.opened_at,
            expires_at: row.expires_at,
            ended_at,
            ended_because,
            lanes: row.lanes,
        }
    }
}

pub(super) async fn run(args: &Sessions, config: &Config, out: &mut dyn Write) -> Outcome {
    let store = open(config).await?;
    let now = store.now().await.map_err(failed)?;
    let rows: Vec<Row> = store
        .sessions(args.limit)
        .await
        .map_err(failed)?
        .into_iter()
        .map(|row| Row::of(row, now))
        .collect();
    if args.format.json {
        let list = List {
            schema: "postrider.cli.sessions/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        "SESSION", "OWNER", "STATE", "LANES", "OPENED", "LEASE", "ENDED",
    ]);
    for row in rows {
        table.row([
            row.id.to_string(),
            row.owner,
            row.state.to_owned(),
            row.lanes.to_string(),
            row.opened_at.to_string(),
            row.expires_at.to_string(),
            match (row.ended_at, row.ended_because) {
                (Some(at), Some(because)) => format!("{at} {because}"),
                (_, _) => "-".to_owned(),
            },
        ]);
    }
    table.print(out, "no sessions: no relay has run on this database")?;
    Ok(Exit::Done)
}
