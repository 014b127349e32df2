//! Acknowledgements on their way to the evidence path. None is ever dropped (I7).

use std::{collections::VecDeque, sync::Arc, time::Duration};

use postrider_contract::Receipt;

use crate::{
    AttemptId, Instant,
    exchange::{SettledAs, Settlement},
};

use super::{Candidate, Command};

/// An acknowledgement that the fast path cannot settle.
#[derive(Clone, Debug)]
pub struct Evidence<E> {
    pub attempt: AttemptId,
    pub members: Arc<[Candidate<E>]>,
    /// Which of the members was acknowledged.
    pub index: usize,
    pub receipt: Receipt,
}

#[derive(Debug)]
pub(super) struct Evidences<E> {
    waiting: Vec<Evidence<E>>,
    /// Handed over, not yet confirmed.
    asked: Option<Arc<Vec<Evidence<E>>>>,
    retry_at: Option<Instant>,
}

impl<E> Default for Evidences<E> {
    fn default() -> Self {
        Self {
            waiting: Vec::new(),
            asked: None,
            retry_at: None,
        }
    }
}

impl<E> Evidences<E> {
    /// Bounded by what can be in flight: `sending_max` and `late_max` batches.
    pub(super) fn add(
        &mut self,
        attempt: AttemptId,
        members: &Arc<[Candidate<E>]>,
        index: usize,
        receipt: Receipt,
    ) {
        self.waiting.push(Evidence {
            attempt,
            members: Arc::clone(members),
            index,
            receipt,
        });
    }

    /// The acknowledged members of an attempt that could not be settled.
    pub(super) fn add_all(&mut self, members: &Arc<[Candidate<E>]>, settlement: &Settlement) {
        for (index, member) in settlement.members.iter().enumerate() {
            match &member.next {
                SettledAs::Acknowledged(receipt) => {
                    self.add(settlement.attempt, members, index, receipt.clone());
                }
                SettledAs::Retry { .. }
                | SettledAs::Unknown { .. }
                | SettledAs::Quarantined { .. } => {}
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_none()
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    pub(super) fn accepted(&mut self) {
        self.asked = None;
        self.retry_at = None;
    }

    pub(super) fn failed(&mut self, now: Instant, delay: Duration) {
        self.retry_at = Some(now + delay);
    }

    pub(super) fn advance(&mut self, now: Instant, commands: &mut VecDeque<Command<E>>) {
        match (&self.asked, self.retry_at) {
            (Some(asked), Some(at)) if at <= now => {
                self.retry_at = None;
                commands.push_back(Command::Evidence(Arc::clone(asked)));
            }
            (Some(_), _) => {}
            (None, _) if self.waiting.is_empty() => {}
            (None, _) => {
                let asked = Arc::new(std::mem::take(&mut self.waiting));
                self.asked = Some(Arc::clone(&asked));
                commands.push_back(Command::Evidence(asked));
            }
        }
    }
}
