//! One value of one key, and how text and TOML become one.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use toml::de::{DeTable, DeValue};

use super::{
    duration,
    keys::Kind,
    secret::{self, Secret, Url},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    Duration(Duration),
    Texts(Vec<String>),
    Url(Url),
    Secret(Secret),
    Secrets(Vec<Secret>),
    NamedSecrets(BTreeMap<String, Secret>),
}

/// What a value of this kind looks like, for a message.
pub(crate) fn form(kind: Kind) -> String {
    match kind {
        Kind::Text => "text in quotes".to_owned(),
        Kind::File => "a path in quotes".to_owned(),
        Kind::Url => "a URL in quotes, or { env = \"NAME\" }, or { file = \"PATH\" }".to_owned(),
        Kind::Secret => "{ env = \"NAME\" } or { file = \"PATH\" }".to_owned(),
        Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Boolean => "true or false".to_owned(),
        Kind::Duration => duration::FORM.to_owned(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::Texts => "a list of texts, such as [\"a\", \"b\"]".to_owned(),
        Kind::Secrets => {
            "a list of references, such as [{ env = \"NAME\" }, { file = \"PATH\" }]".to_owned()
        }
        Kind::NamedSecrets => {
            "a table of references, such as { Authorization = { env = \"NAME\" } }".to_owned()
        }
    }
}

/// A value from the file. `Err` says what was found instead, and never quotes what may be secret.
pub(crate) fn from_toml(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    match (kind, value) {
        (Kind::Text | Kind::File, DeValue::String(text)) => Ok(Value::Text(text.to_string())),
        (Kind::Choice(words), DeValue::String(text)) if words.contains(&text.as_ref()) => {
            Ok(Value::Text(text.to_string()))
        }
        (Kind::Duration, DeValue::String(text)) => duration::parse(text)
            .map(Value::Duration)
            .ok_or_else(|| quoted(text)),
        (Kind::Integer { min, max }, DeValue::Integer(number)) => {
            i64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .filter(|number| (min..=max).contains(number))
                .map(Value::Integer)
                .ok_or_else(|| number.to_string())
        }
        (Kind::Boolean, DeValue::Boolean(on)) => Ok(Value::Boolean(*on)),
        (Kind::Texts, DeValue::Array(items)) => items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                other => Err(format!("a list with {}", found(other))),
            })
            .collect::<Result<_, _>>()
            .map(Value::Texts),
        (Kind::Url, DeValue::String(text)) => Ok(Value::Url(Url::Text(text.to_string()))),
        (Kind::Url, DeValue::Table(table)) => reference(table).map(Url::Secret).map(Value::Url),
        (Kind::Secret, DeValue::Table(table)) => reference(table).map(Value::Secret),
        (Kind::Secrets, DeValue::Array(items)) => items
            .iter()
            .map(|item| secret(item.get_ref()))
            .collect::<Result<_, _>>()
            .map(Value::Secrets),
        (Kind::NamedSecrets, DeValue::Table(table)) => table
            .iter()
            .map(|(name, value)| Ok((name.get_ref().to_string(), secret(value.get_ref())?)))
            .collect::<Result<_, String>>()
            .map(Value::NamedSecrets),
        (Kind::Secret | Kind::Secrets | Kind::NamedSecrets, DeValue::String(_)) => {
            Err(LITERAL.to_owned())
        }
        (_, other) => Err(found(other)),
    }
}

const LITERAL: &str = "the secret itself, which does not belong in this file";

fn secret(value: &DeValue<'_>) -> Result<Secret, String> {
    match value {
        DeValue::Table(table) => reference(table),
        DeValue::String(_) => Err(LITERAL.to_owned()),
        other => Err(found(other)),
    }
}

fn reference(table: &DeTable<'_>) -> Result<Secret, String> {
    let mut entries = table.iter();
    let (Some((name, value)), None) = (entries.next(), entries.next()) else {
        return Err(format!("a table with {} keys", table.len()));
    };
    match (name.get_ref().as_ref(), value.get_ref()) {
        ("env", DeValue::String(variable)) => Ok(Secret::Env(variable.to_string())),
        ("file", DeValue::String(path)) => Ok(Secret::File(PathBuf::from(path.as_ref()))),
        _ => Err("a table with another key than env or file".to_owned()),
    }
}

