//! Random sequences of calls are answered alike by the reference model and by SQLite.
//!
//! `POSTRIDER_DIFFERENTIAL_SEQUENCES=100000` for a longer run, `POSTRIDER_DIFFERENTIAL_SEED=n` for
//! one sequence again.

mod support;

use postrider_conformance::store::{
    differential::{differential, seeds},
    memory::Memory,
};
use support::Sqlite;

/// Calls of one sequence.
const CALLS: usize = 60;

// In parts, so that they run side by side.

#[tokio::test]
async fn sqlite_answers_as_the_model_does_1() {
    differential::<Memory, Sqlite>(seeds(0, 4), CALLS).await;
}

#[tokio::test]
async fn sqlite_answers_as_the_model_does_2() {
    differential::<Memory, Sqlite>(seeds(1, 4), CALLS).await;
}

#[tokio::test]
async fn sqlite_answers_as_the_model_does_3() {
    differential::<Memory, Sqlite>(seeds(2, 4), CALLS).await;
}

#[tokio::test]
async fn sqlite_answers_as_the_model_does_4() {
    differential::<Memory, Sqlite>(seeds(3, 4), CALLS).await;
}
