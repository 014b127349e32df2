//! Whose clock a store goes by.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use postrider_contract::Timestamp;

/// The time source of a store's statements.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The database's own: the only one in production (I20).
    #[default]
    Database,
    /// A value under the test's control, passed to every statement in place of the database's.
    Manual(ManualClock),
}

/// A clock that moves only when told to. Clones share it.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(now.unix_micros())))
    }

    /// # Panics
    /// When moved out of the years 0001 to 9999.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.0.load(Ordering::SeqCst)).expect("a time in range")
    }

    /// Moves by `by`, forwards or backwards, in microseconds.
    pub fn step_micros(&self, by: i64) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    pub fn advance(&self, by: std::time::Duration) {
        self.step_micros(i64::try_from(by.as_micros()).unwrap_or(i64::MAX));
    }
}

impl Clock {
    /// What to pass as the `now` parameter: `None` leaves it to the database.
    #[must_use]
    pub fn parameter(&self) -> Option<Timestamp> {
        match self {
            Self::Database => None,
            Self::Manual(clock) => Some(clock.now()),
        }
    }
}
