//! `config check`, `config show` and `config keys`.

use std::{io::Write, sync::Arc};

use postrider_store::control::Registry;
use serde::Serialize;

use crate::{
    args::{ConfigCommand, Format, Keys},
    code::Code,
    config::{
        self, Sources,
        keys::{KEYS, Need},
        layers::variable,
        show,
    },
    fault::{Exit, Failure, Outcome},
    output::{self, List, Table},
    plan,
};

pub(super) fn run(command: &ConfigCommand, sources: &Sources, out: &mut dyn Write) -> Outcome {
    match command {
        ConfigCommand::Check(format) => check(*format, sources, out),
        ConfigCommand::Show(format) => show(*format, sources, out),
        ConfigCommand::Keys(args) => keys(args, out),
    }
}

#[derive(Serialize)]
struct Checked {
    schema: &'static str,
    ok: bool,
    faults: Vec<FaultRow>,
}

#[derive(Serialize)]
struct FaultRow {
    code: &'static str,
    what: String,
    fix: String,
}

/// The question is whether the configuration is right, so a wrong one is the answer no.
fn check(format: Format, sources: &Sources, out: &mut dyn Write) -> Outcome {
    // Planning against nothing reads the JSON Schemas and applies the rules between objects.
    let faults = match config::load(sources) {
        Ok(config) => plan::tried(&Arc::new(config), &Registry::default()).err(),
        Err(faults) => Some(faults),
    }
    .unwrap_or_default();
    let ok = faults.is_empty();
    if format.json {
        let rows = faults.iter().map(|fault| FaultRow {
            code: fault.code.number(),
            what: fault.what.clone(),
            fix: fault.fix.clone(),
        });
        let checked = Checked {
            schema: "postrider.cli.config-check/1",
            ok,
            faults: rows.collect(),
        };
        output::json(out, &checked)?;
    } else if ok {
        writeln!(out, "the configuration is right")?;
    }
    if ok {
        return Ok(Exit::Done);
    }
    // A file that cannot be read is neither right nor wrong.
    let exit = if faults.iter().any(|fault| fault.code == Code::ConfigMissing) {
        Exit::CouldNot
    } else {
        Exit::No
    };
    Err(Failure { exit, faults })
}

fn show(format: Format, sources: &Sources, out: &mut dyn Write) -> Outcome {
    let config = config::load(sources).map_err(Failure::of)?;
    let shown = show::effective(&config.settings);
    if format.json {
        let list = List {
            schema: "postrider.cli.config-show/1",
            rows: shown,
            next: None,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["KEY", "VALUE", "FROM"]);
    for one in shown {
        table.row([one.key, one.value, one.origin]);
    }
    table.print(out, "nothing is set")?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct KeyRow {
    key: &'static str,
    variable: String,
    takes: String,
    required: bool,
    default: Option<&'static str>,
    kinds: &'static [&'static str],
    about: &'static str,
}

fn keys(args: &Keys, out: &mut dyn Write) -> Outcome {
    if args.markdown {
        write!(out, "{}", show::reference())?;
        return Ok(Exit::Done);
    }
    let rows: Vec<KeyRow> = KEYS
        .iter()
        .map(|key| KeyRow {
            key: key.pattern,
            variable: variable(key.pattern),
            takes: show::form(key.kind),
            required: key.need == Need::Required,
            default: match key.need {
                Need::Default(default) => Some(default),
                Need::Required | Need::Optional => None,
            },
            kinds: key.only,
            about: key.about,
        })
        .collect();
    if args.format.json {
        let list = List {
            schema: "postrider.cli.config-keys/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new(["KEY", "DEFAULT", "VARIABLE"]);
    for row in rows {
        let default = match (row.required, row.default) {
            (true, _) => "(required)".to_owned(),
            (false, default) => default.unwrap_or_default().to_owned(),
        };
        table.row([row.key.to_owned(), default, row.variable]);
    }
    table.print(out, "no keys")?;
    Ok(Exit::Done)
}
