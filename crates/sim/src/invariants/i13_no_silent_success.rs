//! I13: a delivery changes only in the ways that its table allows to whoever acts: nothing closes
//! without a receipt, and only a replay takes anything out of quarantine unproven.

use postrider_core::delivery::State;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Request, Written},
    truth::Truth,
};

pub(crate) struct NoSilentSuccess;

impl Invariant for NoSilentSuccess {
    fn name(&self) -> &'static str {
        "I13 no silent success"
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        for change in written.changes {
            let (Some(from), Some(to)) = (&change.from, &change.to) else {
                continue;
            };
            ensure(may(&written.call.request, from.state, to.state), || {
                format!(
                    "{:?} went from {} to {} by {:?}",
                    change.key,
                    from.state.word(),
                    to.state.word(),
                    written.call.request
                )
            })?;
        }
        Ok(())
    }
}

fn may(request: &Request<'_>, from: State, to: State) -> bool {
    use State::{Acknowledged, Pending, Quarantined, Unknown};
    match request {
        Request::Exchange(_) => matches!(
            (from, to),
            (Pending, _) | (Unknown | Quarantined, Acknowledged)
        ),
        Request::Recover | Request::End(_) | Request::Open(_) => {
            matches!((from, to), (Pending, Pending | Unknown))
        }
        Request::Evidence(_) => to == Acknowledged && from != Acknowledged,
        Request::Forged(..) => to == Quarantined && from != Acknowledged,
        Request::Replay => (from, to) == (Quarantined, Pending),
        Request::Read
        | Request::Heartbeat(_)
        | Request::Claim(_)
        | Request::Release(_)
        | Request::Asleep(_)
        | Request::Append
        | Request::Apply => false,
    }
}
