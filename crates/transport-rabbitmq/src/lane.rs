//! The publishing channel: what waits to be written, what was written and is not confirmed, and
//! what each confirm, return or closure says of it. It does no I/O.
//!
//! Confirms name messages by a number alone, counted from 1 on each channel. So the tag is given
//! when the bytes are made, and a tag of one channel never settles a message of another: the
//! messages of a channel are answered for when it ends, and forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use postrider_contract::{EventId, Receipt};
use postrider_core::{Class, Outcome};
use postrider_transport::{Late, Message, holds::held};
use tokio::sync::mpsc;

use crate::{
    flight::Flight,
    link::PUBLISHING,
    message::{self, Envelope, Extras},
    wire::Closed,
};

/// Bytes that are put together for one write: large enough to keep a socket busy, small enough
/// that little is unknown when it hangs.
const WRITE_BYTES: usize = 128 * 1024;
/// Written and neither confirmed nor refused, given up or not, in windows. A channel that lets
/// this many pile up confirms nothing any more.
const WINDOWS_MAX: usize = 4;

/// What is the same for every message of the channel.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) exchange: String,
    /// Every message has the same routing key: what it says of one, it says of all.
    pub(crate) constant: bool,
    pub(crate) by_key: bool,
    /// Whether tags travel with the messages.
    pub(crate) tagged: bool,
    pub(crate) extras: Extras,
    pub(crate) frame_max: usize,
    pub(crate) in_flight_max: usize,
}

/// One message of a batch, on its way.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) flight: Arc<Flight>,
    pub(crate) index: usize,
    pub(crate) routing_key: Arc<str>,
}

#[derive(Debug)]
pub(crate) struct Lane {
    terms: Terms,
    state: State,
    /// The server's reason for taking nothing now.
    blocked: Option<String>,
    /// The tag of the first of `sent`.
    first_tag: u64,
    sent: VecDeque<Option<Sent>>,
    /// Of `sent`: waited for.
    waiting: usize,
    /// Of `sent`: given up, and heard of late at best.
    hoped: usize,
    ready: VecDeque<Queued>,
    /// By key: what waits for an earlier one that is ready or sent. Only where keys have an order.
    behind: HashMap<String, VecDeque<Queued>>,
    /// Messages that go one at a time, so that a closure names its cause.
    careful: usize,
    /// The one that is waited for is one of those.
    alone: bool,
    /// Where the next return probably belongs.
    returned_tag: u64,
    late: mpsc::Sender<Late>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The server closed the channel; another one is on its way.
    Closed,
    Ended,
}

#[derive(Debug)]
struct Sent {
    who: Who,
    /// The broker could not route it, and said why.
    returned: Option<String>,
}

#[derive(Debug)]
enum Who {
    Waiting(Queued),
    Hoped {
        event_id: EventId,
        routing_key: Arc<str>,
    },
}

/// What the broker says about a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ack,
    Nack,
}

/// What the writer is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Write, or wait if there is nothing.
    Write,
    /// Give the connection up: nothing comes back any more.
    GiveUp,
}

impl Lane {
    pub(crate) fn new(terms: Terms, late: mpsc::Sender<Late>) -> Self {
        Self {
            terms,
            state: State::Open,
            blocked: None,
            first_tag: 1,
            sent: VecDeque::new(),
            waiting: 0,
            hoped: 0,
            ready: VecDeque::new(),
            behind: HashMap::new(),
            careful: 1,
            alone: false,
            returned_tag: 1,
            late,
        }
    }

    /// Takes over one message. From here on the lane answers for it, exactly once.
    pub(crate) fn enqueue(&mut self, queued: Queued) {
        if self.state == State::Ended {
            return queued.answer(never_written());
        }
        if let Some(reason) = &self.blocked {
            let outcome = blocked(reason);
            return queued.answer(outcome);
        }
        let message = queued.message();
        if queued.flight.is_held(message) {
            return queued.answer(held());
        }
        if self.terms.by_key {
            if let Some(behind) = self.behind.get_mut(&message.partition_key) {
                return behind.push_back(queued);
            }
            self.behind
                .insert(message.partition_key.clone(), VecDeque::new());
        }
        self.ready.push_back(queued);
    }

