//! Writers append all the time, each to keys of its own. When the answer to a COMMIT is lost a
//! writer does not know what became of it, and asks the database before it goes on.

pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::time::Duration;

use rand::{Rng as _, rngs::StdRng};

/// Between two transactions of a writer, in a short run.
const PAUSE_MS: std::ops::RangeInclusive<u64> = 20..=80;
/// The run up to which pauses stay as they are; in longer ones fewer events a minute are made, so
/// that what the audit reads stays small.
const FULL_PACE: Duration = Duration::from_secs(5 * 60);

/// How fast writers go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    stretch: f64,
}

impl Pace {
    pub(crate) fn for_run_of(time: Duration) -> Self {
        let stretch = time.as_secs_f64() / FULL_PACE.as_secs_f64();
        Self {
            stretch: stretch.max(1.0),
        }
    }

    fn pause(self, rng: &mut StdRng) -> Duration {
        Duration::from_millis(rng.random_range(PAUSE_MS)).mul_f64(self.stretch)
    }
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Committed,
    /// As the writer wished.
    RolledBack,
    /// Before COMMIT was sent, so that it cannot have committed.
    Failed,
    /// The answer was lost, and the database says that it is there.
    ProvedCommitted,
    /// The answer was lost, and the database says that it is not there and can never be.
    ProvedAbsent,
}
