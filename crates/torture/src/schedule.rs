//! What strikes when, from a seed alone: the same seed and time give the same list.

use std::{fmt, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};

use crate::fault::{Kind, Part, Track};

/// The least share of the time in which faults strike. The rest is for what they left behind.
const STRIKING: f64 = 0.7;
/// More than this is not needed for the rest.
const REST_MAX: Duration = Duration::from_secs(60);
/// Between the beginnings of two faults of a track, in a run that is long enough. Below, a track
/// would hardly ever be whole; above, a long run would only be slower.
const SPACING_MAX: Duration = Duration::from_secs(9);
/// How long a fault lasts: shorter than the deadlines of a send to longer than them.
const LASTS_MS: std::ops::Range<u64> = 200..2_500;

/// Instead of the name of a kind.
pub(crate) const NO_KIND: &str = "none";

/// One fault at its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strike {
    /// After the start.
    pub(crate) at: Duration,
    pub(crate) kind: Kind,
    pub(crate) lasts: Duration,
    /// Which of the two relays, where it strikes one.
    pub(crate) relay: usize,
    /// Whether both, where it can.
    pub(crate) both: bool,
}

/// What strikes one part, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    pub(crate) track: &'static str,
    pub(crate) strikes: Vec<Strike>,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at,
            kind,
            lasts,
            relay,
            both,
        } = self;
        let (at, lasts) = (at.as_secs_f64(), lasts.as_secs_f64());
        write!(f, "{at:8.1} s  {kind} for {lasts:.1} s")?;
        match kind.part() {
            Part::Link if *both => f.write_str(", both relays"),
            Part::Link | Part::Relay => write!(f, ", relay {}", relay + 1),
            Part::Other => Ok(()),
        }
    }
}

/// Every kind strikes at least once, however short the time: a track whose faults do not fit goes
/// on for as long as they take.
pub(crate) fn draw(seed: u64, time: Duration, tracks: &[Track]) -> Vec<Course> {
    let striking = striking(time);
    let courses = tracks.iter().zip(1_u64..).map(|(track, number)| {
        // A stream of its own, so that a fault more in one track changes no other.
        let mut rng = StdRng::seed_from_u64(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9)));
        course(&mut rng, striking, track)
    });
    courses.collect()
}

/// The part of a run in which faults strike.
pub(crate) fn striking(time: Duration) -> Duration {
    time.mul_f64(STRIKING).max(time.saturating_sub(REST_MAX))
}

/// Leaves out all but some kinds, by name, and changes nothing else: a story is easier to read with
/// the faults alone that it needs. Nothing if a name is no kind's.
pub(crate) fn keep_only(courses: &mut [Course], only: &[String]) -> Option<()> {
    let struck = |name: &String| {
        let mut strikes = courses.iter().flat_map(|course| &course.strikes);
        strikes.any(|strike| strike.kind.to_string() == *name)
    };
    if !only.iter().all(|name| name == NO_KIND || struck(name)) {
        return None;
    }
    for course in courses {
        course
            .strikes
            .retain(|strike| only.contains(&strike.kind.to_string()));
    }
    Some(())
}

fn course(rng: &mut StdRng, striking: Duration, track: &Track) -> Course {
    let kinds = track.kinds.len();
    let rounds = (striking.as_secs_f64() / (SPACING_MAX.as_secs_f64() * kinds as f64)).ceil();
    let rounds = rounds.max(1.0) as usize;
    let spacing = striking.div_f64((rounds * kinds) as f64);
    let mut strikes = Vec::with_capacity(rounds * kinds);
    for round in 0..rounds {
        let mut order = track.kinds.to_vec();
        order.shuffle(rng);
        for (place, kind) in order.into_iter().enumerate() {
            let slot = spacing.mul_f64((round * kinds + place) as f64);
            strikes.push(Strike {
                at: slot + spacing.mul_f64(rng.random_range(0.0..0.4)),
                kind,
                lasts: Duration::from_millis(rng.random_range(LASTS_MS)),
                relay: rng.random_range(0..2),
                both: rng.random_bool(0.4),
            });
        }
    }
    Course {
        track: track.name,
        strikes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{POSTGRES_JETSTREAM, SQLITE_WEBHOOK};

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_seed_gives_one_schedule_and_another_seed_another() {
        let drawn = |seed| draw(seed, MINUTE * 2, POSTGRES_JETSTREAM);
        assert_eq!(drawn(7), drawn(7));
        assert_ne!(drawn(7), drawn(8));
    }

    #[test]
    fn leaving_out_kinds_moves_no_other() {
        let mut courses = draw(7, MINUTE * 2, POSTGRES_JETSTREAM);
        let all = courses.clone();
        let only = ["store-killed".to_owned()];
        keep_only(&mut courses, &only).unwrap();
        let strikes = |courses: &[Course]| -> Vec<Strike> {
            let all = courses.iter().flat_map(|course| course.strikes.clone());
            all.filter(|strike| strike.kind == Kind::StoreKilled)
                .collect()
        };
        assert_eq!(strikes(&courses), strikes(&all));
        let left: usize = courses.iter().map(|course| course.strikes.len()).sum();
        assert_eq!(left, strikes(&all).len());
        assert!(keep_only(&mut courses, &["store-kiled".to_owned()]).is_none());
        keep_only(&mut courses, &[NO_KIND.to_owned()]).unwrap();
        assert!(courses.iter().all(|course| course.strikes.is_empty()));
    }

    #[test]
    fn every_kind_strikes_however_short_the_run() {
        for (tracks, minutes) in [
            (POSTGRES_JETSTREAM, 1),
            (POSTGRES_JETSTREAM, 30),
            (SQLITE_WEBHOOK, 1),
        ] {
            for seed in 0..20 {
                for (course, track) in draw(seed, MINUTE * minutes, tracks).iter().zip(tracks) {
                    for kind in track.kinds {
                        assert!(
                            course.strikes.iter().any(|strike| strike.kind == *kind),
                            "{kind} never strikes in {minutes} minutes of seed {seed}"
                        );
                    }
                    assert!(course.strikes.is_sorted_by_key(|strike| strike.at));
                    assert!(course.strikes.iter().all(|one| one.at < MINUTE * minutes));
                }
            }
        }
    }
}
