//! A batch on its way: exactly one answer per message, whoever gives it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use postrider_core::Outcome;
use postrider_transport::{
    Answer, Batch, Message,
    holds::{Holding, Holds, is_held},
};
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) batch: Batch,
    holding: Holding,
    answers: mpsc::UnboundedSender<Answer>,
    open: AtomicUsize,
    done: Notify,
    any_failed: AtomicBool,
    failed: Mutex<Vec<usize>>,
    /// When it was handed over.
    entered: Instant,
    holds: Arc<Holds>,
}

impl Flight {
    pub(crate) fn new(
        batch: Batch,
        holding: Holding,
        holds: Arc<Holds>,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        Self {
            open: AtomicUsize::new(batch.messages.len()),
            batch,
            holding,
            answers,
            done: Notify::new(),
            any_failed: AtomicBool::new(false),
            failed: Mutex::default(),
            entered: Instant::now(),
            holds,
        }
    }

    /// Answers one message. The caller makes sure that it does so once.
    pub(crate) fn answer(&self, index: usize, outcome: Outcome) {
        if self.holds(&outcome) {
            self.failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(index);
            self.any_failed.store(true, Ordering::Release);
            if !is_held(&outcome) {
                let message = &self.batch.messages[index];
                self.holds
                    .hold(message, Instant::now(), self.batch.send_timeout);
            }
        }
        // Nobody listens any more: the attempt stays unknown, and the destination knows better.
        drop(self.answers.send(Answer { index, outcome }));
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// Answers all from one message on, none of which was handed over.
    pub(crate) fn answer_from(&self, first: usize, outcome: &Outcome) {
        for index in first..self.batch.messages.len() {
            self.answer(index, outcome.clone());
        }
    }

    /// Whether a message must wait for an earlier one of its key, in this batch or in one before.
    pub(crate) fn is_held(&self, message: &Message) -> bool {
        self.holding.by_key && (self.holds.holds(message, self.entered) || self.waits_here(message))
    }

    fn waits_here(&self, message: &Message) -> bool {
        self.any_failed.load(Ordering::Acquire)
            && self
                .failed
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .any(|&index| self.batch.messages[index].partition_key == message.partition_key)
    }

    /// Waits until every message is answered.
    pub(crate) async fn done(&self) {
        while self.open.load(Ordering::Acquire) > 0 {
            self.done.notified().await;
        }
    }

    /// Whether the later messages of its key wait for one with this outcome.
    pub(crate) fn holds(&self, outcome: &Outcome) -> bool {
        self.holding.holds(outcome)
    }
}
