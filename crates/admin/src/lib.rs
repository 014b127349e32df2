//! postrider's admin crate.
