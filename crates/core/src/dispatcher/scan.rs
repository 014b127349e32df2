//! Where the reader of the queue is, and what may still appear behind it.
//!
//! A position is drawn when an event is appended and becomes visible when its transaction commits,
//! so positions appear out of order. The reader therefore remembers up to where nothing can appear
//! any more, and reads from there rather than from the last position that it was given. Then an
//! event that was committed before another of its key was begun is read first (I15), as long as no
//! transaction stays open past a bounded look back.
//!
//! The argument: let a fetch have seen positions up to P. What begins to write after it draws higher
//! positions. What had begun has a lower number than the next fetch has ([`Horizon::number`]). Once a
//! fetch sees that all with lower numbers are over, nothing can appear at or below P any more; and
//! where it has read from a place that is covered in the same sense, it has read what had appeared.

use std::{collections::VecDeque, time::Duration};

use crate::{
    Instant, Position,
    exchange::Horizon,
    mutation::{self, Mutation},
};

/// Fetches of which it is remembered how far they saw. With more, the oldest stay.
const MARKS_MAX: usize = 64;

/// Where the reader of the queue is.
#[derive(Debug)]
pub(super) struct Scan {
    /// The last position that was read since the scan started at the front.
    pub(super) after: Position,
    /// The next fetch must start at the front.
    pub(super) from_front: bool,
    /// No fetch before this, unless the doorbell rings.
    pub(super) idle_until: Option<Instant>,
    /// The doorbell rang while a fetch was under way, which may have missed what it rang for.
    pub(super) rang: bool,
    pub(super) poll: Duration,
    pub(super) rescan_at: Instant,
    pub(super) fetches: u64,
    /// At or below, everything has been read since the scan started at the front, and nothing new
    /// can appear.
    floor: Position,
    /// At or below, nothing new can appear.
    still: Mark,
    /// Where the last fetch ended: how far, and what was read by then.
    last: Mark,
    /// Fetches that may have passed over something that was not committed yet, each with the number
    /// below which all must be over. Oldest first.
    marks: VecDeque<(u64, Mark)>,
    /// Deliveries read in all.
    read: u64,
}

/// How far a fetch saw.
#[derive(Clone, Copy, Debug)]
struct Mark {
    position: Position,
    /// [`Scan::read`] after it.
    read: u64,
}

impl Mark {
    const START: Self = Self {
        position: Position::START,
        read: 0,
    };
}

impl Scan {
    pub(super) fn new(poll: Duration, now: Instant) -> Self {
        Self {
            after: Position::START,
            from_front: true,
            idle_until: None,
            rang: false,
            poll,
            rescan_at: now,
            fetches: 0,
            floor: Position::START,
            still: Mark::START,
            last: Mark::START,
            marks: VecDeque::new(),
            read: 0,
        }
    }

    /// The next fetch starts at the front of the queue.
    pub(super) fn rewind(&mut self) {
        self.after = Position::START;
        self.floor = Position::START;
        self.from_front = false;
    }

    /// The next fetch reads above this. Not more than `look_back_max` deliveries are walked over
    /// again: should one transaction stay open for longer than that, whatever appears late meanwhile
    /// is read when the scan next starts at the front.
    pub(super) fn start(&self, look_back_max: u64) -> Position {
        if self.read - self.still.read > look_back_max
            || mutation::on(Mutation::LateCommitOvertaken)
        {
            self.after
        } else {
            self.floor
        }
    }

