//! postrider's contract crate.
