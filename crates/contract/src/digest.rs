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

/// Digests are written for every message of the hot path, so not digit by digit.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hex = [0; 64];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(self.bytes) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(self.algorithm.tag())?;
        f.write_str(":")?;
        f.write_str(std::str::from_utf8(&hex).map_err(|_| fmt::Error)?)
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
        if hex.len() != 64 {
            return Err(error());
        }
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Ok(digit - b'0'),
            b'a'..=b'f' => Ok(digit - b'a' + 10),
            _ => Err(error()),
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_reads_as_it_is_written_and_names_its_algorithm() {
        // The SHA-256 of nothing, as everybody knows it.
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of_bytes(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(Digest::of_bytes(b"")));
        let tagged = Digest::of_canonical("{}");
        assert_eq!(tagged.to_string().parse(), Ok(tagged));
        assert_ne!(
            tagged,
            Digest::of_bytes(b"{}"),
            "the algorithm is part of the digest"
        );
        let hex = &text[7..];
        for bad in [
            "",
            "sha256",
            "sha256:",
            hex,
            &format!("sha1:{hex}"),
            &format!("SHA256:{hex}"),
            &format!("sha256:{}", hex.to_uppercase()),
            &format!("sha256:{hex}0"),
            &format!("sha256:{}", &hex[1..]),
            &format!("sha256:{}g", &hex[1..]),
            &format!(" {text}"),
        ] {
            let error = bad.parse::<Digest>().unwrap_err();
            assert!(error.to_string().contains("is not a digest"), "{bad}");
        }
    }
}
