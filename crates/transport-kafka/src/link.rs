//! One producer: a client of the cluster with a thread of its own, which hears every report.
//!
//! A producer serves until something goes wrong. Then it takes nothing more, ends what it has, and
//! the next batch gets a new one: a new producer owes nothing to the past.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use postrider_contract::Receipt;
use postrider_core::Outcome;
use rdkafka::{
    ClientContext,
    client::Client,
    config::RDKafkaLogLevel,
    error::KafkaError,
    message::{DeliveryResult, Message as _},
    producer::{BaseProducer, BaseRecord, Producer, ProducerContext, PurgeConfig},
    types::RDKafkaErrorCode as Code,
};
use tokio::{sync::Notify, time::Instant};

use crate::{
    connection::Settings,
    flight::{Doubt, Flight, Spot, lock},
    outcome::{self, Persistence},
};

/// How long the thread waits for one event; also how soon it sees that it should end.
const POLL: Duration = Duration::from_millis(50);
/// A topic's number of partitions is asked for again after this: it may have grown.
const TOPIC_FRESH: Duration = Duration::from_secs(60);

pub(crate) struct Link {
    producer: Arc<BaseProducer<Watch>>,
    watch: Arc<Shared>,
    topics: Mutex<BTreeMap<Arc<str>, (Instant, u32)>>,
    /// The largest message that it was made for.
    pub(crate) bytes_max: u32,
}

/// What the thread, the reports and the senders have in common.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    cluster: OnceLock<String>,
    /// Something went wrong: nothing more is handed over.
    ended: AtomicBool,
    /// It cannot go on at all.
    fatal: AtomicBool,
    /// The thread has to end.
    stop: AtomicBool,
    in_flight: AtomicUsize,
    /// Something was reported.
    moved: Notify,
    /// Why connecting fails, where the library said more than that it does.
    why: Mutex<Option<(Code, String)>>,
    places: Mutex<BTreeMap<Spot, Place>>,
}

/// What is known of one partition.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Nothing that this producer appends comes before it.
    next: u64,
    /// A report said something impossible: none is believed any more.
    doubted: bool,
}

/// What is given along with a message.
#[derive(Debug)]
pub(crate) struct Token {
    flight: Arc<Flight>,
    index: usize,
    spot: Spot,
}

pub(crate) struct Watch(Arc<Shared>);

impl ClientContext for Watch {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(?level, facility, message, "librdkafka");
    }

    fn stats_raw(&self, _: &[u8]) {}

    /// Every error of a client ends it for new messages, lost connections above all: what is sent
    /// again may be reported with a wrong offset.
    fn error(&self, error: KafkaError, reason: &str) {
        let code = outcome::code_of(&error);
        tracing::debug!(%error, reason, "the producer has a problem");
        if matches!(code, Code::Authentication | Code::SSL | Code::Resolve) {
            *lock(&self.0.why) = Some((code, reason.to_owned()));
        }
        if code == Code::Fatal {
            self.0.fatal.store(true, Ordering::Release);
        }
        self.0.end();
    }
}

impl ProducerContext for Watch {
    type DeliveryOpaque = Box<Token>;

    fn delivery(&self, result: &DeliveryResult<'_>, token: Box<Token>) {
        let Token {
            flight,
            index,
            spot,
        } = *token;
        match result {
            Ok(message) => match self.0.believed(&spot, message.offset()) {
                Ok(offset) => flight.answer(index, self.0.receipt(&spot, offset)),
                Err(from) => flight.doubt(Doubt { index, spot, from }),
            },
            Err((error, message)) => {
                let code = outcome::code_of(error);
                // Some errors stick: a topic that was once forbidden stays so for this producer.
                self.0.end();
                match outcome::persistence(message) {
                    // It is there, by the library's own words, which say not where.
                    Persistence::Surely => {
                        let from = self.0.doubted(&spot);
                        flight.doubt(Doubt { index, spot, from });
                    }
                    Persistence::Not if outcome::is_of_the_set(code) => flight.crowd(index, code),
                    persistence @ (Persistence::Not | Persistence::Possibly) => {
                        flight.answer(index, outcome::of(code, persistence));
                    }
                }
            }
        }
        flight.report();
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.0.moved.notify_waiters();
    }
}

