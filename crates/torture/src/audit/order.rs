//! I15: the first copies of a key's events are in the order of their commits.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use crate::{evidence::Evidence, made};

/// Between the commit record of a transaction, which has the time, and the moment at which others
/// see it. The database may be paused in between.
const COMMIT_TAKES_US: i64 = 5_000_000;

/// An event that came after a later one of its key.
#[derive(Debug)]
pub(crate) struct Overtaken<'a> {
    destination: &'a str,
    event: Uuid,
    by: Uuid,
}

pub(super) fn broken(evidence: &Evidence) -> Vec<String> {
    let seen = overtaken(evidence)
        .into_iter()
        .filter(|one| !one.was_unseen(evidence));
    seen.map(|one| {
        let committed = &evidence.known.committed;
        let (event, by) = (&committed[&one.event], &committed[&one.by]);
        format!(
            "{} (key {}, turn {}) came to {} after {} (turn {})",
            one.event, event.key, event.turn, one.destination, one.by, by.turn
        )
    })
    .collect()
}

/// How many were overtaken before the relay had seen them, which is known and permitted.
pub(crate) fn overtaken_unseen(evidence: &Evidence) -> u64 {
    let all = overtaken(evidence).into_iter();
    all.filter(|one| one.was_unseen(evidence)).count() as u64
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

impl Overtaken<'_> {
    /// Where several of a key may be in flight, one thing is known and permitted: an event whose
    /// position became visible after later positions lies below the reader's position until its
    /// next look at the front, and a later one of its key that is read meanwhile goes first. So it
    /// was first sent after that one; whatever was in the relay's hands before keeps its order.
    fn was_unseen(&self, evidence: &Evidence) -> bool {
        let sent = |event| {
            let obligation = (self.destination.to_owned(), event);
            evidence.database.first_attempts.get(&obligation).copied()
        };
        let overtook_unsent = match (sent(self.event), sent(self.by)) {
            (Some(event), Some(by)) => by < event,
            (Some(_) | None, _) => false,
        };
        made::may_have_many_in_flight(self.destination)
            && overtook_unsent
            && appeared_late(evidence, self.event)
    }
}

/// Whether a later position may have been visible before this event.
fn appeared_late(evidence: &Evidence, event: Uuid) -> bool {
    let events = &evidence.database.events;
    let Some(own) = events.get(&event) else {
        return false;
    };
    let Some(own_time) = own.committed_at else {
        return false;
    };
    events.values().any(|other| {
        other.position > own.position
            && other
                .committed_at
                .is_some_and(|time| time < own_time + COMMIT_TAKES_US)
    })
}
