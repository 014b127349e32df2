//! Outcomes, receipts and members as the parallel arrays that the statements take.

use std::collections::{BTreeMap, BTreeSet};

use postrider_contract::receipt::{Packed, Packer};
use postrider_core::{AttemptId, Position, outcome::bounded_detail};
use postrider_store::dispatch::{Registration, SettledAs, Settlement};
use uuid::Uuid;

use crate::{
    param::{Moment, Param, typed},
    runs::{Runs, sql_index},
};

/// Attempts with their members packed: one pair of flat arrays, and each attempt's part of it.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) attempts: Vec<Uuid>,
    pub(crate) runs: Runs,
    pub(crate) from: Vec<i32>,
    pub(crate) to: Vec<i32>,
}

impl Members {
    pub(crate) fn add(&mut self, attempt: AttemptId, members: impl IntoIterator<Item = Position>) {
        let before = self.runs.len();
        for position in members {
            self.runs.push_after(position, before);
        }
        self.attempts.push(attempt.0);
        self.from.push(sql_index(before + 1));
        self.to.push(sql_index(self.runs.len()));
    }

    pub(crate) fn of(registrations: &[Registration]) -> Self {
        let mut members = Self::default();
        for registration in registrations {
            members.add(registration.attempt, registration.members.iter().copied());
        }
        members
    }
}

/// Receipts packed for storage: runs in which position and number both advance by one.
#[derive(Debug, Default)]
pub(crate) struct Receipts {
    pub(crate) attempts: Vec<Uuid>,
    pub(crate) shared: Vec<String>,
    pub(crate) from: Vec<i32>,
    pub(crate) to: Vec<i32>,
    pub(crate) numbered: Vec<bool>,
    pub(crate) starts: Vec<i64>,
    pub(crate) lengths: Vec<i32>,
    pub(crate) numbers: Vec<Option<i64>>,
}

impl Receipts {
    pub(crate) fn of(receipts: impl IntoIterator<Item = (AttemptId, Position, Packed)>) -> Self {
        let mut groups: BTreeMap<_, Vec<(Position, Option<i64>)>> = BTreeMap::new();
        for (attempt, position, packed) in receipts {
            groups
                .entry((attempt, packed.shared, packed.number.is_some()))
                .or_default()
                .push((position, packed.number));
        }
        let mut all = Self::default();
        for ((attempt, shared, numbered), mut members) in groups {
            members.sort_unstable();
            let before = all.starts.len();
            for (position, number) in members {
                all.push(before, position, number);
            }
            all.attempts.push(attempt.0);
            all.shared.push(shared);
            all.numbered.push(numbered);
            all.from.push(sql_index(before + 1));
            all.to.push(sql_index(all.starts.len()));
        }
        all
    }

    /// The parameters of `receipts.sql`.
    pub(crate) fn params<'a>(
        &'a self,
        destination: &'a i32,
        now: &'a Option<Moment>,
        late: &'a bool,
    ) -> [Param<'a>; 11] {
        [
            typed(destination),
            typed(&self.attempts),
            typed(&self.shared),
            typed(&self.from),
            typed(&self.to),
            typed(&self.numbered),
            typed(&self.starts),
            typed(&self.lengths),
            typed(&self.numbers),
            typed(now),
            typed(late),
        ]
    }

    fn push(&mut self, before: usize, Position(position): Position, number: Option<i64>) {
        let last = self.starts.len();
        if last > before {
            let length = i64::from(self.lengths[last - 1]);
            let advances = self.starts[last - 1] + length == position
                && self.numbers[last - 1].map(|first| first.checked_add(length))
                    == number.map(Some);
            if advances && self.lengths[last - 1] < i32::MAX {
                self.lengths[last - 1] += 1;
                return;
            }
        }
        self.starts.push(position);
        self.lengths.push(1);
        self.numbers.push(number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }
}

/// Members that were not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) attempts: Vec<Uuid>,
    pub(crate) positions: Vec<i64>,
    pub(crate) states: Vec<i16>,
    pub(crate) charged: Vec<Option<i32>>,
    pub(crate) delays_us: Vec<i64>,
    pub(crate) codes: Vec<&'static str>,
    pub(crate) details: Vec<String>,
}

