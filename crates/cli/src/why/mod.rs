//! What becomes of an event, and why: one causal chain per delivery. Pure: the facts were read
//! before.

mod describe;

pub(crate) use describe::counted;

use postrider_contract::{Digest, Receipt, Timestamp};
use postrider_core::{DestinationId, delivery::State};
use postrider_store::{
    control::{RegisteredDestination, Registry},
    inspect::{Backlog, Count, DeliveryDetail, EventDetail, HeldKey, LaneRow},
};
use serde::{Serialize, Serializer};
use uuid::Uuid;

use crate::{config::keys, names};

/// What was read to answer.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    /// The database's clock.
    pub(crate) now: Timestamp,
    pub(crate) registry: &'a Registry,
    pub(crate) backlog: &'a [Backlog],
    pub(crate) lanes: &'a [LaneRow],
    /// What holds the event's key, by destination.
    pub(crate) held: &'a [(DestinationId, HeldKey)],
}

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    pub(crate) schema: &'static str,
    pub(crate) event_id: String,
    /// `false`: no committed event has this id; the rest is empty.
    pub(crate) committed: bool,
    pub(crate) appended_at: Option<Timestamp>,
    pub(crate) envelope_digest: Option<Digest>,
    pub(crate) deliveries: Vec<Chain>,
}

pub(crate) const SCHEMA: &str = "postrider.cli.why/1";

/// Why one delivery is where it is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Chain {
    /// `name#generation`.
    pub(crate) destination: String,
    pub(crate) state: &'static str,
    /// From the nearest cause on; never empty.
    pub(crate) because: Vec<Cause>,
    /// What happens next, and when where that is known. `None` once acknowledged.
    pub(crate) next: Option<Next>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "cause",
    rename_all = "kebab-case",
    rename_all_fields = "camelCase"
)]
pub(crate) enum Cause {
    Acknowledged {
        accepted_at: Timestamp,
        attempt: Uuid,
        receipt: Receipt,
        /// It came after its session had ended.
        late: bool,
        duplicates: usize,
    },
    Quarantined {
        code: String,
        detail: String,
        since: Timestamp,
    },
    Unknown {
        attempt: Option<Uuid>,
        code: String,
        detail: String,
        since: Option<Timestamp>,
    },
    InAttempt {
        attempt: Uuid,
        session: Uuid,
        owner: String,
        registered_at: Timestamp,
        lease_until: Timestamp,
    },
    /// The attempt's session is over and nobody has recovered it yet.
    AttemptAbandoned {
        attempt: Uuid,
        session: Uuid,
        owner: String,
        lease_ended: Timestamp,
    },
    Suspended {
        code: String,
        detail: String,
        since: Timestamp,
    },
    Behind {
        event: String,
        state: &'static str,
        until: Timestamp,
        #[serde(serialize_with = "count")]
        waiting: Count,
    },
    Retry {
        at: Timestamp,
        attempts: u32,
        code: Option<String>,
        detail: Option<String>,
    },
    BreakerOpen {
        since: Timestamp,
        code: String,
        detail: String,
        next_probe_at: Timestamp,
    },
    /// A worker's look at the destination says that it must not be sent to, and no other worker
    /// serves the lane.
    Refused {
        since: Timestamp,
        code: String,
        detail: String,
        next_look_at: Timestamp,
    },
    NobodyHoldsLane {
        lane: u16,
    },
    /// This program does not know the destination's kind.
    KindUnknown {
        kind: String,
    },
    Due {
        since: Timestamp,
        lane: u16,
        owner: Option<String>,
    },
}

/// The next step.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Next {
    pub(crate) step: String,
    pub(crate) at: Option<Timestamp>,
}

/// A count as JSON: `{ "value": 3, "capped": false }`; capped means at least.
pub(crate) fn count<S: Serializer>(count: &Count, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Shape {
        value: u64,
        capped: bool,
    }
    Shape {
        value: count.value,
        capped: count.capped,
    }
    .serialize(serializer)
}

pub(crate) fn not_committed(event_id: String) -> Answer {
    Answer {
        schema: SCHEMA,
        event_id,
        committed: false,
        appended_at: None,
        envelope_digest: None,
        deliveries: Vec::new(),
    }
}

pub(crate) fn answer(event: &EventDetail, facts: &Facts<'_>) -> Answer {
    Answer {
        schema: SCHEMA,
        event_id: event.event.event_id.to_string(),
        committed: true,
        appended_at: Some(event.event.appended_at),
        envelope_digest: Some(event.event.envelope_digest),
        deliveries: event
            .deliveries
            .iter()
            .map(|delivery| chain(delivery, event.event.appended_at, facts))
            .collect(),
    }
}

