//! I11: unknown is a state. Where the destination does not resend, nothing of unknown outcome is
//! sent again; each unknown names its attempt; no attempt disappears unfinished.

use postrider_contract::destination::OnUnknown;
use postrider_core::delivery::State;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, UNKNOWN_CODES, Written},
    truth::{Key, Truth},
};

pub(crate) struct UnknownIsAState;

impl Invariant for UnknownIsAState {
    fn name(&self) -> &'static str {
        "I11 unknown"
    }

    fn written(&mut self, written: &Written<'_>, truth: &Truth) -> Verdict {
        ensure(written.after.attempts >= written.before.attempts, || {
            "an attempt is gone".to_owned()
        })?;
        let lost = written
            .model
            .attempt_facts()
            .filter(|attempt| written.before.unfinished.contains(&attempt.id));
        for attempt in lost.filter(|attempt| attempt.finished_at.is_some()) {
            for position in attempt.members {
                let key = (attempt.destination, *position);
                let named = attempt
                    .exceptions
                    .is_some_and(|exceptions| exceptions.contains_key(position));
                let proven = written.after.get(key).is_some_and(|seen| {
                    seen.receipt
                        .as_ref()
                        .is_some_and(|(of, _)| *of == attempt.id)
                }) || written
                    .model
                    .duplicate_facts()
                    .any(|fact| fact.attempt == attempt.id && fact.position == *position);
                ensure(named || proven, || {
                    format!("attempt {} is over and says nothing of {key:?}", attempt.id)
                })?;
            }
        }
        for change in written.changes {
            let is = change.to.as_ref().map(|seen| seen.state);
            ensure(
                is != Some(State::Unknown) || !unknown_attempts(written, change.key).is_empty(),
                || format!("{:?} is unknown and no attempt of it is", change.key),
            )?;
        }
        let Request::Exchange(exchange) = written.call.request else {
            return Ok(());
        };
        let resends = truth
            .destinations
            .get(&exchange.destination)
            .is_none_or(|known| known.on_unknown == OnUnknown::Resend);
        if resends {
            return Ok(());
        }
        for position in exchange.register.iter().flat_map(|of| &of.members) {
            let key = (exchange.destination, *position);
            ensure(
                truth.replayed.contains(&key) || unknown_attempts(written, key).is_empty(),
                || format!("{key:?} is about to be sent again, and its last outcome is unknown"),
            )?;
        }
        Ok(())
    }
}

/// Codes of the finished attempts of a delivery that left it unknown.
fn unknown_attempts(written: &Written<'_>, (destination, position): Key) -> Vec<String> {
    written
        .model
        .attempt_facts()
        .filter(|attempt| attempt.destination == destination)
        .filter_map(|attempt| attempt.exceptions?.get(&position))
        .filter(|(code, _)| UNKNOWN_CODES.contains(&code.as_str()))
        .map(|(code, _)| code.clone())
        .collect()
}
