//! Sending a batch: routes, hands over, waits, and settles what was reported in doubt.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
    time::Duration,
};

use postrider_core::Outcome;
use postrider_transport::{Answer, Batch, Message, holds::held};
use rdkafka::types::RDKafkaErrorCode as Code;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use crate::{
    Kafka, READ_BACK_MIN, blocking,
    flight::{Doubt, Flight, Spot},
    link::{Link, Record},
    outcome::{self, Persistence},
    reader, record,
};

/// How long the library may take to say what it takes back: it asks its own threads, nobody else.
const TAKE_BACK: Duration = Duration::from_millis(500);

/// How messages of a batch are handed over.
#[derive(Clone, Copy, Debug)]
enum Round {
    /// All of them, for the first time, when it is their turn.
    Whole,
    /// One that was refused with its set; the turn is taken already.
    Alone,
}

/// Takes back what is open when the sender stops waiting, whether by its deadline or because its
/// future was dropped.
struct TakeBack {
    link: Option<Arc<Link>>,
}

impl Drop for TakeBack {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.take_back();
        }
    }
}

impl Kafka {
    pub(crate) async fn send_batch(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        if batch.messages.is_empty() {
            return;
        }
        let deadline = Instant::now() + batch.send_timeout.min(self.settings.message_timeout);
        let count = batch.messages.len();
        let flight = Flight::new(batch, self.place.holding, Arc::clone(&self.holds), answers);
        let flight = Arc::new(flight);
        let all: Vec<usize> = (0..count).collect();
        let mut link = self.round(&flight, &all, deadline, Round::Whole).await;
        let crowded = flight.take_crowded();
        if !crowded.is_empty() {
            link = self.one_by_one(&flight, &crowded, deadline).await.or(link);
        }
        if let Some(link) = link {
            self.settle_doubts(&flight, &link, deadline).await;
        }
        let nothing = Outcome::unknown("ack_timeout", "no delivery report within the send timeout");
        flight.answer_from(0, &nothing);
    }

    /// Sends what was refused as a set again, so that only the guilty one is refused once more. No
    /// other batch is handed over meanwhile.
    async fn one_by_one(
        &self,
        flight: &Arc<Flight>,
        crowded: &[(usize, Code)],
        deadline: Instant,
    ) -> Option<Arc<Link>> {
        let turn = timeout_at(deadline, self.turn.lock()).await;
        let mut link = None;
        for (index, _) in crowded {
            let message = &flight.batch.messages[*index];
            if flight.is_held_alone(message) {
                flight.answer(*index, held());
            } else if turn.is_err() || Instant::now() >= deadline {
                let detail = "its set was refused, and there was no time to send it alone";
                flight.answer(*index, Outcome::outage("set_refused", detail));
            } else {
                link = self
                    .round(flight, &[*index], deadline, Round::Alone)
                    .await
                    .or(link);
                for (index, code) in flight.take_crowded() {
                    flight.answer(index, self.refused_alone(message, code));
                }
            }
        }
        link
    }

    /// The outcome of a message that was refused although nothing else was in its set.
    fn refused_alone(&self, message: &Message, code: Code) -> Outcome {
        if outcome::is_too_large(code) {
            let bytes = record::size(self.place.serializer, self.place.key, message);
            record::too_large(bytes, None)
        } else {
            outcome::of(code, Persistence::Not)
        }
    }

    /// Hands messages over and waits until each is reported, or the deadline.
    async fn round(
        &self,
        flight: &Arc<Flight>,
        indexes: &[usize],
        deadline: Instant,
        round: Round,
    ) -> Option<Arc<Link>> {
        let mut take_back = TakeBack { link: None };
        match round {
            Round::Alone => {
                self.hand_over(flight, indexes, deadline, round, &mut take_back)
                    .await;
            }
            Round::Whole => {
                let Ok(_turn) = timeout_at(deadline, self.turn.lock()).await else {
                    let late = Outcome::outage("window_full", "earlier batches took all the time");
                    for &index in indexes {
                        flight.answer(index, late.clone());
                    }
                    return None;
                };
                self.hand_over(flight, indexes, deadline, round, &mut take_back)
                    .await;
            }
        }
        let link = take_back.link.clone();
        let waited = timeout_at(deadline, flight.all_reported()).await;
        if waited.is_err()
            && let Some(link) = &link
        {
            link.take_back();
            drop(timeout_at(Instant::now() + TAKE_BACK, flight.all_reported()).await);
        }
        take_back.link = None;
        link
    }

