//! The backends: one match arm per database and one per transport, and nothing else anywhere that
//! knows them by name.

pub(crate) mod store;
pub(crate) mod transport;

pub(crate) use transport::Factory;
