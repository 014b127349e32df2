//! I17: open attempts of one session and destination are bounded by the settings.

use std::collections::BTreeMap;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, Written},
    truth::Truth,
};

/// Two being sent, one kept ready, and those that ended while one exchange was under way: at most
/// as many again.
const UNFINISHED_MAX: usize = 6;

pub(crate) struct Bounded;

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "I17 bounded"
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        if !matches!(written.call.request, Request::Exchange(_)) {
            return Ok(());
        }
        let mut open: BTreeMap<_, usize> = BTreeMap::new();
        for attempt in written.model.attempt_facts() {
            if attempt.finished_at.is_none() {
                *open
                    .entry((attempt.session, attempt.destination))
                    .or_default() += 1;
            }
        }
        match open.iter().find(|(_, count)| **count > UNFINISHED_MAX) {
            Some((of, count)) => Err(format!("{of:?} has {count} open attempts")),
            None => ensure(true, String::new),
        }
    }
}
