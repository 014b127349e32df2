//! What producers, the relay and consumers agree on: plain data, its canonical form and its
//! digests. No I/O, no clock, no randomness.

pub mod canonical;
pub mod cloudevents;
pub mod delivery_set;
pub mod destination;
pub mod digest;
pub mod envelope;
pub mod event_id;
pub mod event_type;
pub mod headers;
pub mod invalid;
pub mod key;
pub mod media;
pub mod new_event;
pub mod receipt;
pub mod schema;
pub mod text;
pub mod timestamp;

pub use delivery_set::DeliverySet;
pub use destination::Destination;
pub use digest::Digest;
pub use envelope::Envelope;
pub use event_id::EventId;
pub use event_type::EventType;
pub use invalid::Invalid;
pub use new_event::NewEvent;
pub use receipt::Receipt;
pub use timestamp::Timestamp;

/// The largest integer a canonical object may hold: 2^53 - 1 (I-JSON, RFC 7493).
pub const INTEGER_MAX: u64 = (1 << 53) - 1;
