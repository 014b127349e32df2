//! The checks of one event, for a batch of them: which event is wrong, and what holds between them.

use std::collections::BTreeMap;

use postrider_contract::{Digest, Invalid, NewEvent};

use crate::{
    check::{self, Prepared},
    error::{AppendError, BatchError},
    registry::Snapshot,
};

/// Bytes of all payloads of one batch. A message to Postgres is below 1 GiB, and a batch is held
/// in memory twice on its way; whoever has more appends in several calls of one transaction.
pub(crate) const BATCH_BYTES_MAX: usize = 256 << 20;

/// [`check::prepare`] for a batch, with the rules that hold between its events.
pub(crate) fn prepare(events: Vec<NewEvent>) -> Result<Vec<Prepared>, BatchError> {
    let mut prepared = Vec::with_capacity(events.len());
    let mut given = BTreeMap::new();
    let mut bytes = 0_usize;
    for (index, event) in events.into_iter().enumerate() {
        let at = |error| BatchError {
            index: Some(index),
            error,
        };
        let event = check::prepare(event).map_err(at)?;
        if event.given_id
            && let Some(content) = given.insert(event.event_id, event.content)
            && content != event.content
        {
            return Err(at(AppendError::Conflict {
                event_id: event.event_id,
            }));
        }
        bytes = bytes.saturating_add(event.event.payload.len());
        if bytes > BATCH_BYTES_MAX {
            let rule = format!(
                "makes the payloads of the batch more than {BATCH_BYTES_MAX} bytes together; \
                 append them in several calls"
            );
            return Err(at(Invalid::inconsistent("payload", rule).into()));
        }
        prepared.push(event);
    }
    Ok(prepared)
}

/// [`check::judge`] for a batch.
pub(crate) fn judge(
    snapshot: &Snapshot,
    events: &[Prepared],
) -> Result<Vec<Option<Digest>>, BatchError> {
    let judge = |(index, prepared): (usize, &Prepared)| {
        check::judge(snapshot, &prepared.event).map_err(|error| BatchError {
            index: Some(index),
            error,
        })
    };
    events.iter().enumerate().map(judge).collect()
}

/// Says which event an error of the whole batch is about, where it says so itself.
pub(crate) fn located(error: AppendError, events: &[Prepared]) -> BatchError {
    let index = match &error {
        AppendError::Conflict { event_id } => {
            events.iter().position(|event| event.event_id == *event_id)
        }
        AppendError::UnknownEventType {
            event_type,
            schema_version,
        } => events.iter().position(|Prepared { event, .. }| {
            event.event_type == *event_type && event.schema_version == *schema_version
        }),
        AppendError::Invalid(_)
        | AppendError::Schema { .. }
        | AppendError::NoActiveDeliverySet
        | AppendError::TooLarge { .. }
        | AppendError::StaleRegistry
        | AppendError::Registry(_)
        | AppendError::Outdated { .. }
        | AppendError::Database { .. } => None,
    };
    BatchError { index, error }
}

#[cfg(test)]
mod tests {
    use postrider_contract::{EventId, EventType};
    use uuid::Uuid;

    use super::*;
    use crate::registry::{Limit, Origin};

    fn note(payload: &str) -> NewEvent {
        NewEvent::new("note", "1", "note", "n-1", payload)
    }

    #[test]
    fn a_batch_says_which_event_is_wrong() {
        let error = prepare(vec![note("{}"), note("{}"), note("x")]).unwrap_err();
        assert_eq!(error.index, Some(2));
        assert!(
            error
                .to_string()
                .starts_with("event 2 of the batch: payload: is not JSON")
        );
        let long = format!("\"{}\"", "x".repeat(19));
        let events = prepare(vec![note("{}"), note(&long)]).unwrap();
        let mut snapshot = Snapshot::new(
            &[EventType {
                event_type: "note".into(),
                schema_version: "1".into(),
                content_type: "application/json".into(),
                json_schema: None,
            }],
            Origin::Program,
        )
        .unwrap();
        let limit = Limit {
            destination: "d".into(),
            payload_bytes_max: 20,
        };
        snapshot.limit("note", "1", limit);
        assert_eq!(judge(&snapshot, &events).unwrap_err().index, Some(1));
    }

    #[test]
    fn one_id_for_two_contents_in_one_batch_is_a_conflict() {
        let id = Some(EventId(Uuid::from_u128(5)));
        let named = |payload: &str| NewEvent {
            event_id: id,
            ..note(payload)
        };
        let same = NewEvent {
            tenant: Some("default".into()),
            ..named("{}")
        };
        assert_eq!(
            prepare(vec![named("{}"), note("{}"), same]).unwrap().len(),
            3
        );
        let error = prepare(vec![named("{}"), named("[]")]).unwrap_err();
        assert_eq!(error.index, Some(1));
        assert!(
            matches!(error.error, AppendError::Conflict { .. }),
            "{error}"
        );
    }
}
