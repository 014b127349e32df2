//! Text that must never be shown.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A password, token or key. It has no `Display`, and its `Debug` shows nothing of it, not even
/// its length.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one call that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn debug_shows_nothing() {
        let secret = Secret::new("S3CRET");
        assert_eq!(
            format!("{secret:?} {:#?}", Some(&secret)),
            "Secret(..) Some(\n    Secret(..),\n)"
        );
        assert_eq!(secret.reveal(), "S3CRET");
    }
}
