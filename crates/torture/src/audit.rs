//! Compares what the writers committed with what the stores say. It knows no store, and each check
//! can fail: the tests show it.

pub(crate) mod order;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use uuid::Uuid;

use crate::{evidence::Evidence, made};

/// Shown of each check that failed.
const EXAMPLES_MAX: usize = 5;

/// One promise, and what breaks it.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) broken: u64,
    pub(crate) examples: Vec<String>,
}

impl Check {
    fn new(name: &'static str, broken: impl IntoIterator<Item = String>) -> Self {
        let mut check = Self {
            name,
            broken: 0,
            examples: Vec::new(),
        };
        for story in broken {
            check.broken += 1;
            if check.examples.len() < EXAMPLES_MAX {
                check.examples.push(story);
            }
        }
        check
    }
}

/// Every check over all the evidence.
pub(crate) fn audit(evidence: &Evidence) -> Vec<Check> {
    let index = Index::of(evidence);
    let database = &evidence.database;
    let open_attempts = (database.open_attempts > 0)
        .then(|| format!("{} attempts that nobody finished", database.open_attempts));
    vec![
        Check::new("commits the database denies", denied(evidence)),
        Check::new("lost events", lost(evidence, &index)),
        Check::new("phantom events", phantoms(evidence)),
        Check::new("second identities", second_identities(evidence)),
        Check::new("cross-destination sends", strays(evidence)),
        Check::new("not exactly one receipt", receipts(evidence, &index)),
        Check::new("receipts of no attempt", unattempted(evidence)),
        Check::new("receipts of no message", unfounded(evidence, &index)),
        Check::new("key order", order::broken(evidence)),
        Check::new("effects not exactly once", effects(evidence, &index)),
        Check::new("open deliveries", database.open_deliveries.clone()),
        Check::new("open attempts", open_attempts),
        Check::new("quarantined", database.quarantined.clone()),
        Check::new("findings", database.findings.clone()),
    ]
}

/// An event at a destination.
type Obligation<'a> = (&'a str, Uuid);

struct Index<'a> {
    /// What must be delivered: every committed event to each destination of its route.
    owed: BTreeSet<Obligation<'a>>,
    /// What each destination has, with the places of its copies.
    arrived: BTreeMap<Obligation<'a>, Vec<Option<u64>>>,
}

impl<'a> Index<'a> {
    fn of(evidence: &'a Evidence) -> Self {
        let committed = evidence.known.committed.iter();
        let owed = committed.flat_map(|(id, event)| event.destinations.iter().map(|to| (*to, *id)));
        let mut arrived = BTreeMap::<Obligation<'_>, Vec<Option<u64>>>::new();
        for (destination, arrivals) in &evidence.arrivals {
            for arrival in arrivals {
                let copies = arrived.entry((destination, arrival.event)).or_default();
                copies.push(arrival.number);
            }
        }
        Self {
            owed: owed.collect(),
            arrived,
        }
    }
}

/// I1: the database has what the writers know to be committed, and nothing else.
fn denied(evidence: &Evidence) -> Vec<String> {
    let (known, database) = (&evidence.known, &evidence.database);
    let known_ids: BTreeSet<_> = known.committed.keys().collect();
    let stored_ids: BTreeSet<_> = database.events.keys().collect();
    let transactions = known
        .transactions
        .symmetric_difference(&database.transactions);
    let events = known_ids.symmetric_difference(&stored_ids);
    transactions
        .map(|id| format!("transaction {id}: writer and database disagree"))
        .chain(events.map(|id| format!("event {id}: writer and database disagree")))
        .collect()
}

fn lost(evidence: &Evidence, index: &Index<'_>) -> Vec<String> {
    let missing = index
        .owed
        .iter()
        .filter(|one| !index.arrived.contains_key(*one));
    missing
        .map(|(destination, id)| {
            let event = &evidence.known.committed[id];
            let has_receipt = evidence
                .database
                .receipts
                .iter()
                .any(|receipt| receipt.event == *id && receipt.destination == *destination);
            let receipt = if has_receipt { "with" } else { "without" };
            format!(
                "{id} (key {}, turn {}) is not at {destination}, {receipt} a receipt",
                event.key, event.turn
            )
        })
        .collect()
}

fn phantoms(evidence: &Evidence) -> Vec<String> {
    copies(evidence, |destination, id| {
        let rolled_back = evidence.known.undone.contains(&id);
        let how = if rolled_back {
            "rolled back"
        } else {
            "never appended"
        };
        (!evidence.known.committed.contains_key(&id))
            .then(|| format!("{id} is at {destination} and was {how}"))
    })
}

