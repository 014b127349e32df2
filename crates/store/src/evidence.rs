//! The evidence path: how a true acknowledgement is kept, whoever brings it and whenever.

use std::fmt::Display;

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
    /// nothing is written then. Another receipt of the same attempt is a duplicate.
    Primary,
    /// The slot is taken: kept as a duplicate receipt. The same evidence again is kept once.
    Duplicate,
    /// It does not match what was registered ([`compare`]): a finding is recorded, and an open
    /// delivery whose digests differ is quarantined (I12). `finding` says what differs.
    Mismatch { finding: String },
}

/// What the store has where the evidence points: the attempt is registered for the destination
/// and holds the position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub event_id: EventId,
    pub generation: u64,
    pub payload_digest: Digest,
    pub destination_digest: Digest,
}

/// Evidence that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The finding's code.
    pub code: &'static str,
    /// What differs, with both values.
    pub finding: String,
    /// The delivery, if it is open, is quarantined as [`DIGEST_CONFLICT`].
    pub quarantines: bool,
}

/// The quarantine code of a delivery whose evidence carries another digest.
pub const DIGEST_CONFLICT: &str = "digest_conflict";

/// Whether evidence proves what it says: the one rule, for every store.
///
/// Another event id or generation is evidence about something else: it is reported, and touches
/// nothing here. Another digest means that two contents go by one name: it quarantines.
///
/// # Errors
/// The first difference.
pub fn compare(evidence: &Evidence, registered: Option<&Registered>) -> Result<(), Mismatch> {
    let mismatch = |code, quarantines, finding| {
        Err(Mismatch {
            code,
            finding,
            quarantines,
        })
    };
    let Some(registered) = registered else {
        let finding = format!(
            "attempt {} was not registered for position {} at destination {}",
            evidence.attempt, evidence.position, evidence.destination
        );
        return mismatch("receipt_without_attempt", false, finding);
    };
    let differs = |what: &str, found: &dyn Display, expected: &dyn Display| {
        format!(
            "the receipt of attempt {} for position {} at destination {} is for {what} {found}, registered is {expected}",
            evidence.attempt, evidence.position, evidence.destination
        )
    };
    if evidence.event_id != registered.event_id {
        let finding = differs("event", &evidence.event_id, &registered.event_id);
        return mismatch("receipt_other_event", false, finding);
    }
    if evidence.generation != registered.generation {
        let finding = differs("generation", &evidence.generation, &registered.generation);
        return mismatch("receipt_other_generation", false, finding);
    }
    if evidence.payload_digest != registered.payload_digest {
        let (found, expected) = (&evidence.payload_digest, &registered.payload_digest);
        return mismatch(
            "receipt_other_payload",
            true,
            differs("payload", found, expected),
        );
    }
    if evidence.destination_digest != registered.destination_digest {
        let (found, expected) = (&evidence.destination_digest, &registered.destination_digest);
        return mismatch(
            "receipt_other_destination",
            true,
            differs("destination", found, expected),
        );
    }
    Ok(())
}
