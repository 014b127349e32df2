//! A delivery is in one open attempt at most: whoever registers it holds its lane, and whoever held
//! that before has handed it over drained, or was ended and its attempts with it.

use std::collections::BTreeSet;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, Written},
    truth::Truth,
};

pub(crate) struct OneAttempt;

impl Invariant for OneAttempt {
    fn name(&self) -> &'static str {
        "one open attempt"
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        let Request::Exchange(exchange) = written.call.request else {
            return Ok(());
        };
        if exchange.register.is_empty() {
            return Ok(());
        }
        let mut seen = BTreeSet::new();
        for attempt in written.model.attempt_facts() {
            if attempt.finished_at.is_some() {
                continue;
            }
            for position in attempt.members {
                ensure(seen.insert((attempt.destination, *position)), || {
                    format!(
                        "event {position} is in two open attempts at destination {}",
                        attempt.destination
                    )
                })?;
            }
        }
        Ok(())
    }
}
