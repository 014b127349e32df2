//! Runs: consecutive positions kept as one row.

use postrider_contract::receipt::Packed;
use postrider_core::Position;

/// Longest run. The statements that look one position up read this far back in the index, and
/// the tables' checks say the same.
pub(crate) const LENGTH_MAX: i64 = 1000;

/// `length` positions from `first` on; with numbers, those advance along with the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: i64,
    pub(crate) length: i64,
    pub(crate) number: Option<i64>,
}

impl Run {
    pub(crate) fn last(self) -> i64 {
        self.first + (self.length - 1)
    }

    pub(crate) fn positions(self) -> impl Iterator<Item = Position> {
        (self.first..=self.last()).map(Position)
    }

    fn takes(self, position: i64, number: Option<i64>) -> bool {
        let follows = |first: i64, next: i64| next.checked_sub(first) == Some(self.length);
        self.length < LENGTH_MAX
            && follows(self.first, position)
            && match (self.number, number) {
                (None, None) => true,
                (Some(first), Some(next)) => follows(first, next),
                (None, Some(_)) | (Some(_), None) => false,
            }
    }
}

/// Runs of ascending positions.
pub(crate) fn of_positions(positions: impl IntoIterator<Item = Position>) -> Vec<Run> {
    of_pairs(positions.into_iter().map(|position| (position, None)))
}

/// Runs of ascending positions with their receipts' numbers.
pub(crate) fn of_receipts<'a>(
    receipts: impl IntoIterator<Item = (Position, &'a Packed)>,
) -> Vec<Run> {
    of_pairs(
        receipts
            .into_iter()
            .map(|(position, packed)| (position, packed.number)),
    )
}

fn of_pairs(pairs: impl IntoIterator<Item = (Position, Option<i64>)>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (Position(position), number) in pairs {
        match runs.last_mut() {
            Some(run) if run.takes(position, number) => run.length += 1,
            _ => runs.push(Run {
                first: position,
                length: 1,
                number,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_position_or_number_jumps_or_it_is_full() {
        let check = |pairs: &[(i64, Option<i64>)], expected: &[(i64, i64, Option<i64>)]| {
            let runs = of_pairs(pairs.iter().map(|(p, n)| (Position(*p), *n)));
            let found: Vec<_> = runs.iter().map(|r| (r.first, r.length, r.number)).collect();
            assert_eq!(found, expected);
        };
        check(&[], &[]);
        check(
            &[(1, None), (2, None), (4, None)],
            &[(1, 2, None), (4, 1, None)],
        );
        check(
            &[(1, Some(7)), (2, Some(8)), (3, Some(10)), (4, None)],
            &[(1, 2, Some(7)), (3, 1, Some(10)), (4, 1, None)],
        );
        check(
            &[(i64::MAX - 1, Some(i64::MAX)), (i64::MAX, Some(i64::MIN))],
            &[
                (i64::MAX - 1, 1, Some(i64::MAX)),
                (i64::MAX, 1, Some(i64::MIN)),
            ],
        );
        let long = of_positions((1..=2500).map(Position));
        let lengths: Vec<i64> = long.iter().map(|run| run.length).collect();
        assert_eq!(lengths, [1000, 1000, 500]);
        assert_eq!(long.iter().flat_map(|run| run.positions()).count(), 2500);
    }
}
