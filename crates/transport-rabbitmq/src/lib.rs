//! Delivery to a RabbitMQ exchange, queue or stream over AMQP 0-9-1. An acknowledgement is the
//! broker's confirm of a message that did not come back; nothing here ever creates an exchange or
//! a queue but `provision`.

mod ask;
mod connection;
mod dial;
mod flight;
mod handshake;
mod lane;
mod link;
mod message;
mod preflight;
mod provision;
mod stream;
mod wire;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use postrider_contract::{
    Destination,
    destination::{Durability, Serializer},
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, ConsumerPosition, Error, Late, Message, Probe, ProbeStrength, Probed,
    Problem, Provisioning, Routing, Template, Traits, Transport, Usage,
    holds::{Holding, Holds},
    target::Alphabet,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

pub use connection::{Connection, Credentials, ExchangeType, Provision, QueueType, Tls};

use crate::{
    ask::Talk,
    connection::Settings,
    dial::Dial,
    flight::Flight,
    lane::{Queued, Terms},
    link::Link,
    message::SHORT_MAX,
    stream::Looking,
};

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "rabbitmq";

/// The `type` of its receipts.
pub const RECEIPT_TYPE: &str = "amqp.confirm/1";

/// Late receipts that wait to be taken; each is some 200 bytes.
const LATE_QUEUE_MAX: usize = 4_096;
/// How long an offset near the end of a stream stays a good place to start looking.
const ANCHOR_FOR: Duration = Duration::from_secs(1);

/// In a value of a routing key all of printable ASCII stays, but for what structures keys (`.`),
/// what stands for words in bindings (`*`, `#`), and `%`.
const ALPHABET: Alphabet = Alphabet {
    punctuation: "!$&'()+,/:;<=>?@[]^`{|}~",
    target_bytes_max: SHORT_MAX,
};

/// One RabbitMQ destination.
pub struct RabbitMq {
    place: Place,
    settings: Settings,
    dial: Dial,
    /// Whoever holds it hands over: batches sent one after the other stay in that order.
    turn: tokio::sync::Mutex<()>,
    holds: Arc<Holds>,
    late: Mutex<Option<mpsc::Receiver<Late>>>,
    anchored: Mutex<Option<(i64, Instant)>>,
}

/// What the destination's frozen definition says, as far as it matters here.
#[derive(Debug)]
struct Place {
    /// Empty: the default exchange, where the routing key is a queue's name.
    exchange: String,
    cluster: String,
    key: Template,
    /// Where every message has the same.
    constant: Option<Arc<str>>,
    /// Where all messages go to one queue by its name.
    queue: Option<String>,
    /// That queue is a stream.
    stream: bool,
    serializer: Serializer,
    durability: Durability,
    holding: Holding,
}

impl RabbitMq {
    /// Checks the definition and the settings. Connects to nothing: that happens with the first
    /// send or question, again and again until it succeeds.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        let settings = Settings::check(connection)?;
        let place = Place::of(destination, &settings)?;
        let (sender, receiver) = mpsc::channel(LATE_QUEUE_MAX);
        Ok(Self {
            place,
            settings,
            dial: Dial::new(sender),
            turn: tokio::sync::Mutex::new(()),
            holds: Arc::default(),
            late: Mutex::new(Some(receiver)),
            anchored: Mutex::new(None),
        })
    }

