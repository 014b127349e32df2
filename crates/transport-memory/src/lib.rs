//! postrider's transport-memory crate.
