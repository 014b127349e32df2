//! A message's headers in one piece of text.

use std::{fmt, fmt::Write as _, ops::Range};

/// Names and values in their order. All of them share one piece of text: a message has some twenty
/// headers, and a relay makes many messages a second.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    text: String,
    /// Where each name and each value ends.
    ends: Vec<(usize, usize)>,
}

impl Headers {
    /// Room for `count` headers of `bytes` bytes in all.
    #[must_use]
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
        }
    }

    pub fn push(&mut self, name: &str, value: impl fmt::Display) {
        self.push_joined("", name, value);
    }

    /// Pushes a header whose name is `prefix` and `name` together.
    pub(super) fn push_joined(&mut self, prefix: &str, name: &str, value: impl fmt::Display) {
        self.text.push_str(prefix);
        self.text.push_str(name);
        let name_end = self.text.len();
        write!(self.text, "{value}").expect("text is written to memory");
        self.ends.push((name_end, self.text.len()));
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        (0..self.ends.len()).map(|at| {
            let (name, value) = self.range(at);
            (&self.text[name], &self.text[value])
        })
    }

    /// The value of the first header of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    fn range(&self, at: usize) -> (Range<usize>, Range<usize>) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (name_end, value_end) = self.ends[at];
        (start..name_end, name_end..value_end)
    }
}

impl<N: AsRef<str>, V: fmt::Display> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::default();
        for (name, value) in pairs {
            headers.push(name.as_ref(), value);
        }
        headers
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_come_back_in_their_order_empty_ones_too() {
        let pairs = [
            ("a", "1"),
            ("", "no name"),
            ("b", ""),
            ("ä", "é"),
            ("a", "2"),
        ];
        let headers: Headers = pairs.into_iter().collect();
        assert_eq!(headers.iter().collect::<Vec<_>>(), pairs);
        assert_eq!(headers.len(), 5);
        assert_eq!(headers.get("a"), Some("1"));
        assert_eq!(headers.get("c"), None);
        assert!(Headers::default().is_empty());
    }
}