impl Outcomes {
    /// The parameters of `outcomes.sql`.
    pub(crate) fn params<'a>(
        &'a self,
        destination: &'a i32,
        now: &'a Option<Moment>,
    ) -> [Param<'a>; 9] {
        [
            typed(destination),
            typed(&self.attempts),
            typed(&self.positions),
            typed(&self.states),
            typed(&self.charged),
            typed(&self.delays_us),
            typed(&self.codes),
            typed(&self.details),
            typed(now),
        ]
    }

    pub(crate) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    fn add(&mut self, attempt: AttemptId, position: Position, next: &SettledAs) {
        let (state, charged, delay, code, detail) = match next {
            SettledAs::Acknowledged(_) => return,
            SettledAs::Retry {
                attempts,
                delay,
                code,
                detail,
            } => (0, Some(*attempts), *delay, *code, detail),
            SettledAs::Unknown { code, detail } => {
                (1, None, std::time::Duration::ZERO, *code, detail)
            }
            SettledAs::Quarantined {
                attempts,
                code,
                detail,
            } => (2, Some(*attempts), std::time::Duration::ZERO, *code, detail),
        };
        self.attempts.push(attempt.0);
        self.positions.push(position.0);
        self.states.push(state);
        self.charged
            .push(charged.map(|count| i32::try_from(count).unwrap_or(i32::MAX)));
        self.delays_us.push(delay_us(delay));
        self.codes.push(code);
        self.details.push(bounded_detail(detail));
    }
}

/// Longest span sent, ten thousand years: the server can add it to any time, and cuts at the year
/// 9999.
const DELAY_MAX_US: i64 = 10_000 * 366 * 86_400 * 1_000_000;

/// A span in microseconds, bounded so that no date arithmetic overflows.
pub(crate) fn delay_us(delay: std::time::Duration) -> i64 {
    i64::try_from(delay.as_micros())
        .unwrap_or(DELAY_MAX_US)
        .min(DELAY_MAX_US)
}

/// The settlements of one exchange.
#[derive(Debug, Default)]
pub(crate) struct Settle {
    pub(crate) members: Members,
    pub(crate) acknowledged: Vec<i32>,
    pub(crate) exceptions: Vec<i32>,
    /// Acknowledged members of all attempts, in position order.
    pub(crate) closed: Runs,
    pub(crate) closed_count: i64,
    pub(crate) receipts: Receipts,
    pub(crate) outcomes: Outcomes,
}

impl Settle {
    /// `None`: a position stands in two attempts, so that their order matters: one by one then.
    pub(crate) fn of(settlements: &[Settlement]) -> Option<Self> {
        let mut settle = Self::default();
        let mut seen = BTreeSet::new();
        let mut closed = Vec::new();
        let mut receipts = Vec::new();
        let mut packer = Packer::default();
        for settlement in settlements {
            let outcomes_before = settle.outcomes.len();
            let closed_before = closed.len();
            for member in &settlement.members {
                if settlements.len() > 1 && !seen.insert(member.position) {
                    return None;
                }
                match &member.next {
                    SettledAs::Acknowledged(receipt) => {
                        closed.push(member.position);
                        receipts.push((settlement.attempt, member.position, packer.pack(receipt)));
                    }
                    other @ (SettledAs::Retry { .. }
                    | SettledAs::Unknown { .. }
                    | SettledAs::Quarantined { .. }) => {
                        settle
                            .outcomes
                            .add(settlement.attempt, member.position, other);
                    }
                }
            }
            settle.members.add(
                settlement.attempt,
                settlement.members.iter().map(|member| member.position),
            );
            settle
                .acknowledged
                .push(sql_index(closed.len() - closed_before));
            settle
                .exceptions
                .push(sql_index(settle.outcomes.len() - outcomes_before));
        }
        closed.sort_unstable();
        settle.closed_count = i64::from(sql_index(closed.len()));
        settle.closed = Runs::of(closed);
        settle.receipts = Receipts::of(receipts);
        Some(settle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(number: Option<i64>) -> Packed {
        Packed {
            shared: "{}".to_owned(),
            number,
        }
    }

    #[test]
    fn a_run_goes_on_while_position_and_number_both_advance() {
        let attempt = AttemptId(Uuid::nil());
        let receipts = Receipts::of(
            [(1, 10), (2, 11), (3, 13), (5, 15), (6, 16)]
                .map(|(position, number)| (attempt, Position(position), packed(Some(number)))),
        );
        assert_eq!(receipts.starts, [1, 3, 5]);
        assert_eq!(receipts.lengths, [2, 1, 2]);
        assert_eq!(receipts.numbers, [Some(10), Some(13), Some(15)]);
        assert_eq!((&receipts.from[..], &receipts.to[..]), (&[1][..], &[3][..]));
    }

    #[test]
    fn receipts_without_numbers_share_runs_but_not_with_numbered_ones() {
        let attempt = AttemptId(Uuid::nil());
        let receipts = Receipts::of([
            (attempt, Position(1), packed(None)),
            (attempt, Position(2), packed(None)),
            (attempt, Position(3), packed(Some(i64::MAX))),
            (attempt, Position(4), packed(Some(1))),
        ]);
        assert_eq!(receipts.numbered, [false, true]);
        assert_eq!(receipts.starts, [1, 3, 4]);
    }
}
