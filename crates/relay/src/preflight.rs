//! Looks at a destination again and again.

use std::{sync::Arc, time::Duration};

use postrider_core::DestinationId;
use postrider_transport::{Error, Problem, Severity, Usage};
use tokio::sync::mpsc;

use crate::destination::Served;

/// How often a destination is looked at again: while it is refused, and while it is fine.
pub(crate) const PREFLIGHT_REFUSED: Duration = Duration::from_secs(1);
const PREFLIGHT_FINE: Duration = Duration::from_secs(30);

/// Looks at a destination again and again, and tells the session what it found.
pub(crate) async fn look(
    served: Arc<Served>,
    usage: Usage,
    gates: mpsc::UnboundedSender<(DestinationId, Result<Vec<Problem>, Problem>)>,
) {
    loop {
        let found = served
            .transport
            .preflight(&usage)
            .await
            .map_err(Error::into_problem);
        let fine = found.as_ref().is_ok_and(|problems| {
            problems
                .iter()
                .all(|problem| problem.severity != Severity::Refused)
        });
        if gates.send((served.id, found)).is_err() {
            return;
        }
        tokio::time::sleep(if fine {
            PREFLIGHT_FINE
        } else {
            PREFLIGHT_REFUSED
        })
        .await;
    }
}
