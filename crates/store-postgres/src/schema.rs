//! Names that become part of SQL text, through the one place that checks them.

/// Longest schema name: leaves room for the doorbell channel's suffix within PostgreSQL's 63.
const SCHEMA_MAX: usize = 40;
/// Longest role prefix: leaves room for `_producer`.
const ROLE_MAX: usize = 50;

/// A name that may not stand in SQL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} {name:?} cannot be used; expected 1 to {max} lower-case letters, digits and _, not \
     starting with a digit or pg_"
)]
pub struct InvalidName {
    what: &'static str,
    name: String,
    max: usize,
}

/// The schema that holds every object of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema(String);

impl Schema {
    /// # Errors
    /// [`InvalidName`] for anything that would need quotes.
    pub fn new(name: &str) -> Result<Self, InvalidName> {
        check("schema", name, SCHEMA_MAX).map(Self)
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The channel of the doorbell.
    pub(crate) fn doorbell(&self) -> String {
        format!("{}_doorbell", self.0)
    }

    /// SQL text with the schema's name filled in: the only substitution there is on the way to a
    /// statement.
    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("{schema}", &self.0)
    }
}

/// What the names of the group roles start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolePrefix(String);

impl RolePrefix {
    /// # Errors
    /// [`InvalidName`] for anything that would need quotes.
    pub fn new(prefix: &str) -> Result<Self, InvalidName> {
        check("role prefix", prefix, ROLE_MAX).map(Self)
    }

    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("{role}", &self.0)
    }
}

fn check(what: &'static str, name: &str, max: usize) -> Result<String, InvalidName> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let all_allowed = name
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if starts_well && all_allowed && name.len() <= max && !name.starts_with("pg_") {
        Ok(name.to_owned())
    } else {
        Err(InvalidName {
            what,
            name: name.chars().take(100).collect(),
            max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_needs_quotes() {
        for name in ["postrider", "_x1", &"a".repeat(SCHEMA_MAX)] {
            assert!(Schema::new(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "1a",
            "Postrider",
            "a-b",
            "a.b",
            "a\"b",
            "a;drop",
            "pg_x",
            "é",
            "a b",
            &"a".repeat(SCHEMA_MAX + 1),
        ] {
            assert!(Schema::new(name).is_err(), "{name}");
            assert!(RolePrefix::new(name).is_err() || name.len() <= ROLE_MAX && !name.is_empty());
        }
    }
}
