//! What the writers append: events of few keys, and what is to become of each transaction.

use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use uuid::Uuid;

use crate::digest::Sha256;

/// An event type and the destinations that its route prescribes.
pub(crate) struct Route {
    pub(crate) event_type: &'static str,
    pub(crate) destinations: &'static [&'static str],
}

pub(crate) const FIRST: &str = "first";
pub(crate) const SECOND: &str = "second";

pub(crate) const ROUTES: [Route; 3] = [
    Route {
        event_type: "torture.first",
        destinations: &[FIRST],
    },
    Route {
        event_type: "torture.second",
        destinations: &[SECOND],
    },
    Route {
        event_type: "torture.both",
        destinations: &[FIRST, SECOND],
    },
];

/// The order that each destination promises. The first may have several of a key in flight, the
/// second has one.
pub(crate) const ORDERINGS: [(&str, &str); 2] = [(FIRST, "key"), (SECOND, "strict")];

/// The event types and their routes, as a relay's configuration has them.
pub(crate) fn routes() -> String {
    let tables = ROUTES.iter().map(|route| {
        let Route {
            event_type,
            destinations,
        } = route;
        format!(
            "[[event_types]]\n\
             event_type = \"{event_type}\"\n\
             schema_version = \"1\"\n\
             [[routes]]\n\
             event_type = \"{event_type}\"\n\
             schema_version = \"1\"\n\
             destinations = {destinations:?}\n"
        )
    });
    tables.collect()
}

/// The stream of a destination.
pub(crate) fn stream_of(destination: &str) -> String {
    destination.to_uppercase()
}

pub(crate) fn destination_of(stream: &str) -> String {
    stream.to_lowercase()
}

/// Keys of one writer. Few, so that each is nearly always busy.
const KEYS: usize = 8;
const EVENTS_MAX: usize = 6;
const FILLER_MAX: usize = 700;

/// An event as a writer gives it to the database.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) id: Uuid,
    /// Appended to by one writer only, so that the order of its commits is known.
    pub(crate) key: String,
    /// Counts up within the key, in commit order.
    pub(crate) turn: u64,
    pub(crate) route: usize,
    pub(crate) payload: String,
}

impl Made {
    pub(crate) fn event_type(&self) -> &'static str {
        ROUTES[self.route].event_type
    }

    pub(crate) fn destinations(&self) -> &'static [&'static str] {
        ROUTES[self.route].destinations
    }

    pub(crate) fn digest(&self) -> Sha256 {
        Sha256::of(self.payload.as_bytes())
    }
}

/// What the writer wants to become of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Commit,
    /// Rolled back, and its ids are never seen again.
    RollBack,
    /// Rolled back, and appended again with the same ids.
    RollBackFirst,
}

/// What one writer does next, from a seed.
#[derive(Debug)]
pub(crate) struct Drafts {
    writer: usize,
    rng: StdRng,
    /// The next turn of each key.
    turns: [u64; KEYS],
}

impl Drafts {
    pub(crate) fn new(seed: u64, writer: usize) -> Self {
        Self {
            writer,
            rng: StdRng::seed_from_u64(seed ^ (writer as u64 + 1).wrapping_mul(0xa076_1d64)),
            turns: [0; KEYS],
        }
    }

    /// The next transaction. Its turns are taken only by [`Self::committed`].
    pub(crate) fn next(&mut self) -> (Vec<Made>, Wish) {
        let mut turns = self.turns;
        let count = self.rng.random_range(1..=EVENTS_MAX);
        let made = (0..count).map(|_| {
            let place = self.rng.random_range(0..KEYS);
            let turn = turns[place];
            turns[place] += 1;
            let key = format!("{}/{place}", self.writer);
            let filler = "x".repeat(self.rng.random_range(0..FILLER_MAX));
            Made {
                id: Uuid::now_v7(),
                payload: format!(r#"{{"key":"{key}","turn":{turn},"filler":"{filler}"}}"#),
                key,
                turn,
                route: self.rng.random_range(0..ROUTES.len()),
            }
        });
        let made = made.collect();
        let wish = match self.rng.random_range(0..20) {
            0 => Wish::RollBack,
            1 => Wish::RollBackFirst,
            _ => Wish::Commit,
        };
        (made, wish)
    }

    /// These were committed: the next ones come after them.
    pub(crate) fn committed(&mut self, made: &[Made]) {
        for made in made {
            let place = made.key.rsplit('/').next().and_then(|at| at.parse().ok());
            let place: usize = place.expect("a key ends with its place");
            self.turns[place] = self.turns[place].max(made.turn + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_count_up_with_what_was_committed_and_with_nothing_else() {
        let mut drafts = Drafts::new(1, 0);
        let mut seen = std::collections::BTreeMap::<String, u64>::new();
        for number in 0..200 {
            let (made, _) = drafts.next();
            if number % 3 == 0 {
                continue;
            }
            for made in &made {
                let next = seen.entry(made.key.clone()).or_default();
                assert_eq!(made.turn, *next, "{}", made.key);
                *next += 1;
            }
            drafts.committed(&made);
        }
    }
}
