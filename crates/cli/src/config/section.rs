//! Reading one table of the checked settings: each getter answers the value that was given or the
//! default of the table of keys.

use std::{collections::BTreeMap, time::Duration};

use super::{
    keys::{self, Need},
    layers::{Origin, Settings},
    path::{Path, Segment},
    secret::{Secret, Url},
    value::{self, Value},
};

/// One table, such as `[relay]` or `[destinations.orders]`.
pub(super) struct Section<'a> {
    settings: &'a Settings,
    pub(super) path: Path,
}

impl<'a> Section<'a> {
    pub(super) fn new(settings: &'a Settings, path: Path) -> Self {
        Self { settings, path }
    }

    /// Where a key was given, or else the table.
    pub(super) fn origin(&self, name: &str) -> Option<&'a Origin> {
        self.settings
            .values
            .get(&self.path.name(name))
            .map(|setting| &setting.origin)
            .or_else(|| self.settings.tables.get(&self.path))
    }

    pub(super) fn given(&self, name: &str) -> bool {
        self.settings.values.contains_key(&self.path.name(name))
    }

    /// `None`: not given, and without a default. The kind is the table's, checked before.
    fn value(&self, name: &str) -> Option<Value> {
        let path = self.path.name(name);
        if let Some(setting) = self.settings.values.get(&path) {
            return Some(setting.value.clone());
        }
        let key = keys::of(&pattern(&path));
        match key.need {
            Need::Default(default) => Some(default_value(key, default)),
            Need::Optional | Need::Required => None,
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        let Value::Text(text) = self.value(name)? else {
            wrong(name)
        };
        Some(text)
    }

    pub(super) fn integer(&self, name: &str) -> Option<u64> {
        let Value::Integer(number) = self.value(name)? else {
            wrong(name)
        };
        Some(number.unsigned_abs())
    }

    pub(super) fn boolean(&self, name: &str) -> bool {
        match self.value(name) {
            Some(Value::Boolean(on)) => on,
            None => false,
            Some(_) => wrong(name),
        }
    }

    pub(super) fn optional_duration(&self, name: &str) -> Option<Duration> {
        let Value::Duration(duration) = self.value(name)? else {
            wrong(name)
        };
        Some(duration)
    }

    pub(super) fn duration(&self, name: &str) -> Duration {
        match self.value(name) {
            Some(Value::Duration(duration)) => duration,
            Some(_) | None => wrong(name),
        }
    }

    pub(super) fn texts(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Value::Texts(texts)) => texts,
            None => Vec::new(),
            Some(_) => wrong(name),
        }
    }

    pub(super) fn url(&self, name: &str) -> Option<Url> {
        let Value::Url(url) = self.value(name)? else {
            wrong(name)
        };
        Some(url)
    }

    pub(super) fn secret(&self, name: &str) -> Option<Secret> {
        let Value::Secret(secret) = self.value(name)? else {
            wrong(name)
        };
        Some(secret)
    }

    pub(super) fn secrets(&self, name: &str) -> Vec<Secret> {
        match self.value(name) {
            Some(Value::Secrets(secrets)) => secrets,
            None => Vec::new(),
            Some(_) => wrong(name),
        }
    }

    pub(super) fn named_secrets(&self, name: &str) -> BTreeMap<String, Secret> {
        match self.value(name) {
            Some(Value::NamedSecrets(secrets)) => secrets,
            None => BTreeMap::new(),
            Some(_) => wrong(name),
        }
    }
}

/// The value that a default of the table of keys stands for.
pub(crate) fn default_value(key: &keys::Key, default: &str) -> Value {
    value::from_text(key.kind, default, Some("a default")).unwrap_or_else(|found| {
        panic!(
            "the default of {} does not fit its kind: {found}",
            key.pattern
        )
    })
}

/// The pattern of a place: names under tables of names become `*`, indexes `#`.
pub(super) fn pattern(path: &Path) -> String {
    keys::KEYS
        .iter()
        .find(|key| path.matches(key.pattern))
        .map_or_else(|| path.to_string(), |key| key.pattern.to_owned())
}

/// The value was checked against the same table of keys that this code was written from.
fn wrong(name: &str) -> ! {
    panic!("{name} is read as another kind than the table of keys says")
}

/// Tables of a list or under names, in order.
pub(super) fn sections<'a>(settings: &'a Settings, name: &str) -> Vec<Section<'a>> {
    let under = Path::default().name(name);
    let mut paths: Vec<Path> = settings
        .tables
        .keys()
        .filter(|path| path.starts_with(&under) && path.0.len() == 2)
        .cloned()
        .collect();
    paths.sort_by(|a, b| match (a.0.last(), b.0.last()) {
        (Some(Segment::Index(a)), Some(Segment::Index(b))) => a.cmp(b),
        (a, b) => a.cmp(&b),
    });
    paths
        .into_iter()
        .map(|path| Section::new(settings, path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_fits_its_kind() {
        for key in keys::KEYS {
            if let Need::Default(default) = key.need {
                default_value(key, default);
            }
        }
    }
}
