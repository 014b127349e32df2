//! What every store that seals in Rust does alike when it appends.

use postrider_contract::{
    Digest, EventId,
    envelope::Envelope,
    new_event::{NewEvent, Sealed},
};

use crate::{AppendError, StoreError};

/// The given event as it would have been sealed when the stored one was: what the application
/// left to the database (time, delivery set, schema digest) is taken from the stored envelope, so
/// that a plain retry of the same append has the same digest.
///
/// # Errors
/// [`AppendError::Invalid`] when a field breaks its rule.
pub fn reseal(event: &NewEvent, stored: &Envelope) -> Result<Sealed, AppendError> {
    event
        .seal(
            stored.event_id,
            stored.occurred_at,
            &stored.delivery_set,
            stored.payload.schema_digest,
        )
        .map_err(|invalid| AppendError::Invalid(invalid.to_string()))
}

/// Whether appending `event` again is a retry (`Ok`) or another event under a used id.
///
/// # Errors
/// [`AppendError::Conflict`] when the digests differ.
pub fn check_retry(
    event: &NewEvent,
    event_id: EventId,
    stored: &str,
    digest: Digest,
) -> Result<(), AppendError> {
    let stored = Envelope::from_stored(stored).map_err(|error| {
        AppendError::Store(StoreError::Corrupt {
            message: format!("envelope of event {event_id}: {error}"),
        })
    })?;
    let offered = reseal(event, &stored)?.digest;
    if offered == digest {
        return Ok(());
    }
    Err(AppendError::Conflict {
        event_id,
        existing: digest,
        offered,
    })
}