    /// Whatever cannot be handed over is answered here.
    async fn hand_over(
        &self,
        flight: &Arc<Flight>,
        indexes: &[usize],
        deadline: Instant,
        round: Round,
        take_back: &mut TakeBack,
    ) {
        let mut wanted = Vec::with_capacity(indexes.len());
        for &index in indexes {
            let message = &flight.batch.messages[index];
            let bytes_max = self.bytes_max.load(std::sync::atomic::Ordering::Relaxed);
            let checked = record::check(self.place.serializer, self.place.key, message, bytes_max);
            match checked.and_then(|()| self.place.topic(&message.routing)) {
                Ok(topic) => wanted.push((index, topic)),
                Err(outcome) => flight.answer(index, outcome),
            }
        }
        let Some((_, first)) = wanted.first() else {
            return;
        };
        let late = || Outcome::outage("window_full", "earlier batches took all the time");
        let link = match timeout_at(deadline, self.link(Some(Arc::clone(first)))).await {
            Ok(Ok(link)) => link,
            Ok(Err(outcome)) => return answer_all(flight, &wanted, &outcome),
            Err(_) => return answer_all(flight, &wanted, &late()),
        };
        let topics: BTreeSet<_> = wanted.iter().map(|(_, topic)| Arc::clone(topic)).collect();
        let counts = self.counts(&link, topics, deadline).await;
        let routed = self.routed(flight, &link, wanted, &counts, deadline).await;
        take_back.link = Some(Arc::clone(&link));
        for (at, (index, spot)) in routed.iter().enumerate() {
            if let Err(outcome) = self
                .hand_over_one(flight, &link, *index, spot, (deadline, round))
                .await
            {
                for (index, _) in &routed[at..] {
                    flight.answer(*index, outcome.clone());
                }
                return;
            }
        }
    }

