//! `explain`: the page of an error code.

use std::io::Write;

use serde::Serialize;

use crate::{
    args::Explain,
    code::Code,
    fault::{Exit, Fault, Outcome},
    output::{self, List, Table},
};

#[derive(Serialize)]
struct Row {
    code: &'static str,
    title: &'static str,
    page: &'static str,
}

impl Row {
    fn of(code: Code) -> Self {
        Self {
            code: code.number(),
            title: code.title(),
            page: code.page(),
        }
    }
}

pub(super) fn run(args: &Explain, out: &mut dyn Write) -> Outcome {
    let codes = match &args.code {
        None => Code::ALL.to_vec(),
        Some(text) => match Code::parse(text) {
            Some(code) => vec![code],
            None => return Err(unknown(text).into()),
        },
    };
    if args.format.json {
        let rows = codes.into_iter().map(Row::of).collect();
        let list = List {
            schema: "postrider.cli.explain/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
    } else if let (Some(_), [code]) = (&args.code, codes.as_slice()) {
        write!(out, "{}", code.page())?;
    } else {
        let mut table = Table::new(["CODE", "ERROR"]);
        for code in codes {
            table.row([code.number().to_owned(), code.title().to_owned()]);
        }
        table.print(out, "no codes")?;
    }
    Ok(Exit::Done)
}

fn unknown(text: &str) -> Fault {
    Fault::new(
        Code::CodeUnknown,
        format!("there is no error code {text:?}"),
        "",
        "`postrider explain` lists them all",
    )
}
