//! What is missing, and what stands in a table of another kind.

use super::{
    keys::{KEYS, Key, Need},
    layers::Settings,
    path::Path,
    value::{self, Value},
};
use crate::{code::Code, fault::Fault};

/// Tables without which nothing works, even if nobody wrote their header.
const ALWAYS: [&str; 1] = ["store"];

pub(super) fn check(settings: &Settings, faults: &mut Vec<Fault>) {
    let mut tables: Vec<Path> = settings.tables.keys().cloned().collect();
    for name in ALWAYS {
        let path = Path::default().name(name);
        if !settings.tables.contains_key(&path) && !settings.refused.contains(&path) {
            tables.push(path);
        }
    }
    for table in &tables {
        for key in KEYS {
            let Some(name) = key.pattern.rsplit('.').next() else {
                continue;
            };
            let path = table.name(name);
            if !path.matches(key.pattern) {
                continue;
            }
            let given = settings.values.get(&path);
            let kind = kind_of(settings, table);
            let belongs =
                key.only.is_empty() || kind.as_deref().is_some_and(|kind| key.only.contains(&kind));
            match given {
                None if belongs
                    && key.need == Need::Required
                    && !settings.refused.contains(&path) =>
                {
                    faults.push(missing(settings, table, &path, key));
                }
                Some(setting) if !belongs => {
                    // Without a kind that fault is reported already.
                    if let Some(kind) = kind {
                        faults.push(Fault::new(
                            Code::UnknownKey,
                            format!(
                                "{}: {path} belongs to kind {}; {table} is of kind {kind}",
                                setting.origin,
                                key.only.join(", ")
                            ),
                            "",
                            "remove it, or correct the kind",
                        ));
                    }
                }
                None | Some(_) => {}
            }
        }
    }
}

/// The kind of a connection, or of the connection that a destination names.
pub(super) fn kind_of(settings: &Settings, table: &Path) -> Option<String> {
    let text = |path: &Path| match settings.values.get(path).map(|setting| &setting.value) {
        Some(Value::Text(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    text(&table.name("kind")).or_else(|| {
        let connection = text(&table.name("connection"))?;
        text(
            &Path::default()
                .name("connections")
                .name(&connection)
                .name("kind"),
        )
    })
}

fn missing(settings: &Settings, table: &Path, path: &Path, key: &Key) -> Fault {
    let place = settings
        .tables
        .get(table)
        .map_or_else(String::new, |origin| format!("{origin}: "));
    Fault::new(
        Code::MissingKey,
        format!("{place}{path} is missing"),
        key.about,
        format!("set it to {}", value::form(key.kind)),
    )
}
