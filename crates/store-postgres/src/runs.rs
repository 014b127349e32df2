//! Packing: positions, and receipts' numbers beside them, as runs that advance by one.

use postrider_core::Position;

/// Runs of consecutive positions: `starts[i]`, `starts[i] + 1`, … (`lengths[i]` of them).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    pub(crate) starts: Vec<i64>,
    pub(crate) lengths: Vec<i32>,
}

impl Runs {
    /// Adds a position above all that are there.
    pub(crate) fn push(&mut self, position: Position) {
        self.push_after(position, 0);
    }

    /// Adds a position; runs before `from` are closed. Lets several lists share one pair of arrays.
    pub(crate) fn push_after(&mut self, position: Position, from: usize) {
        if self.starts.len() > from
            && let (Some(start), Some(length)) = (self.starts.last(), self.lengths.last_mut())
            && start + i64::from(*length) == position.0
            && *length < i32::MAX
        {
            *length += 1;
            return;
        }
        self.starts.push(position.0);
        self.lengths.push(1);
    }

    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The last position of each run.
    pub(crate) fn lasts(&self) -> Vec<i64> {
        let runs = self.starts.iter().zip(&self.lengths);
        runs.map(|(start, length)| start + i64::from(*length) - 1)
            .collect()
    }

    pub(crate) fn of(positions: impl IntoIterator<Item = Position>) -> Self {
        let mut runs = Self::default();
        for position in positions {
            runs.push(position);
        }
        runs
    }
}

/// Integers as the text of an `int8multirange`, in which the server searches by halves.
pub(crate) fn multirange(sorted: impl IntoIterator<Item = i64>) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("{");
    let mut open: Option<(i64, i64)> = None;
    let mut put = |(first, last): (i64, i64)| {
        if text.len() > 1 {
            text.push(',');
        }
        // The server stores the end as exclusive, and there is none above the largest integer.
        let written = match last {
            i64::MAX => write!(text, "[{first},)"),
            _ => write!(text, "[{first},{last}]"),
        };
        written.expect("writing to a String succeeds");
    };
    for value in sorted {
        open = match open {
            Some((first, last)) if last.checked_add(1) == Some(value) => Some((first, value)),
            Some((first, last)) if last == value => Some((first, last)),
            Some(run) => {
                put(run);
                Some((value, value))
            }
            None => Some((value, value)),
        };
    }
    if let Some(run) = open {
        put(run);
    }
    text.push('}');
    text
}

/// A position as an index into SQL arrays, which count from 1.
pub(crate) fn sql_index(index: usize) -> i32 {
    i32::try_from(index).expect("a batch has fewer than 2^31 members")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_run_and_lists_do_not() {
        let runs = Runs::of([1, 2, 3, 7, 9, 10].map(Position));
        assert_eq!(runs.starts, [1, 7, 9]);
        assert_eq!(runs.lengths, [3, 1, 2]);
        assert_eq!(runs.lasts(), [3, 7, 10]);
        let mut shared = Runs::of([Position(1)]);
        shared.push_after(Position(2), 1);
        assert_eq!(shared.starts, [1, 2]);
    }

    #[test]
    fn multiranges_merge_neighbours() {
        assert_eq!(multirange([]), "{}");
        assert_eq!(
            multirange([1, 2, 2, 4, i64::MAX]),
            "{[1,2],[4,4],[9223372036854775807,)}"
        );
    }
}
