//! postrider's decisions, without I/O and without a clock: events and time in, commands out.
//!
//! Everything here is deterministic: `now` is an argument, randomness comes from a seed, and
//! maps are ordered. The relay executes what these machines ask for; the simulator does too.

pub mod backoff;
pub mod breaker;
pub mod deadline;
pub mod delivery;
pub mod dispatcher;
pub mod exchange;
pub mod id;
pub mod lanes;
pub mod mutation;
pub mod outcome;
pub mod session;
pub mod time;

pub use id::{AttemptId, DestinationId, Lane, Position, SessionId};
pub use outcome::{Class, Outcome};
pub use time::Instant;
