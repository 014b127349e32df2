//! postrider's store-memory crate.
