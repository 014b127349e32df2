//! A way to deliver into a model broker in memory, with faults on request. It makes no threads,
//! tasks or timers of its own, so that a simulator can run it step by step.

mod broker;
mod fate;

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream::FuturesUnordered,
};
use postrider_core::{Class, Outcome};
use postrider_transport::{
    Anchor, Answer, Batch, Error, Message, Probe, ProbeStrength, Probed, Problem, Provisioning,
    Traits, Transport, Usage,
};
use tokio::sync::mpsc;

use broker::Hand;
pub use broker::{Broker, Decide, Delay, Options, Stored};
pub use fate::{Decision, Fate};

/// A connection to a [`Broker`].
#[derive(Clone, Debug)]
pub struct Memory {
    broker: Broker,
    /// The broker's limit, as last looked at.
    message_bytes_max: Arc<Mutex<Option<usize>>>,
}

impl Memory {
    #[must_use]
    pub fn open(broker: &Broker) -> Self {
        Self {
            broker: broker.clone(),
            message_bytes_max: Arc::new(Mutex::new(broker.message_bytes_max())),
        }
    }

    fn known_limit(&self) -> MutexGuard<'_, Option<usize>> {
        self.message_bytes_max
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// The broker's side of one message: what it stores, then how the sender learns of it.
    fn arrive(&self, message: &Message, fate: Fate, hand: &Hand, index: usize) -> Arrived {
        hand.take(index);
        match fate {
            _ if self.broker.is_down() => Arrived::Answer(outage()),
            Fate::Accept => Arrived::Answer(self.accepted(self.broker.store(message))),
            Fate::AcceptTwice => {
                let sequence = self.broker.store(message);
                self.broker.store_again(message);
                Arrived::Answer(self.accepted(sequence))
            }
            Fate::LoseAck => {
                self.broker.store(message);
                Arrived::Silence
            }
            Fate::LoseMessage => Arrived::Silence,
            Fate::Late => {
                self.broker.keep_under_way(message);
                Arrived::Silence
            }
            Fate::Refuse(class) => Arrived::Answer(Outcome::Retryable {
                class,
                code: "refused",
                detail: "the broker refused it".to_owned(),
                retry_after: None,
            }),
            Fate::Reject { suspends } => Arrived::Answer(Outcome::Rejected {
                code: "rejected",
                detail: "the broker rejected it".to_owned(),
                suspends,
            }),
            Fate::BlackHole { stored } => Arrived::Hole {
                truth: if stored {
                    self.accepted(self.broker.store(message))
                } else {
                    unknown("connection_lost")
                },
                released: self.broker.open_hole(message.event_id),
            },
        }
    }

    async fn outcome(&self, arrived: Arrived, decision: Decision, batch: &Batch) -> Outcome {
        match arrived {
            Arrived::Answer(outcome) => {
                if decision.answer > batch.send_timeout {
                    self.broker.wait(batch.send_timeout).await;
                    return unknown("ack_timeout");
                }
                self.broker.wait(decision.answer).await;
                outcome
            }
            Arrived::Silence => {
                self.broker.wait(batch.send_timeout).await;
                unknown("ack_timeout")
            }
            Arrived::Hole { truth, released } => {
                // A broker that is dropped releases its holes.
                let released = released.map(|_| ());
                match self.broker.timeout(batch.send_timeout) {
                    None => {
                        released.await;
                        truth
                    }
                    Some(timeout) => match select(pin!(released), pin!(timeout)).await {
                        Either::Left(_) => truth,
                        Either::Right(_) => unknown("ack_timeout"),
                    },
                }
            }
        }
    }

    fn accepted(&self, sequence: u64) -> Outcome {
        Outcome::Acknowledged(self.broker.receipt(sequence))
    }
}

enum Arrived {
    Answer(Outcome),
    Silence,
    Hole {
        truth: Outcome,
        released: tokio::sync::oneshot::Receiver<()>,
    },
}

