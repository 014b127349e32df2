//! One connection and what is on its way over it.
//!
//! A connection is never reconnected. When it ends, what was not written is thrown away, and what
//! may have been written is unknown: nothing is ever sent after it was given up. Connecting again
//! is [`crate::dial::Dial`]'s, with a new link.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BytesMut};
use postrider_contract::{EventId, Receipt};
use postrider_core::Outcome;
use tokio::{
    io::{AsyncReadExt, ReadHalf, WriteHalf},
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    ack,
    connection::{Server, Settings},
    flight::Flight,
    handshake::{self, Refused, Socket},
    inbox::Inbox,
    outbox::{Closed, Outbox, Publish},
    protocol::{Delivered, Garbled, Op, ServerInfo, parse},
};

/// Refused subjects remembered per connection, some 50 bytes each.
const REFUSED_MAX: usize = 1_000;

/// Pings without an answer that end a connection.
const PINGS_MAX: u32 = 3;

/// One live or ended connection.
pub(crate) struct Link {
    info: ServerInfo,
    shared: Arc<Shared>,
    api_timeout: Duration,
    tasks: [JoinHandle<()>; 2],
}

/// What the tasks of a connection share with its senders.
struct Shared {
    ring: Mutex<Ring>,
    window: Semaphore,
    outbox: Outbox,
    questions: Mutex<Questions>,
    ended: AtomicBool,
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
    /// Where its bytes start in all that this connection sends.
    start: u64,
}

/// Questions to the JetStream API, by token.
#[derive(Default)]
struct Questions {
    asked: u64,
    open: HashMap<u64, oneshot::Sender<Vec<u8>>>,
}

/// The mark of a question's token, which no message's token has.
const QUESTION: u64 = 1 << 63;

impl Link {
    /// Connects to one server.
    pub(crate) async fn connect(
        settings: &Settings,
        server: &Server,
        stream: &str,
        inbox: Arc<Inbox>,
    ) -> Result<Self, Refused> {
        let ready = handshake::connect(settings, server).await?;
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
            outbox: Outbox::default(),
            questions: Mutex::default(),
            ended: AtomicBool::new(false),
            leaving: AtomicBool::new(ready.info.ldm),
            stream: stream.to_owned(),
            inbox,
        });
        shared
            .outbox
            .line(&format!("SUB {} 1", shared.inbox.subscription()));
        let (reader, writer) = tokio::io::split(ready.socket);
        let reading = read(
            reader,
            ready.rest,
            Arc::clone(&shared),
            settings.ping_interval,
        );
        let tasks = [
            tokio::spawn(reading),
            tokio::spawn(write(writer, Arc::clone(&shared))),
        ];
        Ok(Self {
            info: ready.info,
            shared,
            api_timeout: settings.api_timeout,
            tasks,
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
        let permit = match self.shared.window.try_acquire() {
            Ok(permit) => permit,
            // Closed with the connection, which wakes the waiters.
            Err(_) => {
                // What is waited for may be the answers to what was not written yet.
                self.flush();
                match self.shared.window.acquire().await {
                    Ok(permit) => permit,
                    Err(_) => return false,
                }
            }
        };
        if self.shared.outbox.room().await.is_err() {
            return false;
        }
        permit.forget();
        true
    }

    /// Has everything written that was handed over.
    pub(crate) fn flush(&self) {
        self.shared.outbox.flush();
    }

    /// Hands one message to the connection, taking the room that was waited for. From then on the
    /// connection answers for it. `Err`: it never will, and nothing was written.
    pub(crate) fn publish(
        &self,
        flight: &Arc<Flight>,
        index: usize,
        subject: &str,
        headers: &[u8],
        body: &[u8],
    ) -> Result<(), Outcome> {
        // One lock over both: the answer cannot come before the message waits for it, and the
        // connection's end cannot fall between the two.
        let mut ring = self.shared.ring();
        if ring.closed {
            return Err(never_written());
        }
        let token = ring.next();
        let reply = self.shared.inbox.reply_subject(token);
        let publish = Publish {
            subject,
            reply: &reply,
            headers,
            body,
        };
        match self.shared.outbox.publish(&publish) {
            Ok(start) => {
                ring.push(Waiting {
                    flight: Arc::clone(flight),
                    index,
                    start,
                });
                Ok(())
            }
            Err(Closed) => Err(never_written()),
        }
    }

    /// Asks the JetStream API; the answer's body.
    pub(crate) async fn ask(&self, subject: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let (sender, answer) = oneshot::channel();
        let token = {
            let mut questions = self.shared.questions();
            questions.asked += 1;
            let token = QUESTION | questions.asked;
            questions.open.insert(token, sender);
            token
        };
        let _asked = Asked {
            shared: &self.shared,
            token,
        };
        let reply = self.shared.inbox.reply_subject(token);
        let subject = format!("$JS.API.{subject}");
        let publish = Publish {
            subject: &subject,
            reply: &reply,
            headers: b"",
            body,
        };
        let asked = self
            .shared
            .outbox
            .room()
            .await
            .and_then(|()| self.shared.outbox.publish(&publish));
        self.flush();
        if asked.is_err() {
            return Err("the connection ended".to_owned());
        }
        match timeout(self.api_timeout, answer).await {
            Ok(Ok(body)) if body.is_empty() => Err("nobody answers for JetStream".to_owned()),
            Ok(Ok(body)) => Ok(body),
            Ok(Err(_)) => Err("the connection ended".to_owned()),
            Err(_) => Err(format!("no answer within {:?}", self.api_timeout)),
        }
    }

    /// Reports what is still unanswered of one batch as unknown, and goes on hoping for late
    /// acknowledgements.
    pub(crate) fn give_up(&self, flight: &Arc<Flight>) {
        // Not to be left behind: it would go out with whatever is published next.
        self.flush();
        let waiting = self.shared.ring().take_flight(flight);
        let hopes = waiting
            .iter()
            .map(|(token, waiting)| (*token, waiting.event_id()));
        self.shared.inbox.hope_for(hopes);
        for (_, waiting) in waiting {
            self.shared.window.add_permits(1);
            waiting.flight.answer(
                waiting.index,
                Outcome::unknown("ack_timeout", "no acknowledgement within the send timeout"),
            );
        }
    }

    /// Ends the connection. What is in flight becomes unknown.
    pub(crate) fn end(&self) {
        self.shared.end();
        for task in &self.tasks {
            task.abort();
        }
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

/// A question that somebody waits for, until this is dropped.
struct Asked<'a> {
    shared: &'a Shared,
    token: u64,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.shared.questions().open.remove(&self.token);
    }
}

