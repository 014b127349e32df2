//! Delivery into a NATS JetStream stream. An acknowledgement is the server's PubAck from the
//! expected stream; nothing here ever creates or changes a stream but `provision`.

mod ack;
mod connection;
mod consumer;
mod dial;
mod flight;
mod handshake;
mod headers;
mod inbox;
mod link;
mod lookup;
mod outbox;
mod preflight;
mod protocol;
mod provision;
mod reading;
mod stream;
mod subject;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use postrider_contract::{
    Destination, Digest, Receipt,
    destination::{Durability, Serializer},
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, ConsumerPosition, Error, Late, Message, Probe, ProbeStrength, Probed,
    Problem, Provisioning, Template, Traits, Transport, Usage,
    holds::{Holding, Holds, held},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

pub use connection::{Connection, Credentials, Provision, Tls};

use crate::{
    connection::Settings, dial::Dial, flight::Flight, inbox::Inbox, link::Link, lookup::Wanted,
    reading::Readings,
};

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "jetstream";

/// The `type` of its receipts.
pub const RECEIPT_TYPE: &str = "jetstream.ack/1";

/// Late receipts that wait to be taken; each is some 200 bytes.
const LATE_QUEUE_MAX: usize = 4_096;

/// One JetStream destination.
pub struct JetStream {
    place: Place,
    settings: Settings,
    dial: Dial,
    /// Whoever holds it publishes: batches sent one after the other stay in that order.
    turn: tokio::sync::Mutex<()>,
    looked: Readings,
    holds: Arc<Holds>,
    late: Mutex<Option<mpsc::Receiver<Late>>>,
}

/// What the destination's frozen definition says, as far as it matters here.
#[derive(Debug)]
struct Place {
    stream: String,
    cluster: String,
    subject: Arc<Template>,
    /// What [`Self::subject`] can make, as a subject filter.
    filter: String,
    serializer: Serializer,
    durability: Durability,
    holding: Holding,
}

impl JetStream {
    /// Checks the definition and the settings. Connects to nothing: that happens with the first
    /// send or look-up, again and again until it succeeds.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        let settings = Settings::check(connection)?;
        let place = Place::of(destination)?;
        let (sender, receiver) = mpsc::channel(LATE_QUEUE_MAX);
        Ok(Self {
            dial: Dial::new(Inbox::new(&settings.inbox_prefix, sender)),
            place,
            settings,
            turn: tokio::sync::Mutex::new(()),
            looked: Readings::default(),
            holds: Arc::default(),
            late: Mutex::new(Some(receiver)),
        })
    }

    async fn link(&self) -> Result<Arc<Link>, Outcome> {
        self.dial.link(&self.settings, &self.place).await
    }

