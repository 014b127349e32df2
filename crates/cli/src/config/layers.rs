//! The layers of the configuration, one over the other: the file, the environment, `--set`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use toml::de::{DeTable, DeValue};

use super::{
    keys::{self, KEYS, Need},
    nearest,
    path::{Path, Segment},
    value::{self, Value},
};
use crate::{code::Code, fault::Fault};

/// Where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    File { name: String, line: usize },
    Environment { variable: String },
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line } => write!(f, "{name}:{line}"),
            Self::Environment { variable } => f.write_str(variable),
            Self::Flag => f.write_str("--set"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// Everything that was given, by place.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) values: BTreeMap<Path, Setting>,
    /// Tables that are there, with where: an empty one may lack something.
    pub(crate) tables: BTreeMap<Path, Origin>,
    /// Given, but not as its kind asks: reported, and so not missing.
    pub(crate) refused: BTreeSet<Path>,
}

impl Settings {
    /// The names directly under a table, such as of all destinations.
    pub(crate) fn names(&self, under: &Path) -> BTreeSet<String> {
        self.children(under)
            .filter_map(|segment| match segment {
                Segment::Name(name) => Some(name.clone()),
                Segment::Index(_) => None,
            })
            .collect()
    }

    /// How many items a list of tables has.
    pub(crate) fn length(&self, under: &Path) -> usize {
        self.children(under)
            .filter_map(|segment| match segment {
                Segment::Index(index) => Some(index + 1),
                Segment::Name(_) => None,
            })
            .max()
            .unwrap_or(0)
    }

    fn children<'a>(&'a self, under: &'a Path) -> impl Iterator<Item = &'a Segment> {
        self.tables
            .keys()
            .filter(|path| path.starts_with(under))
            .filter_map(|path| path.0.get(under.0.len()))
    }

    /// Adds what a file says.
    pub(crate) fn add_file(&mut self, name: &str, text: &str, faults: &mut Vec<Fault>) {
        let lines = Lines::of(text);
        match DeTable::parse(text) {
            Ok(table) => {
                let file = File { name, lines };
                self.add_table(&Path::default(), table.get_ref(), &file, faults);
            }
            Err(error) => {
                // Only the parser's words: the line itself may hold what should be secret.
                let line = error.span().map_or(1, |span| lines.number(span.start));
                faults.push(Fault::new(
                    Code::ConfigNotToml,
                    format!("{name}:{line}: not TOML: {}", error.message()),
                    "Nothing of the file was used.",
                    "correct that line; texts stand in quotes, tables in [brackets]",
                ));
            }
        }
    }

    fn add_table(
        &mut self,
        at: &Path,
        table: &DeTable<'_>,
        file: &File<'_>,
        faults: &mut Vec<Fault>,
    ) {
        for (name, value) in table.iter() {
            let path = at.name(name.get_ref());
            let origin = Origin::File {
                name: file.name.to_owned(),
                line: file.lines.number(name.span().start),
            };
            self.add_value(path, value.get_ref(), origin, file, faults);
        }
    }