impl Shared {
    /// A panic while the ring is locked would be a bug in a few lines without calls outwards.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What the writer took may have arrived, and nobody can know; what it did not take never left.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let (first, waiting, taken) = {
            let mut ring = self.ring();
            ring.closed = true;
            let first = ring.first;
            ring.first += ring.waiting.len() as u64;
            (
                first,
                std::mem::take(&mut ring.waiting),
                self.outbox.close(),
            )
        };
        self.window.close();
        self.questions().open.clear();
        let waiting = waiting.into_iter().zip(first..);
        let waiting: Vec<_> = waiting
            .filter_map(|(slot, token)| Some((token, slot?)))
            .collect();
        let written = waiting.iter().filter(|(_, waiting)| waiting.start < taken);
        self.inbox
            .hope_for(written.map(|(token, waiting)| (*token, waiting.event_id())));
        for (_, waiting) in waiting {
            let outcome = if waiting.start < taken {
                Outcome::unknown(
                    "connection_lost",
                    "the connection ended before the acknowledgement",
                )
            } else {
                never_written()
            };
            waiting.flight.answer(waiting.index, outcome);
        }
    }

    fn deliver(&self, delivered: &Delivered<'_>) {
        let Some(token) = self.inbox.token(delivered.subject) else {
            tracing::warn!("an answer came that belongs to nothing");
            return;
        };
        if token & QUESTION == 0 {
            self.settle(token, delivered);
        } else if let Some(question) = self.questions().open.remove(&token) {
            // An empty body (503) says that nobody is there. Who asked may be gone.
            drop(question.send(delivered.body.to_vec()));
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
                Outcome::outage("permission_denied", &detail)
            } else {
                Outcome::unknown("permission_denied", &detail)
            };
            waiting.flight.answer(waiting.index, outcome);
        }
    }

    fn settle(&self, token: u64, answer: &Delivered<'_>) {
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
    /// The token of the next message.
    fn next(&self) -> u64 {
        self.first + self.waiting.len() as u64
    }

    fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(Some(waiting));
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

/// Reads until the connection ends, and pings while it is quiet.
async fn read(
    mut socket: ReadHalf<Box<dyn Socket>>,
    mut bytes: BytesMut,
    shared: Arc<Shared>,
    ping_interval: Duration,
) {
    let mut pings = interval(ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.tick().await;
    let mut unanswered = 0;
    loop {
        match heed(&mut bytes, &shared) {
            Ok(true) => unanswered = 0,
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, "the connection is given up");
                break;
            }
        }
        bytes.reserve(READ_BYTES);
        tokio::select! {
            read = socket.read_buf(&mut bytes) => match read {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            },
            _ = pings.tick() => {
                if unanswered >= PINGS_MAX {
                    break;
                }
                unanswered += 1;
                shared.outbox.line("PING");
            }
        }
    }
    shared.end();
}

/// Room for one read.
const READ_BYTES: usize = 16 * 1024;

/// Handles every whole operation in `bytes`; whether there was one.
fn heed(bytes: &mut BytesMut, shared: &Shared) -> Result<bool, Garbled> {
    let mut any = false;
    while let Some((op, length)) = parse(bytes)? {
        any = true;
        match op {
            Op::Message(delivered) => shared.deliver(&delivered),
            Op::Ping => shared.outbox.line("PONG"),
            Op::Pong | Op::Ok => {}
            Op::Info(json) => {
                let info = serde_json::from_slice::<ServerInfo>(json);
                if info.is_ok_and(|info| info.ldm) {
                    shared.leaving.store(true, Ordering::Release);
                }
            }
            // Of other errors the server's own next step, closing the connection, is what counts.
            Op::Error(text) => match refused_subject(text) {
                Some(subject) => shared.refuse(subject),
                None => tracing::warn!(error = text, "the server complains"),
            },
        }
        bytes.advance(length);
    }
    Ok(any)
}

async fn write(mut socket: WriteHalf<Box<dyn Socket>>, shared: Arc<Shared>) {
    // Whether it failed or was closed: the connection is over.
    drop(shared.outbox.write_to(&mut socket).await);
    shared.end();
}

fn never_written() -> Outcome {
    Outcome::outage(
        "not_connected",
        "the connection ended before this message was written to it",
    )
}

/// The subject of `Permissions Violation for Publish to "x"`.
fn refused_subject(error: &str) -> Option<&str> {
    let lower = error.to_ascii_lowercase();
    let at = lower.find("permissions violation for publish to ")?;
    error.get(at..)?.split('"').nth(1)
}
