//! postrider's cli crate.