    /// The connection, for calls that answer with [`Error`].
    async fn connected(&self) -> Result<Arc<Link>, Error> {
        let link = self.dial.link(&self.settings, &self.place).await;
        // A broker that blocks a connection does not read its questions either.
        let open = link.and_then(|link| match link.blocked() {
            Some(outcome) => Err(outcome),
            None => Ok(link),
        });
        open.map_err(|outcome| match outcome {
            Outcome::Retryable { code, detail, .. } if dial::needs_a_person(code) => {
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
        })
    }

    /// Hands the batch to the connection. What cannot be sent at all is answered here.
    fn hand_over(&self, link: &Link, flight: &Arc<Flight>) {
        let messages = flight.batch.messages.iter().enumerate();
        let mut fit = Vec::with_capacity(messages.len());
        for (index, message) in messages {
            match self.prepare(message) {
                Ok(routing_key) => fit.push(Queued {
                    flight: Arc::clone(flight),
                    index,
                    routing_key,
                }),
                // Before the later ones of its key are handed over, so that they see it.
                Err(outcome) => {
                    link.publish(fit.drain(..));
                    flight.answer(index, outcome);
                }
            }
        }
        link.publish(fit.into_iter());
    }

    /// Whether a message can be sent; its routing key.
    fn prepare(&self, message: &Message) -> Result<Arc<str>, Outcome> {
        let headers = message::check(message)?;
        let learned = &self.dial.learned;
        let total = headers_of(message) + message.body.len();
        let max = self.settings.publish_bytes_max;
        if total > max {
            let detail = format!("{total} bytes with headers; publish_bytes_max is {max}");
            return Err(Outcome::rejected("message_too_large", &detail));
        }
        let body = message.body.len();
        match learned.body_bytes_max.load(Ordering::Acquire) {
            0 => {}
            max if body > max => {
                let detail = format!("the body has {body} bytes; the broker takes {max}");
                return Err(Outcome::rejected("message_too_large", &detail));
            }
            _ => {}
        }
        // Of the smallest frames while the size is not known.
        let frame_max = match learned.frame_max.load(Ordering::Acquire) {
            0 => usize::MAX,
            known => known,
        };
        if headers > frame_max {
            let detail = format!("up to {headers} bytes of headers; a frame takes {frame_max}");
            return Err(Outcome::rejected("headers_too_large", &detail));
        }
        self.place.routing_key(&message.routing)
    }
}

/// What the headers of a message add to its size, in bytes.
fn headers_of(message: &Message) -> usize {
    let lengths = message.headers.iter();
    lengths.map(|(name, value)| name.len() + value.len()).sum()
}

impl Place {
    fn of(destination: &Destination, settings: &Settings) -> Result<Self, Error> {
        let misfit = |message: String| Error::Misconfigured {
            code: "destination",
            message,
        };
        let name = &destination.name;
        if destination.kind != KIND {
            return Err(misfit(format!(
                "{name} is of kind {:?}, not {KIND}",
                destination.kind
            )));
        }
        if destination.receipt_type != RECEIPT_TYPE {
            return Err(misfit(format!(
                "{name} asks for receipts of type {:?}; RabbitMQ gives {RECEIPT_TYPE}",
                destination.receipt_type
            )));
        }
        let exchange = destination.container.clone().unwrap_or_default();
        if exchange.len() > SHORT_MAX {
            return Err(misfit(format!(
                "{name}: the exchange's name has {} bytes; at most {SHORT_MAX} are possible",
                exchange.len()
            )));
        }
        let key = Template::parse(&destination.target, ALPHABET)?;
        let constant: Option<Arc<str>> = key
            .is_constant()
            .then(|| key.pattern("").into())
            .filter(|text: &Arc<str>| text.len() <= SHORT_MAX);
        if key.is_constant() && constant.is_none() {
            return Err(misfit(format!(
                "{name}: the target is longer than a routing key, {SHORT_MAX} bytes"
            )));
        }
        let queue = constant
            .as_deref()
            .filter(|_| exchange.is_empty())
            .map(str::to_owned);
        Ok(Self {
            stream: queue
                .as_ref()
                .is_some_and(|queue| settings.streams.contains(queue)),
            exchange,
            cluster: destination.cluster.clone(),
            key,
            constant,
            queue,
            serializer: destination.serializer,
            durability: destination.durability,
            holding: Holding::of(destination),
        })
    }

    fn routing_key(&self, routing: &Routing) -> Result<Arc<str>, Outcome> {
        match &self.constant {
            Some(constant) => Ok(Arc::clone(constant)),
            None => self.key.render(routing).map(Arc::from),
        }
    }

    fn terms(&self, settings: &Settings, frame_max: usize) -> Terms {
        Terms {
            exchange: self.exchange.clone(),
            constant: self.constant.is_some(),
            by_key: self.holding.by_key,
            tagged: self.stream,
            extras: settings.extras,
            frame_max,
            in_flight_max: usize::try_from(settings.in_flight_max).unwrap_or(usize::MAX),
        }
    }

    /// The stream that events can be looked for in.
    fn readable(&self) -> Option<&str> {
        self.queue.as_deref().filter(|_| self.stream)
    }
}

/// Gives up what is unanswered when the sender stops waiting, whether by its deadline or because
/// its future was dropped.
struct GiveUp {
    link: Option<Arc<Link>>,
    flight: Arc<Flight>,
}

impl Drop for GiveUp {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.give_up(&self.flight);
        }
    }
}