    /// Puts the next messages into `out`, as many as one write should have. From here on they may
    /// have been accepted.
    pub(crate) fn take(&mut self, out: &mut BytesMut) -> Next {
        self.alone &= self.waiting > 0;
        while self.state == State::Open
            && self.blocked.is_none()
            && !self.alone
            && self.waiting < self.terms.in_flight_max
            && out.len() < WRITE_BYTES
            && !(self.careful > 0 && self.waiting > 0)
        {
            let Some(queued) = self.ready.pop_front() else {
                break;
            };
            if self.sent.len() >= WINDOWS_MAX * self.terms.in_flight_max {
                self.ready.push_front(queued);
                return Next::GiveUp;
            }
            // An earlier one of its key may have failed since it came.
            if queued.flight.is_held(queued.message()) {
                self.finish(queued, held());
                continue;
            }
            let tag = self.first_tag + self.sent.len() as u64;
            let to = Envelope {
                channel: PUBLISHING,
                exchange: &self.terms.exchange,
                routing_key: &queued.routing_key,
                extras: self.terms.extras,
                frame_max: self.terms.frame_max,
                tag: self.terms.tagged.then_some(tag),
            };
            message::put(out, queued.message(), &to);
            self.sent.push_back(Some(Sent {
                who: Who::Waiting(queued),
                returned: None,
            }));
            self.waiting += 1;
            self.alone = self.careful > 0;
            self.careful = self.careful.saturating_sub(1);
        }
        Next::Write
    }

    /// A message came back: it reached no queue. The broker confirms it all the same, a moment
    /// later, and by that time it must be known here.
    pub(crate) fn returned(&mut self, event_id: EventId, why: &str) {
        let hint = usize::try_from(self.returned_tag.saturating_sub(self.first_tag)).unwrap_or(0);
        let own = |sent: &Option<Sent>| {
            sent.as_ref()
                .is_some_and(|sent| sent.returned.is_none() && sent.event_id() == event_id)
        };
        // Returns come in the order of the messages. One event may be on its way twice.
        let mut places = (hint.min(self.sent.len())..self.sent.len()).chain(0..self.sent.len());
        let Some(at) = places.find(|at| own(&self.sent[*at])) else {
            tracing::warn!(%event_id, "a message came back that nobody waits for");
            return;
        };
        if let Some(sent) = &mut self.sent[at] {
            sent.returned = Some(why.to_owned());
        }
        self.returned_tag = self.first_tag + at as u64 + 1;
    }

    /// The broker's word on one message, or on all up to it (all there are, for tag 0).
    pub(crate) fn settle(&mut self, tag: u64, multiple: bool, verdict: Verdict) {
        let end = match tag.checked_sub(self.first_tag) {
            _ if multiple && tag == 0 => self.sent.len(),
            Some(at) => usize::try_from(at).map_or(self.sent.len(), |at| at + 1),
            // Confirmed before.
            None => return,
        };
        if end > self.sent.len() {
            tracing::warn!(tag, "the broker confirms a message that it was never sent");
            return;
        }
        let from = if multiple { 0 } else { end - 1 };
        for at in from..end {
            let Some(sent) = self.sent[at].take() else {
                continue;
            };
            let tag = self.first_tag + at as u64;
            self.settle_one(tag, sent, verdict);
        }
        while let Some(None) = self.sent.front() {
            self.sent.pop_front();
            self.first_tag += 1;
        }
    }

    fn settle_one(&mut self, tag: u64, sent: Sent, verdict: Verdict) {
        let accepted = sent.returned.is_none() && verdict == Verdict::Ack;
        match sent.who {
            Who::Hoped {
                event_id,
                routing_key,
            } => {
                self.hoped -= 1;
                if accepted {
                    let receipt = self.receipt(tag, &routing_key);
                    // Where it finds no room, the retry or a probe finds out.
                    drop(self.late.try_send(Late { event_id, receipt }));
                }
            }
            Who::Waiting(queued) => {
                self.waiting -= 1;
                let outcome = match (sent.returned, verdict) {
                    (Some(why), _) => unroutable(&self.terms, &queued.routing_key, &why),
                    (None, Verdict::Ack) => {
                        Outcome::Acknowledged(self.receipt(tag, &queued.routing_key))
                    }
                    (None, Verdict::Nack) => Outcome::outage(
                        "nacked",
                        "the broker says that a queue did not take it: it is full and refuses \
                         (x-overflow reject-publish), or it failed",
                    ),
                };
                self.finish(queued, outcome);
            }
        }
    }

