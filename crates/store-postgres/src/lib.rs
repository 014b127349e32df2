//! postrider's store-postgres crate.
