//! postrider's transport crate.
