//! Exponential backoff with full jitter.

use std::time::Duration;

use rand::Rng;

/// The bounds of the delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Upper bound of the first delay.
    pub first: Duration,
    /// Upper bound of every delay.
    pub max: Duration,
}

impl Backoff {
    /// The upper bound of the delay after `failures` failures (1, 2, …): `first * 2^(failures-1)`,
    /// at most `max`.
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.first
            .checked_mul(1 << doublings)
            .map_or(self.max, |delay| delay.min(self.max))
    }

    /// A delay drawn evenly from zero to the ceiling ("full jitter"), so that deliveries that
    /// failed together do not come back together.
    pub fn delay(&self, failures: u32, rng: &mut impl Rng) -> Duration {
        let ceiling = u64::try_from(self.ceiling(failures).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(rng.random_range(0..=ceiling))
    }
}
