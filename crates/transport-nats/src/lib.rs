//! postrider's transport-nats crate.