fn strays(evidence: &Evidence) -> Vec<String> {
    copies(evidence, |destination, id| {
        let event = evidence.known.committed.get(&id)?;
        (!event.destinations.contains(&destination)).then(|| {
            format!(
                "{id} is at {destination} and was committed for {:?}",
                event.destinations
            )
        })
    })
}

fn copies(evidence: &Evidence, judge: impl Fn(&str, Uuid) -> Option<String>) -> Vec<String> {
    let all = evidence
        .arrivals
        .iter()
        .flat_map(|(destination, arrivals)| {
            arrivals
                .iter()
                .map(move |arrival| (destination, arrival.event))
        });
    all.filter_map(|(destination, id)| judge(destination, id))
        .collect()
}

/// I3 and I12: one id, one content, wherever it is.
fn second_identities(evidence: &Evidence) -> Vec<String> {
    let committed = &evidence.known.committed;
    let stored = evidence.database.events.iter();
    let stored = stored.map(|(id, digest)| ("the database", *id, *digest));
    let arrived = evidence
        .arrivals
        .iter()
        .flat_map(|(destination, arrivals)| {
            arrivals
                .iter()
                .map(move |one| (destination.as_str(), one.event, one.digest))
        });
    let mut broken: Vec<_> = stored
        .chain(arrived)
        .filter_map(|(place, id, digest)| {
            let event = committed.get(&id)?;
            (event.digest != digest).then(|| {
                format!(
                    "{id} at {place} is {digest:?} and was committed as {:?}",
                    event.digest
                )
            })
        })
        .collect();
    let conflicts = evidence
        .consumed
        .as_ref()
        .map_or(0, |consumed| consumed.conflicts);
    broken.extend((0..conflicts).map(|_| "a consumer saw one id with two digests".to_owned()));
    broken
}

/// I5: one primary receipt for what is owed, and none for anything else.
fn receipts(evidence: &Evidence, index: &Index<'_>) -> Vec<String> {
    let mut found = BTreeMap::<Obligation<'_>, u64>::new();
    for receipt in &evidence.database.receipts {
        *found
            .entry((&receipt.destination, receipt.event))
            .or_default() += 1;
    }
    let mut broken = Vec::new();
    for (destination, id) in &index.owed {
        match found.remove(&(*destination, *id)).unwrap_or(0) {
            1 => {}
            count => broken.push(format!("{id} to {destination} has {count} receipts")),
        }
    }
    for ((destination, id), count) in found {
        broken.push(format!(
            "{id} to {destination} has {count} receipts and is owed none"
        ));
    }
    broken
}

/// I4 and I6.
fn unattempted(evidence: &Evidence) -> Vec<String> {
    let without = evidence
        .database
        .receipts
        .iter()
        .filter(|one| !one.of_an_attempt);
    without
        .map(|one| {
            format!(
                "the receipt of {} to {} names no attempt of it",
                one.event, one.destination
            )
        })
        .collect()
}

/// A receipt must point to a copy that is really there: to that very copy where it names a place.
fn unfounded(evidence: &Evidence, index: &Index<'_>) -> Vec<String> {
    let wrong = evidence.database.receipts.iter().filter(|receipt| {
        let place: Obligation<'_> = (&receipt.destination, receipt.event);
        let copies = index.arrived.get(&place);
        let there = |copies: &Vec<_>| receipt.number.is_none() || copies.contains(&receipt.number);
        let stream = receipt.stream.as_ref();
        !copies.is_some_and(there)
            || stream.is_some_and(|stream| made::destination_of(stream) != receipt.destination)
    });
    wrong
        .map(|receipt| {
            format!(
                "the receipt of {} to {} points to {:?} {:?}, where it is not",
                receipt.event, receipt.destination, receipt.stream, receipt.number
            )
        })
        .collect()
}

/// I14, where there were consumers.
fn effects(evidence: &Evidence, index: &Index<'_>) -> Vec<String> {
    let Some(consumed) = &evidence.consumed else {
        return Vec::new();
    };
    let mut broken = Vec::new();
    for (destination, id) in &index.owed {
        let key = ((*destination).to_owned(), *id);
        match consumed.effects.get(&key).copied().unwrap_or(0) {
            1 => {}
            count => broken.push(format!("{id} at {destination} had {count} effects")),
        }
    }
    broken
}

#[cfg(test)]
mod tests;