/// A value from the environment or `--set`, where everything is text. Lists are separated by
/// commas; a list that needs commas inside is written as in TOML, with brackets.
///
/// `variable` is the environment variable it came from; a secret may stand there itself.
pub(crate) fn from_text(kind: Kind, text: &str, variable: Option<&str>) -> Result<Value, String> {
    let here = |text: &str| {
        variable.map(|variable| Secret::Here {
            value: text.to_owned(),
            variable: variable.to_owned(),
        })
    };
    match kind {
        Kind::Text | Kind::File => Ok(Value::Text(text.to_owned())),
        Kind::Choice(words) if words.contains(&text) => Ok(Value::Text(text.to_owned())),
        Kind::Duration => duration::parse(text)
            .map(Value::Duration)
            .ok_or_else(|| quoted(text)),
        Kind::Integer { min, max } => text
            .parse()
            .ok()
            .filter(|number| (min..=max).contains(number))
            .map(Value::Integer)
            .ok_or_else(|| quoted(text)),
        Kind::Boolean => text.parse().map(Value::Boolean).map_err(|_| quoted(text)),
        Kind::Texts if text.starts_with('[') => inline(kind, text),
        Kind::Texts => Ok(Value::Texts(list(text))),
        Kind::Url | Kind::Secret if text.starts_with('{') => inline(kind, text),
        Kind::Url if variable.is_none() && secret::is_in(text) => {
            Err(URL_ON_COMMAND_LINE.to_owned())
        }
        Kind::Url => Ok(Value::Url(
            here(text).map_or_else(|| Url::Text(text.to_owned()), Url::Secret),
        )),
        Kind::Secret => here(text)
            .map(Value::Secret)
            .ok_or_else(|| ON_COMMAND_LINE.to_owned()),
        Kind::Secrets if text.starts_with('[') => inline(kind, text),
        Kind::Secrets => list(text)
            .iter()
            .map(|text| here(text).ok_or_else(|| ON_COMMAND_LINE.to_owned()))
            .collect::<Result<_, _>>()
            .map(Value::Secrets),
        Kind::NamedSecrets if text.starts_with('{') => inline(kind, text),
        Kind::NamedSecrets => Err("text".to_owned()),
        Kind::Choice(_) => Err(quoted(text)),
    }
}

pub(crate) const ON_COMMAND_LINE: &str =
    "the secret itself, and every user of this machine can read a command line";
pub(crate) const URL_ON_COMMAND_LINE: &str =
    "a URL with a secret in it, and every user of this machine can read a command line";

fn inline(kind: Kind, text: &str) -> Result<Value, String> {
    // The parser's message may quote the text, and the text may be a secret.
    let value = DeValue::parse(text).map_err(|_| "text that is not TOML".to_owned())?;
    from_toml(kind, value.get_ref())
}

fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

fn quoted(text: &str) -> String {
    let start: String = text.chars().take(40).collect();
    format!("{start:?}")
}

/// What a TOML value is, without its content where that may be a secret.
pub(crate) fn found(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => quoted(text),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toml(kind: Kind, text: &str) -> Result<Value, String> {
        from_toml(kind, DeValue::parse(text).unwrap().get_ref())
    }

    #[test]
    fn toml_values() {
        let batch = Kind::Integer { min: 1, max: 10 };
        assert_eq!(toml(batch, "0x0a"), Ok(Value::Integer(10)));
        assert_eq!(toml(batch, "0"), Err("0".to_owned()));
        assert_eq!(toml(batch, "11"), Err("11".to_owned()));
        assert_eq!(toml(batch, "\"5\""), Err("\"5\"".to_owned()));
        assert_eq!(
            toml(batch, "99999999999999999999"),
            Err("99999999999999999999".to_owned())
        );
        assert_eq!(toml(Kind::Duration, "5"), Err("5".to_owned()));
        assert_eq!(
            toml(Kind::Texts, "['a', 1]"),
            Err("a list with 1".to_owned())
        );
        assert_eq!(
            toml(Kind::Secret, "{ env = 'X' }"),
            Ok(Value::Secret(Secret::Env("X".to_owned())))
        );
        assert_eq!(
            toml(Kind::Secret, "{ env = 'X', file = 'Y' }"),
            Err("a table with 2 keys".to_owned())
        );
    }

    #[test]
    fn a_secret_in_the_file_is_refused_without_being_quoted() {
        for (kind, text) in [
            (Kind::Secret, "'hush'"),
            (Kind::Secrets, "['hush']"),
            (Kind::NamedSecrets, "{ Authorization = 'hush' }"),
            (Kind::Secret, "{ hush = 'x' }"),
        ] {
            let error = toml(kind, text).unwrap_err();
            assert!(!error.contains("hush"), "{error}");
        }
    }

    #[test]
    fn text_values() {
        assert_eq!(
            from_text(Kind::Texts, "a, b,", None),
            Ok(Value::Texts(vec!["a".to_owned(), "b".to_owned()]))
        );
        assert_eq!(
            from_text(Kind::Texts, "['a,b']", None),
            Ok(Value::Texts(vec!["a,b".to_owned()]))
        );
        assert_eq!(
            from_text(Kind::Boolean, "yes", None),
            Err("\"yes\"".to_owned())
        );
        assert_eq!(
            from_text(Kind::Secret, "{ file = 'x' }", None),
            Ok(Value::Secret(Secret::File("x".into())))
        );
        let on_command_line = from_text(Kind::Secret, "hush", None).unwrap_err();
        assert!(!on_command_line.contains("hush"));
        assert!(from_text(Kind::Secret, "hush", Some("POSTRIDER_X")).is_ok());
        for url in [
            "postgresql://user:hush@host/db",
            "postgresql://user:hu/sh@host/db",
            "postgresql://host/db?user=u&password=hush",
            "https://host/path?token=hush",
        ] {
            let on_command_line = from_text(Kind::Url, url, None).unwrap_err();
            assert!(!on_command_line.contains("hu"), "{on_command_line}");
            assert!(from_text(Kind::Url, url, Some("POSTRIDER_X")).is_ok());
        }
        for url in [
            "sqlite:shop.db",
            "postgresql://user@host/db?sslmode=require",
            "https://host/path",
        ] {
            assert!(from_text(Kind::Url, url, None).is_ok(), "{url}");
        }
    }
}
