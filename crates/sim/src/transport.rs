//! The memory transport as one worker reaches it: with time, faults and witnesses.

use std::{pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt as _, stream::FuturesUnordered};
use postrider_core::{Class, DestinationId, Outcome, Position};
use postrider_relay::TransportFactory;
use postrider_store::control::RegisteredDestination;
use postrider_transport::{
    Anchor, Answer, Batch, Error, Message, Probe, Probed, Problem, Provisioning, Traits, Transport,
    Usage,
};
use postrider_transport_memory::{Decision, Fate, Memory};
use tokio::sync::mpsc;

use crate::{
    fault::OfMessage,
    life::Life,
    oracle::Sending,
    truth::Ack,
    world::{World, destination_id},
};

#[derive(Debug)]
pub(crate) struct Factory {
    world: Arc<World>,
    life: Arc<Life>,
}

impl Factory {
    pub(crate) fn new(world: &Arc<World>, life: &Arc<Life>) -> Self {
        Self {
            world: Arc::clone(world),
            life: Arc::clone(life),
        }
    }
}

impl TransportFactory for Factory {
    fn kinds(&self) -> &[&'static str] {
        &["handler"]
    }

    fn open(&self, destination: &RegisteredDestination) -> Result<Arc<dyn Transport>, Error> {
        let places = &self.world.plan.places;
        let place = places
            .iter()
            .position(|place| place.destination.name == destination.destination.name)
            .ok_or_else(|| Error::Misconfigured {
                code: "no_such_place",
                message: destination.destination.name.clone(),
            })?;
        if self.world.plan.is_older(self.life.id) && place + 1 == places.len() {
            return Err(Error::Misconfigured {
                code: "older_version",
                message: "this version cannot serve it".to_owned(),
            });
        }
        Ok(Arc::new(SimTransport {
            inner: Memory::open(&self.world.brokers[place]),
            place,
            destination: destination_id(place),
            world: Arc::clone(&self.world),
            life: Arc::clone(&self.life),
        }))
    }
}

#[derive(Debug)]
struct SimTransport {
    inner: Memory,
    place: usize,
    destination: DestinationId,
    world: Arc<World>,
    life: Arc<Life>,
}

/// What happens to an answer on its way to the relay.
#[derive(Clone, Copy, Debug)]
enum OnAnswer {
    Nothing,
    KeepBack(u64),
    Crash,
    Pause(u64),
}

impl SimTransport {
    fn witness(&self, batch: &Batch) {
        self.world.reach(self.life.now());
        let lease_left = self.life.lease_left();
        let now = self.world.database_now();
        let mut guard = self.world.state();
        let state = &mut *guard;
        let positions: Vec<Position> = batch
            .messages
            .iter()
            .filter_map(|message| state.oracle.truth.positions.get(&message.event_id))
            .copied()
            .collect();
        state
            .coverage
            .count("messages sent", positions.len() as u64);
        state.tell(Some(&self.life), || {
            let sent: Vec<i64> = positions.iter().map(|position| position.0).collect();
            format!("sends events {sent:?} to destination {}", self.destination)
        });
        let at = state.now / 1000;
        self.world.store.inspect(|model| {
            let sending = Sending {
                life: self.life.id,
                destination: self.destination,
                positions: &positions,
                lease_left: lease_left.as_ref(),
                now,
                model,
            };
            state.oracle.sending(at, &sending);
        });
    }

    /// What becomes of each message is settled before the first one leaves.
    async fn decide(&self, batch: &Batch) -> Vec<OnAnswer> {
        let mut on_answer = Vec::with_capacity(batch.messages.len());
        for message in batch.messages.iter() {
            let (nth, fault) = self.world.fault_of_message(&self.life, self.place);
            match fault {
                Some(OfMessage::CrashBefore) => self.life.crash().await,
                Some(OfMessage::PauseBefore(ms)) => self.life.pause(ms).await,
                _ => {}
            }
            let purpose = |way| [21, self.place as u64, u64::from(nth), way];
            let decision = Decision {
                travel: self.world.latency(&purpose(0), 25),
                fate: fate(fault),
                answer: self.world.latency(&purpose(1), 25),
            };
            self.inner.broker().script(message.event_id, [decision]);
            on_answer.push(match fault {
                Some(OfMessage::AckLate(ms)) => OnAnswer::KeepBack(ms),
                Some(OfMessage::CrashAfter) => OnAnswer::Crash,
                Some(OfMessage::PauseAfter(ms)) => OnAnswer::Pause(ms),
                _ => OnAnswer::Nothing,
            });
        }
        on_answer
    }

