//! Each check of the audit fails on evidence that breaks its promise, and on that alone.

use super::*;
use crate::{
    digest::Sha256,
    evidence::{Arrival, Consumed, Receipt},
    journal::Committed,
    made::{FIRST, SECOND},
};

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn body(number: u128) -> Sha256 {
    Sha256::of(&number.to_be_bytes())
}

/// Three events of one key, all at the first destination, with receipts and effects.
fn whole() -> Evidence {
    let mut evidence = Evidence {
        consumed: Some(Consumed::default()),
        ..Evidence::default()
    };
    evidence.known.transactions.insert(id(100));
    evidence.database.transactions.insert(id(100));
    for number in 1..=3 {
        let event = Committed {
            key: "a".to_owned(),
            turn: number as u64,
            destinations: &[FIRST],
            digest: body(number),
        };
        evidence.known.committed.insert(id(number), event);
        evidence.database.events.insert(id(number), body(number));
        evidence.database.receipts.push(Receipt {
            event: id(number),
            destination: FIRST.to_owned(),
            stream: Some(made::stream_of(FIRST)),
            number: Some(number as u64),
            of_an_attempt: true,
        });
        first(&mut evidence).push(arrival(number, number as u64));
        effects_of(&mut evidence).insert((FIRST.to_owned(), id(number)), 1);
    }
    evidence
}

fn arrival(number: u128, place: u64) -> Arrival {
    Arrival {
        event: id(number),
        digest: body(number),
        number: Some(place),
    }
}

fn first(evidence: &mut Evidence) -> &mut Vec<Arrival> {
    evidence.arrivals.entry(FIRST.to_owned()).or_default()
}

fn effects_of(evidence: &mut Evidence) -> &mut BTreeMap<(String, Uuid), u64> {
    &mut evidence.consumed.as_mut().unwrap().effects
}

/// Which checks fail after `breaking`.
fn check(breaking: impl FnOnce(&mut Evidence), expect: &[&str]) {
    let mut evidence = whole();
    breaking(&mut evidence);
    let broken = audit(&evidence)
        .into_iter()
        .filter(|check| check.broken > 0);
    let names: Vec<_> = broken.map(|check| check.name).collect();
    assert_eq!(names, expect);
}

#[test]
fn a_whole_run_breaks_nothing() {
    check(|_| (), &[]);
    // A second copy is what at least once allows.
    check(|evidence| first(evidence).push(arrival(1, 4)), &[]);
}

#[test]
fn a_lost_event() {
    let losing = |evidence: &mut Evidence| {
        first(evidence).remove(1);
    };
    check(losing, &["lost events", "receipts of no message"]);
}

#[test]
fn a_phantom() {
    check(
        |evidence| first(evidence).push(arrival(9, 4)),
        &["phantom events"],
    );
    // Rolled back, and all the same in the database.
    let surviving = |evidence: &mut Evidence| {
        evidence.known.undone.insert(id(9));
        evidence.database.events.insert(id(9), body(9));
    };
    check(surviving, &["commits the database denies"]);
}

#[test]
fn a_commit_that_the_database_does_not_have() {
    let forgetting = |evidence: &mut Evidence| {
        evidence.database.transactions.clear();
    };
    check(forgetting, &["commits the database denies"]);
}

#[test]
fn a_second_digest() {
    let changing = |evidence: &mut Evidence| first(evidence)[1].digest = body(9);
    check(changing, &["second identities"]);
    let changing = |evidence: &mut Evidence| {
        evidence.database.events.insert(id(1), body(9));
    };
    check(changing, &["second identities"]);
    let seeing = |evidence: &mut Evidence| evidence.consumed.as_mut().unwrap().conflicts = 1;
    check(seeing, &["second identities"]);
}

#[test]
fn another_destination() {
    let straying = |evidence: &mut Evidence| {
        evidence
            .arrivals
            .insert(SECOND.to_owned(), vec![arrival(1, 1)]);
    };
    check(straying, &["cross-destination sends"]);
}

#[test]
fn receipts_missing_doubled_unasked_and_made_up() {
    const ONE: &str = "not exactly one receipt";
    let missing = |evidence: &mut Evidence| {
        evidence.database.receipts.remove(0);
    };
    check(missing, &[ONE]);
    let doubled = |evidence: &mut Evidence| {
        let again = evidence.database.receipts[0].clone();
        evidence.database.receipts.push(again);
    };
    check(doubled, &[ONE]);
    let elsewhere =
        |evidence: &mut Evidence| SECOND.clone_into(&mut evidence.database.receipts[0].destination);
    check(elsewhere, &[ONE, "receipts of no message"]);
    let made_up = |evidence: &mut Evidence| evidence.database.receipts[0].number = Some(3);
    check(made_up, &["receipts of no message"]);
    let another_stream =
        |evidence: &mut Evidence| evidence.database.receipts[0].stream = Some("X".to_owned());
    check(another_stream, &["receipts of no message"]);
    let unattempted = |evidence: &mut Evidence| evidence.database.receipts[0].of_an_attempt = false;
    check(unattempted, &["receipts of no attempt"]);
}

#[test]
fn a_swapped_order() {
    check(|evidence| first(evidence).swap(0, 1), &["key order"]);
}

#[test]
fn effects_missing_and_doubled() {
    let doubled = |evidence: &mut Evidence| {
        effects_of(evidence).insert((FIRST.to_owned(), id(1)), 2);
    };
    check(doubled, &["effects not exactly once"]);
    check(
        |evidence| effects_of(evidence).clear(),
        &["effects not exactly once"],
    );
}

#[test]
fn anything_left_over() {
    let leave = |place: fn(&mut Evidence) -> &mut Vec<String>, name| {
        check(|evidence| place(evidence).push("one".to_owned()), &[name]);
    };
    leave(
        |evidence| &mut evidence.database.open_deliveries,
        "open deliveries",
    );
    leave(|evidence| &mut evidence.database.quarantined, "quarantined");
    leave(|evidence| &mut evidence.database.findings, "findings");
    check(
        |evidence| evidence.database.open_attempts = 1,
        &["open attempts"],
    );
}