    /// Takes what a fetch that started at `start` has read: everything due, or that up to the last
    /// of `fetched`.
    pub(super) fn read_on(
        &mut self,
        start: Position,
        fetched: &[Position],
        exhausted: bool,
        horizon: Option<Horizon>,
    ) {
        self.read += fetched.len() as u64;
        let to = fetched.last().copied().unwrap_or(start);
        self.after = if exhausted { self.after.max(to) } else { to };
        let before = self.last;
        self.last = Mark {
            position: before.position.max(to),
            read: self.read,
        };
        match horizon {
            Some(Horizon { number, over }) => {
                if self.marks.len() >= MARKS_MAX {
                    self.marks.pop_back();
                }
                self.marks.push_back((number, before));
                while let Some((number, mark)) = self.marks.front()
                    && *number <= over
                {
                    self.still = *mark;
                    self.marks.pop_front();
                }
            }
            None => self.still = self.last,
        }
        if start <= self.floor {
            self.floor = self.still.position.min(self.after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 4;

    /// A fetch of everything that is due.
    fn fetch(scan: &mut Scan, fetched: &[i64], number: u64, over: u64) {
        let fetched: Vec<Position> = fetched.iter().copied().map(Position).collect();
        let horizon = Horizon { number, over };
        scan.read_on(scan.start(MAX), &fetched, true, Some(horizon));
    }

    fn scan() -> Scan {
        Scan::new(Duration::ZERO, Instant(0))
    }

    #[test]
    fn where_positions_appear_in_order_it_reads_on() {
        let mut scan = scan();
        scan.read_on(scan.start(MAX), &[Position(1), Position(2)], true, None);
        assert_eq!(scan.start(MAX), Position(2));
    }

    #[test]
    fn it_reads_from_where_something_may_still_appear() {
        let mut scan = scan();
        fetch(&mut scan, &[1, 2], 10, 10);
        assert_eq!(scan.start(MAX), Position::START);
        // 11 has drawn position 3 and is open.
        fetch(&mut scan, &[4], 13, 11);
        fetch(&mut scan, &[5], 15, 11);
        assert_eq!(scan.start(MAX), Position::START);
        // It is over, and 3 is read. 14 is open; it began after the fetch that ended at 4.
        fetch(&mut scan, &[3, 7], 16, 14);
        assert_eq!((scan.start(MAX), scan.after), (Position(2), Position(7)));
        fetch(&mut scan, &[], 17, 15);
        assert_eq!(scan.start(MAX), Position(4));
        // Nothing is open but the fetch itself.
        fetch(&mut scan, &[8], 18, 18);
        assert_eq!((scan.start(MAX), scan.after), (Position(7), Position(8)));
    }

    #[test]
    fn what_a_limit_cut_off_is_read_before_what_follows() {
        let mut scan = scan();
        fetch(&mut scan, &[1], 10, 10);
        fetch(&mut scan, &[8, 9], 12, 12);
        let horizon = Horizon {
            number: 13,
            over: 13,
        };
        scan.read_on(scan.start(MAX), &[Position(2)], false, Some(horizon));
        assert_eq!((scan.start(MAX), scan.after), (Position(2), Position(2)));
    }

    #[test]
    fn a_long_transaction_makes_it_read_on_until_it_is_over() {
        let mut scan = scan();
        fetch(&mut scan, &[1], 10, 10);
        fetch(&mut scan, &[3], 12, 11);
        fetch(&mut scan, &[4, 5], 13, 11);
        assert_eq!(scan.start(MAX), Position::START);
        fetch(&mut scan, &[7], 14, 11);
        assert_eq!(scan.start(MAX), Position(7));
        // It is over, and this fetch has not read what it left at 2.
        fetch(&mut scan, &[8], 22, 22);
        assert_eq!(scan.start(MAX), Position::START);
        fetch(&mut scan, &[2], 23, 23);
        assert_eq!(scan.start(MAX), Position(8));
    }

    #[test]
    fn what_it_remembers_is_bounded() {
        let mut scan = scan();
        fetch(&mut scan, &[4], 10, 10);
        for number in 11..1_000 {
            fetch(&mut scan, &[], number, 10);
        }
        assert!(scan.marks.len() <= MARKS_MAX);
        fetch(&mut scan, &[5], 2_000, 2_000);
        assert_eq!(scan.start(MAX), Position(4));
    }
}
