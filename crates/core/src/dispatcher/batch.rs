//! One attempt in memory: its members, their answers, and what they become.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use postrider_contract::Receipt;
use rand::Rng;

use crate::{
    AttemptId, Class, Outcome,
    breaker::Cause,
    delivery::{self, Event, Next, State},
    exchange::{Settled, SettledAs, Settlement},
    mutation::{self, Mutation},
};

use super::{Candidate, Config};

#[derive(Debug)]
pub(super) struct Batch<E> {
    pub(super) attempt: AttemptId,
    /// In position order.
    pub(super) members: Arc<[Candidate<E>]>,
    /// The one delivery that an open breaker lets through.
    pub(super) probe: bool,
    answers: Vec<Option<Outcome>>,
}

/// An attempt that is over and waits to be written down.
#[derive(Debug)]
pub(super) struct Finished<E> {
    pub(super) members: Arc<[Candidate<E>]>,
    pub(super) settlement: Settlement,
    pub(super) soonest_retry: Option<Duration>,
}

/// What the members that were not acknowledged mean for the others.
#[derive(Debug, Default)]
pub(super) struct Failed {
    /// Keys whose later deliveries must wait.
    pub(super) held_keys: BTreeSet<i64>,
    /// Something is due again at once: the reader must go back for it.
    pub(super) rescan: bool,
}

impl<E> Batch<E> {
    pub(super) fn new(attempt: AttemptId, members: Vec<Candidate<E>>, probe: bool) -> Self {
        let answers = members.iter().map(|_| None).collect();
        Self {
            attempt,
            members: members.into(),
            probe,
            answers,
        }
    }

    /// Whether an answer says anything new. An acknowledgement may follow an unknown, because
    /// the truth may come late; nothing else may follow anything.
    pub(super) fn is_news(&self, index: usize, outcome: &Outcome) -> bool {
        matches!(
            (self.answers.get(index), outcome),
            (Some(None), _)
                | (
                    Some(Some(Outcome::Unknown { .. })),
                    Outcome::Acknowledged(_)
                )
        )
    }

    /// Takes an answer that is news.
    pub(super) fn answer(&mut self, index: usize, outcome: Outcome) {
        self.answers[index] = Some(outcome);
    }

    pub(super) fn all_answered(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    pub(super) fn answered(&self) -> BTreeSet<usize> {
        let all = self.answers.iter().enumerate();
        all.filter(|(_, answer)| answer.is_some())
            .map(|(index, _)| index)
            .collect()
    }

    /// Gives back members of keys that must wait. Only before the batch is sent.
    pub(super) fn hold_keys(&mut self, keys: &BTreeSet<i64>) {
        for (member, answer) in self.members.iter().zip(&mut self.answers) {
            if answer.is_none() && keys.contains(&member.key_hash) {
                *answer = Some(held());
            }
        }
    }

    /// Gives back everything. Only when the batch will not be sent.
    pub(super) fn hold_unsent(&mut self) {
        self.answers
            .iter_mut()
            .filter(|answer| answer.is_none())
            .for_each(|answer| {
                *answer = Some(held());
            });
    }

    /// The deadline is over: what has no answer is unknown. `true` if an acknowledgement may
    /// still come.
    pub(super) fn close_unanswered(&mut self) -> bool {
        for answer in self.answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(Outcome::Unknown {
                code: "deadline",
                detail: String::new(),
            });
        }
        self.answers
            .iter()
            .any(|answer| matches!(answer, Some(Outcome::Unknown { .. })))
    }

    /// A batch of which nothing was heard but unknown outcomes is an outage too.
    pub(super) fn silence(&self) -> Option<Cause> {
        let mut cause = None;
        for answer in self.answers.iter().flatten() {
            match answer {
                Outcome::Unknown { code, detail } => {
                    cause = Some(Cause {
                        code,
                        detail: detail.clone(),
                    });
                }
                Outcome::Retryable {
                    class: Class::Held, ..
                } => {}
                Outcome::Acknowledged(_)
                | Outcome::Rejected { .. }
                | Outcome::Retryable {
                    class: Class::Outage | Class::Refusal,
                    ..
                } => return None,
            }
        }
        cause
    }

    /// The receipts so far, by index.
    pub(super) fn receipts(&self) -> Vec<(usize, Receipt)> {
        let all = self.answers.iter().enumerate();
        all.filter_map(|(index, answer)| match answer {
            Some(Outcome::Acknowledged(receipt)) => Some((index, receipt.clone())),
            Some(
                Outcome::Retryable { .. } | Outcome::Rejected { .. } | Outcome::Unknown { .. },
            )
            | None => None,
        })
        .collect()
    }

    /// Applies the transition table to every member. All are answered.
    ///
    /// Where keys are kept in order, a member behind a failed one of its key in the same batch
    /// keeps its own outcome: both were on their way already.
    pub(super) fn finish(self, config: &Config, rng: &mut impl Rng) -> (Finished<E>, Failed) {
        let mut failed = Failed::default();
        let mut settled = Vec::with_capacity(self.members.len());
        let mut soonest_retry: Option<Duration> = None;
        for (member, answer) in self.members.iter().zip(self.answers) {
            let mut outcome =
                answer.expect("every member is answered before the batch is finished");
            if mutation::on(Mutation::UnknownTakenAsSuccess)
                && matches!(outcome, Outcome::Unknown { .. })
            {
                outcome = Outcome::Acknowledged(Receipt::Handler {
                    handler: "nobody".to_owned(),
                    sequence: 1,
                });
            }
            let next = delivery::next(
                State::Pending,
                member.attempts,
                Event::Settled(outcome),
                &config.policy,
                rng,
            )
            .expect("a pending delivery may be settled with any outcome");
            let mut hold = false;
            let next = match next {
                Next::Acknowledge(receipt) | Next::KeepDuplicate(receipt) => {
                    SettledAs::Acknowledged(receipt)
                }
                Next::Retry {
                    attempts,
                    delay,
                    code,
                    detail,
                } => {
                    failed.rescan |= delay.is_zero();
                    hold = config.holds_key;
                    soonest_retry = Some(soonest_retry.map_or(delay, |soonest| soonest.min(delay)));
                    SettledAs::Retry {
                        attempts,
                        delay,
                        code,
                        detail,
                    }
                }
                Next::Unknown { code, detail } => {
                    hold = config.holds_key;
                    SettledAs::Unknown { code, detail }
                }
                Next::Quarantine {
                    attempts,
                    code,
                    detail,
                } => {
                    hold = config.quarantine_holds_key;
                    SettledAs::Quarantined {
                        attempts,
                        code,
                        detail,
                    }
                }
            };
            if hold {
                failed.held_keys.insert(member.key_hash);
            }
            settled.push(Settled {
                position: member.position,
                next,
            });
        }
        let settlement = Settlement {
            attempt: self.attempt,
            members: settled,
        };
        (
            Finished {
                members: self.members,
                settlement,
                soonest_retry,
            },
            failed,
        )
    }
}

fn held() -> Outcome {
    Outcome::Retryable {
        class: Class::Held,
        code: "held",
        detail: String::new(),
        retry_after: None,
    }
}