fn chain(delivery: &DeliveryDetail, appended_at: Timestamp, facts: &Facts<'_>) -> Chain {
    let (because, next) = match delivery.state {
        State::Acknowledged => (vec![acknowledged(delivery)], None),
        State::Quarantined => quarantined(delivery),
        State::Unknown => unknown(delivery, facts),
        State::Pending => pending(delivery, appended_at, facts),
    };
    Chain {
        destination: names::label(facts.registry, delivery.destination),
        state: delivery.state.word(),
        because,
        next,
    }
}

fn acknowledged(delivery: &DeliveryDetail) -> Cause {
    match &delivery.receipt {
        Some(receipt) => Cause::Acknowledged {
            accepted_at: receipt.accepted_at,
            attempt: receipt.attempt.0,
            receipt: receipt.receipt.clone(),
            late: receipt.late,
            duplicates: delivery.duplicates.len(),
        },
        // Acknowledged means that a receipt is there: a store that says otherwise is wrong, and
        // that must be seen.
        None => Cause::Unknown {
            attempt: None,
            code: "receipt_missing".to_owned(),
            detail: "the delivery is closed and its receipt cannot be found".to_owned(),
            since: None,
        },
    }
}

fn quarantined(delivery: &DeliveryDetail) -> (Vec<Cause>, Option<Next>) {
    let cause = match &delivery.quarantine {
        Some(reason) => Cause::Quarantined {
            code: reason.code.clone(),
            detail: reason.detail.clone(),
            since: reason.since,
        },
        None => Cause::Unknown {
            attempt: None,
            code: "quarantine_reason_missing".to_owned(),
            detail: "the delivery is in quarantine and the reason cannot be found".to_owned(),
            since: None,
        },
    };
    let next = Next {
        step: "a person replays it, once the cause is settled: `postrider dead-letter replay`"
            .to_owned(),
        at: None,
    };
    (vec![cause], Some(next))
}

fn unknown(delivery: &DeliveryDetail, facts: &Facts<'_>) -> (Vec<Cause>, Option<Next>) {
    let last = delivery.attempts.last();
    let cause = Cause::Unknown {
        attempt: last.map(|attempt| attempt.attempt.0),
        code: last
            .and_then(|attempt| attempt.outcome.clone())
            .unwrap_or_else(|| "unknown".to_owned()),
        detail: last
            .and_then(|attempt| attempt.detail.clone())
            .unwrap_or_default(),
        since: last.and_then(|attempt| attempt.finished_at),
    };
    let on_unknown = names::find(facts.registry, delivery.destination)
        .map(|registered| registered.destination.on_unknown);
    let step = match on_unknown {
        Some(postrider_contract::destination::OnUnknown::Hold) => {
            "it is held until evidence arrives or a person decides (on_unknown = hold)"
        }
        Some(
            postrider_contract::destination::OnUnknown::Probe
            | postrider_contract::destination::OnUnknown::Resend,
        )
        | None => "the destination is asked whether it has it",
    };
    let next = Next {
        step: step.to_owned(),
        at: None,
    };
    (vec![cause], Some(next))
}

fn pending(
    delivery: &DeliveryDetail,
    appended_at: Timestamp,
    facts: &Facts<'_>,
) -> (Vec<Cause>, Option<Next>) {
    let open = delivery
        .attempts
        .iter()
        .rev()
        .find(|attempt| attempt.finished_at.is_none());
    if let Some(attempt) = open {
        return if attempt.lease_until > facts.now {
            let cause = Cause::InAttempt {
                attempt: attempt.attempt.0,
                session: attempt.session.0,
                owner: attempt.owner.clone(),
                registered_at: attempt.registered_at,
                lease_until: attempt.lease_until,
            };
            let step = "its outcome is written down, at the latest when the session ends";
            (vec![cause], Some(step_at(step, attempt.lease_until)))
        } else {
            let cause = Cause::AttemptAbandoned {
                attempt: attempt.attempt.0,
                session: attempt.session.0,
                owner: attempt.owner.clone(),
                lease_ended: attempt.lease_until,
            };
            let step = "the next worker that looks ends that session and takes the delivery over";
            (vec![cause], Some(step_when(step)))
        };
    }
    let registered = names::find(facts.registry, delivery.destination);
    let mut because = obstacles(delivery, registered, facts);
    if because.is_empty() {
        let lane = lane(delivery, facts);
        because.push(Cause::Due {
            since: delivery.available_at.unwrap_or(appended_at),
            lane: delivery.lane.0,
            owner: lane.and_then(|lane| lane.owner.clone()),
        });
    }
    let next = because.first().map(next_of);
    (because, next)
}

