//! postrider's store crate.
