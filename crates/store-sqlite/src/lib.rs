//! postrider's store-sqlite crate.