/// What keeps a pending delivery from being sent, from the nearest cause on.
fn obstacles(
    delivery: &DeliveryDetail,
    registered: Option<&RegisteredDestination>,
    facts: &Facts<'_>,
) -> Vec<Cause> {
    let mut because = Vec::new();
    if let Some(suspension) = registered.and_then(|row| row.suspended.as_ref()) {
        because.push(Cause::Suspended {
            code: suspension.code.clone(),
            detail: suspension.detail.clone(),
            since: suspension.since,
        });
    }
    let held = facts
        .held
        .iter()
        .find(|(destination, _)| *destination == delivery.destination);
    if let Some((_, held)) = held {
        because.push(Cause::Behind {
            event: held.head_event.to_string(),
            state: held.head_state.word(),
            until: held.head_available_at,
            waiting: held.tail,
        });
    }
    if let Some(at) = delivery.available_at
        && at > facts.now
    {
        let last = delivery.attempts.last();
        because.push(Cause::Retry {
            at,
            attempts: delivery.attempts_charged,
            code: last.and_then(|attempt| attempt.outcome.clone()),
            detail: last.and_then(|attempt| attempt.detail.clone()),
        });
    }
    let breaker = facts
        .backlog
        .iter()
        .find(|row| row.destination == delivery.destination)
        .and_then(|row| row.breaker.as_ref());
    let free = lane(delivery, facts).is_none_or(|lane| lane.session.is_none());
    match breaker {
        // Whoever holds the lane can send, whatever another one found.
        Some(breaker) if breaker.refused && free => because.push(Cause::Refused {
            since: breaker.since,
            code: breaker.code.clone(),
            detail: breaker.detail.clone(),
            next_look_at: breaker.next_probe_at,
        }),
        Some(breaker) if !breaker.refused => because.push(Cause::BreakerOpen {
            since: breaker.since,
            code: breaker.code.clone(),
            detail: breaker.detail.clone(),
            next_probe_at: breaker.next_probe_at,
        }),
        Some(_) | None => {}
    }
    if let Some(row) = registered
        && !keys::KINDS.contains(&row.destination.kind.as_str())
    {
        because.push(Cause::KindUnknown {
            kind: row.destination.kind.clone(),
        });
    }
    if free {
        because.push(Cause::NobodyHoldsLane {
            lane: delivery.lane.0,
        });
    }
    because
}

fn lane<'a>(delivery: &DeliveryDetail, facts: &Facts<'a>) -> Option<&'a LaneRow> {
    facts
        .lanes
        .iter()
        .find(|row| row.destination == delivery.destination && row.lane == delivery.lane)
}

fn next_of(cause: &Cause) -> Next {
    match cause {
        Cause::Suspended { .. } => {
            step_when("a person lets the destination run again: `postrider destination resume`")
        }
        Cause::Behind { state, until, .. } => match *state {
            "pending" => step_at("the event before it is tried again, then this one", *until),
            "quarantined" => step_when("a person replays the event before it"),
            _ => step_when("the outcome of the event before it is found out"),
        },
        Cause::Retry { at, .. } => step_at("the next attempt", *at),
        Cause::BreakerOpen { next_probe_at, .. } => step_at(
            "one delivery is tried to see whether the destination is back",
            *next_probe_at,
        ),
        Cause::Refused { next_look_at, .. } => step_at(
            "a worker looks at the destination again; until what it found is settled nothing is sent",
            *next_look_at,
        ),
        Cause::KindUnknown { .. } => step_when("a worker that knows the kind takes the lane"),
        Cause::NobodyHoldsLane { .. } => {
            step_when("a worker takes the lane: see that `postrider run` is running")
        }
        Cause::Due { .. } => step_when("the worker sends it with its next batch"),
        Cause::Acknowledged { .. }
        | Cause::Quarantined { .. }
        | Cause::Unknown { .. }
        | Cause::InAttempt { .. }
        | Cause::AttemptAbandoned { .. } => step_when("nothing"),
    }
}

fn step_at(step: &str, at: Timestamp) -> Next {
    Next {
        step: step.to_owned(),
        at: Some(at),
    }
}

fn step_when(step: &str) -> Next {
    Next {
        step: step.to_owned(),
        at: None,
    }
}

#[cfg(test)]
mod tests;
