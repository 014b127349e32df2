//! postrider's postrider crate.