fn outage() -> Outcome {
    Outcome::Retryable {
        class: Class::Outage,
        code: "broker_down",
        detail: "the broker is down".to_owned(),
        retry_after: None,
    }
}

fn unknown(code: &'static str) -> Outcome {
    Outcome::Unknown {
        code,
        detail: "no answer from the broker".to_owned(),
    }
}

fn down() -> Error {
    Error::Unavailable {
        code: "broker_down",
        message: "the broker is down".to_owned(),
    }
}

#[async_trait]
impl Transport for Memory {
    fn traits(&self) -> Traits {
        let options = self.broker.options();
        Traits {
            pipelined_in_order: options.pipelined_in_order,
            batch_max: options.batch_max,
            dedup_window: options.dedup_window,
            probe: options.probe,
        }
    }

    async fn preflight(&self, _: &Usage) -> Result<Vec<Problem>, Error> {
        if self.broker.is_down() {
            Err(down())
        } else {
            Ok(Vec::new())
        }
    }

    async fn provision(&self, _: &Usage, _: Provisioning) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn look_again(&self) {
        *self.known_limit() = self.broker.message_bytes_max();
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        let Some(max) = *self.known_limit() else {
            return Ok(());
        };
        let headers: usize = message.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        let bytes = headers + message.body.len();
        if bytes <= max {
            return Ok(());
        }
        Err(Outcome::Rejected {
            code: "message_too_large",
            detail: format!("{bytes} bytes with headers; the broker takes {max}"),
            suspends: false,
        })
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        let answer = |index, outcome| {
            // Nobody listens any more: the outcome stays what the broker's log says.
            drop(answers.send(Answer { index, outcome }));
        };
        let messages = Arc::clone(&batch.messages);
        let hand = self.broker.hold(&messages);
        let mut waiting = FuturesUnordered::new();
        for (index, message) in messages.iter().enumerate() {
            if let Err(refused) = self.check(message) {
                hand.take(index);
                answer(index, refused);
                continue;
            }
            let decision = self.broker.decide(message);
            let in_order = self.broker.options().pipelined_in_order;
            let arrived = if in_order {
                self.broker.wait(decision.travel).await;
                Some(self.arrive(message, decision.fate, &hand, index))
            } else {
                None
            };
            let (batch, hand) = (&batch, &hand);
            waiting.push(async move {
                let arrived = match arrived {
                    Some(arrived) => arrived,
                    None => {
                        self.broker.wait(decision.travel).await;
                        self.arrive(message, decision.fate, hand, index)
                    }
                };
                (index, self.outcome(arrived, decision, batch).await)
            });
            while let Some(Some((index, outcome))) = waiting.next().now_or_never() {
                answer(index, outcome);
            }
        }
        while let Some((index, outcome)) = waiting.next().await {
            answer(index, outcome);
        }
    }

    async fn anchor(&self, _: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        if self.broker.is_down() {
            Err(down())
        } else {
            Ok(Some(Anchor::number(self.broker.next_sequence())))
        }
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        if self.broker.is_down() {
            return Err(down());
        }
        let cannot_tell = |reason: &str| Probed::CannotTell {
            reason: reason.to_owned(),
        };
        let strength = self.broker.options().probe;
        let anchor = probe.anchor.as_ref().and_then(Anchor::as_number);
        Ok(match (strength, self.broker.find(probe.event_id, anchor)) {
            (ProbeStrength::None, _) => cannot_tell("this broker cannot be asked"),
            (_, (Some(sequence), _)) if self.broker.holds(sequence, &probe.payload_digest) => {
                Probed::Found(self.broker.receipt(sequence))
            }
            (_, (Some(_), _)) => cannot_tell("the broker holds this id with another payload"),
            (ProbeStrength::Finds, (None, _)) => cannot_tell("not seen"),
            (ProbeStrength::ProvesAbsence, (None, true)) => cannot_tell("a copy is under way"),
            (ProbeStrength::ProvesAbsence, (None, false)) => Probed::ProvenAbsent,
        })
    }

    async fn close(&self) {}
}

#[cfg(test)]
mod tests;
