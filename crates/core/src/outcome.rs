//! What one send came to.

use std::time::Duration;

use postrider_contract::Receipt;

/// The outcome of sending one delivery once.
///
/// `code` is a short stable word of the transport's documented table, such as `no_responders`.
/// `detail` is for people: bounded by [`DETAIL_BYTES_MAX`], free of secrets and payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The destination accepted it, and this is its evidence.
    Acknowledged(Receipt),
    /// The destination did not accept it, and may accept it later.
    Retryable {
        class: Class,
        code: &'static str,
        detail: String,
        /// The destination's own wish, such as `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// The destination will never accept it as it is.
    Rejected {
        code: &'static str,
        detail: String,
        /// The destination is gone for good (such as 410): nothing more is sent to it until a
        /// person resumes it.
        suspends: bool,
    },
    /// It may or may not have been accepted.
    Unknown { code: &'static str, detail: String },
}

/// Each of these bounds its detail by [`bounded_detail`].
impl Outcome {
    #[must_use]
    pub fn retryable(
        class: Class,
        code: &'static str,
        detail: &str,
        retry_after: Option<Duration>,
    ) -> Self {
        Self::Retryable {
            class,
            code,
            detail: bounded_detail(detail),
            retry_after,
        }
    }

    /// An outage that says nothing of its end.
    #[must_use]
    pub fn outage(code: &'static str, detail: &str) -> Self {
        Self::retryable(Class::Outage, code, detail, None)
    }

    /// A rejection of this message alone.
    #[must_use]
    pub fn rejected(code: &'static str, detail: &str) -> Self {
        Self::Rejected {
            code,
            detail: bounded_detail(detail),
            suspends: false,
        }
    }

    #[must_use]
    pub fn unknown(code: &'static str, detail: &str) -> Self {
        Self::Unknown {
            code,
            detail: bounded_detail(detail),
        }
    }
}

/// Why a retryable send failed: what it costs and what it says about the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The destination as a whole cannot take messages now. Costs no attempt; opens the breaker.
    Outage,
    /// The destination refused this message for now. Costs an attempt.
    Refusal,
    /// Never sent: something ahead of it must go first. Costs nothing.
    Held,
}

/// Longest `detail` kept, in bytes (I17). Longer text is cut at a character boundary.
pub const DETAIL_BYTES_MAX: usize = 512;

/// Cuts text to [`DETAIL_BYTES_MAX`] and replaces control characters, for storing as detail.
#[must_use]
pub fn bounded_detail(text: &str) -> String {
    let mut end = text.len().min(DETAIL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end]
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}