    /// The connection, for calls that answer with [`Error`].
    async fn connected(&self) -> Result<Arc<Link>, Error> {
        self.link().await.map_err(|outcome| match outcome {
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

    /// Hands the batch to the connection, message by message. What cannot be handed over is
    /// answered here; the rest is answered by the connection.
    async fn publish(&self, link: &Link, flight: &Arc<Flight>, deadline: Instant) {
        let messages = Arc::clone(&flight.batch.messages);
        let mut found = match self.look_first(link, flight, deadline).await {
            Ok(found) => found,
            Err(outcome) => return flight.answer_from(0, &outcome),
        };
        let bytes_max = self.dial.facts().message_bytes_max;
        let mut headers = Vec::with_capacity(2_048);
        for (index, message) in messages.iter().enumerate() {
            if let Some(outcome) = found.remove(&index) {
                flight.answer(index, outcome);
                continue;
            }
            if flight.is_held(message) {
                flight.answer(index, held());
                continue;
            }
            let subject = match self.prepare(message, bytes_max, &mut headers) {
                Ok(subject) => subject,
                Err(outcome) => {
                    flight.answer(index, outcome);
                    continue;
                }
            };
            let outcome = match timeout_at(deadline, link.room()).await {
                Ok(true) => match link.publish(flight, index, &subject, &headers, &message.body) {
                    Ok(()) => continue,
                    Err(outcome) => outcome,
                },
                Ok(false) => Outcome::outage("not_connected", "the connection ended"),
                Err(_) => Outcome::outage("window_full", "earlier messages are not acknowledged"),
            };
            return flight.answer_from(index, &outcome);
        }
    }

    /// The subject of a message; its header block goes to `headers`.
    fn prepare(
        &self,
        message: &Message,
        bytes_max: usize,
        headers: &mut Vec<u8>,
    ) -> Result<String, Outcome> {
        headers::write(message, &self.place.stream, headers)?;
        check_size(headers.len() + message.body.len(), bytes_max)?;
        self.place.subject.render(&message.routing)
    }

    /// Looks for the messages whose first send the stream may have forgotten, and answers those
    /// that are there.
    async fn look_first(
        &self,
        link: &Link,
        flight: &Flight,
        deadline: Instant,
    ) -> Result<BTreeMap<usize, Outcome>, Outcome> {
        let window = self.dial.facts().duplicate_window.unwrap_or(Duration::ZERO);
        let messages = &flight.batch.messages;
        let mut wanted = Wanted::default();
        for (index, message) in messages.iter().enumerate() {
            let Some(earlier) = &message.earlier else {
                continue;
            };
            // It may still be on its way for as long as the send timeout.
            if earlier.first_sent_ago + flight.batch.send_timeout < window {
                continue;
            }
            if let Ok(subject) = self.place.subject.render(&message.routing) {
                wanted.add(
                    index,
                    message.event_id,
                    subject,
                    earlier.anchor.as_ref().and_then(Anchor::as_number),
                    earlier.first_sent_ago,
                );
            }
        }
        if wanted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let looked = timeout_at(
            deadline,
            lookup::find(link, &self.place, &self.settings, &self.looked, &wanted),
        );
        let found = match looked.await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => return Err(Outcome::outage("lookup_failed", &error.to_string())),
            Err(_) => {
                return Err(Outcome::outage(
                    "lookup_failed",
                    "no answer within the send timeout",
                ));
            }
        };
        if !found.complete {
            tracing::warn!(
                stream = self.place.stream,
                messages_max = self.settings.lookup_messages_max,
                "a look-up before a late retry ended at its bound; what it missed may be stored twice"
            );
        }
        let settled = found.seen.into_iter().map(|(index, copy)| {
            let outcome = if copy.digest == Digest::of_bytes(&messages[index].body) {
                Outcome::Acknowledged(receipt(link, &self.place.stream, copy.sequence))
            } else {
                Outcome::rejected(
                    "digest_conflict",
                    "the stream holds this id with another body",
                )
            };
            (index, outcome)
        });
        Ok(settled.collect())
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

impl Place {
    fn of(destination: &Destination) -> Result<Self, Error> {
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
                "{name} asks for receipts of type {:?}; a stream gives {RECEIPT_TYPE}",
                destination.receipt_type
            )));
        }
        let stream = destination.container.clone().ok_or_else(|| {
            misfit(format!(
                "{name} names no stream; put its name into `container`"
            ))
        })?;
        if !subject::is_stream_name(&stream) {
            return Err(misfit(format!(
                "{name}: {stream:?} cannot be a stream's name; it must not be empty or hold \
                 spaces, dots, slashes, * or >"
            )));
        }
        let subject = Template::parse(&destination.target, subject::ALPHABET)?;
        if let Err(problem) = subject::check(&subject.pattern("x")) {
            return Err(misfit(format!(
                "{name}: the target {:?} {problem}",
                destination.target
            )));
        }
        Ok(Self {
            stream,
            cluster: destination.cluster.clone(),
            subject: Arc::new(subject),
            filter: subject::filter_of(&destination.target),
            serializer: destination.serializer,
            durability: destination.durability,
            holding: Holding::of(destination),
        })
    }
}

