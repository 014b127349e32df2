//! I4: no byte of an event leaves before its attempt is durable, and an attempt is sent once.

use super::{Invariant, Verdict, attempt_of, ensure};
use crate::{oracle::Sending, truth::Truth};

pub(crate) struct RegisterBeforeSend;

impl Invariant for RegisterBeforeSend {
    fn name(&self) -> &'static str {
        "I4 register before send"
    }

    fn sending(&mut self, sending: &Sending<'_>, truth: &Truth) -> Verdict {
        ensure(attempt_of(sending, truth).is_some(), || {
            format!(
                "worker {} sends {:?} to destination {} without a registered attempt of its own",
                sending.life.worker, sending.positions, sending.destination
            )
        })
    }
}
