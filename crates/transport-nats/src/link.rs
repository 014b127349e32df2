//! One connection and what is on its way over it.
//!
//! The client library reconnects by itself, and then sends what it still holds: a message could
//! go out long after it was given up. So each library client lives for one connection only. Right
//! after the handshake its list of servers is replaced by an address that nothing listens on, and
//! when the connection ends, the client ends with everything it had not written. Reconnecting is
//! ours ([`crate::JetStream`]), with a new client.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use async_nats::{Client, Event, HeaderMap, ServerAddr, ServerInfo, Subscriber, jetstream};
use bytes::Bytes;
use futures::StreamExt;
use postrider_contract::{EventId, Receipt};
use postrider_core::Outcome;
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use crate::{
    ack::{self, outage, unknown},
    connection::Settings,
    flight::Flight,
    inbox::Inbox,
};

/// Refused subjects remembered per connection, some 50 bytes each.
const REFUSED_MAX: usize = 1_000;

/// Nothing listens on port 0, and connecting to it fails at once.
const NOWHERE: &str = "nats://127.0.0.1:0";

/// One live or ended connection.
pub(crate) struct Link {
    pub(crate) context: jetstream::Context,
    client: Client,
    info: ServerInfo,
    shared: Arc<Shared>,
    reader: JoinHandle<()>,
}

/// What the tasks of a connection share with its senders.
struct Shared {
    ring: Mutex<Ring>,
    window: Semaphore,
    ended: AtomicBool,
    at_end: Notify,
    leaving: AtomicBool,
    stream: String,
    inbox: Arc<Inbox>,
}

/// Messages sent and not answered, by token. Tokens count up, so a queue is an index.
struct Ring {
    first: u64,
    waiting: VecDeque<Option<Waiting>>,
    closed: bool,
    /// Whether any acknowledgement came: what is refused later was not refused all along.
    acknowledged: bool,
    /// Subjects refused before.
    refused: BTreeSet<String>,
}

struct Waiting {
    flight: Arc<Flight>,
    index: usize,
}

/// Why a connection could not be made.
#[derive(Debug)]
pub(crate) enum ConnectError {
    Unavailable(String),
    Misconfigured { code: &'static str, message: String },
}

impl Link {
    /// Connects to one server.
    pub(crate) async fn connect(
        settings: &Settings,
        server: &ServerAddr,
        stream: &str,
        inbox: Arc<Inbox>,
    ) -> Result<Self, ConnectError> {
        let in_flight = usize::try_from(settings.in_flight_max).unwrap_or(usize::MAX);
        let shared = Arc::new(Shared {
            ring: Mutex::new(Ring {
                first: inbox.tokens(),
                waiting: VecDeque::with_capacity(in_flight),
                closed: false,
                acknowledged: false,
                refused: BTreeSet::new(),
            }),
            window: Semaphore::new(in_flight),
            ended: AtomicBool::new(false),
            at_end: Notify::new(),
            leaving: AtomicBool::new(false),
            stream: stream.to_owned(),
            inbox,
        });
        let options = settings
            .options()
            .map_err(|error| ConnectError::Misconfigured {
                code: "connection",
                message: error.to_string(),
            })?;
        let watcher = Arc::clone(&shared);
        let client = options
            .max_reconnects(1)
            .event_callback(move |event| {
                watcher.heed(&event);
                std::future::ready(())
            })
            .connect(server.clone())
            .await
            .map_err(|error| refused(server, &error))?;
        client
            .set_server_pool(NOWHERE)
            .await
            .map_err(|_| ConnectError::Unavailable("the connection ended at once".to_owned()))?;
        let answers = client
            .subscribe(shared.inbox.subscription())
            .await
            .map_err(|_| ConnectError::Unavailable("the connection ended at once".to_owned()))?;
        let reader = tokio::spawn(read(answers, Arc::clone(&shared)));
        Ok(Self {
            context: jetstream::new(client.clone()),
            info: client.server_info(),
            client,
            shared,
            reader,
        })
    }

    pub(crate) fn info(&self) -> &ServerInfo {
        &self.info
    }

    /// Whether messages can still be handed over.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.ended.load(Ordering::Acquire)
    }

    /// Whether the server asked its clients to go elsewhere.
    pub(crate) fn is_leaving(&self) -> bool {
        self.shared.leaving.load(Ordering::Acquire)
    }

