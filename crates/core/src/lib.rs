//! postrider's core crate.
