//! The simulator: the relay that ships, over the memory store and the memory transport, in virtual
//! time, from a seed. It decides what goes wrong and checks what must hold whatever does.

mod coverage;
mod fault;
mod gate;
mod invariants;
mod life;
#[cfg(feature = "mutations")]
pub mod mutations;
mod oracle;
mod panics;
mod plan;
mod random;
mod shrink;
mod snapshot;
mod store;
mod trajectory;
mod transport;
mod truth;
mod world;

pub use coverage::{Coverage, Happening};
pub use fault::Fault;
pub use gate::{Report, gate};
pub use oracle::Violation;
pub use shrink::{Shrunk, shrink};
pub use trajectory::{Outcome, faults, run, run_faults};
