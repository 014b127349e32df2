//! The port: what a way to deliver must promise.
//!
//! A batch goes in, one outcome per message comes out. A transport never creates or alters
//! anything except in [`Transport::provision`], and never reports success without evidence.

pub mod holds;
pub mod target;
#[cfg(feature = "tls")]
pub mod tls;
pub mod wire;

mod secret;

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use postrider_contract::{Digest, EventId, Receipt, cloudevents::Headers};
use postrider_core::Outcome;
use tokio::sync::mpsc;

pub use secret::Secret;
pub use target::Template;

/// One message, ready to be sent: the wire form was made from the frozen event and destination.
#[derive(Clone, Debug)]
pub struct Message {
    pub event_id: EventId,
    pub partition_key: String,
    /// Already in the destination's wire format; names lower-case. Binary mode values are not
    /// percent-encoded here: a transport whose headers need it encodes them.
    pub headers: Headers,
    pub body: Bytes,
    /// What the target template may name.
    pub routing: Routing,
    /// What went before; `None`: this event was never sent here.
    pub earlier: Option<Earlier>,
}

/// Earlier sends of the same event to the same destination, whatever came of them. A transport
/// whose destination forgets ids looks for the event first when its memory may be exceeded, and
/// answers with the receipt of what it finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earlier {
    /// The time since the first send, at least.
    pub first_sent_ago: Duration,
    /// The [`Transport::anchor`] recorded before the first send.
    pub anchor: Option<Anchor>,
}

/// A place from which a probe may start, in the words of the transport that made it: nobody else
/// reads it. At most 64 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor(pub Arc<str>);

impl Anchor {
    /// Of a transport whose destination is one log.
    #[must_use]
    pub fn number(number: u64) -> Self {
        Self(number.to_string().into())
    }

    /// What [`Anchor::number`] was made of; `None`: another transport made it.
    #[must_use]
    pub fn as_number(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

/// The fields that a target may be made from, such as `orders.{event_type}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routing {
    pub event_type: String,
    pub tenant: String,
    pub aggregate_type: String,
    pub aggregate_id: String,
}

/// A batch that goes out together, in order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Shared with the caller: sending copies no payload.
    pub messages: Arc<[Arc<Message>]>,
    /// How long the transport may wait for one answer before it reports
    /// [`Outcome::Unknown`] itself. The caller has a harder deadline of its own outside.
    pub send_timeout: Duration,
}

/// The outcome of one message of a batch, by its index.
#[derive(Clone, Debug)]
pub struct Answer {
    pub index: usize,
    pub outcome: Outcome,
}

/// How a transport behaves, as far as the dispatcher must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Messages of one batch, and of batches sent one after the other, reach the destination in
    /// the order given. Where it is false and the destination orders by key, the dispatcher has
    /// only one message of a key in flight.
    pub pipelined_in_order: bool,
    /// Messages in flight that the transport handles well; a batch is never longer.
    pub batch_max: u32,
    /// Sending the same event again within [`Traits::dedup_window`] is recognised by the
    /// destination.
    pub dedup_window: Option<Duration>,
    /// What [`Transport::probe`] can say.
    pub probe: ProbeStrength,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeStrength {
    /// It cannot look.
    None,
    /// It can find an event, never prove its absence.
    Finds,
    /// It can find an event and prove that it is absent.
    ProvesAbsence,
}

/// A receipt that came after its message was answered as unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    pub event_id: EventId,
    pub receipt: Receipt,
}

/// What a probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probed {
    Found(Receipt),
    /// Not there, and nothing in flight can still make it appear.
    ProvenAbsent,
    CannotTell {
        reason: String,
    },
}

/// A question about one event.
#[derive(Clone, Debug)]
pub struct Probe {
    pub event_id: EventId,
    pub payload_digest: Digest,
    /// Where to start looking, as recorded before the attempt. `None`: wherever it makes sense.
    pub anchor: Option<Anchor>,
    /// As the message had it: where keys choose a part of the destination, only that is read.
    pub partition_key: String,
    pub routing: Routing,
}

