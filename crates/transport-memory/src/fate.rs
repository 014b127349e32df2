//! What a model broker does with one message, decided per message by a script or a function.

use std::time::Duration;

use postrider_core::Class;

/// What becomes of one message, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Time on the way to the broker. Messages of one batch stay in order on the way if the
    /// broker's [`Options::pipelined_in_order`](crate::Options::pipelined_in_order) is set.
    pub travel: Duration,
    pub fate: Fate,
    /// Time from the broker to the sender's knowledge of the outcome. A time beyond the batch's
    /// `send_timeout` is an answer that comes late: unknown to the transport.
    pub answer: Duration,
}

impl From<Fate> for Decision {
    fn from(fate: Fate) -> Self {
        Self {
            travel: Duration::ZERO,
            fate,
            answer: Duration::ZERO,
        }
    }
}

/// What a broker does with one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Stored and acknowledged.
    Accept,
    /// Stored twice, past any dedup, and acknowledged with the first copy's receipt.
    AcceptTwice,
    /// Stored; the acknowledgement is lost. The outcome is unknown.
    LoseAck,
    /// Lost on the way: never stored. The outcome is unknown.
    LoseMessage,
    /// Not stored, and said so.
    Refuse(Class),
    /// Never to be stored, and said so.
    Reject { suspends: bool },
    /// No answer until [`Broker::release`](crate::Broker::release) or the batch's `send_timeout`,
    /// where the broker has a delay to measure it with. `stored` says which side of the broker
    /// the hole is on.
    BlackHole { stored: bool },
    /// The outcome is unknown, and a copy is still under way: stored when
    /// [`Broker::deliver_late`](crate::Broker::deliver_late) is called, or never.
    Late,
}
