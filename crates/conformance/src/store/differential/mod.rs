//! Differential test: random calls must be answered alike by two stores.
//!
//! A sequence is a seed; the same seed makes the same calls. Both stores are driven through the
//! port, every answer is compared, and at the end all that the port shows. A failure prints the
//! shortest sequence found that still differs, and how to run it again.

mod answer;
mod driver;
mod dump;
mod exchange;
mod operation;

use std::{fmt::Write as _, ops::Range};

use super::StoreHarness;
use driver::Driver;
use operation::Operation;

/// Runs of the shrinker at most: each removes one operation and looks whether it still fails.
const SHRINK_MAX: usize = 400;

/// Sequences of a plain run, over all its parts.
const SEQUENCES: u64 = 2000;

/// The seeds of one part of a run: `POSTRIDER_DIFFERENTIAL_SEQUENCES` of them in all parts, or
/// `POSTRIDER_DIFFERENTIAL_SEED` alone, which is the first part's.
///
/// # Panics
/// When a variable is set and is not a number.
#[must_use]
pub fn seeds(part: u64, parts: u64) -> Range<u64> {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        let parsed = value.parse::<u64>();
        Some(parsed.unwrap_or_else(|_| panic!("{name} must be a number")))
    };
    if let Some(seed) = number("POSTRIDER_DIFFERENTIAL_SEED") {
        return if part == 0 { seed..seed + 1 } else { 0..0 };
    }
    let sequences = number("POSTRIDER_DIFFERENTIAL_SEQUENCES").unwrap_or(SEQUENCES);
    sequences * part / parts..sequences * (part + 1) / parts
}

/// Drives `A` (the reference) and `B` through the same `operations` calls for each seed.
///
/// # Panics
/// When they differ, with a short sequence that shows it.
pub async fn differential<A: StoreHarness, B: StoreHarness>(seeds: Range<u64>, operations: usize) {
    for seed in seeds {
        let sequence = operation::sequence(seed, operations);
        if let Some(difference) = compare::<A, B>(seed, &sequence).await {
            let (sequence, difference) = shrink::<A, B>(seed, sequence, difference).await;
            panic!(
                "the stores differ; again with POSTRIDER_DIFFERENTIAL_SEED={seed}\n{} of {operations} operations are enough:\n{}\nthen\n{}",
                sequence.len(),
                difference.history,
                difference.both
            );
        }
    }
}

struct Difference {
    /// The operation that showed it: those behind it do not matter.
    at: usize,
    history: String,
    both: String,
}

async fn compare<A: StoreHarness, B: StoreHarness>(
    seed: u64,
    sequence: &[Operation],
) -> Option<Difference> {
    let mut a = Driver::<A>::open(seed).await;
    let mut b = Driver::<B>::open(seed).await;
    let mut history = String::new();
    for (at, operation) in sequence.iter().enumerate() {
        let (said_a, said_b) = (a.run(operation).await, b.run(operation).await);
        if said_a != said_b {
            return Some(Difference {
                at,
                history,
                both: both::<A, B>(&said_a, &said_b),
            });
        }
        writeln!(history, "{at:3} {said_a}").expect("a string takes all text");
    }
    let (all_a, all_b) = (a.dump().await, b.dump().await);
    (all_a != all_b).then(|| Difference {
        at: sequence.len(),
        history,
        both: both::<A, B>(
            &first_difference(&all_a, &all_b),
            &first_difference(&all_b, &all_a),
        ),
    })
}

fn both<A, B>(a: &str, b: &str) -> String {
    let name = std::any::type_name::<A>();
    format!("{name}:\n  {a}\n{}:\n  {b}", std::any::type_name::<B>())
}

/// The lines that `of` has and `other` has not.
fn first_difference(of: &str, other: &str) -> String {
    let known: Vec<&str> = other.lines().collect();
    let lines: Vec<&str> = of.lines().filter(|line| !known.contains(line)).collect();
    lines.join("\n  ")
}

/// Cuts off what follows the difference, then drops one operation after the other, as long as
/// the rest still differs.
async fn shrink<A: StoreHarness, B: StoreHarness>(
    seed: u64,
    mut sequence: Vec<Operation>,
    mut difference: Difference,
) -> (Vec<Operation>, Difference) {
    sequence.truncate(difference.at + 1);
    let mut runs = 0;
    let mut index = sequence.len();
    while index > 0 && runs < SHRINK_MAX {
        index -= 1;
        let mut shorter = sequence.clone();
        shorter.remove(index);
        runs += 1;
        if let Some(still) = compare::<A, B>(seed, &shorter).await {
            shorter.truncate(still.at + 1);
            sequence = shorter;
            difference = still;
            index = sequence.len().min(index + 1);
        }
    }
    (sequence, difference)
}
