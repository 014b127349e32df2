//! How a partition key becomes a hash and a lane. SQL and Rust must agree on every key.

use sha2::{Digest as _, Sha256};

/// The hash of a partition key: the first eight bytes of its SHA-256, big-endian, with the sign
/// bit cleared, so that it is a non-negative `bigint` everywhere.
#[must_use]
pub fn hash(partition_key: &str) -> i64 {
    let digest = Sha256::digest(partition_key.as_bytes());
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
    i64::try_from(first & (u64::MAX >> 1)).expect("63 bits fit")
}

/// The lane of a key hash at a destination with `lanes` lanes: `hash mod lanes`.
///
/// # Panics
/// If `lanes` is 0; a [`Destination`](crate::Destination) never has 0 lanes.
#[must_use]
pub fn lane(hash: i64, lanes: u16) -> u16 {
    assert!(lanes > 0, "a destination has at least one lane");
    u16::try_from(hash.rem_euclid(i64::from(lanes))).expect("below lanes")
}
