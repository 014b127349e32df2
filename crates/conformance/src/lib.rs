//! postrider's conformance crate.
