//! I8: an ended session starts nothing, renews nothing and settles nothing by the fast path; only
//! a session whose lease is over is ended by another; a lane has one holder, who is not ended.

use postrider_core::SessionId;

use super::{Invariant, Verdict, ensure};
use crate::{
    oracle::{Call, Request, Written},
    truth::Truth,
};

pub(crate) struct Fence;

impl Invariant for Fence {
    fn name(&self) -> &'static str {
        "I8 fence"
    }

    fn called(&mut self, call: &Call<'_>, _: &Truth) -> Verdict {
        ensure(!(call.done && call.live == Some(false)), || {
            format!("an ended session was let through: {:?}", call.request)
        })
    }

    fn written(&mut self, written: &Written<'_>, _: &Truth) -> Verdict {
        let ends_others = matches!(
            written.call.request,
            Request::Recover | Request::Open(_) | Request::Exchange(_)
        );
        if ends_others {
            for session in &written.before.sessions {
                let ended = written
                    .after
                    .sessions
                    .iter()
                    .any(|after| after.id == session.id && after.ended && !session.ended);
                ensure(!(ended && session.expires_at > written.call.now), || {
                    format!("session {} was ended while its lease ran", session.id)
                })?;
            }
        }
        let ended = |id: SessionId| {
            let mut sessions = written.after.sessions.iter();
            sessions.any(|session| session.id == id && session.ended)
        };
        for lane in &written.after.lanes {
            ensure(!lane.holder.is_some_and(ended), || {
                format!("{lane:?} is held by a session that has ended")
            })?;
        }
        let Request::Claim(by) = written.call.request else {
            return Ok(());
        };
        for (before, after) in written.before.lanes.iter().zip(&written.after.lanes) {
            ensure(
                before.holder == after.holder || before.holder.is_none(),
                || format!("session {by} took {before:?} from its holder"),
            )?;
        }
        Ok(())
    }
}
