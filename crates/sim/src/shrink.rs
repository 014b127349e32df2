//! Makes the fault list of a failing seed as short as it goes.

use crate::{Fault, Violation, faults, run_faults};

/// A failure with no fault that could be left out.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// Places in the seed's own list.
    pub kept: Vec<usize>,
    pub violation: Violation,
}

/// `None`: the seed breaks nothing.
///
/// Leaves out halves, then quarters, and so on down to single faults, for as long as the same
/// promise is still broken; single faults again until none can go.
#[must_use]
pub fn shrink(seed: u64) -> Option<Shrunk> {
    let all = faults(seed);
    let broken_by = |kept: &[usize]| {
        let faults: Vec<Fault> = kept.iter().map(|index| all[*index]).collect();
        run_faults(seed, &faults, false).violation
    };
    let mut kept: Vec<usize> = (0..all.len()).collect();
    let mut violation = broken_by(&kept)?;
    let mut size = kept.len().div_ceil(2);
    while size > 0 {
        let before = kept.len();
        let mut at = 0;
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + size).min(kept.len()));
            match broken_by(&fewer) {
                Some(found) if found.invariant == violation.invariant => {
                    kept = fewer;
                    violation = found;
                }
                Some(_) | None => at += size,
            }
        }
        if size == 1 && kept.len() == before {
            break;
        }
        size = (size / 2).max(1).min(kept.len());
    }
    Some(Shrunk { kept, violation })
}