#[async_trait]
impl Transport for RabbitMq {
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: true,
            batch_max: self.settings.in_flight_max,
            dedup_window: None,
            probe: match self.place.readable() {
                Some(_) => ProbeStrength::Finds,
                None => ProbeStrength::None,
            },
        }
    }

    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        let link = self.connected().await?;
        preflight::problems(&link, &self.place, &self.settings, usage).await
    }

    async fn provision(&self, _: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        let link = self.connected().await?;
        provision::provision(&link, &self.place, &self.settings, how).await
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        self.prepare(message).map(drop)
    }

    /// The broker's own limit is learnt from a refusal, and only another one tells that it was not
    /// raised meanwhile.
    async fn look_again(&self) {
        let learned = &self.dial.learned;
        learned.body_bytes_max.store(0, Ordering::Release);
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        if batch.messages.is_empty() {
            return;
        }
        let deadline = Instant::now() + batch.send_timeout;
        let holds = Arc::clone(&self.holds);
        let flight = Arc::new(Flight::new(batch, self.place.holding, holds, answers));
        let mut give_up = GiveUp {
            link: None,
            flight: Arc::clone(&flight),
        };
        let begun = timeout_at(deadline, async {
            let turn = self.turn.lock().await;
            (turn, self.dial.ready(&self.settings, &self.place).await)
        });
        match begun.await {
            Ok((turn, Ok(link))) => {
                give_up.link = Some(Arc::clone(&link));
                self.hand_over(&link, &flight);
                drop(turn);
            }
            Ok((_, Err(outcome))) => flight.answer_from(0, &outcome),
            Err(_) => flight.answer_from(
                0,
                &Outcome::outage("broker_silent", "there was no connection in time"),
            ),
        }
        // Whatever is open at the deadline is given up by the drop.
        drop(timeout_at(deadline, flight.done()).await);
    }

    fn late(&self) -> Option<mpsc::Receiver<Late>> {
        self.late
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    async fn anchor(&self, _: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        let Some(stream) = self.place.readable() else {
            return Ok(None);
        };
        let anchored = || self.anchored.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = anchored().filter(|(_, at)| at.elapsed() < ANCHOR_FOR);
        let offset = match fresh {
            Some((offset, _)) => offset,
            None => {
                let link = self.connected().await?;
                let asked = Instant::now();
                let offset = stream::near_end(&link, stream).await?;
                *anchored() = Some((offset, asked));
                offset
            }
        };
        Ok(u64::try_from(offset).ok().map(Anchor::number))
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        let Some(queue) = self.place.readable() else {
            return Ok(Probed::CannotTell {
                reason: "a queue cannot be read without taking from it, and forgets what was \
                         consumed; only a stream, listed in `streams`, can be looked into"
                    .to_owned(),
            });
        };
        let looking = Looking {
            queue,
            serializer: self.place.serializer,
            messages_max: self.settings.lookup_messages_max,
            within: self.settings.api_timeout,
        };
        let link = self.connected().await?;
        stream::probe(&link, looking, probe).await
    }

    async fn positions(&self, consumer: &str) -> Result<Vec<ConsumerPosition>, Error> {
        let unknown = |message: String| Error::Misconfigured {
            code: "positions_unknown",
            message,
        };
        if let Some(stream) = self.place.readable() {
            return Err(unknown(format!(
                "AMQP 0-9-1 does not tell how far a consumer of stream {stream:?} has come; let \
                 consumer {consumer:?} post receipts from its inbox"
            )));
        }
        // A consumer of an exchange is a queue bound to it.
        let queue = self.place.queue.as_deref().unwrap_or(consumer);
        let link = self.connected().await?;
        let mut talk = Talk::begin(&link).await?;
        match talk.messages_ready(queue).await {
            Ok(ready) => {
                talk.done();
                Ok(vec![ConsumerPosition {
                    place: queue.to_owned(),
                    confirmed: None,
                    waiting: Some(ready.into()),
                    // What was handed out and not acknowledged yet is not counted.
                    exact: false,
                }])
            }
            Err(refusal) if refusal.is_not_found() => Err(unknown(format!(
                "there is no queue {queue:?} in this virtual host; a consumer of an exchange is \
                 known by the name of its queue"
            ))),
            Err(other) => Err(other.into()),
        }
    }

    async fn close(&self) {
        self.dial.close();
    }
}

impl fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMq")
            .field("exchange", &self.place.exchange)
            .field("cluster", &self.place.cluster)
            .field("dial", &self.dial)
            .finish_non_exhaustive()
    }
}
