//! I2: every event has exactly the deliveries that its delivery set prescribes, each open or
//! closed by a receipt, and none ever disappears.

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, Written},
    truth::Truth,
};

pub(crate) struct Complete;

impl Invariant for Complete {
    fn name(&self) -> &'static str {
        "I2 complete"
    }

    fn written(&mut self, written: &Written<'_>, truth: &Truth) -> Verdict {
        if let Some(gone) = written.changes.iter().find(|change| change.to.is_none()) {
            return Err(format!("the delivery {:?} is gone", gone.key));
        }
        if !matches!(written.call.request, Request::Append) {
            return match written.changes.iter().find(|change| change.from.is_none()) {
                Some(made) => Err(format!("{:?} was made by no append", made.key)),
                None => Ok(()),
            };
        }
        let prescribed: usize = truth
            .committed
            .values()
            .map(|event| event.destinations.len())
            .sum();
        let found = written.after.deliveries.len();
        ensure(found == prescribed, || {
            format!("{found} deliveries, {prescribed} are prescribed")
        })?;
        for ((destination, position), _) in &written.after.deliveries {
            let event = truth.committed.get(position);
            ensure(
                event.is_some_and(|event| event.destinations.contains(destination)),
                || format!("event {position} is not for destination {destination}"),
            )?;
        }
        Ok(())
    }
}
