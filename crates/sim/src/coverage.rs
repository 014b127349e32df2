//! What really happened: which faults struck, and which rows of the delivery table were walked.
//! A row that nothing ever walks is a check that cannot fail.

use std::{collections::BTreeMap, time::Duration};

use postrider_contract::{Receipt, destination::OnUnknown};
use postrider_core::{
    Class, Outcome,
    backoff::Backoff,
    delivery::{self, Event, Policy, State},
};
use rand::{SeedableRng as _, rngs::StdRng};

/// The events of the delivery table, without what they carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Happening {
    Acknowledged,
    Outage,
    Refusal,
    Held,
    Rejected,
    Unknown,
    SessionLost,
    Unfit,
    Receipt,
    Conflict,
    ProvenAbsent,
    CannotTellDeduplicated,
    CannotTell,
    Replayed,
}

const STATES: [State; 4] = [
    State::Pending,
    State::Unknown,
    State::Quarantined,
    State::Acknowledged,
];

/// Rows that parts not built yet would walk. They come off this list with the part.
const NOT_YET: [(State, Happening, &str); 3] = [
    (State::Unknown, Happening::ProvenAbsent, RECONCILER),
    (
        State::Unknown,
        Happening::CannotTellDeduplicated,
        RECONCILER,
    ),
    (State::Unknown, Happening::CannotTell, RECONCILER),
];

const RECONCILER: &str = "the reconciler, which probes, is not built";

impl Happening {
    /// Exhaustive, so that a new event of the table cannot be forgotten here.
    fn of(event: &Event) -> Self {
        match event {
            Event::Settled(Outcome::Acknowledged(_)) => Self::Acknowledged,
            Event::Settled(Outcome::Retryable { class, .. }) => match class {
                Class::Outage => Self::Outage,
                Class::Refusal => Self::Refusal,
                Class::Held => Self::Held,
            },
            Event::Settled(Outcome::Rejected { .. }) => Self::Rejected,
            Event::Settled(Outcome::Unknown { .. }) => Self::Unknown,
            Event::SessionLost => Self::SessionLost,
            Event::Unfit { .. } => Self::Unfit,
            Event::Receipt(_) => Self::Receipt,
            Event::Conflict { .. } => Self::Conflict,
            Event::ProvenAbsent => Self::ProvenAbsent,
            Event::CannotTell { deduplicated: true } => Self::CannotTellDeduplicated,
            Event::CannotTell {
                deduplicated: false,
            } => Self::CannotTell,
            Event::Replayed => Self::Replayed,
        }
    }
}

/// One of each.
fn examples() -> Vec<Event> {
    let receipt = Receipt::Handler {
        handler: "h".to_owned(),
        sequence: 1,
    };
    let refused = |class| Event::Settled(Outcome::retryable(class, "code", "", None));
    vec![
        Event::Settled(Outcome::Acknowledged(receipt.clone())),
        refused(Class::Outage),
        refused(Class::Refusal),
        refused(Class::Held),
        Event::Settled(Outcome::rejected("code", "")),
        Event::Settled(Outcome::unknown("code", "")),
        Event::SessionLost,
        Event::Unfit {
            code: "code",
            detail: String::new(),
        },
        Event::Receipt(receipt),
        Event::Conflict {
            detail: String::new(),
        },
        Event::ProvenAbsent,
        Event::CannotTell { deduplicated: true },
        Event::CannotTell {
            deduplicated: false,
        },
        Event::Replayed,
    ]
}

/// The rows that the table has, asked of the table itself.
fn rows() -> Vec<(State, Happening)> {
    let policy = Policy {
        on_unknown: OnUnknown::Hold,
        attempts_max: None,
        backoff: Backoff {
            first: Duration::from_millis(1),
            max: Duration::from_millis(1),
        },
    };
    let rng = &mut StdRng::seed_from_u64(0);
    let mut rows = Vec::new();
    for state in STATES {
        for event in examples() {
            let happening = Happening::of(&event);
            if delivery::next(state, 0, event, &policy, rng).is_ok() {
                rows.push((state, happening));
            }
        }
    }
    rows
}

/// Counts over any number of trajectories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub faults: BTreeMap<String, u64>,
    pub transitions: BTreeMap<(State, Happening), u64>,
    /// Other things worth counting, such as sends and duplicates.
    pub counts: BTreeMap<&'static str, u64>,
    /// Where the destination resends: from the first unknown outcome to the receipt, in whole
    /// virtual seconds.
    pub unknown_seconds: BTreeMap<u64, u64>,
}

impl Coverage {
    pub(crate) fn fault(&mut self, name: String) {
        *self.faults.entry(name).or_default() += 1;
    }

    pub(crate) fn transition(&mut self, from: State, happening: Happening) {
        *self.transitions.entry((from, happening)).or_default() += 1;
    }

    pub(crate) fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.faults {
            *self.faults.entry(name.clone()).or_default() += count;
        }
        for (row, count) in &other.transitions {
            *self.transitions.entry(*row).or_default() += count;
        }
        for (what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
        for (seconds, count) in &other.unknown_seconds {
            *self.unknown_seconds.entry(*seconds).or_default() += count;
        }
    }

    /// Rows of the table that were not walked and are not excused.
    #[must_use]
    pub fn unreached(&self) -> Vec<(State, Happening)> {
        let excused = |row: &(State, Happening)| {
            NOT_YET
                .iter()
                .any(|(state, happening, _)| (*state, *happening) == *row)
        };
        rows()
            .into_iter()
            .filter(|row| !self.transitions.contains_key(row) && !excused(row))
            .collect()
    }

    /// Rows that are excused, with the reason.
    #[must_use]
    pub fn excused() -> &'static [(State, Happening, &'static str)] {
        &NOT_YET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_of_the_table_has_an_example_and_excuses_are_rows() {
        let named: std::collections::BTreeSet<_> = examples().iter().map(Happening::of).collect();
        assert_eq!(named.len(), examples().len());
        let rows = rows();
        for (state, happening, _) in NOT_YET {
            assert!(rows.contains(&(state, happening)));
        }
    }
}
