//! Delivery into a Kafka topic. An acknowledgement is a delivery report of an idempotent producer
//! with acks=all; nothing here ever creates or changes a topic but `provision`.

mod anchor;
mod connection;
mod flight;
mod link;
mod lookup;
mod outcome;
mod partitioner;
mod place;
mod preflight;
mod provision;
mod reader;
mod record;
mod sending;
mod topics;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use postrider_contract::Destination;
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, ConsumerPosition, Error, Message, Probe, ProbeStrength, Probed, Problem,
    Provisioning, Traits, Transport, Usage, holds::Holds,
};
use tokio::{
    sync::{Mutex, mpsc},
    time::timeout,
};

pub use connection::{Connection, Mechanism, Provision, Sasl, Tls};

use crate::{connection::Settings, link::Link, place::Place};

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "kafka";

/// The `type` of its receipts.
pub const RECEIPT_TYPE: &str = "kafka.offset/1";

/// One Kafka destination.
pub struct Kafka {
    place: Arc<Place>,
    settings: Arc<Settings>,
    /// Whoever holds it hands over: batches sent one after the other stay in that order.
    turn: Mutex<()>,
    current: Mutex<Option<Arc<Link>>>,
    /// The largest message: ours, or the topic's if that is known and smaller.
    bytes_max: Arc<AtomicU32>,
    /// The topic's own limit was asked for.
    limit_asked: AtomicBool,
    holds: Arc<Holds>,
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("place", &self.place)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Runs what blocks where blocking is allowed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, tokio::task::JoinError> {
    tokio::task::spawn_blocking(work).await
}

fn broken(error: &tokio::task::JoinError) -> Error {
    Error::Unavailable {
        code: "api_silent",
        message: format!("a question was not asked to its end: {error}"),
    }
}

impl Kafka {
    /// Checks the definition and the settings. Connects to nothing: that happens with the first
    /// send or look-up, again and again until it succeeds.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        let settings = Settings::check(connection)?;
        Ok(Self {
            place: Arc::new(Place::of(destination)?),
            turn: Mutex::new(()),
            current: Mutex::new(None),
            bytes_max: Arc::new(AtomicU32::new(settings.message_bytes_max)),
            limit_asked: AtomicBool::new(false),
            holds: Arc::default(),
            settings: Arc::new(settings),
        })
    }

    /// The producer that takes messages now; a new one if the last one has ended, once that one
    /// has nothing in flight any more. `topic` is asked for on the way.
    async fn link(&self, topic: Option<Arc<str>>) -> Result<Arc<Link>, Outcome> {
        let mut current = self.current.lock().await;
        if let Some(link) = &*current {
            if link.is_good() && link.bytes_max <= self.bytes_max.load(Ordering::Relaxed) {
                return Ok(Arc::clone(link));
            }
            link.drained().await;
            *current = None;
        }
        let link = self.connect(topic).await?;
        *current = Some(Arc::clone(&link));
        if !self.limit_asked.swap(true, Ordering::Relaxed) {
            // Nobody waits for it: not every broker answers. Until it is known, a set may be
            // refused for its size, and is then sent one by one.
            drop(self.learn_limit());
        }
        Ok(link)
    }

    async fn connect(&self, topic: Option<Arc<str>>) -> Result<Arc<Link>, Outcome> {
        let (settings, place) = (Arc::clone(&self.settings), Arc::clone(&self.place));
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        let opened = blocking(move || {
            let topic = topic.as_deref().or(place.constant.as_deref());
            let gapless = place.holding.by_key;
            Link::open(&settings, &place.cluster, topic, bytes_max, gapless)
        });
        match opened.await {
            Ok(link) => link.map(Arc::new),
            Err(error) => Err(Outcome::outage("client_refused", &error.to_string())),
        }
    }

