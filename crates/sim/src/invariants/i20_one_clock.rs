//! I20: a worker starts a send only while its own reckoning of the lease, which starts before the
//! call that granted it, covers the whole send.

use super::{Invariant, Verdict, attempt_of, ensure};
use crate::{oracle::Sending, plan::Plan, truth::Truth};

pub(crate) struct OneClock;

impl Invariant for OneClock {
    fn name(&self) -> &'static str {
        "I20 one clock"
    }

    fn sending(&mut self, sending: &Sending<'_>, truth: &Truth) -> Verdict {
        let (Some(leases), Some(attempt)) = (sending.lease_left, attempt_of(sending, truth)) else {
            return Ok(());
        };
        let left = leases.get(&attempt.session).copied();
        let needed = i64::try_from(Plan::deadlines().send_needs().as_micros()).unwrap_or(i64::MAX);
        ensure(left.is_some_and(|left| left >= needed), || {
            format!(
                "worker {} sends {:?} with {left:?} µs of its lease left, and needs {needed}",
                sending.life.worker, sending.positions
            )
        })
    }
}
