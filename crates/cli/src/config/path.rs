//! Where a setting stands: `relay.lease`, `connections.main.servers`, `routes[0].mandatory`.

use std::fmt;

/// One step of a [`Path`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Segment {
    Name(String),
    Index(usize),
}

/// The place of a setting, whatever layer it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(pub(crate) Vec<Segment>);

impl Path {
    pub(crate) fn name(&self, name: &str) -> Self {
        self.with(Segment::Name(name.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    pub(crate) fn with(&self, segment: Segment) -> Self {
        let mut segments = self.0.clone();
        segments.push(segment);
        Self(segments)
    }

    /// Whether the pattern of a key, such as `connections.*.kind` or `routes.#.mandatory`, means
    /// exactly this place.
    pub(crate) fn matches(&self, pattern: &str) -> bool {
        pattern.split('.').count() == self.0.len() && self.is_under(pattern)
    }

    /// Whether this place is a table on the way to the pattern.
    pub(crate) fn leads_to(&self, pattern: &str) -> bool {
        pattern.split('.').count() > self.0.len() && self.is_under(pattern)
    }

    fn is_under(&self, pattern: &str) -> bool {
        self.0
            .iter()
            .zip(pattern.split('.'))
            .all(|(segment, part)| match segment {
                Segment::Name(name) => part == "*" || part == name,
                Segment::Index(_) => part == "#",
            })
    }

    pub(crate) fn starts_with(&self, prefix: &Self) -> bool {
        self.0.starts_with(&prefix.0)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Name(name) => {
                    if at > 0 {
                        f.write_str(".")?;
                    }
                    if is_bare(name) {
                        f.write_str(name)?;
                    } else {
                        write!(f, "{name:?}")?;
                    }
                }
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Whether TOML lets the name stand without quotes.
fn is_bare(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_places() {
        let lease = Path::default().name("relay").name("lease");
        let kind = Path::default().name("connections").name("a.b").name("kind");
        let mandatory = Path::default().name("routes").index(3).name("mandatory");
        assert!(lease.matches("relay.lease"));
        assert!(!lease.matches("relay.heartbeat"));
        assert!(!lease.matches("relay"));
        assert!(kind.matches("connections.*.kind"));
        assert!(mandatory.matches("routes.#.mandatory"));
        assert!(!mandatory.matches("routes.*.kind"));
        assert!(
            Path::default()
                .name("routes")
                .leads_to("routes.#.mandatory")
        );
        assert!(!lease.leads_to("relay.lease"));
    }

    #[test]
    fn places_are_written_as_in_toml() {
        let kind = Path::default().name("connections").name("a.b").name("kind");
        assert_eq!(kind.to_string(), "connections.\"a.b\".kind");
        let mandatory = Path::default().name("routes").index(3).name("mandatory");
        assert_eq!(mandatory.to_string(), "routes[3].mandatory");
    }
}