    /// The connection, for calls that answer with [`Error`].
    async fn connected(&self) -> Result<Arc<Link>, Error> {
        // A link that is ending may take as long as its messages have.
        let patience = self.settings.message_timeout + self.settings.api_timeout;
        match timeout(patience, self.link(None)).await {
            Ok(Ok(link)) => Ok(link),
            Ok(Err(outcome)) => Err(error_of(outcome)),
            Err(_) => Err(Error::Unavailable {
                code: "not_connected",
                message: format!("no connection to {} in time", self.settings.brokers),
            }),
        }
    }

    /// Asks for the topic's own limit, where there is one topic. One that cannot be read changes
    /// nothing.
    fn learn_limit(&self) -> Option<tokio::task::JoinHandle<()>> {
        let topic = self.place.constant.clone()?;
        let (settings, bytes_max) = (Arc::clone(&self.settings), Arc::clone(&self.bytes_max));
        Some(tokio::task::spawn_blocking(move || {
            let Ok(config) = topics::describe(&settings, &topic) else {
                return;
            };
            let limit = config.get("max.message.bytes");
            let limit = limit.and_then(|text| text.parse::<u32>().ok());
            let own = settings.message_bytes_max;
            // The library takes no limit under this.
            let limit = limit.map_or(own, |limit| limit.clamp(1_000, own));
            bytes_max.store(limit, Ordering::Relaxed);
        }))
    }
}

/// Problems that only a person can solve are no outages to a preflight.
fn error_of(outcome: Outcome) -> Error {
    match outcome {
        Outcome::Retryable { code, detail, .. }
            if [
                "wrong_cluster",
                "cluster_unnamed",
                "not_authorized",
                "tls",
                "client_refused",
            ]
            .contains(&code) =>
        {
            Error::Misconfigured {
                code,
                message: detail,
            }
        }
        Outcome::Retryable { code, detail, .. }
        | Outcome::Unknown { code, detail }
        | Outcome::Rejected { code, detail, .. } => Error::Unavailable {
            code,
            message: detail,
        },
        Outcome::Acknowledged(_) => unreachable!("a connection is no acknowledgement"),
    }
}

#[async_trait]
impl Transport for Kafka {
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: true,
            batch_max: self.settings.in_flight_max,
            // The library's own resends are recognised; those of another attempt are not.
            dedup_window: None,
            probe: ProbeStrength::Finds,
        }
    }

    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        let link = match self.connected().await {
            Ok(link) => link,
            Err(error @ Error::Misconfigured { .. }) => return Ok(vec![error.into_problem()]),
            Err(error @ Error::Unavailable { .. }) => return Err(error),
        };
        let (place, settings, usage) =
            (Arc::clone(&self.place), Arc::clone(&self.settings), *usage);
        let found = blocking(move || preflight::problems(&link, &place, &settings, &usage)).await;
        found.map_err(|error| broken(&error))?
    }

    async fn provision(&self, usage: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        let link = self.connected().await?;
        let (place, settings, usage) =
            (Arc::clone(&self.place), Arc::clone(&self.settings), *usage);
        let done =
            blocking(move || provision::provision(&link, &place, &settings, &usage, how)).await;
        let done = done.map_err(|error| broken(&error))??;
        self.limit_asked.store(false, Ordering::Relaxed);
        Ok(done)
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        self.place.topic(&message.routing)?;
        let bytes_max = self.bytes_max.load(Ordering::Relaxed);
        record::check(self.place.serializer, self.place.key, message, bytes_max)
    }

    async fn look_again(&self) {
        if let Some(asked) = self.learn_limit()
            && let Err(error) = asked.await
        {
            tracing::warn!(%error, "the topic's limit was not asked for to the end");
        }
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        self.send_batch(batch, answers).await;
    }

    async fn anchor(&self, messages: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        lookup::anchor(self, messages).await
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        lookup::probe(self, probe).await
    }

    async fn positions(&self, consumer: &str) -> Result<Vec<ConsumerPosition>, Error> {
        lookup::positions(self, consumer).await
    }

    async fn close(&self) {
        // A link that is being made is let go by whoever makes it.
        if let Ok(mut current) = self.current.try_lock() {
            *current = None;
        }
    }
}

/// The least time for reading back what was reported in doubt.
const READ_BACK_MIN: Duration = Duration::from_secs(1);