    /// `Err`: neither this one nor any behind it can be handed over.
    async fn hand_over_one(
        &self,
        flight: &Arc<Flight>,
        link: &Arc<Link>,
        index: usize,
        spot: &Spot,
        (deadline, round): (Instant, Round),
    ) -> Result<(), Outcome> {
        let message = &flight.batch.messages[index];
        loop {
            let is_held = match round {
                Round::Whole => flight.is_held(message),
                Round::Alone => flight.is_held_alone(message),
            };
            if is_held {
                flight.answer(index, held());
                return Ok(());
            }
            if !link.is_good() {
                return Err(Outcome::outage(
                    "producer_ended",
                    "the producer has ended meanwhile; the next batch gets a new one",
                ));
            }
            let record = Record {
                key: record::key(self.place.key, message),
                value: record::value(self.place.serializer, message),
                headers: record::headers(self.place.serializer, message),
            };
            match link.produce(flight, index, spot, record) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    if timeout_at(deadline, link.moved()).await.is_err() {
                        return Err(Outcome::outage(
                            "window_full",
                            "earlier messages are not acknowledged",
                        ));
                    }
                }
                Err(code) if outcome::is_too_large(code) => {
                    let bytes = record::size(self.place.serializer, self.place.key, message);
                    flight.answer(index, record::too_large(bytes, Some(link.bytes_max)));
                    return Ok(());
                }
                // It was never queued.
                Err(code) => {
                    let outcome = match outcome::of(code, Persistence::Not) {
                        Outcome::Unknown { detail, .. } => {
                            Outcome::outage("client_refused", &detail)
                        }
                        known @ (Outcome::Acknowledged(_)
                        | Outcome::Retryable { .. }
                        | Outcome::Rejected { .. }) => known,
                    };
                    flight.answer(index, outcome);
                    return if code == Code::Fatal {
                        Err(Outcome::outage("producer_ended", "the producer has ended"))
                    } else {
                        Ok(())
                    };
                }
            }
        }
    }

    /// The number of partitions of each topic.
    pub(crate) async fn counts(
        &self,
        link: &Arc<Link>,
        topics: BTreeSet<Arc<str>>,
        deadline: Instant,
    ) -> BTreeMap<Arc<str>, Result<u32, Outcome>> {
        let mut counts = BTreeMap::new();
        let mut asked = Vec::new();
        for topic in topics {
            if let Some(count) = link.partitions(&topic) {
                counts.insert(topic, Ok(count));
                continue;
            }
            let (link, name, timeout) = (
                Arc::clone(link),
                Arc::clone(&topic),
                self.patience(deadline),
            );
            let ask = tokio::task::spawn_blocking(move || link.learn_topic(&name, timeout));
            asked.push((topic, ask));
        }
        for (topic, ask) in asked {
            let count = ask
                .await
                .unwrap_or_else(|error| Err(Outcome::outage("metadata", &error.to_string())));
            counts.insert(topic, count);
        }
        counts
    }

    /// Where each message goes. The end of every partition is known afterwards.
    async fn routed(
        &self,
        flight: &Arc<Flight>,
        link: &Arc<Link>,
        wanted: Vec<(usize, Arc<str>)>,
        counts: &BTreeMap<Arc<str>, Result<u32, Outcome>>,
        deadline: Instant,
    ) -> Vec<(usize, Spot)> {
        let any: u32 = rand::random();
        let mut routed = Vec::with_capacity(wanted.len());
        for (index, topic) in wanted {
            let count = match counts.get(&topic) {
                Some(Ok(count)) => *count,
                Some(Err(outcome)) => {
                    flight.answer(index, outcome.clone());
                    continue;
                }
                None => continue,
            };
            let message = &flight.batch.messages[index];
            let partition = self.place.partition_of(message, count);
            // Messages that may go anywhere go together: fewer, larger sets.
            let partition = partition.unwrap_or(any % count.max(1));
            if partition >= count {
                let detail =
                    format!("the target names partition {partition}, and {topic:?} has {count}");
                flight.answer(index, Outcome::outage("partition_missing", &detail));
                continue;
            }
            routed.push((index, Spot { topic, partition }));
        }
        let spots: BTreeSet<&Spot> = routed.iter().map(|(_, spot)| spot).collect();
        let unknown = spots
            .into_iter()
            .filter(|spot| link.next(spot).is_none())
            .cloned();
        let asked = self.ends(link, unknown.collect(), deadline).await;
        routed.retain(|(index, spot)| match asked.get(spot) {
            Some(Err(outcome)) => {
                flight.answer(*index, outcome.clone());
                false
            }
            Some(Ok(_)) | None => true,
        });
        routed
    }

    /// The end of each partition, all asked for at once.
    pub(crate) async fn ends(
        &self,
        link: &Arc<Link>,
        spots: Vec<Spot>,
        deadline: Instant,
    ) -> BTreeMap<Spot, Result<u64, Outcome>> {
        let asked: Vec<_> = spots
            .into_iter()
            .map(|spot| {
                let (link, own, timeout) =
                    (Arc::clone(link), spot.clone(), self.patience(deadline));
                let ask = tokio::task::spawn_blocking(move || link.learn_next(&own, timeout));
                (spot, ask)
            })
            .collect();
        let mut ends = BTreeMap::new();
        for (spot, ask) in asked {
            let end = ask
                .await
                .unwrap_or_else(|error| Err(Outcome::outage("metadata", &error.to_string())));
            ends.insert(spot, end);
        }
        ends
    }

    /// How long one question may take.
    fn patience(&self, deadline: Instant) -> Duration {
        let left = deadline.saturating_duration_since(Instant::now());
        left.min(self.settings.api_timeout)
            .max(Duration::from_millis(1))
    }

    /// Looks for the messages that the library reported in doubt, and answers those that are there
    /// with the offset that was read.
    async fn settle_doubts(&self, flight: &Arc<Flight>, link: &Arc<Link>, deadline: Instant) {
        let mut by_topic: BTreeMap<Arc<str>, Vec<Doubt>> = BTreeMap::new();
        for doubt in flight.take_doubts() {
            by_topic
                .entry(Arc::clone(&doubt.spot.topic))
                .or_default()
                .push(doubt);
        }
        for (topic, doubts) in by_topic {
            tracing::debug!(topic = &*topic, count = doubts.len(), "reading back");
            let indexes: Vec<usize> = doubts.iter().map(|doubt| doubt.index).collect();
            let unread = Arc::clone(flight);
            let (settings, place, flight, link) = (
                Arc::clone(&self.settings),
                Arc::clone(&self.place),
                Arc::clone(flight),
                Arc::clone(link),
            );
            let until = deadline.max(Instant::now() + READ_BACK_MIN).into_std();
            let read = blocking(move || {
                let mut spans: BTreeMap<u32, u64> = BTreeMap::new();
                let mut open = BTreeMap::new();
                for doubt in doubts {
                    let from = spans.entry(doubt.spot.partition).or_insert(doubt.from);
                    *from = (*from).min(doubt.from);
                    let id = flight.batch.messages[doubt.index].event_id.to_string();
                    open.insert(id, doubt);
                }
                let header = record::id_header(place.serializer);
                reader::scan(&settings, header, &topic, &spans, until, |seen| {
                    if let Some(doubt) = open.get(seen.id)
                        && doubt.spot.partition == seen.partition
                        && record::value(place.serializer, &flight.batch.messages[doubt.index])
                            == seen.value
                    {
                        flight.answer(doubt.index, link.receipt(&doubt.spot, seen.offset));
                        open.remove(seen.id);
                    }
                    if open.is_empty() {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            });
            match read.await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => tracing::warn!(%error, "reading back failed"),
                Err(error) => tracing::warn!(%error, "reading back failed"),
            }
            let unseen = Outcome::unknown(
                "receipt_unverified",
                "it was reported as stored after a resend, and was not found where it should be",
            );
            for index in indexes {
                unread.answer(index, unseen.clone());
            }
        }
    }
}

fn answer_all(flight: &Flight, wanted: &[(usize, Arc<str>)], outcome: &Outcome) {
    for (index, _) in wanted {
        flight.answer(*index, outcome.clone());
    }
}