impl Shared {
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.moved.notify_waiters();
    }

    /// The offset of a report, if it can be believed; else where to start looking.
    ///
    /// A set that was sent again may be answered "known already", and the library then reports
    /// success with offsets that are none: they start at -1 and count up. So an offset counts only
    /// if nothing was lost on this producer before (its errors end it), and if it lies beyond
    /// everything that its partition held when the producer came and everything that it was told
    /// since. The first one that does not takes the credit of all behind it.
    fn believed(&self, spot: &Spot, offset: i64) -> Result<u64, u64> {
        let ended = self.ended.load(Ordering::Acquire);
        let mut places = lock(&self.places);
        let Some(place) = places.get_mut(spot) else {
            return Err(0);
        };
        match u64::try_from(offset) {
            Ok(offset) if !ended && !place.doubted && offset >= place.next => {
                place.next = offset + 1;
                Ok(offset)
            }
            Ok(_) | Err(_) => {
                place.doubted = true;
                let next = place.next;
                drop(places);
                self.end();
                Err(next)
            }
        }
    }

    fn doubted(&self, spot: &Spot) -> u64 {
        lock(&self.places).get(spot).map_or(0, |place| place.next)
    }

    pub(crate) fn receipt(&self, spot: &Spot, offset: u64) -> Outcome {
        Outcome::Acknowledged(Receipt::Kafka {
            cluster: self.cluster.get().cloned().unwrap_or_default(),
            topic: spot.topic.as_ref().to_owned(),
            partition: spot.partition,
            offset,
        })
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Makes a producer, waits until it has heard from the cluster, and checks that it is the
    /// expected one. Blocks for up to the connect timeout, twice.
    pub(crate) fn open(
        settings: &Settings,
        cluster: &str,
        topic: Option<&str>,
        bytes_max: u32,
        gapless: bool,
    ) -> Result<Self, Outcome> {
        let watch = Arc::new(Shared::default());
        let producer: BaseProducer<Watch> = settings
            .producer(bytes_max, gapless)
            .create_with_context(Watch(Arc::clone(&watch)))
            .map_err(|error| Outcome::outage("client_refused", &error.to_string()))?;
        let producer = Arc::new(producer);
        listen(&producer, &watch)?;
        let link = Self {
            producer,
            watch,
            topics: Mutex::default(),
            bytes_max,
        };
        if let Err(error) = link
            .client()
            .fetch_metadata(topic, settings.connect_timeout)
        {
            return Err(link.not_connected(&error, &settings.brokers));
        }
        let Some(found) = link.client().fetch_cluster_id(settings.connect_timeout) else {
            return Err(Outcome::outage(
                "cluster_unnamed",
                "the brokers do not say which cluster they are",
            ));
        };
        if found != cluster {
            return Err(Outcome::outage(
                "wrong_cluster",
                &format!(
                    "the brokers at {} are of cluster {found:?}, and the destination is in \
                     {cluster:?}; correct the brokers, or the connection's cluster",
                    settings.brokers
                ),
            ));
        }
        // A try that failed before the first one that did not is no reason to begin anew.
        if !link.watch.fatal.load(Ordering::Acquire) {
            link.watch.ended.store(false, Ordering::Release);
        }
        drop(link.watch.cluster.set(found));
        Ok(link)
    }

    fn not_connected(&self, error: &KafkaError, brokers: &str) -> Outcome {
        match &*lock(&self.watch.why) {
            Some((Code::Authentication, why)) => Outcome::outage("not_authorized", why),
            Some((Code::SSL, why)) => Outcome::outage("tls", why),
            Some((_, why)) => Outcome::outage("not_connected", why),
            None => Outcome::outage(
                "not_connected",
                &format!("no answer from {brokers}: {error}"),
            ),
        }
    }

    pub(crate) fn client(&self) -> &Client<Watch> {
        self.producer.client()
    }

    pub(crate) fn receipt(&self, spot: &Spot, offset: u64) -> Outcome {
        self.watch.receipt(spot, offset)
    }

    /// Whether new messages may be handed over.
    pub(crate) fn is_good(&self) -> bool {
        !self.watch.ended.load(Ordering::Acquire)
    }

    /// Waits until it has nothing in flight.
    pub(crate) async fn drained(&self) {
        loop {
            let moved = self.watch.moved.notified();
            if self.watch.in_flight.load(Ordering::Acquire) == 0 {
                return;
            }
            moved.await;
        }
    }

    /// Waits until something was reported, for room.
    pub(crate) async fn moved(&self) {
        let moved = self.watch.moved.notified();
        if self.watch.in_flight.load(Ordering::Acquire) > 0 {
            moved.await;
        }
    }

    /// Takes everything back that is not acknowledged. What was not sent is reported as that, what
    /// was sent as unknown; nothing of it leaves any more.
    pub(crate) fn take_back(&self) {
        self.watch.end();
        self.producer
            .purge(PurgeConfig::default().queue().inflight().non_blocking());
    }

    /// The number of partitions of a topic, where it is known and fresh.
    pub(crate) fn partitions(&self, topic: &str) -> Option<u32> {
        let topics = lock(&self.topics);
        let (when, count) = topics.get(topic)?;
        (when.elapsed() < TOPIC_FRESH).then_some(*count)
    }

    /// Asks for the number of partitions. Blocks.
    pub(crate) fn learn_topic(&self, topic: &Arc<str>, timeout: Duration) -> Result<u32, Outcome> {
        let metadata = self
            .client()
            .fetch_metadata(Some(topic), timeout)
            .map_err(|error| Outcome::outage("metadata", &format!("{topic}: {error}")))?;
        let found = metadata
            .topics()
            .iter()
            .find(|found| found.name() == &**topic);
        let error = found.map_or(Some(Code::UnknownTopic), |found| {
            found.error().map(Code::from)
        });
        match (found, error) {
            (Some(found), None) if !found.partitions().is_empty() => {
                let count = u32::try_from(found.partitions().len()).unwrap_or(u32::MAX);
                lock(&self.topics).insert(Arc::clone(topic), (Instant::now(), count));
                Ok(count)
            }
            (_, Some(Code::TopicAuthorizationFailed)) => Err(Outcome::outage(
                "not_authorized",
                &format!("topic {topic:?} may not be written to"),
            )),
            (_, Some(Code::LeaderNotAvailable)) => Err(Outcome::outage(
                "no_leader",
                &format!("topic {topic:?} has no leader now"),
            )),
            (_, _) => Err(Outcome::outage(
                "topic_missing",
                &format!("there is no topic {topic:?}; create it, or run `provision`"),
            )),
        }
    }

    /// Where the next message of a partition will be at the earliest, as far as is known.
    pub(crate) fn next(&self, spot: &Spot) -> Option<u64> {
        lock(&self.watch.places).get(spot).map(|place| place.next)
    }

    /// Asks for a partition's end. Blocks.
    pub(crate) fn learn_next(&self, spot: &Spot, timeout: Duration) -> Result<u64, Outcome> {
        let partition = i32::try_from(spot.partition).unwrap_or(i32::MAX);
        let (_, high) = self
            .client()
            .fetch_watermarks(&spot.topic, partition, timeout)
            .map_err(|error| {
                let Spot { topic, partition } = spot;
                Outcome::outage("metadata", &format!("{topic}/{partition}: {error}"))
            })?;
        let next = u64::try_from(high).unwrap_or(0);
        let mut places = lock(&self.watch.places);
        let place = places.entry(spot.clone()).or_insert(Place {
            next,
            doubted: false,
        });
        Ok(place.next)
    }

    /// Hands a message over. `Ok(false)`: there is no room now.
    pub(crate) fn produce(
        &self,
        flight: &Arc<Flight>,
        index: usize,
        spot: &Spot,
        record: Record<'_>,
    ) -> Result<bool, Code> {
        let token = Box::new(Token {
            flight: Arc::clone(flight),
            index,
            spot: spot.clone(),
        });
        let record = BaseRecord {
            topic: &spot.topic,
            partition: Some(i32::try_from(spot.partition).unwrap_or(i32::MAX)),
            payload: record.value,
            key: record.key,
            timestamp: None,
            headers: Some(record.headers),
            delivery_opaque: token,
        };
        // Counted first: the report may come before this returns.
        flight.handed_over();
        self.watch.in_flight.fetch_add(1, Ordering::AcqRel);
        let Err((error, _)) = self.producer.send(record) else {
            return Ok(true);
        };
        flight.report();
        self.watch.in_flight.fetch_sub(1, Ordering::AcqRel);
        let code = outcome::code_of(&error);
        if code == Code::QueueFull {
            Ok(false)
        } else {
            Err(code)
        }
    }
}

/// What a message is made of.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) headers: rdkafka::message::OwnedHeaders,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.watch.stop.store(true, Ordering::Release);
    }
}

/// Starts the thread that hears the reports. It is also where the producer ends, which may take a
/// while.
fn listen(producer: &Arc<BaseProducer<Watch>>, watch: &Arc<Shared>) -> Result<(), Outcome> {
    let (producer, watch) = (Arc::clone(producer), Arc::clone(watch));
    std::thread::Builder::new()
        .name("kafka-reports".to_owned())
        .spawn(move || {
            let mut told = false;
            // The last one to hold it lets it go.
            while !watch.stop.load(Ordering::Acquire) || Arc::strong_count(&producer) > 1 {
                producer.poll(POLL);
                if watch.fatal.load(Ordering::Acquire) && !told {
                    told = true;
                    // What it still holds will never be sent.
                    producer.purge(PurgeConfig::default().queue().non_blocking());
                }
            }
        })
        .map(drop)
        .map_err(|error| Outcome::outage("client_refused", &format!("no thread: {error}")))
}
