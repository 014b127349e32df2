//! Answers in a form that two stores can be compared by: positions and ids by their number.

use std::fmt::Debug;

use postrider_store::{
    AppendError, ExchangeError, OpenError, SessionError, StoreError, evidence::Verdict,
    inspect::QuarantineReason,
};

/// The kind of failure: messages may differ, what the caller must do may not.
pub(super) fn store_error(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { .. } => "unavailable".to_owned(),
        StoreError::Refused { .. } => "refused".to_owned(),
        StoreError::Corrupt { message } => format!("corrupt: {message}"),
        StoreError::AlreadyDifferent {
            what,
            existing,
            offered,
        } => format!("{what} is {existing}, not {offered}"),
    }
}

pub(super) fn append_error(error: &AppendError) -> String {
    match error {
        AppendError::Store(error) => store_error(error),
        AppendError::UnknownEventType { .. }
        | AppendError::NoActiveDeliverySet
        | AppendError::Conflict { .. }
        | AppendError::TooLarge { .. }
        | AppendError::Invalid(_) => error.to_string(),
    }
}

pub(super) fn open_error(error: &OpenError) -> String {
    match error {
        OpenError::ExclusiveHeld { owner } => format!("held by {owner}"),
        OpenError::Ended => "ended".to_owned(),
        OpenError::Store(error) => store_error(error),
    }
}

pub(super) fn session_error(error: &SessionError) -> String {
    match error {
        SessionError::Ended => "ended".to_owned(),
        SessionError::Store(error) => store_error(error),
    }
}

pub(super) fn exchange_error(error: &ExchangeError) -> String {
    match error {
        ExchangeError::Ended => "ended".to_owned(),
        ExchangeError::Store(error) => store_error(error),
    }
}

/// A finding names positions, which are each store's own.
pub(super) fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Primary => "primary",
        Verdict::Duplicate => "duplicate",
        Verdict::Mismatch { .. } => "mismatch",
    }
}

pub(super) fn reason(reason: &QuarantineReason) -> String {
    let detail = match reason.code.as_str() {
        postrider_store::evidence::DIGEST_CONFLICT => "(the finding)",
        _ => &reason.detail,
    };
    format!("{} {detail:?} since {}", reason.code, reason.since)
}

pub(super) fn result<T, E>(
    result: &Result<T, E>,
    ok: impl FnOnce(&T) -> String,
    err: impl FnOnce(&E) -> String,
) -> String {
    match result {
        Ok(value) => ok(value),
        Err(error) => format!("refused: {}", err(error)),
    }
}

pub(super) fn list<T: Debug>(items: impl IntoIterator<Item = T>) -> String {
    format!("{:?}", items.into_iter().collect::<Vec<T>>())
}
