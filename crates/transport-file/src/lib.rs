//! postrider's transport-file crate.
