//! postrider's relay crate.
