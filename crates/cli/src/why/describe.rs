//! A chain in words.

use std::io::{self, Write};

use postrider_store::inspect::Count;

use super::{Answer, Cause};
use crate::output::printable;

impl Answer {
    pub(crate) fn describe(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(appended_at) = self.appended_at else {
            writeln!(out, "event {}: not committed", self.event_id)?;
            return writeln!(
                out,
                "  its transaction was rolled back, has not committed yet, or was made in another database"
            );
        };
        writeln!(out, "event {}: appended {appended_at}", self.event_id)?;
        for chain in &self.deliveries {
            writeln!(out, "{}: {}", chain.destination, chain.state)?;
            for cause in &chain.because {
                writeln!(out, "  {}", printable(&words(cause)))?;
            }
            if let Some(next) = &chain.next {
                let at = next.at.map_or(String::new(), |at| format!(", at {at}"));
                writeln!(out, "  next: {}{at}", next.step)?;
            }
        }
        if self.deliveries.is_empty() {
            writeln!(out, "  its delivery set prescribes no delivery")?;
        }
        Ok(())
    }
}

fn words(cause: &Cause) -> String {
    match cause {
        Cause::Acknowledged {
            accepted_at,
            attempt,
            receipt,
            late,
            duplicates,
        } => {
            let receipt = serde_json::to_string(receipt)
                .unwrap_or_else(|error| format!("(receipt cannot be shown: {error})"));
            let late = if *late {
                ", after its session had ended"
            } else {
                ""
            };
            let duplicates = match duplicates {
                0 => String::new(),
                count => format!(", and {count} duplicate receipts"),
            };
            format!("receipt {receipt} of attempt {attempt}, {accepted_at}{late}{duplicates}")
        }
        Cause::Quarantined {
            code,
            detail,
            since,
        } => format!("in quarantine since {since}: {}", coded(code, detail)),
        Cause::Unknown {
            attempt,
            code,
            detail,
            since,
        } => {
            let of = attempt.map_or(String::new(), |attempt| format!(" of attempt {attempt}"));
            let since = since.map_or(String::new(), |since| format!(" since {since}"));
            format!("outcome{of} unknown{since}: {}", coded(code, detail))
        }
        Cause::InAttempt {
            attempt,
            session,
            owner,
            registered_at,
            lease_until,
        } => format!(
            "being sent since {registered_at} in attempt {attempt} of session {session} ({owner}), whose lease lasts until {lease_until}"
        ),
        Cause::AttemptAbandoned {
            attempt,
            session,
            owner,
            lease_ended,
        } => format!(
            "was being sent in attempt {attempt} of session {session} ({owner}), whose lease ended {lease_ended}"
        ),
        Cause::Suspended {
            code,
            detail,
            since,
        } => format!(
            "the destination is suspended since {since}: {}",
            coded(code, detail)
        ),
        Cause::Behind {
            event,
            state,
            waiting,
            ..
        } => format!(
            "waits behind event {event} of its key, which is {state} (waiting behind it: {})",
            counted(waiting)
        ),
        Cause::Retry {
            at,
            attempts,
            code,
            detail,
        } => {
            let after = match code {
                Some(code) => {
                    let detail = detail.as_deref().unwrap_or_default();
                    format!(" after {}", coded(code, detail))
                }
                None => String::new(),
            };
            format!("tried again at {at}{after}; attempts charged: {attempts}")
        }
        Cause::BreakerOpen {
            since,
            code,
            detail,
            next_probe_at,
        } => format!(
            "the destination's breaker is open since {since}: {}; next probe {next_probe_at}",
            coded(code, detail)
        ),
        Cause::Refused {
            since,
            code,
            detail,
            ..
        } => format!(
            "a worker looked at the destination and must not send, since {since}: {}",
            coded(code, detail)
        ),
        Cause::NobodyHoldsLane { lane } => format!("no worker holds lane {lane}"),
        Cause::KindUnknown { kind } => {
            format!("this program does not know destinations of kind {kind:?}")
        }
        Cause::Due { since, lane, owner } => {
            let owner = owner
                .as_ref()
                .map_or(String::new(), |owner| format!(", which {owner} holds"));
            format!("due since {since} in lane {lane}{owner}")
        }
    }
}

fn coded(code: &str, detail: &str) -> String {
    if detail.is_empty() {
        code.to_owned()
    } else {
        format!("{code} ({detail})")
    }
}

/// `3`, or `at least 100000`.
pub(crate) fn counted(count: &Count) -> String {
    if count.capped {
        format!("at least {}", count.value)
    } else {
        count.value.to_string()
    }
}