#[async_trait]
impl Transport for JetStream {
    /// The window is known once a connection was made; before, and without one, it is `None`.
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: true,
            batch_max: self.settings.in_flight_max,
            dedup_window: self.dial.facts().duplicate_window,
            probe: ProbeStrength::Finds,
        }
    }

    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        let link = self.connected().await?;
        let problems = preflight::problems(&link, &self.place, usage).await?;
        Ok(problems)
    }

    async fn provision(&self, usage: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        let link = self.connected().await?;
        let done = provision::provision(&link, &self.place, &self.settings, usage, how).await?;
        self.dial.learn(
            stream::info(&link, &self.place.stream).await.ok().as_ref(),
            &link,
        );
        Ok(done)
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        let bytes = headers::length(message, &self.place.stream)? + message.body.len();
        check_size(bytes, self.dial.facts().message_bytes_max)?;
        self.place.subject.render(&message.routing).map(drop)
    }

    /// The stream's limits. Those of the server are learnt with each connection.
    async fn look_again(&self) {
        if let Some(link) = self.dial.current()
            && let Ok(info) = stream::info(&link, &self.place.stream).await
        {
            self.dial.learn(Some(&info), &link);
        }
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        if batch.messages.is_empty() {
            return;
        }
        let deadline = Instant::now() + batch.send_timeout;
        let subject = Arc::clone(&self.place.subject);
        let flight = Arc::new(Flight::new(
            batch,
            self.place.holding,
            Arc::clone(&self.holds),
            subject,
            answers,
        ));
        let mut give_up = GiveUp {
            link: None,
            flight: Arc::clone(&flight),
        };
        let begun = timeout_at(deadline, async {
            let turn = self.turn.lock().await;
            (turn, self.link().await)
        });
        match begun.await {
            Ok((turn, Ok(link))) => {
                give_up.link = Some(Arc::clone(&link));
                self.publish(&link, &flight, deadline).await;
                link.flush();
                drop(turn);
            }
            Ok((_, Err(outcome))) => flight.answer_from(0, &outcome),
            Err(_) => flight.answer_from(
                0,
                &Outcome::outage(
                    "window_full",
                    "earlier batches, or the connection, took all the time",
                ),
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
        if let Some(newest) = self.dial.newest() {
            return Ok(Some(Anchor::number(newest + 1)));
        }
        let link = self.connected().await?;
        let info = stream::info(&link, &self.place.stream).await?;
        Ok(Some(Anchor::number(info.state.last_seq + 1)))
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        let link = self.connected().await?;
        lookup::probe(&link, &self.place, &self.settings, probe).await
    }

    async fn positions(&self, consumer: &str) -> Result<Vec<ConsumerPosition>, Error> {
        let link = self.connected().await?;
        let position = consumer::position(&link, &self.place.stream, consumer).await?;
        Ok(vec![position])
    }

    async fn close(&self) {
        self.dial.close().await;
    }
}

impl fmt::Debug for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStream")
            .field("stream", &self.place.stream)
            .field("cluster", &self.place.cluster)
            .field("dial", &self.dial)
            .finish_non_exhaustive()
    }
}

fn check_size(bytes: usize, bytes_max: usize) -> Result<(), Outcome> {
    if bytes <= bytes_max {
        return Ok(());
    }
    let detail = format!("{bytes} bytes with headers; server and stream take {bytes_max}");
    Err(Outcome::rejected("message_too_large", &detail))
}

/// The evidence for a stored message found by looking.
fn receipt(link: &Link, stream: &str, sequence: u64) -> Receipt {
    Receipt::JetStream {
        stream: stream.to_owned(),
        sequence,
        domain: link.info().domain.clone(),
        duplicate: false,
    }
}
