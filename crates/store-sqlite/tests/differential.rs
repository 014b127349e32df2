//! Random sequences of calls are answered alike by the reference model and by SQLite.
//!
//! `POSTRIDER_DIFFERENTIAL_SEED=n` runs one sequence again. For a longer run, which nextest would
//! end: `POSTRIDER_DIFFERENTIAL_SEQUENCES=100000 cargo test -p postrider-store-sqlite --test
//! differential`.

mod support;

use postrider_conformance::store::{
    differential::{differential, seeds},
    memory::Memory,
};
use support::Sqlite;

/// Calls of one sequence.
const CALLS: usize = 60;

/// One test per part, so that they run side by side.
macro_rules! sqlite_answers_as_the_model_does {
    ($($name:ident: $part:literal),*) => {$(
        #[tokio::test]
        async fn $name() {
            differential::<Memory, Sqlite>(seeds($part, 8), CALLS).await;
        }
    )*};
}

sqlite_answers_as_the_model_does!(
    part_0: 0, part_1: 1, part_2: 2, part_3: 3, part_4: 4, part_5: 5, part_6: 6, part_7: 7
);
