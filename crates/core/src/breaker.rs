//! The circuit breaker of one destination: an outage stops all sends but one probe at a time.

use rand::Rng;

use crate::{Instant, backoff::Backoff};

/// Closed, open, or trying with one delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Closed,
    Open {
        since: Instant,
        until: Instant,
        failures: u32,
        cause: Cause,
    },
    /// One delivery is on its way to see whether the outage is over.
    Probing {
        since: Instant,
        failures: u32,
        cause: Cause,
    },
}

/// The outage, as the transport told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub code: &'static str,
    pub detail: String,
}

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    All,
    /// One delivery, as a probe.
    One,
    NothingUntil(Instant),
    /// A probe is under way.
    Nothing,
}

#[derive(Clone, Debug)]
pub struct Breaker {
    state: State,
    backoff: Backoff,
}

impl Breaker {
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
        Self {
            state: State::Closed,
            backoff,
        }
    }

    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    #[must_use]
    pub fn admission(&self, now: Instant) -> Admission {
        match &self.state {
            State::Closed => Admission::All,
            State::Open { until, .. } if *until <= now => Admission::One,
            State::Open { until, .. } => Admission::NothingUntil(*until),
            State::Probing { .. } => Admission::Nothing,
        }
    }

    /// The one delivery that [`Admission::One`] allows was registered.
    ///
    /// # Panics
    /// When the breaker is not open: the caller did not ask for admission.
    pub fn probe(&mut self) {
        match &self.state {
            State::Open {
                since,
                failures,
                cause,
                ..
            } => {
                self.state = State::Probing {
                    since: *since,
                    failures: *failures,
                    cause: cause.clone(),
                };
            }
            State::Closed | State::Probing { .. } => panic!("a probe needs an open breaker"),
        }
    }

    /// The destination answered about a message: it is there.
    pub fn reached(&mut self) {
        self.state = State::Closed;
    }

    /// The probe ended without any word from the destination, and without an outage either: it
    /// was never sent. Try again at once.
    pub fn probe_unsent(&mut self, now: Instant) {
        if let State::Probing {
            since,
            failures,
            cause,
        } = &self.state
        {
            self.state = State::Open {
                since: *since,
                until: now,
                failures: *failures,
                cause: cause.clone(),
            };
        }
    }

    /// The destination could not be reached, or said that it takes nothing now.
    pub fn outage(&mut self, now: Instant, cause: Cause, rng: &mut impl Rng) {
        let (since, failures) = match &self.state {
            State::Closed => (now, 1),
            // Messages that were in flight when it opened say nothing new.
            State::Open { .. } => return,
            State::Probing {
                since, failures, ..
            } => (*since, failures.saturating_add(1)),
        };
        // Half fixed, half drawn: several workers spread out, and none hammers.
        let ceiling = self.backoff.ceiling(failures);
        let until = now + ceiling / 2 + self.backoff.delay(failures, rng) / 2;
        self.state = State::Open {
            since,
            until,
            failures,
            cause,
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::{SeedableRng as _, rngs::StdRng};

    use super::*;

    fn cause() -> Cause {
        Cause {
            code: "connect",
            detail: String::new(),
        }
    }

    #[test]
    fn one_probe_at_a_time_and_closes_by_itself() {
        let rng = &mut StdRng::seed_from_u64(1);
        let mut breaker = Breaker::new(Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(10),
        });
        let mut now = Instant(0);
        assert_eq!(breaker.admission(now), Admission::All);
        let mut last = Duration::ZERO;
        for round in 1..=10_u32 {
            breaker.outage(now, cause(), rng);
            breaker.outage(now, cause(), rng);
            let Admission::NothingUntil(until) = breaker.admission(now) else {
                panic!("open after an outage")
            };
            let wait = until.since(now);
            let ceiling = Duration::from_millis(100 << (round - 1)).min(Duration::from_secs(10));
            assert!(
                wait >= ceiling / 2 && wait <= ceiling,
                "round {round}: {wait:?}"
            );
            last = last.max(wait);
            now = until;
            assert_eq!(breaker.admission(now), Admission::One);
            breaker.probe();
            assert_eq!(breaker.admission(now), Admission::Nothing);
        }
        assert!(last <= Duration::from_secs(10));
        breaker.reached();
        assert_eq!(breaker.admission(now), Admission::All);
    }

    #[test]
    fn a_probe_that_was_never_sent_opens_again_without_waiting() {
        let rng = &mut StdRng::seed_from_u64(1);
        let mut breaker = Breaker::new(Backoff {
            first: Duration::from_millis(100),
            max: Duration::from_secs(10),
        });
        breaker.outage(Instant(0), cause(), rng);
        let now = Instant(10_000_000);
        breaker.probe();
        breaker.probe_unsent(now);
        assert_eq!(breaker.admission(now), Admission::One);
    }
}
