//! What every backend promises, as suites of tests: one for stores, one for transports. A
//! dev-dependency only; nothing that ships depends on it.

pub mod store;
pub mod transport;
