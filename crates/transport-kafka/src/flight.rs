//! A batch on its way: exactly one answer per message, whoever gives it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use postrider_core::Outcome;
use postrider_transport::{
    Answer, Batch, Message,
    holds::{Holding, Holds, is_held},
};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

/// Where a message was sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: u32,
}

/// A message that was reported, and whose outcome takes a look first.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) index: usize,
    pub(crate) spot: Spot,
    /// Its place in the log, if it is there, is not before this.
    pub(crate) from: u64,
}

#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) batch: Batch,
    holding: Holding,
    answers: mpsc::UnboundedSender<Answer>,
    answered: Box<[AtomicBool]>,
    /// Handed over and not reported yet.
    out: AtomicUsize,
    reported: Notify,
    any_failed: AtomicBool,
    failed: Mutex<Vec<usize>>,
    doubts: Mutex<Vec<Doubt>>,
    /// Refused with the set that they were sent in, and why.
    crowded: Mutex<Vec<(usize, Code)>>,
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
            answered: batch
                .messages
                .iter()
                .map(|_| AtomicBool::new(false))
                .collect(),
            batch,
            holding,
            answers,
            out: AtomicUsize::new(0),
            reported: Notify::new(),
            any_failed: AtomicBool::new(false),
            failed: Mutex::default(),
            doubts: Mutex::default(),
            crowded: Mutex::default(),
            entered: Instant::now(),
            holds,
        }
    }

    /// Answers one message, unless it was answered before.
    pub(crate) fn answer(&self, index: usize, outcome: Outcome) {
        if self.answered[index].swap(true, Ordering::AcqRel) {
            return;
        }
        self.mark(index, &outcome);
        // Nobody listens any more: the attempt stays unknown, and the destination knows better.
        drop(self.answers.send(Answer { index, outcome }));
    }

    /// Answers all from one message on that are not answered.
    pub(crate) fn answer_from(&self, first: usize, outcome: &Outcome) {
        for index in first..self.batch.messages.len() {
            self.answer(index, outcome.clone());
        }
    }

    pub(crate) fn handed_over(&self) {
        self.out.fetch_add(1, Ordering::AcqRel);
    }

    /// The library is done with one message; whatever it said was noted before.
    pub(crate) fn report(&self) {
        if self.out.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.reported.notify_waiters();
        }
    }

    pub(crate) fn doubt(&self, doubt: Doubt) {
        lock(&self.doubts).push(doubt);
    }

    pub(crate) fn take_doubts(&self) -> Vec<Doubt> {
        std::mem::take(&mut *lock(&self.doubts))
    }

    /// It was refused with the set that it was sent in. Its key waits until it was sent alone.
    pub(crate) fn crowd(&self, index: usize, code: Code) {
        if self.holding.by_key {
            self.hold(index);
        }
        lock(&self.crowded).push((index, code));
    }

    /// In the order of the batch.
    pub(crate) fn take_crowded(&self) -> Vec<(usize, Code)> {
        let mut crowded = std::mem::take(&mut *lock(&self.crowded));
        crowded.sort_unstable_by_key(|(index, _)| *index);
        crowded
    }

    /// Whether a message must wait for an earlier one of its key, in this batch or in one before.
    pub(crate) fn is_held(&self, message: &Message) -> bool {
        self.holding.by_key && (self.holds.holds(message, self.entered) || self.waits_here(message))
    }

    /// The same for one that was refused with its set, and is sent alone now. Its key stays held
    /// for the batches behind: others of this one may have failed beside it.
    pub(crate) fn is_held_alone(&self, message: &Message) -> bool {
        let own = |event| {
            self.batch
                .messages
                .iter()
                .any(|other| other.event_id == event)
        };
        self.holding.by_key
            && (self.holds.holds_for_another(message, self.entered, own)
                || self.waits_here(message))
    }

    /// Waits until the library has reported everything that it was given.
    pub(crate) async fn all_reported(&self) {
        loop {
            let reported = self.reported.notified();
            if self.out.load(Ordering::Acquire) == 0 {
                return;
            }
            reported.await;
        }
    }

    fn waits_here(&self, message: &Message) -> bool {
        self.any_failed.load(Ordering::Acquire)
            && lock(&self.failed)
                .iter()
                .any(|&index| self.batch.messages[index].partition_key == message.partition_key)
    }

    fn mark(&self, index: usize, outcome: &Outcome) {
        if !self.holding.holds(outcome) {
            return;
        }
        lock(&self.failed).push(index);
        self.any_failed.store(true, Ordering::Release);
        if !is_held(outcome) {
            self.hold(index);
        }
    }

    fn hold(&self, index: usize) {
        let message = &self.batch.messages[index];
        self.holds
            .hold(message, Instant::now(), self.batch.send_timeout);
    }
}

/// A panic while it is held leaves a state that is still true.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
