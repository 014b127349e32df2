//! A batch on its way: exactly one answer per message, and who waits for whom.

use std::collections::BTreeSet;

use postrider_core::Outcome;
use postrider_transport::{
    Answer, Batch, Message,
    holds::{Holding, Holds, is_held},
};
use tokio::{sync::mpsc, time::Instant};

/// The answers of one batch.
pub(crate) struct Flight<'a> {
    pub(crate) batch: &'a Batch,
    holding: Holding,
    holds: &'a Holds,
    answers: mpsc::UnboundedSender<Answer>,
    answered: Vec<bool>,
    /// Keys of this batch with a message that was not accepted.
    failed: BTreeSet<&'a str>,
    entered: Instant,
}

impl<'a> Flight<'a> {
    pub(crate) fn new(
        batch: &'a Batch,
        holding: Holding,
        holds: &'a Holds,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        Self {
            answered: vec![false; batch.messages.len()],
            batch,
            holding,
            holds,
            answers,
            failed: BTreeSet::new(),
            entered: Instant::now(),
        }
    }

    /// Answers one message; the first answer counts.
    pub(crate) fn answer(&mut self, index: usize, outcome: Outcome) {
        if std::mem::replace(&mut self.answered[index], true) {
            return;
        }
        if self.holding.holds(&outcome) {
            let batch: &'a Batch = self.batch;
            let message = &batch.messages[index];
            self.failed.insert(&message.partition_key);
            if !is_held(&outcome) {
                self.holds.hold(message, Instant::now(), batch.send_timeout);
            }
        }
        // Nobody listens any more: the attempt stays unknown, and the destination knows better.
        drop(self.answers.send(Answer { index, outcome }));
    }

    pub(crate) fn is_answered(&self, index: usize) -> bool {
        self.answered[index]
    }

    /// Answers all that are not answered yet.
    pub(crate) fn answer_rest(&mut self, outcome: &Outcome) {
        for index in 0..self.answered.len() {
            self.answer(index, outcome.clone());
        }
    }

    /// Whether a message must wait for an earlier one of its key, in this batch or in one before.
    pub(crate) fn is_held(&self, message: &Message) -> bool {
        self.holding.by_key
            && (self.holds.holds(message, self.entered)
                || self.failed.contains(message.partition_key.as_str()))
    }
}
