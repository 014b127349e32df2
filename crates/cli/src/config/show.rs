//! The configuration as it may be shown to anybody: with the origin of every value, and no
//! secret, not even in part.

use super::{
    duration,
    keys::{self, KEYS, Kind, Need},
    layers::{Origin, Settings, variable},
    path::Path,
    section,
    value::{self, Value},
};

/// One setting that holds.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Shown {
    pub(crate) key: String,
    /// As in TOML.
    pub(crate) value: String,
    /// `default`, `file:line`, a variable, or `--set`.
    pub(crate) origin: String,
}

/// Every setting that was given, and the defaults of the tables that always exist.
pub(crate) fn effective(settings: &Settings) -> Vec<Shown> {
    let mut shown: Vec<(Path, Shown)> = settings
        .values
        .iter()
        .map(|(path, setting)| {
            let one = Shown {
                key: path.to_string(),
                value: written(&setting.value),
                origin: origin(&setting.origin),
            };
            (path.clone(), one)
        })
        .collect();
    for key in KEYS {
        let Need::Default(default) = key.need else {
            continue;
        };
        for path in places(key, settings) {
            if !settings.values.contains_key(&path) {
                let one = Shown {
                    key: path.to_string(),
                    value: written(&section::default_value(key, default)),
                    origin: "default".to_owned(),
                };
                shown.push((path, one));
            }
        }
    }
    shown.sort_by(|(a, _), (b, _)| a.cmp(b));
    shown.into_iter().map(|(_, one)| one).collect()
}

/// Where a key could stand in this configuration.
fn places(key: &keys::Key, settings: &Settings) -> Vec<Path> {
    if !key.pattern.contains(['*', '#']) {
        let path = key
            .pattern
            .split('.')
            .fold(Path::default(), |path, part| path.name(part));
        return vec![path];
    }
    let Some(name) = key.pattern.rsplit('.').next() else {
        return Vec::new();
    };
    settings
        .tables
        .keys()
        .map(|table| table.name(name))
        .filter(|path| path.matches(key.pattern))
        .filter(|path| {
            let kind = path.0.len().checked_sub(1).and_then(|end| {
                super::completeness::kind_of(settings, &Path(path.0[..end].to_vec()))
            });
            key.only.is_empty() || kind.is_some_and(|kind| key.only.contains(&kind.as_str()))
        })
        .collect()
}

fn origin(origin: &Origin) -> String {
    origin.to_string()
}

/// TOML, with references and shortened URLs in place of secrets.
fn written(value: &Value) -> String {
    let quoted = |text: &String| format!("{text:?}");
    match value {
        Value::Text(text) => quoted(text),
        Value::Integer(number) => number.to_string(),
        Value::Boolean(on) => on.to_string(),
        Value::Duration(length) => quoted(&duration::write(*length)),
        Value::Texts(texts) => format!(
            "[{}]",
            texts.iter().map(quoted).collect::<Vec<_>>().join(", ")
        ),
        Value::Url(url) => url.to_string(),
        Value::Secret(secret) => secret.to_string(),
        Value::Secrets(secrets) => format!(
            "[{}]",
            secrets
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        ),
        Value::NamedSecrets(secrets) => format!(
            "{{ {} }}",
            secrets
                .iter()
                .map(|(name, secret)| format!("{name:?} = {secret}"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// The table of keys in Markdown: docs/configuration.md holds exactly this.
pub(crate) fn reference() -> String {
    let mut text = String::new();
    let mut table = "";
    for key in KEYS {
        let (above, name) = key.pattern.rsplit_once('.').unwrap_or(("", key.pattern));
        if above != table {
            table = above;
            let header = match above.strip_suffix(".#") {
                Some(list) => format!("[[{list}]]"),
                None => format!("[{}]", above.replace('*', "NAME")),
            };
            text.push_str(&format!(
                "\n### `{header}`\n\n| key | value | default | |\n| --- | --- | --- | --- |\n"
            ));
        }
        let default = match key.need {
            Need::Required => "required".to_owned(),
            Need::Default("") => "empty".to_owned(),
            Need::Default(default) => format!("`{default}`"),
            Need::Optional => String::new(),
        };
        let only = if key.only.is_empty() {
            String::new()
        } else {
            format!("Kind {} only. ", key.only.join(", "))
        };
        text.push_str(&format!(
            "| `{name}`<br>`{}` | {} | {default} | {only}{} |\n",
            variable(key.pattern),
            form(key.kind),
            key.about,
        ));
    }
    text
}

pub(crate) fn form(kind: Kind) -> String {
    value::form(kind).replace('|', "\\|")
}