    /// Waits until one more message may be in flight; `false`: the connection ended.
    pub(crate) async fn room(&self) -> bool {
        if let Ok(permit) = self.shared.window.try_acquire() {
            permit.forget();
            return self.is_alive();
        }
        let ended = self.shared.at_end.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if !self.is_alive() {
            return false;
        }
        tokio::select! {
            permit = self.shared.window.acquire() => match permit {
                Ok(permit) => {
                    permit.forget();
                    true
                }
                Err(_) => false,
            },
            () = ended => false,
        }
    }

    /// Hands one message to the connection, taking the room that was waited for. From then on the
    /// connection answers for it. `Err`: it never will, and nothing was written.
    pub(crate) async fn publish(
        &self,
        flight: &Arc<Flight>,
        index: usize,
        subject: String,
        headers: HeaderMap,
        body: Bytes,
        deadline: Instant,
    ) -> Result<(), Outcome> {
        let waiting = Waiting {
            flight: Arc::clone(flight),
            index,
        };
        let Some(token) = self.shared.ring().push(waiting) else {
            return Err(disconnected());
        };
        let handing = Handing {
            shared: &self.shared,
            token,
        };
        let reply = self.shared.inbox.reply_subject(token);
        let handed = self
            .client
            .publish_with_reply_and_headers(subject, reply, headers, body);
        match timeout_at(deadline, handed).await {
            Ok(Ok(())) => {
                handing.done();
                Ok(())
            }
            // The client did not take it. If the connection ended meanwhile and answered for the
            // message, that answer stands.
            Ok(Err(_)) if handing.take_back() => Err(disconnected()),
            Err(_) if handing.take_back() => Err(outage(
                "window_full",
                "the connection takes no more messages",
            )),
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }

    /// Reports what is still unanswered of one batch as unknown, and goes on hoping for late
    /// acknowledgements.
    pub(crate) fn give_up(&self, flight: &Arc<Flight>) {
        let waiting = self.shared.ring().take_flight(flight);
        let hopes = waiting
            .iter()
            .map(|(token, waiting)| (*token, waiting.event_id()));
        self.shared.inbox.hope_for(hopes);
        for (_, waiting) in waiting {
            self.shared.window.add_permits(1);
            waiting.flight.answer(
                waiting.index,
                unknown("ack_timeout", "no acknowledgement within the send timeout"),
            );
        }
    }

    /// Ends the connection. What is in flight becomes unknown.
    pub(crate) fn end(&self) {
        self.shared.end();
        self.reader.abort();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.info.server_name)
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}

/// A message between the ring and the client's queue: if this is dropped, it was never handed
/// over, and nobody will answer for it.
struct Handing<'a> {
    shared: &'a Shared,
    token: u64,
}

impl Handing<'_> {
    /// The client has it.
    fn done(self) {
        std::mem::forget(self);
    }

    /// The client does not have it. `false`: it was answered already.
    fn take_back(&self) -> bool {
        let is_open = self.shared.ring().take(self.token).is_some();
        if is_open {
            self.shared.window.add_permits(1);
        }
        is_open
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        self.take_back();
    }
}

impl Shared {
    /// A panic while the ring is locked would be a bug in a few lines without calls outwards.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heed(&self, event: &Event) {
        match event {
            Event::Disconnected | Event::Closed => self.end(),
            Event::LameDuckMode => self.leaving.store(true, Ordering::Release),
            Event::ServerError(error) => {
                if let Some(subject) = refused_subject(&error.to_string()) {
                    self.refuse(&subject);
                }
            }
            Event::Connected | Event::Draining | Event::SlowConsumer(_) | Event::ClientError(_) => {
            }
        }
    }

    /// Everything in flight was handed to a connection that ended: written or not, we cannot know.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let (first, waiting) = {
            let mut ring = self.ring();
            ring.closed = true;
            let first = ring.first;
            ring.first += ring.waiting.len() as u64;
            (first, std::mem::take(&mut ring.waiting))
        };
        self.window.close();
        self.at_end.notify_waiters();
        let waiting = waiting.into_iter().zip(first..);
        let waiting: Vec<_> = waiting
            .filter_map(|(slot, token)| Some((token, slot?)))
            .collect();
        self.inbox.hope_for(
            waiting
                .iter()
                .map(|(token, waiting)| (*token, waiting.event_id())),
        );
        for (_, waiting) in waiting {
            waiting.flight.answer(
                waiting.index,
                unknown(
                    "connection_lost",
                    "the connection ended before the acknowledgement",
                ),
            );
        }
    }

    /// The server refused publishing to a subject, by permission. It does not say which message:
    /// all that wait for this subject are meant. Only where permissions may have changed while
    /// they were on their way (something was acknowledged on this connection, and this subject
    /// was never refused before) the outcome is unknown.
    fn refuse(&self, subject: &str) {
        let (waiting, certain) = {
            let mut ring = self.ring();
            if ring.refused.len() >= REFUSED_MAX {
                ring.refused.clear();
            }
            let certain = !ring.acknowledged || ring.refused.contains(subject);
            ring.refused.insert(subject.to_owned());
            let meant = |waiting: &Waiting| waiting.flight.goes_to(waiting.index, subject);
            (ring.take_where(meant), certain)
        };
        let detail = format!("this user may not publish to {subject:?}");
        for waiting in waiting {
            self.window.add_permits(1);
            let outcome = if certain {
                outage("permission_denied", &detail)
            } else {
                unknown("permission_denied", &detail)
            };
            waiting.flight.answer(waiting.index, outcome);
        }
    }

    fn settle(&self, token: u64, answer: &async_nats::Message) {
        let outcome = ack::outcome(answer, &self.stream);
        if let Outcome::Acknowledged(Receipt::JetStream {
            sequence,
            duplicate: false,
            ..
        }) = outcome
        {
            self.inbox.note(sequence);
        }
        let waiting = {
            let mut ring = self.ring();
            ring.acknowledged |= matches!(outcome, Outcome::Acknowledged(_));
            ring.take(token)
        };
        if let Some(waiting) = waiting {
            self.window.add_permits(1);
            waiting.flight.answer(waiting.index, outcome);
        } else if let Outcome::Acknowledged(receipt) = outcome {
            self.inbox.acknowledged_late(token, receipt);
        }
    }
}

