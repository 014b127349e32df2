//! Digests that carry their algorithm, so that a stored digest can always be checked again.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::Invalid;

/// How the bytes under a digest were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256 over RFC 8785 canonical JSON.
    JcsSha256V1,
    /// SHA-256 over the raw bytes.
    Sha256,
}

impl Algorithm {
    /// The tag that stands before the hex digits.
    #[must_use]
    pub fn tag(self) -> &'static str {
        match self {
            Self::JcsSha256V1 => "jcs-sha256-v1",
            Self::Sha256 => "sha256",
        }
    }
}

/// A digest with its algorithm, written `tag:64-hex-digits`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    pub algorithm: Algorithm,
    pub bytes: [u8; 32],
}

/// Text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest; expected jcs-sha256-v1: or sha256: and 64 lower-case hex digits")]
pub struct ParseError(pub String);

impl Digest {
    /// SHA-256 over raw bytes, such as a payload.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self {
            algorithm: Algorithm::Sha256,
            bytes: Sha256::digest(bytes).into(),
        }
    }

    /// SHA-256 over text that is canonical JSON already.
    #[must_use]
    pub fn of_canonical(canonical: &str) -> Self {
        Self {
            algorithm: Algorithm::JcsSha256V1,
            bytes: Sha256::digest(canonical.as_bytes()).into(),
        }
    }
}

impl Digest {
    /// Refuses a digest that was made another way than the field prescribes.
    pub(crate) fn expect(&self, field: &str, algorithm: Algorithm) -> Result<(), Invalid> {
        if self.algorithm == algorithm {
            return Ok(());
        }
        let expected = match algorithm {
            Algorithm::JcsSha256V1 => "a jcs-sha256-v1 digest, which is over canonical JSON",
            Algorithm::Sha256 => "a sha256 digest, which is over raw bytes",
        };
        Err(Invalid::malformed(field, &self.to_string(), expected))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.algorithm.tag())?;
        self.bytes
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Digest {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let error = || ParseError(text.chars().take(100).collect());
        let (tag, hex) = text.split_once(':').ok_or_else(error)?;
        let algorithm = [Algorithm::JcsSha256V1, Algorithm::Sha256]
            .into_iter()
            .find(|algorithm| algorithm.tag() == tag)
            .ok_or_else(error)?;
        let hex = hex.as_bytes();
        if hex.len() != 64 || !hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(error());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| error())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| error())?;
        }
        Ok(Self { algorithm, bytes })
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Digest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^(jcs-sha256-v1|sha256):[0-9a-f]{64}$"
        })
    }
}
