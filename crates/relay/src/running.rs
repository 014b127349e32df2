//! What a session has running: the tasks of its destinations, and what keeps each from sending.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use postrider_core::DestinationId;
use tokio::{sync::mpsc, task::JoinSet};
use tracing::info;

use crate::{destination::Control, session::End};

/// How long everything must be idle before the worker asks for the doorbell.
const SLEEP_AFTER: Duration = Duration::from_millis(40);

/// What a session has running.
#[derive(Debug, Default)]
pub(crate) struct Running {
    pub(crate) tasks: JoinSet<()>,
    pub(crate) controls: BTreeMap<DestinationId, mpsc::UnboundedSender<Control>>,
    pub(crate) gates: BTreeMap<DestinationId, Gate>,
    pub(crate) lanes: BTreeMap<DestinationId, usize>,
    pub(crate) idle: BTreeSet<DestinationId>,
    pub(crate) idle_since: Option<tokio::time::Instant>,
    pub(crate) done: BTreeSet<DestinationId>,
    pub(crate) asleep: bool,
    pub(crate) live: bool,
    pub(crate) end: Option<End>,
}

/// What keeps a destination from being sent to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    /// By a person or by the destination itself, in the store.
    suspended: bool,
    preflight: Preflight,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Preflight {
    #[default]
    NotYet,
    Fine,
    Refused,
}

impl Running {
    pub(crate) fn tell(&self, destination: DestinationId, control: Control) {
        if let Some(sender) = self.controls.get(&destination)
            && sender.send(control).is_err()
        {
            info!(%destination, "its task is over");
        }
    }

    pub(crate) fn broadcast(&self, control: &Control) {
        for destination in self.controls.keys() {
            self.tell(*destination, control.clone());
        }
    }

    pub(crate) fn suspend(&mut self, destination: DestinationId, suspended: bool) {
        let Some(gate) = self.gates.get_mut(&destination) else {
            return;
        };
        gate.suspended = suspended;
        self.tell_gate(destination);
    }

    pub(crate) fn refuse(&mut self, destination: DestinationId, refused: bool) {
        let Some(gate) = self.gates.get_mut(&destination) else {
            return;
        };
        gate.preflight = if refused {
            Preflight::Refused
        } else {
            Preflight::Fine
        };
        self.tell_gate(destination);
    }

    pub(crate) fn was_fine(&self, destination: DestinationId) -> bool {
        self.gates
            .get(&destination)
            .is_some_and(|gate| gate.preflight == Preflight::Fine)
    }

    fn closed(&self, destination: DestinationId) -> bool {
        self.gates
            .get(&destination)
            .is_none_or(|gate| gate.suspended || gate.preflight != Preflight::Fine)
    }

    fn tell_gate(&self, destination: DestinationId) {
        self.tell(destination, Control::Suspended(self.closed(destination)));
    }

    pub(crate) fn idle(&mut self, destination: DestinationId, idle: bool) {
        if idle {
            self.idle.insert(destination);
        } else {
            self.idle.remove(&destination);
        }
        let all = self.idle.len() == self.controls.len();
        self.idle_since = all.then(tokio::time::Instant::now);
    }

    /// When to ask for the doorbell, if everything stays idle.
    pub(crate) fn sleep_at(&self, doorbell: bool) -> Option<tokio::time::Instant> {
        let since = self
            .idle_since
            .filter(|_| doorbell && !self.asleep && self.live)?;
        Some(since + SLEEP_AFTER)
    }

    /// Every destination that can be served now has made its fetches. One whose gate is closed
    /// does not count, or a bounded run would wait for a person; with `once`, one without lanes
    /// does not either.
    pub(crate) fn all_done(&self, once: bool, has_its_lanes: bool) -> bool {
        let looked = self
            .gates
            .values()
            .all(|gate| gate.preflight != Preflight::NotYet);
        let known = looked && has_its_lanes;
        let exempt = |destination: &DestinationId| {
            known
                && (self.closed(*destination)
                    || (once && self.lanes.get(destination).is_none_or(|lanes| *lanes == 0)))
        };
        (!once || known)
            && self
                .controls
                .keys()
                .all(|destination| self.done.contains(destination) || exempt(destination))
    }
}
