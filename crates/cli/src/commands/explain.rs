//! `explain`: the page of an error code, or what is said of a word such as `stream_missing`.

use std::io::Write;

use serde::Serialize;

use crate::{
    args::Explain,
    code::Code,
    fault::{Exit, Fault, Outcome},
    names,
    output::{self, List, Table},
    words,
};

#[derive(Serialize)]
struct Row {
    code: &'static str,
    title: &'static str,
    page: String,
}

impl Row {
    fn of(code: Code) -> Self {
        Self {
            code: code.number(),
            title: code.title(),
            page: code.page().to_owned(),
        }
    }

    /// Every error code, then every word.
    fn all() -> Vec<Self> {
        let mut rows: Vec<Self> = Code::ALL.iter().copied().map(Self::of).collect();
        for said in words::all() {
            if rows.iter().any(|row| row.code == said.word) {
                continue;
            }
            rows.push(Self {
                code: said.word,
                title: said.title(),
                page: words::page(said.word).unwrap_or_default(),
            });
        }
        rows
    }
}

pub(super) fn run(args: &Explain, out: &mut dyn Write) -> Outcome {
    let rows = match &args.code {
        None => Row::all(),
        Some(text) => match Code::parse(text) {
            Some(code) => vec![Row::of(code)],
            None => {
                let known = Row::all().into_iter().find(|row| row.code == text);
                vec![known.ok_or_else(|| unknown(text))?]
            }
        },
    };
    if args.format.json {
        let list = List {
            schema: "postrider.cli.explain/1",
            rows,
            next: None,
        };
        output::json(out, &list)?;
    } else if let (Some(_), [row]) = (&args.code, rows.as_slice()) {
        write!(out, "{}", row.page)?;
    } else {
        let mut table = Table::new(["CODE", "MEANS"]);
        for row in rows {
            table.row([row.code.to_owned(), row.title.to_owned()]);
        }
        table.print(out, "no codes")?;
    }
    Ok(Exit::Done)
}

fn unknown(text: &str) -> Fault {
    Fault::new(
        Code::CodeUnknown,
        format!("there is no code {text:?}"),
        "",
        match names::nearest(text, words::all().iter().map(|said| said.word.to_owned())) {
            Some(nearest) => format!("did you mean {nearest}? `postrider explain` lists them all"),
            None => "`postrider explain` lists them all".to_owned(),
        },
    )
}
