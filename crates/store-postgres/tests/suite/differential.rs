//! Random sequences of calls are answered alike by the reference model and by PostgreSQL.
//!
//! Each sequence makes a database, so a plain run takes a part of the sequences that SQLite runs.
//! `POSTRIDER_DIFFERENTIAL_SEQUENCES=100000` for a longer run, `POSTRIDER_DIFFERENTIAL_SEED=n` for
//! one sequence again.

use crate::harness::{Direct, Pooled};
use postrider_conformance::store::{
    differential::{differential, seeds},
    memory::Memory,
};

/// Calls of one sequence.
const CALLS: usize = 60;
/// This many parts make up all sequences; two are run here.
const PARTS: u64 = 80;

#[tokio::test]
async fn postgres_answers_as_the_model_does() {
    differential::<Memory, Direct>(seeds(0, PARTS), CALLS).await;
}

#[tokio::test]
async fn postgres_behind_a_pooler_answers_as_the_model_does() {
    differential::<Memory, Pooled>(seeds(1, PARTS), CALLS).await;
}
