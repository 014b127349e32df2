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

/// `by` after `now`, at the latest at the end of the year 9999, so that no delay, however absurd,
/// makes a time that cannot be stored.
#[must_use]
pub fn later(now: Timestamp, by: std::time::Duration) -> Timestamp {
    i64::try_from(by.as_micros())
        .ok()
        .and_then(|by| now.unix_micros().checked_add(by))
        .and_then(Timestamp::from_unix_micros)
        .unwrap_or_else(|| {
            Timestamp::from_unix_micros(LAST_UNIX_MICROS).expect("the year 9999 is in range")
        })
}

/// 9999-12-31T23:59:59.999999Z.
const LAST_UNIX_MICROS: i64 = 253_402_300_799_999_999;

/// The time from `earlier` to `later`; zero if it is not later.
#[must_use]
pub fn between(earlier: Timestamp, later: Timestamp) -> std::time::Duration {
    let micros = later.unix_micros().saturating_sub(earlier.unix_micros());
    std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0))
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
