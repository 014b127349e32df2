//! SHA-256 of payloads, for comparing what was committed with what arrived.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Sha256([u8; 32]);

impl Sha256 {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
