//! `maintain`: what must exist ahead of time. Drops nothing.

use std::io::Write;

use serde::Serialize;

use super::{failed, open};
use crate::{
    args::Format,
    config::Config,
    fault::{Exit, Outcome},
    output,
};

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// What was done, for people.
    done: Vec<String>,
}

pub(super) async fn run(format: Format, config: &Config, out: &mut dyn Write) -> Outcome {
    let done = open(config).await?.maintain().await.map_err(failed)?;
    if format.json {
        let report = Report {
            schema: "postrider.cli.maintain/1",
            done,
        };
        output::json(out, &report)?;
    } else if done.is_empty() {
        writeln!(out, "nothing to do")?;
    } else {
        for line in done {
            writeln!(out, "{}", output::printable(&line))?;
        }
    }
    Ok(Exit::Done)
}
