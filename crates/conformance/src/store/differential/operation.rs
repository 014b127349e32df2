//! Operations: what kind of call, and the dice for its details.

use rand::{Rng, SeedableRng, rngs::StdRng};

/// One call. Its details are drawn from `dice` when it runs, out of what exists then, so that a
/// sequence stays meaningful when operations are removed from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) kind: Kind,
    pub(super) dice: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Apply,
    Resume,
    Append,
    /// In an application's transaction, committed or rolled back.
    CallerAppend,
    OpenSession,
    Heartbeat,
    Claim,
    Release,
    End,
    Recover,
    Exchange,
    Evidence,
    Replay,
    StepClock,
    Look,
}

/// How often each kind comes, relative to the others.
const WEIGHTS: &[(Kind, u32)] = &[
    (Kind::Apply, 2),
    (Kind::Resume, 2),
    (Kind::Append, 10),
    (Kind::CallerAppend, 4),
    (Kind::OpenSession, 4),
    (Kind::Heartbeat, 5),
    (Kind::Claim, 8),
    (Kind::Release, 2),
    (Kind::End, 2),
    (Kind::Recover, 3),
    (Kind::Exchange, 45),
    (Kind::Evidence, 8),
    (Kind::Replay, 4),
    (Kind::StepClock, 8),
    (Kind::Look, 4),
];

/// A sequence that begins with what everything else needs.
pub(super) fn sequence(seed: u64, operations: usize) -> Vec<Operation> {
    let mut rng = StdRng::seed_from_u64(seed);
    let start = [Kind::Apply, Kind::OpenSession, Kind::Claim, Kind::Append];
    (0..operations)
        .map(|index| Operation {
            kind: start.get(index).copied().unwrap_or_else(|| draw(&mut rng)),
            dice: rng.random(),
        })
        .collect()
}

fn draw(rng: &mut StdRng) -> Kind {
    let total: u32 = WEIGHTS.iter().map(|(_, weight)| weight).sum();
    let mut left = rng.random_range(0..total);
    for (kind, weight) in WEIGHTS {
        if left < *weight {
            return *kind;
        }
        left -= weight;
    }
    Kind::Look
}
