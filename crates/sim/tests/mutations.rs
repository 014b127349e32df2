//! Shrinking, on a failure that is always there: a deliberate bug.

use postrider_core::mutation::Mutation;
use postrider_sim::mutations::{hunt, shrink_with, story_with};

#[test]
fn a_failing_seed_shrinks_to_the_faults_that_it_needs() {
    const BUG: Mutation = Mutation::LateAcksDropped;
    let (seed, violation) = hunt(BUG, 20_000).caught.expect("it is seen");
    let shrunk = shrink_with(BUG, seed).expect("it is seen again");
    assert_eq!(shrunk.violation.invariant, violation.invariant);
    assert_eq!(shrunk.kept.len(), 1, "one late acknowledgement is enough");
    let story = story_with(BUG, seed, &shrunk.kept);
    assert!(story.iter().any(|line| line.contains("FAULT")));
}
