//! Tests that need what the crate keeps to itself.
