//! postrider's testkit crate.