    fn receipt(&self, tag: u64, routing_key: &str) -> Receipt {
        Receipt::Amqp {
            exchange: self.terms.exchange.clone(),
            routing_key: routing_key.to_owned(),
            delivery_tag: tag,
        }
    }

    /// The server closed the channel at one of the messages sent. What came before it may have
    /// been accepted, what came after it was not.
    pub(crate) fn closed(&mut self, closed: &Closed) -> Option<usize> {
        let limit = size_limit(closed);
        let sent = std::mem::take(&mut self.sent);
        let exact = self.waiting == 1 && self.hoped == 0;
        let mut again = self.waiting;
        (self.waiting, self.hoped) = (0, 0);
        if self.state == State::Open {
            self.state = State::Closed;
        }
        let mut passed = false;
        for sent in sent.into_iter().flatten() {
            let Who::Waiting(queued) = sent.who else {
                continue;
            };
            let bytes = queued.message().body.len();
            let outcome = if passed {
                Outcome::outage(
                    "channel_closed",
                    "the broker had closed the channel at an earlier message, and read no more",
                )
            } else if let Some(max) = limit.filter(|max| bytes > *max) {
                passed = true;
                again = 0;
                let detail = format!("the body has {bytes} bytes; the broker takes {max}");
                Outcome::rejected("message_too_large", &detail)
            } else if exact {
                again = 0;
                self.exactly(closed)
            } else {
                Outcome::unknown(
                    "channel_closed",
                    &format!("before a confirm came: {}", closed.text),
                )
            };
            self.finish(queued, outcome);
        }
        self.careful = again.max(1);
        limit
    }

    /// One message alone was on its way when the channel was closed: it is the cause.
    fn exactly(&mut self, closed: &Closed) -> Outcome {
        const ACCESS_REFUSED: u16 = 403;
        const NOT_FOUND: u16 = 404;
        const PRECONDITION_FAILED: u16 = 406;
        let text = closed.text.as_str();
        match closed.code {
            NOT_FOUND => Outcome::outage("exchange_missing", text),
            // The right to one topic, where others may be allowed.
            ACCESS_REFUSED if text.contains("topic") && !self.terms.constant => {
                Outcome::retryable(Class::Refusal, "access_refused", text, None)
            }
            ACCESS_REFUSED => Outcome::outage("access_refused", text),
            PRECONDITION_FAILED => Outcome::rejected("precondition_failed", text),
            _ => Outcome::unknown("channel_closed", text),
        }
    }

    /// There is a channel again; its tags start at 1.
    pub(crate) fn reopened(&mut self) {
        if self.state == State::Closed {
            self.state = State::Open;
            self.first_tag = 1;
            self.returned_tag = 1;
        }
    }

    /// The server takes nothing until further notice. What was not written yet never will be.
    pub(crate) fn block(&mut self, reason: &str) {
        self.blocked = Some(reason.to_owned());
        for queued in std::mem::take(&mut self.ready) {
            self.finish(queued, blocked(reason));
        }
    }

    pub(crate) fn unblock(&mut self) {
        self.blocked = None;
    }

    pub(crate) fn is_blocked(&self) -> Option<Outcome> {
        self.blocked.as_deref().map(blocked)
    }

