//! The mutation table: each deliberate bug, and how many seeds it takes to see it. A promise that
//! no bug can break is not being checked.

use postrider_core::mutation::{self, Mutation};

use crate::{
    Violation, run,
    shrink::{Shrunk, shrink},
};

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Line {
    pub mutation: Mutation,
    /// The first seed that saw it, and what it saw. `None`: no seed did.
    pub caught: Option<(u64, Violation)>,
}

/// Switches a bug on for this thread until it is dropped.
struct Switched;

impl Switched {
    fn on(mutation: Mutation) -> Self {
        mutation::set(Some(mutation));
        Self
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        mutation::set(None);
    }
}

/// Runs something with a bug switched on, on this thread.
pub fn with<T>(mutation: Mutation, run: impl FnOnce() -> T) -> T {
    let _switched = Switched::on(mutation);
    run()
}

/// Looks for one bug in the seeds from 0 on.
#[must_use]
pub fn hunt(mutation: Mutation, seeds_max: u64) -> Line {
    let look = || (0..seeds_max).find_map(|seed| Some((seed, run(seed, false).violation?)));
    let caught = with(mutation, look);
    Line { mutation, caught }
}

/// A seed of a bug with as few faults as it takes.
#[must_use]
pub fn shrink_with(mutation: Mutation, seed: u64) -> Option<Shrunk> {
    with(mutation, || shrink(seed))
}

/// The story of a seed with a bug and some of its faults.
#[must_use]
pub fn story_with(mutation: Mutation, seed: u64, kept: &[usize]) -> Vec<String> {
    let all = crate::faults(seed);
    let faults: Vec<_> = kept.iter().map(|index| all[*index]).collect();
    with(mutation, || crate::run_faults(seed, &faults, true).story)
}
