//! Lane arithmetic: how many lanes of a destination one session should hold.

/// What to do about the lanes of one destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Stay,
    /// Take up to this many free lanes.
    Claim(u16),
    /// Hand over this many, once they are drained.
    Release(u16),
}

/// The fair share: `ceil(lanes / sessions)`.
///
/// Rounding up means that the last session may get fewer, never that a lane stays without one.
#[must_use]
pub fn fair_share(lanes: u16, sessions: u32) -> u16 {
    let share = u32::from(lanes).div_ceil(sessions.max(1));
    u16::try_from(share).expect("at most lanes")
}

/// Towards the fair share: extras are handed over, missing ones taken if they are free.
#[must_use]
pub fn next_move(lanes: u16, sessions: u32, held: u16, free: u16) -> Move {
    let share = fair_share(lanes, sessions);
    if held > share {
        Move::Release(held - share)
    } else {
        match free.min(share - held) {
            0 => Move::Stay,
            claim => Move::Claim(claim),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_finds_a_session() {
        for lanes in 1..=64 {
            for sessions in 1..=70_u32 {
                let mut held = vec![0_u16; sessions as usize];
                // Sessions act in turn; twice round is enough from any start.
                held[0] = lanes;
                for _ in 0..2 {
                    for index in 0..held.len() {
                        let free = lanes - held.iter().sum::<u16>();
                        match next_move(lanes, sessions, held[index], free) {
                            Move::Stay => {}
                            Move::Claim(count) => held[index] += count,
                            Move::Release(count) => held[index] -= count,
                        }
                    }
                }
                assert_eq!(
                    held.iter().sum::<u16>(),
                    lanes,
                    "{lanes} lanes, {sessions} sessions"
                );
                let share = fair_share(lanes, sessions);
                assert!(held.iter().all(|held| *held <= share));
            }
        }
    }

    #[test]
    fn no_session_counts_as_one() {
        assert_eq!(fair_share(16, 0), 16);
    }
}