    /// Answers what is still open of one batch: what was written is unknown, the rest never left.
    pub(crate) fn give_up(&mut self, flight: &Arc<Flight>) {
        let own = |queued: &Queued| Arc::ptr_eq(&queued.flight, flight);
        let mut not_begun = Vec::new();
        for behind in self.behind.values_mut() {
            for _ in 0..behind.len() {
                if let Some(queued) = behind.pop_front() {
                    if own(&queued) {
                        not_begun.push(queued);
                    } else {
                        behind.push_back(queued);
                    }
                }
            }
        }
        for queued in not_begun {
            queued.answer(held());
        }
        for _ in 0..self.ready.len() {
            if let Some(queued) = self.ready.pop_front() {
                if own(&queued) {
                    self.finish(queued, window_full());
                } else {
                    self.ready.push_back(queued);
                }
            }
        }
        for at in 0..self.sent.len() {
            let Some(sent) = &mut self.sent[at] else {
                continue;
            };
            if !matches!(&sent.who, Who::Waiting(queued) if own(queued)) {
                continue;
            }
            let hoped = Who::Hoped {
                event_id: sent.event_id(),
                routing_key: sent.routing_key(),
            };
            let Who::Waiting(queued) = std::mem::replace(&mut sent.who, hoped) else {
                continue;
            };
            self.waiting -= 1;
            self.hoped += 1;
            self.finish(
                queued,
                Outcome::unknown("confirm_timeout", "no confirm within the send timeout"),
            );
        }
    }

    /// The connection is over. What was taken may have arrived, what was not taken never left.
    pub(crate) fn end(&mut self, why: &str) {
        self.state = State::Ended;
        (self.waiting, self.hoped) = (0, 0);
        for sent in std::mem::take(&mut self.sent).into_iter().flatten() {
            if let Who::Waiting(queued) = sent.who {
                let outcome = Outcome::unknown(
                    "connection_lost",
                    &format!("the connection ended before the confirm{why}"),
                );
                self.finish(queued, outcome);
            }
        }
        for queued in std::mem::take(&mut self.ready) {
            self.finish(queued, never_written());
        }
    }

    /// Answers one message, and decides about those that wait for it.
    fn finish(&mut self, queued: Queued, outcome: Outcome) {
        if !self.terms.by_key {
            return queued.answer(outcome);
        }
        let key = &queued.message().partition_key;
        if queued.flight.holds(&outcome) {
            let behind = self.behind.remove(key);
            queued.answer(outcome);
            for later in behind.into_iter().flatten() {
                later.answer(held());
            }
            return;
        }
        match self.behind.get_mut(key).map(VecDeque::pop_front) {
            Some(Some(next)) => self.ready.push_back(next),
            Some(None) => drop(self.behind.remove(key)),
            None => {}
        }
        queued.answer(outcome);
    }
}

impl Queued {
    fn message(&self) -> &Message {
        &self.flight.batch.messages[self.index]
    }

    fn answer(self, outcome: Outcome) {
        self.flight.answer(self.index, outcome);
    }
}

impl Sent {
    fn event_id(&self) -> EventId {
        match &self.who {
            Who::Waiting(queued) => queued.message().event_id,
            Who::Hoped { event_id, .. } => *event_id,
        }
    }

    fn routing_key(&self) -> Arc<str> {
        match &self.who {
            Who::Waiting(Queued { routing_key, .. }) | Who::Hoped { routing_key, .. } => {
                Arc::clone(routing_key)
            }
        }
    }
}

/// A destination with one routing key is broken as a whole; of several, one may lack its binding
/// while the others go on.
fn unroutable(terms: &Terms, routing_key: &str, why: &str) -> Outcome {
    let place = if terms.exchange.is_empty() {
        format!("there is no queue {routing_key:?}")
    } else {
        format!(
            "no queue is bound to exchange {:?} for routing key {routing_key:?}",
            terms.exchange
        )
    };
    let class = if terms.constant {
        Class::Outage
    } else {
        Class::Refusal
    };
    Outcome::retryable(class, "unroutable", &format!("{why}: {place}"), None)
}

/// The broker's limit, from its own words: `message size 70000 is larger than configured max size
/// 65536`.
fn size_limit(closed: &Closed) -> Option<usize> {
    let text = closed.text.as_str();
    if closed.code != 406 || !text.contains("message size") {
        return None;
    }
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).next_back()
}

fn blocked(reason: &str) -> Outcome {
    let detail = format!("the broker takes nothing now (connection.blocked): {reason}");
    Outcome::outage("connection_blocked", &detail)
}

fn never_written() -> Outcome {
    Outcome::outage(
        "not_connected",
        "the connection ended before this message was written to it",
    )
}

fn window_full() -> Outcome {
    Outcome::outage(
        "window_full",
        "not written within the send timeout: earlier messages are not confirmed, or the \
         connection takes nothing",
    )
}

#[cfg(test)]
mod tests;
