//! RFC 8785 canonical JSON.

use serde::Serialize;

/// The canonical form of a value whose numbers are all integers within ±(2^53 - 1).
///
/// # Panics
/// Never for the types of this crate: they serialise without error.
#[must_use]
pub fn to_string<T: Serialize>(value: &T) -> String {
    serde_jcs::to_string(value).expect("contract types serialise")
}
