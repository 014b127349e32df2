//! postrider's transport-http crate.
