//! What is registered: destinations, event types, delivery sets, and who changed them.

use postrider_contract::{DeliverySet, Destination, Digest, EventType};
use postrider_core::DestinationId;

/// The schema of the database against the one this program was built for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaStatus {
    /// Nothing of postrider is there: `postrider migrate`.
    Missing,
    /// Every migration up to this version is applied.
    Current { version: u32 },
    /// `postrider migrate` has something to do.
    Older { found: u32, expected: u32 },
    /// Made by a newer postrider: use that, this program must not touch it.
    Newer { found: u32, expected: u32 },
    /// A migration's checksum differs from this program's: the schema was changed by hand.
    Altered { version: u32 },
}

/// What `apply` registers. The caller has validated every object and numbered generations and
/// versions from a [`Registry`] it read before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlane {
    pub event_types: Vec<EventType>,
    pub destinations: Vec<Destination>,
    /// Becomes the active one.
    pub delivery_set: DeliverySet,
}

/// What is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registry {
    /// Ordered by id.
    pub destinations: Vec<RegisteredDestination>,
    /// Ordered by (type, version, registration).
    pub event_types: Vec<RegisteredEventType>,
    /// The active delivery set.
    pub delivery_set: Option<DeliverySet>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredDestination {
    pub id: DestinationId,
    pub destination: Destination,
    pub digest: Digest,
    /// The newest generation of its name.
    pub current: bool,
    /// Nothing is sent to it until a person resumes it.
    pub suspended: Option<Suspension>,
}

/// Why a destination is suspended, and since when (RFC 3339).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    pub code: String,
    pub detail: String,
    pub since: postrider_contract::Timestamp,
}

/// An event type as registered. A changed JSON Schema of the same (type, version) is another
/// registration; earlier ones stay for the events committed under them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegisteredEventType {
    pub event_type: EventType,
    /// The one that appends use.
    pub current: bool,
}

/// Who changes something, and why. Goes to the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub actor: String,
    pub reason: String,
}

/// What an `apply` changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub destinations_added: u32,
    pub event_types_added: u32,
    pub delivery_set_activated: bool,
}
