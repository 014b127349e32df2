//! I12: evidence that does not match closes nothing; where it names another digest, what is open
//! is quarantined at once.

use postrider_core::delivery::State;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, Written},
    truth::Truth,
};

pub(crate) struct Conflict;

impl Invariant for Conflict {
    fn name(&self) -> &'static str {
        "I12 conflict"
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        let Request::Forged(evidence, other_digest) = written.call.request else {
            return Ok(());
        };
        let key = (evidence.destination, evidence.position);
        ensure(
            written.changes.iter().all(|change| change.key == key)
                && written.after.duplicates == written.before.duplicates,
            || format!("forged evidence for {key:?} changed something else"),
        )?;
        let (before, after) = (written.before.get(key), written.after.get(key));
        let (Some(before), Some(after)) = (before, after) else {
            return Ok(());
        };
        let expected = match before.state {
            State::Pending | State::Unknown | State::Quarantined if other_digest => {
                State::Quarantined
            }
            same @ (State::Pending | State::Unknown | State::Quarantined | State::Acknowledged) => {
                same
            }
        };
        ensure(after.state == expected, || {
            format!(
                "forged evidence made {key:?} {} and not {}",
                after.state.word(),
                expected.word()
            )
        })
    }
}