    fn add_value(
        &mut self,
        path: Path,
        value: &DeValue<'_>,
        origin: Origin,
        file: &File<'_>,
        faults: &mut Vec<Fault>,
    ) {
        if let Some(key) = KEYS.iter().find(|key| path.matches(key.pattern)) {
            match value::from_toml(key.kind, value) {
                Ok(value) => self.set(path, value, origin),
                Err(found) => {
                    faults.push(bad_value(&origin, &path, key, &found));
                    self.refused.insert(path);
                }
            }
            return;
        }
        let Some(leads) = KEYS.iter().find(|key| path.leads_to(key.pattern)) else {
            faults.push(nearest::unknown_key(&origin, &path));
            return;
        };
        let is_list = leads.pattern.split('.').nth(path.0.len()) == Some("#");
        match value {
            DeValue::Table(table) if !is_list => {
                self.tables.insert(path.clone(), origin);
                self.add_table(&path, table, file, faults);
            }
            DeValue::Array(items) if is_list => {
                for (index, item) in items.iter().enumerate() {
                    let path = path.index(index);
                    let origin = Origin::File {
                        name: file.name.to_owned(),
                        line: file.lines.number(item.span().start),
                    };
                    if let DeValue::Table(table) = item.get_ref() {
                        self.tables.insert(path.clone(), origin);
                        self.add_table(&path, table, file, faults);
                    } else {
                        faults.push(not_a_table(&origin, &path, item.get_ref()));
                    }
                }
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Boolean(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => {
                let written = if is_list {
                    format!("[[{path}]]")
                } else {
                    format!("[{path}]")
                };
                faults.push(Fault::new(
                    Code::BadValue,
                    format!("{origin}: {path} is {}", value::found(value)),
                    "",
                    format!("write it as {written} with its keys below"),
                ));
                self.refused.insert(path);
            }
        }
    }

    /// Adds variables such as `POSTRIDER_RELAY__BATCH_MAX`. Variables without `__` have other
    /// uses and are left alone.
    pub(crate) fn add_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
        faults: &mut Vec<Fault>,
    ) {
        // In order, so that items of a list can be added one after the other.
        let variables: BTreeMap<String, String> = variables.into_iter().collect();
        for (variable, text) in &variables {
            let Some(name) = variable.strip_prefix(PREFIX) else {
                continue;
            };
            if !name.contains("__") {
                continue;
            }
            let origin = Origin::Environment {
                variable: variable.clone(),
            };
            let segments: Vec<&str> = name.split("__").collect();
            match self.place(&segments, fold) {
                Some(path) => self.add_text(path, text, Some(variable), origin, faults),
                None => {
                    let path = plain(&segments);
                    faults.push(nearest::unknown_key(&origin, &path));
                }
            }
        }
    }

    /// Adds `--set relay.batch_max=100`.
    pub(crate) fn add_flag(&mut self, assignment: &str, faults: &mut Vec<Fault>) {
        let Some((name, text)) = assignment.split_once('=') else {
            faults.push(Fault::new(
                Code::BadArgument,
                "--set needs KEY=VALUE",
                "",
                "write for example --set relay.batch_max=100",
            ));
            return;
        };
        let dotted = name.replace('[', ".").replace(']', "");
        let segments: Vec<&str> = dotted.split('.').collect();
        match self.place(&segments, str::to_owned) {
            Some(path) => self.add_text(path, text, None, Origin::Flag, faults),
            None => faults.push(nearest::unknown_key(&Origin::Flag, &plain(&segments))),
        }
    }

    fn add_text(
        &mut self,
        path: Path,
        text: &str,
        variable: Option<&str>,
        origin: Origin,
        faults: &mut Vec<Fault>,
    ) {
        let Some(key) = KEYS.iter().find(|key| path.matches(key.pattern)) else {
            faults.push(nearest::unknown_key(&origin, &path));
            return;
        };
        match value::from_text(key.kind, text, variable) {
            Ok(value) => {
                for end in 1..path.0.len() {
                    let table = Path(path.0[..end].to_vec());
                    self.tables.entry(table).or_insert_with(|| origin.clone());
                }
                self.set(path, value, origin);
            }
            Err(found) => {
                faults.push(bad_value(&origin, &path, key, &found));
                self.refused.insert(path);
            }
        }
    }

    fn set(&mut self, path: Path, value: Value, origin: Origin) {
        self.values.insert(path, Setting { value, origin });
    }

    /// The key that these segments name, once folded. A name of the operator's choice is one that
    /// is there already and folds to the same, or else a new one.
    fn place(&self, segments: &[&str], folded: fn(&str) -> String) -> Option<Path> {
        KEYS.iter().find_map(|key| {
            let parts: Vec<&str> = key.pattern.split('.').collect();
            if parts.len() != segments.len() {
                return None;
            }
            let mut path = Path::default();
            for (part, given) in parts.iter().zip(segments) {
                path = match *part {
                    "*" => {
                        let known = self.names(&path);
                        let name = known
                            .iter()
                            .find(|name| folded(name) == folded(given))
                            .cloned();
                        path.name(&name.unwrap_or_else(|| made_up(given, folded)))
                    }
                    "#" => {
                        let index: usize = given.parse().ok()?;
                        // No holes: an item is one that is there, or the next.
                        (index <= self.length(&path)).then_some(())?;
                        path.index(index)
                    }
                    part if folded(part) == folded(given) => path.name(part),
                    _ => return None,
                };
            }
            Some(path)
        })
    }
}

pub(crate) const PREFIX: &str = "POSTRIDER_";

/// The variable that sets a key, such as `POSTRIDER_RELAY__BATCH_MAX`.
pub(crate) fn variable(pattern: &str) -> String {
    let parts: Vec<String> = pattern
        .split('.')
        .map(|part| match part {
            "*" => "NAME".to_owned(),
            "#" => "0".to_owned(),
            part => fold(part),
        })
        .collect();
    format!("{PREFIX}{}", parts.join("__"))
}

/// A name as it can stand in the name of a variable.
fn fold(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect()
}

/// A new name given in a variable is meant in lower case; given in a flag, as it stands.
fn made_up(given: &str, folded: fn(&str) -> String) -> String {
    if folded("a") == "A" {
        given.to_ascii_lowercase()
    } else {
        given.to_owned()
    }
}

fn plain(segments: &[&str]) -> Path {
    Path(
        segments
            .iter()
            .map(|segment| match segment.parse() {
                Ok(index) => Segment::Index(index),
                Err(_) => Segment::Name(segment.to_ascii_lowercase()),
            })
            .collect(),
    )
}

fn bad_value(origin: &Origin, path: &Path, key: &keys::Key, found: &str) -> Fault {
    let is_shown_to_all = [value::ON_COMMAND_LINE, value::URL_ON_COMMAND_LINE].contains(&found);
    let fix = match key.need {
        Need::Default(_) | Need::Required | Need::Optional if is_shown_to_all => {
            format!("set {} instead", variable(key.pattern))
        }
        Need::Default(default) if !default.is_empty() => {
            format!("correct it, or leave it out for the default, {default}")
        }
        Need::Default(_) | Need::Required | Need::Optional => "correct it".to_owned(),
    };
    Fault::new(
        Code::BadValue,
        format!(
            "{origin}: {path} must be {}; it is {found}",
            value::form(key.kind)
        ),
        "",
        fix,
    )
}

fn not_a_table(origin: &Origin, path: &Path, item: &DeValue<'_>) -> Fault {
    Fault::new(
        Code::BadValue,
        format!("{origin}: {path} is {}", value::found(item)),
        "",
        "write each item as a table of its own, in [[double brackets]]",
    )
}

struct File<'a> {
    name: &'a str,
    lines: Lines,
}

/// Byte offsets of line starts.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(after_breaks).collect())
    }

    /// The line, from 1, that holds a byte.
    fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|&start| start <= offset)
    }
}