impl Waiting {
    fn event_id(&self) -> EventId {
        self.flight.batch.messages[self.index].event_id
    }
}

impl Ring {
    /// `None`: the connection ended.
    fn push(&mut self, waiting: Waiting) -> Option<u64> {
        if self.closed {
            return None;
        }
        let token = self.first + self.waiting.len() as u64;
        self.waiting.push_back(Some(waiting));
        Some(token)
    }

    fn take(&mut self, token: u64) -> Option<Waiting> {
        let at = usize::try_from(token.checked_sub(self.first)?).ok()?;
        let taken = self.waiting.get_mut(at)?.take();
        self.trim();
        taken
    }

    fn take_where(&mut self, chosen: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let slots = self.waiting.iter_mut();
        let taken = slots
            .filter_map(|slot| slot.take_if(|waiting| chosen(waiting)))
            .collect();
        self.trim();
        taken
    }

    /// Takes what is left of one batch, with its tokens.
    fn take_flight(&mut self, flight: &Arc<Flight>) -> Vec<(u64, Waiting)> {
        let own = |waiting: &mut Waiting| Arc::ptr_eq(&waiting.flight, flight);
        let slots = (self.first..).zip(&mut self.waiting);
        let taken = slots
            .filter_map(|(token, slot)| Some((token, slot.take_if(own)?)))
            .collect();
        self.trim();
        taken
    }

    fn trim(&mut self) {
        while let Some(None) = self.waiting.front() {
            self.waiting.pop_front();
            self.first += 1;
        }
    }
}

/// Takes the answers of one connection until it ends.
async fn read(mut answers: Subscriber, shared: Arc<Shared>) {
    while let Some(answer) = answers.next().await {
        match shared.inbox.token(&answer.subject) {
            Some(token) => shared.settle(token, &answer),
            None => tracing::warn!("an answer came that belongs to no message"),
        }
    }
    shared.end();
}

fn disconnected() -> Outcome {
    outage(
        "not_connected",
        "the connection ended before this message was handed to it",
    )
}

fn refused(server: &ServerAddr, error: &async_nats::ConnectError) -> ConnectError {
    use async_nats::ConnectErrorKind as Kind;
    let place = format!("{}:{}", server.host(), server.port());
    match error.kind() {
        Kind::AuthorizationViolation | Kind::Authentication => ConnectError::Misconfigured {
            code: "not_authorized",
            message: format!("{place} refuses these credentials"),
        },
        Kind::Tls => ConnectError::Misconfigured {
            code: "tls",
            message: format!("TLS with {place} failed; check the authorities and certificates"),
        },
        Kind::ServerParse | Kind::Dns | Kind::TimedOut | Kind::Io | Kind::MaxReconnects => {
            ConnectError::Unavailable(format!("{place} cannot be reached: {}", error.kind()))
        }
    }
}

/// The subject of `Permissions Violation for Publish to "x"`.
fn refused_subject(error: &str) -> Option<String> {
    let lower = error.to_ascii_lowercase();
    let at = lower.find("permissions violation for publish to ")?;
    let subject = error.get(at..)?.split('"').nth(1)?;
    Some(subject.to_owned())
}