/// How far a consumer has come in one log or queue of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerPosition {
    /// The log or queue, as receipts name it; with its partition, such as `orders/3`.
    pub place: String,
    /// The last position that the consumer has confirmed with all before it, as receipts write it.
    /// `None`: it has confirmed none, or the destination keeps no such position.
    pub confirmed: Option<String>,
    /// Messages that it has not confirmed, at the time of the answer; `None`: not known.
    pub waiting: Option<u64>,
    /// False where the destination itself says that its figures are estimates.
    pub exact: bool,
}

/// Something that keeps a destination from working as promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A stable word, such as `stream_missing`.
    pub code: &'static str,
    pub severity: Severity,
    /// What is wrong, with both values, and what to do.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The relay must not send here.
    Refused,
    /// It works, with a risk that the message names.
    Warning,
}

/// What a preflight needs to know about how the relay will use the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Largest message (headers and body), in bytes, that may be sent; 0: unknown.
    pub message_bytes_max: u64,
    /// The longest time after a first send at which the same event may be sent again
    /// automatically.
    pub resend_span: Duration,
}

/// Why a transport could not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The destination cannot be reached now.
    #[error("{code}: {message}")]
    Unavailable { code: &'static str, message: String },
    /// The configuration or the destination must be changed by a person.
    #[error("{code}: {message}")]
    Misconfigured { code: &'static str, message: String },
}

/// The code of [`Error::Unavailable`] where another process has what only one may have.
pub const LOCKED: &str = "locked";

impl Error {
    /// As a problem of the destination.
    #[must_use]
    pub fn into_problem(self) -> Problem {
        let (Self::Unavailable { code, message } | Self::Misconfigured { code, message }) = self;
        Problem {
            code,
            severity: Severity::Refused,
            message,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provisioning {
    /// Change nothing.
    Preview,
    Make,
}

/// One way to deliver, bound to one registered destination.
#[async_trait]
pub trait Transport: Debug + Send + Sync + 'static {
    fn traits(&self) -> Traits;

    /// Checks, read-only, that the destination is what its definition says and fits `usage`.
    /// An empty answer: ready.
    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error>;

    /// Creates or alters what the destination needs, or only says what it would; one line for
    /// people per change, none where nothing is to be done. Only ever called by the `provision`
    /// command (I19).
    async fn provision(&self, usage: &Usage, how: Provisioning) -> Result<Vec<String>, Error>;

    /// Whether this message can be sent at all, by size and header rules, so that one bad message
    /// cannot fail its neighbours. Cheap, no I/O. `Err` is an [`Outcome::Rejected`].
    fn check(&self, message: &Message) -> Result<(), Outcome>;

    /// Learns anew what [`Transport::check`] goes by, where that is remembered. Asked before a
    /// message that it refused is given up: the limit may just have been raised.
    async fn look_again(&self) {}

    /// Sends a batch; each message's outcome goes to `answers` as soon as it is known, exactly
    /// one per message, in any order. Returns when all are answered.
    ///
    /// The caller may stop listening and let the future go on (late answers), or drop it: a
    /// dropped future leaves its unanswered messages unknown, never doubled.
    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>);

    /// Receipts that come after the answer, where the transport can hear them. The first call
    /// takes them; the channel is bounded, and what finds no room is left for a probe to find.
    fn late(&self) -> Option<mpsc::Receiver<Late>> {
        None
    }

    /// A place from which a later probe for any of `messages` may start, read before an attempt to
    /// send them. `None` where the transport has no such thing.
    async fn anchor(&self, messages: &[Arc<Message>]) -> Result<Option<Anchor>, Error>;

    /// Looks for an event without sending it again.
    async fn probe(&self, probe: &Probe) -> Result<Probed, Error>;

    /// How far a named consumer of this destination has come, in every part of it; read-only.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] where the destination does not know its consumers, or not this one.
    async fn positions(&self, consumer: &str) -> Result<Vec<ConsumerPosition>, Error> {
        Err(Error::Misconfigured {
            code: "positions_unknown",
            message: format!(
                "a destination of this kind does not know how far consumer \"{consumer}\" has \
                 come; let it post receipts from its inbox"
            ),
        })
    }

    /// Lets open connections go, waiting for nothing.
    async fn close(&self);
}