    fn hand_on(&self, message: &Message, answer: Answer, answers: &mpsc::UnboundedSender<Answer>) {
        let outcome = answer.outcome.clone();
        if answers.send(answer).is_err() {
            // The relay has stopped listening: it was given nothing.
            return;
        }
        let mut state = self.world.state();
        let truth = &mut state.oracle.truth;
        let Some(position) = truth.positions.get(&message.event_id).copied() else {
            return;
        };
        let key = (self.destination, position);
        match &outcome {
            Outcome::Acknowledged(receipt) => truth.acks.push(Ack {
                life: self.life.id,
                key,
                receipt: receipt.clone(),
            }),
            Outcome::Rejected { .. }
            | Outcome::Retryable {
                class: Class::Refusal,
                ..
            } => *truth.charged.entry(key).or_default() += 1,
            Outcome::Retryable {
                class: Class::Outage | Class::Held,
                ..
            }
            | Outcome::Unknown { .. } => {}
        }
        state.tell(Some(&self.life), || {
            format!(
                "hears of event {position} at destination {}: {outcome:?}",
                self.destination
            )
        });
    }
}

fn fate(fault: Option<OfMessage>) -> Fate {
    match fault {
        None
        | Some(
            OfMessage::AckLate(_)
            | OfMessage::CrashAfter
            | OfMessage::PauseAfter(_)
            | OfMessage::CrashBefore
            | OfMessage::PauseBefore(_),
        ) => Fate::Accept,
        Some(OfMessage::LoseAck) => Fate::LoseAck,
        Some(OfMessage::LoseMessage) => Fate::LoseMessage,
        Some(OfMessage::Outage) => Fate::Refuse(Class::Outage),
        Some(OfMessage::Refuse) => Fate::Refuse(Class::Refusal),
        Some(OfMessage::Reject) => Fate::Reject { suspends: false },
        Some(OfMessage::RejectAndSuspend) => Fate::Reject { suspends: true },
        Some(OfMessage::HoleStored) => Fate::BlackHole { stored: true },
        Some(OfMessage::HoleLost) => Fate::BlackHole { stored: false },
        Some(OfMessage::Late) => Fate::Late,
        Some(OfMessage::Twice) => Fate::AcceptTwice,
    }
}

/// An answer that is being kept back, counted so that healing waits for it.
struct KeptBack<'a>(&'a World);

impl<'a> KeptBack<'a> {
    fn new(world: &'a World) -> Self {
        world.state().kept_back += 1;
        Self(world)
    }
}

impl Drop for KeptBack<'_> {
    fn drop(&mut self) {
        self.0.state().kept_back -= 1;
    }
}

#[async_trait]
impl Transport for SimTransport {
    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        self.life.proceed().await;
        self.inner.preflight(usage).await
    }

    async fn provision(&self, usage: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        self.inner.provision(usage, how).await
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        self.inner.check(message)
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        self.life.proceed().await;
        self.witness(&batch);
        let on_answer = self.decide(&batch).await;
        self.life.proceed().await;
        let messages = Arc::clone(&batch.messages);
        let (inner_answers, mut answered) = mpsc::unbounded_channel();
        let mut sending = pin!(self.inner.send(batch, inner_answers));
        let mut sent = false;
        let mut kept_back = FuturesUnordered::new();
        loop {
            let answer: Option<Answer> = tokio::select! {
                biased;
                answer = answered.recv() => answer,
                Some(answer) = kept_back.next(), if !kept_back.is_empty() => {
                    let answer: Answer = answer;
                    self.life.proceed().await;
                    self.hand_on(&messages[answer.index], answer, &answers);
                    continue;
                }
                () = &mut sending, if !sent => {
                    sent = true;
                    continue;
                }
            };
            let Some(answer) = answer else {
                break;
            };
            match on_answer[answer.index] {
                OnAnswer::KeepBack(ms) => {
                    let counted = KeptBack::new(&self.world);
                    kept_back.push(async move {
                        tokio::time::sleep(Duration::from_millis(ms)).await;
                        drop(counted);
                        answer
                    });
                    continue;
                }
                OnAnswer::Crash => self.life.crash().await,
                OnAnswer::Pause(ms) => self.life.pause(ms).await,
                OnAnswer::Nothing => {}
            }
            self.life.proceed().await;
            self.hand_on(&messages[answer.index], answer, &answers);
        }
        while let Some(answer) = kept_back.next().await {
            self.life.proceed().await;
            self.hand_on(&messages[answer.index], answer, &answers);
        }
    }

    async fn anchor(&self, messages: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        self.inner.anchor(messages).await
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        self.inner.probe(probe).await
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}
