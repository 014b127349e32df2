//! The faults there are, and which of them strike at the same time as which. It strikes none.

use std::fmt;

use serde::Serialize;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    RelayKilled,
    /// SIGSTOP for less than its lease.
    RelayPaused,
    /// SIGSTOP until its session has ended.
    RelayPausedPastLease,
    /// One more relay joins, works and leaves well.
    RelayAdded,
    /// One more relay joins, whose clock jumps ahead and back, and is killed.
    RelayClockStepped,
    DestinationKilled,
    DestinationPaused,
    DestinationRestarted,
    DestinationDiskFull,
    /// Bytes between a relay and the destination come late.
    DestinationLinkDelayed,
    /// They are accepted and lost.
    DestinationLinkSwallowed,
    /// They wait, and come through when the link heals.
    DestinationLinkHeld,
    DestinationLinkCut,
    DestinationLinkHalfClosed,
    /// An immediate shutdown in the middle of whatever it does.
    StoreKilled,
    StorePaused,
    StoreDiskFull,
    StoreLinkDelayed,
    StoreLinkSwallowed,
    StoreLinkHeld,
    StoreLinkCut,
    StoreLinkHalfClosed,
    /// A writer's COMMIT arrives, and the answer does not.
    CommitAnswerLost,
    ConsumerKilledBeforeAck,
    ConsumerKilledAfterAck,
    /// It answers 500 and keeps nothing.
    ReceiverFails,
    /// It keeps the event and closes the connection without an answer.
    ReceiverAnswerLost,
    /// It keeps the event and answers after the relay's deadline.
    ReceiverSlow,
    /// It answers 429 with Retry-After and keeps nothing.
    ReceiverBusy,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The same word as in JSON.
        self.serialize(f)
    }
}

/// What a fault strikes, as far as it matters which relay it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// One of the two relays.
    Relay,
    /// The link of one relay, or both.
    Link,
    Other,
}

impl Kind {
    pub(crate) fn part(self) -> Part {
        match self {
            RelayKilled | RelayPaused | RelayPausedPastLease => Part::Relay,
            DestinationLinkDelayed
            | DestinationLinkSwallowed
            | DestinationLinkHeld
            | DestinationLinkCut
            | DestinationLinkHalfClosed
            | StoreLinkDelayed
            | StoreLinkSwallowed
            | StoreLinkHeld
            | StoreLinkCut
            | StoreLinkHalfClosed => Part::Link,
            RelayAdded
            | RelayClockStepped
            | DestinationKilled
            | DestinationPaused
            | DestinationRestarted
            | DestinationDiskFull
            | StoreKilled
            | StorePaused
            | StoreDiskFull
            | CommitAnswerLost
            | ConsumerKilledBeforeAck
            | ConsumerKilledAfterAck
            | ReceiverFails
            | ReceiverAnswerLost
            | ReceiverSlow
            | ReceiverBusy => Part::Other,
        }
    }
}

/// Faults of one part. They strike one after the other, and at the same time as those of others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Track {
    pub(crate) name: &'static str,
    pub(crate) kinds: &'static [Kind],
}

use Kind::*;

const RELAY: Track = Track {
    name: "relay",
    kinds: &[
        RelayKilled,
        RelayPaused,
        RelayPausedPastLease,
        RelayAdded,
        RelayClockStepped,
    ],
};

const DESTINATION_LINK: Track = Track {
    name: "destination link",
    kinds: &[
        DestinationLinkDelayed,
        DestinationLinkSwallowed,
        DestinationLinkHeld,
        DestinationLinkCut,
        DestinationLinkHalfClosed,
    ],
};

pub(crate) const POSTGRES_JETSTREAM: &[Track] = &[
    RELAY,
    Track {
        name: "broker",
        kinds: &[
            DestinationKilled,
            DestinationPaused,
            DestinationRestarted,
            DestinationDiskFull,
        ],
    },
    DESTINATION_LINK,
    Track {
        name: "database",
        kinds: &[StoreKilled, StorePaused, CommitAnswerLost],
    },
    Track {
        name: "database link",
        kinds: &[
            StoreLinkDelayed,
            StoreLinkSwallowed,
            StoreLinkHeld,
            StoreLinkCut,
            StoreLinkHalfClosed,
        ],
    },
    Track {
        name: "consumer",
        kinds: &[ConsumerKilledBeforeAck, ConsumerKilledAfterAck],
    },
];

pub(crate) const SQLITE_WEBHOOK: &[Track] = &[
    RELAY,
    Track {
        name: "receiver",
        kinds: &[
            DestinationKilled,
            DestinationPaused,
            ReceiverFails,
            ReceiverAnswerLost,
            ReceiverSlow,
            ReceiverBusy,
        ],
    },
    DESTINATION_LINK,
    Track {
        name: "database",
        kinds: &[StoreDiskFull],
    },
];
