//! I15: the first copies of a key's events are in the order of their commits.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::evidence::Evidence;

/// An event that came after a later one of its key.
#[derive(Debug)]
pub(crate) struct Overtaken<'a> {
    destination: &'a str,
    event: Uuid,
    by: Uuid,
}

pub(super) fn broken(evidence: &Evidence) -> Vec<String> {
    let committed = &evidence.known.committed;
    let line = |one: Overtaken<'_>| {
        let (event, by) = (&committed[&one.event], &committed[&one.by]);
        format!(
            "{} (key {}, turn {}) came to {} after {} (turn {})",
            one.event, event.key, event.turn, one.destination, one.by, by.turn
        )
    };
    overtaken(evidence).into_iter().map(line).collect()
}

fn overtaken(evidence: &Evidence) -> Vec<Overtaken<'_>> {
    let mut overtaken = Vec::new();
    for (destination, arrivals) in &evidence.arrivals {
        let mut seen = BTreeSet::new();
        let mut latest = BTreeMap::<&str, (u64, Uuid)>::new();
        for arrival in arrivals {
            let Some(event) = evidence.known.committed.get(&arrival.event) else {
                continue;
            };
            if !seen.insert(arrival.event) {
                continue;
            }
            match latest.get(event.key.as_str()) {
                Some((turn, by)) if *turn > event.turn => overtaken.push(Overtaken {
                    destination,
                    event: arrival.event,
                    by: *by,
                }),
                Some(_) | None => {
                    latest.insert(&event.key, (event.turn, arrival.event));
                }
            }
        }
    }
    overtaken
}
