//! A plan in words.

use std::io::{self, Write};

use super::{Change, Line, Plan};
use crate::output::printable;

impl Plan {
    /// One paragraph per change, then the notes.
    pub(crate) fn describe(&self, out: &mut dyn Write) -> io::Result<()> {
        for change in &self.changes {
            describe(change, out)?;
        }
        for note in &self.notes {
            writeln!(out, "note: {}", printable(note))?;
        }
        Ok(())
    }
}

fn describe(change: &Change, out: &mut dyn Write) -> io::Result<()> {
    match change {
        Change::Destination {
            name,
            generation,
            was,
            digest,
            fields,
        } => {
            let was = was.map_or("new".to_owned(), |was| format!("was {was}"));
            writeln!(out, "destination {name}: generation {generation} ({was})")?;
            for change in fields {
                let (from, to) = (&change.from, &change.to);
                let line = format!("  {}: {from} → {to}", change.field);
                writeln!(out, "{}", printable(&line))?;
            }
            writeln!(out, "  {digest}")
        }
        Change::EventType {
            event_type,
            schema_version,
            again,
            schema_digest,
        } => {
            let how = if *again { "changed" } else { "new" };
            writeln!(
                out,
                "event type {event_type} version {schema_version}: {how}"
            )?;
            match schema_digest {
                Some(digest) => writeln!(out, "  {digest}"),
                None => writeln!(out, "  no JSON Schema: any payload"),
            }
        }
        Change::DeliverySet {
            version,
            was,
            digest,
            added,
            removed,
        } => {
            let was = was.map_or("the first".to_owned(), |was| format!("was {was}"));
            writeln!(out, "delivery set: version {version} ({was})")?;
            for (sign, lines) in [("+", added), ("-", removed)] {
                for line in lines {
                    writeln!(out, "  {sign} {}", written(line))?;
                }
            }
            writeln!(out, "  {digest}")
        }
    }
}

fn written(line: &Line) -> String {
    let generation = line
        .generation
        .map_or(String::new(), |generation| format!("#{generation}"));
    let optional = if line.mandatory { "" } else { ", optional" };
    format!(
        "{} {} → {}{generation} (consumer {}{optional})",
        line.event_type, line.schema_version, line.destination, line.consumer
    )
}
