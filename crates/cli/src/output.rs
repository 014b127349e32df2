//! Data on standard output, talk on standard error.
//!
//! Text from events, brokers and people may hold anything; control characters are shown escaped,
//! so that no event can move the cursor or colour of an operator's terminal.

use std::io::{self, Write};

use serde::Serialize;

use crate::{fault::Fault, scrub};

/// A page of rows as every list prints it with `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct List<T> {
    /// Names this shape; a change of meaning gets another number.
    pub(crate) schema: &'static str,
    pub(crate) rows: Vec<T>,
    /// The cursor for `--after` when there is more.
    pub(crate) next: Option<String>,
}

/// Prints one JSON document.
pub(crate) fn json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value).map_err(io::Error::from)?;
    writeln!(out)
}

/// Rows under a header, in columns as wide as their widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new<const N: usize>(header: [&str; N]) -> Self {
        Self {
            rows: vec![header.map(str::to_owned).to_vec()],
        }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows
            .push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// Prints the rows; a table without rows prints `none` in place of its header.
    pub(crate) fn print(&self, out: &mut dyn Write, none: &str) -> io::Result<()> {
        if self.rows.len() == 1 {
            return writeln!(out, "{none}");
        }
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:<width$}  "));
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Text with control characters written out.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            // Direction marks reorder what follows them on the line.
            let escaped =
                c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            let (plain, escape) = if escaped {
                (None, Some(c.escape_unicode()))
            } else {
                (Some(c), None)
            };
            plain.into_iter().chain(escape.into_iter().flatten())
        })
        .collect()
}

/// Says something to the person at the terminal.
#[expect(clippy::print_stderr, reason = "talk belongs on standard error")]
pub(crate) fn say(text: &str) {
    eprintln!("{}", scrub::clean(text));
}

/// Says what is wrong.
pub(crate) fn fault(fault: &Fault) {
    let text = fault.to_string();
    let lines: Vec<String> = text.lines().map(printable).collect();
    say(&format!("error{}", lines.join("\n")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_control_characters_show() {
        let mut table = Table::new(["A", "LONGER"]);
        table.row(["x\u{1b}[31m".to_owned(), "é".to_owned()]);
        table.row(["y".to_owned(), String::new()]);
        let mut out = Vec::new();
        table.print(&mut out, "none").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "A            LONGER\nx\\u{1b}[31m  é\ny\n");
    }

    #[test]
    fn an_empty_table_says_so() {
        let mut out = Vec::new();
        Table::new(["A"]).print(&mut out, "no events").unwrap();
        assert_eq!(out, b"no events\n");
    }
}
