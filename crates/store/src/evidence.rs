//! The evidence path: how a true acknowledgement is kept, whoever brings it and whenever.

use postrider_contract::{Digest, EventId, Receipt};
use postrider_core::{AttemptId, DestinationId, Position};

/// An acknowledgement, with all that ties it to a registered attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    pub attempt: AttemptId,
    pub destination: DestinationId,
    pub destination_digest: Digest,
    pub position: Position,
    pub event_id: EventId,
    pub generation: u64,
    pub payload_digest: Digest,
    pub receipt: Receipt,
}

/// What became of one piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It won the publish slot; the delivery is closed. Also the answer when this very attempt's
    /// receipt is the primary one already (handed in twice, or settled and the answer lost):
    /// nothing is written then.
    Primary,
    /// The slot is taken: kept as a duplicate receipt. The same evidence again is kept once.
    Duplicate,
    /// It does not match what was registered: a finding is recorded, and an open delivery whose
    /// digests differ is quarantined (I12). `finding` says what differs.
    Mismatch { finding: String },
}
