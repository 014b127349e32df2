//! Watches every write, send, arrival and answer, and asks every invariant about it.

use std::{collections::BTreeMap, fmt};

use postrider_contract::Timestamp;
use postrider_core::{
    DestinationId, Position, SessionId,
    delivery::State,
    exchange::{Exchange, SettledAs},
};
use postrider_store::{evidence::Evidence, sessions::NewSession};
use postrider_store_memory::{MemoryStore, model::Model};
use postrider_transport_memory::Stored;

use crate::{
    coverage::{Coverage, Happening},
    invariants::{self, Invariant},
    snapshot::{self, Change, Snapshot, Walked},
    truth::{Key, LifeId, Truth},
};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub detail: String,
    /// Virtual milliseconds since the start.
    pub at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} broken at {} ms: {}",
            self.invariant, self.at, self.detail
        )
    }
}

/// What was asked of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    Read,
    Open(&'a NewSession),
    Heartbeat(SessionId),
    Claim(SessionId),
    Release(SessionId),
    Asleep(SessionId),
    End(SessionId),
    /// It found something.
    Recover,
    Exchange(&'a Exchange),
    Evidence(&'a [Evidence]),
    /// Evidence that somebody made up, and whether it names another digest.
    Forged(&'a Evidence, bool),
    Replay,
    Append,
    Apply,
}

impl Request<'_> {
    /// The session that must be live for it.
    pub(crate) fn needs(&self) -> Option<SessionId> {
        match self {
            Self::Heartbeat(session) | Self::Claim(session) | Self::Release(session) => {
                Some(*session)
            }
            Self::Exchange(exchange) => Some(exchange.session),
            Self::Read
            | Self::Open(_)
            | Self::Asleep(_)
            | Self::End(_)
            | Self::Recover
            | Self::Evidence(_)
            | Self::Forged(..)
            | Self::Replay
            | Self::Append
            | Self::Apply => None,
        }
    }

    fn writes(&self) -> bool {
        match self {
            // A heartbeat moves its session's lease and nothing else.
            Self::Read | Self::Asleep(_) | Self::Heartbeat(_) => false,
            Self::Exchange(exchange) => {
                !(exchange.settle.is_empty()
                    && exchange.quarantine.is_empty()
                    && exchange.register.is_empty()
                    && exchange.suspend.is_none())
            }
            Self::Open(_)
            | Self::Claim(_)
            | Self::Release(_)
            | Self::End(_)
            | Self::Recover
            | Self::Evidence(_)
            | Self::Forged(..)
            | Self::Replay
            | Self::Append
            | Self::Apply => true,
        }
    }
}

/// A call that reached the store.
pub(crate) struct Call<'a> {
    pub(crate) request: Request<'a>,
    /// The store did it; whether the caller heard so is another matter.
    pub(crate) done: bool,
    /// Whether the session it needs was live when it began.
    pub(crate) live: Option<bool>,
    /// By the database's clock.
    pub(crate) now: Timestamp,
}

/// A call with what it changed.
pub(crate) struct Written<'a> {
    pub(crate) call: &'a Call<'a>,
    pub(crate) before: &'a Snapshot,
    pub(crate) after: &'a Snapshot,
    pub(crate) changes: &'a [Change],
    pub(crate) model: &'a Model,
}

/// A batch that a worker gives to a transport.
pub(crate) struct Sending<'a> {
    pub(crate) life: LifeId,
    pub(crate) destination: DestinationId,
    pub(crate) positions: &'a [Position],
    /// What is left of the lease of a session by the worker's own clock, in microseconds; `None`
    /// when its clock has just jumped.
    pub(crate) lease_left: Option<&'a BTreeMap<SessionId, i64>>,
    pub(crate) now: Timestamp,
    pub(crate) model: &'a Model,
}

/// The end, after healing.
pub(crate) struct Ended<'a> {
    pub(crate) model: &'a Model,
    /// Lives that are still there.
    pub(crate) alive: &'a [LifeId],
    pub(crate) logs: &'a BTreeMap<DestinationId, Vec<Stored>>,
}

pub(crate) struct Oracle {
    pub(crate) truth: Truth,
    invariants: Vec<Box<dyn Invariant>>,
    before: Snapshot,
    pub(crate) violation: Option<Violation>,
}

impl fmt::Debug for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Oracle")
            .field("violation", &self.violation)
            .finish_non_exhaustive()
    }
}

impl Oracle {
    pub(crate) fn new() -> Self {
        Self {
            truth: Truth::default(),
            invariants: invariants::all(),
            before: Snapshot::default(),
            violation: None,
        }
    }

    /// The first violation is the one that counts; what follows may come from it.
    pub(crate) fn break_with(&mut self, at: u64, invariant: &'static str, detail: String) {
        self.violation.get_or_insert(Violation {
            invariant,
            detail,
            at,
        });
    }

    fn ask(
        &mut self,
        at: u64,
        mut ask: impl FnMut(&mut dyn Invariant, &Truth) -> Result<(), String>,
    ) {
        for invariant in &mut self.invariants {
            if let Err(detail) = ask(invariant.as_mut(), &self.truth) {
                self.violation.get_or_insert(Violation {
                    invariant: invariant.name(),
                    detail,
                    at,
                });
            }
        }
    }

    /// Answers the changes for the story.
    pub(crate) fn called(
        &mut self,
        at: u64,
        store: &MemoryStore,
        call: &Call<'_>,
        coverage: &mut Coverage,
    ) -> Vec<Change> {
        self.truth.step += 1;
        self.ask(at, |invariant, truth| invariant.called(call, truth));
        if let Request::Heartbeat(_) = call.request {
            self.before.sessions = store.inspect(snapshot::sessions);
        }
        if !call.done || !call.request.writes() {
            return Vec::new();
        }
        let before = std::mem::take(&mut self.before);
        let (after, changes) = store.inspect(|model| {
            let after = Snapshot::of(model);
            let changes = before.changes(&after);
            let walked = walked(call, &before, &changes, model);
            for row in &walked {
                coverage.transition(row.from, row.happening);
            }
            for change in &changes {
                if change
                    .to
                    .as_ref()
                    .is_some_and(|to| to.state == State::Quarantined)
                {
                    self.truth.quarantined.insert(change.key);
                }
            }
            let written = Written {
                call,
                before: &before,
                after: &after,
                changes: &changes,
                model,
            };
            self.ask(at, |invariant, truth| invariant.written(&written, truth));
            (after, changes)
        });
        self.before = after;
        changes
    }

    pub(crate) fn sending(&mut self, at: u64, sending: &Sending<'_>) {
        self.truth.step += 1;
        self.ask(at, |invariant, truth| invariant.sending(sending, truth));
        // The attempt that this send belongs to must not be sent twice.
        if let Some(attempt) = invariants::attempt_of(sending, &self.truth) {
            self.truth.sent.insert(attempt.id);
        }
    }

    pub(crate) fn arrived(&mut self, at: u64, destination: DestinationId, stored: &Stored) {
        self.ask(at, |invariant, truth| {
            invariant.arrived(destination, stored, truth)
        });
    }

    pub(crate) fn ended(&mut self, at: u64, ended: &Ended<'_>) {
        self.ask(at, |invariant, truth| invariant.ended(ended, truth));
    }
}

/// Which rows of the delivery table a call walked, worked out from what was asked.
fn walked(call: &Call<'_>, before: &Snapshot, changes: &[Change], model: &Model) -> Vec<Walked> {
    let mut rows = Vec::new();
    let mut walk = |key: Key, happening| {
        if let Some(seen) = before.get(key) {
            let from = seen.state;
            rows.push(Walked { from, happening });
        }
    };
    match call.request {
        Request::Exchange(exchange) => {
            for settlement in &exchange.settle {
                if !before.unfinished.contains(&settlement.attempt) {
                    continue;
                }
                for member in &settlement.members {
                    let key = (exchange.destination, member.position);
                    let seen = before.get(key);
                    let pending = seen.is_some_and(|seen| seen.state == State::Pending);
                    match &member.next {
                        SettledAs::Acknowledged(_) if pending => walk(key, Happening::Acknowledged),
                        SettledAs::Acknowledged(_) => walk(key, Happening::Receipt),
                        // The others change a pending delivery only.
                        _ if !pending => {}
                        SettledAs::Retry { attempts, code, .. } => {
                            let charged = seen.is_some_and(|seen| *attempts > seen.attempts);
                            walk(key, retried_as(code, charged));
                        }
                        SettledAs::Unknown { .. } => walk(key, Happening::Unknown),
                        SettledAs::Quarantined { code, .. } if *code == "refused" => {
                            walk(key, Happening::Refusal);
                        }
                        SettledAs::Quarantined { .. } => walk(key, Happening::Rejected),
                    }
                }
            }
            for unfit in &exchange.quarantine {
                let key = (exchange.destination, unfit.position);
                if before
                    .get(key)
                    .is_some_and(|seen| seen.state == State::Pending)
                {
                    walk(key, Happening::Unfit);
                }
            }
        }
        Request::Recover | Request::End(_) | Request::Open(_) => {
            let finished = model.attempt_facts().filter(|attempt| {
                attempt.finished_at.is_some() && before.unfinished.contains(&attempt.id)
            });
            for attempt in finished {
                for position in attempt.members {
                    let key = (attempt.destination, *position);
                    if before
                        .get(key)
                        .is_some_and(|seen| seen.state == State::Pending)
                    {
                        walk(key, Happening::SessionLost);
                    }
                }
            }
        }
        Request::Evidence(evidence) => {
            for piece in evidence {
                walk((piece.destination, piece.position), Happening::Receipt);
            }
        }
        Request::Forged(piece, true) => {
            walk((piece.destination, piece.position), Happening::Conflict);
        }
        Request::Replay => {
            for change in changes {
                walk(change.key, Happening::Replayed);
            }
        }
        Request::Read
        | Request::Heartbeat(_)
        | Request::Claim(_)
        | Request::Release(_)
        | Request::Asleep(_)
        | Request::Forged(_, false)
        | Request::Append
        | Request::Apply => {}
    }
    rows
}

/// What the memory broker and the relay call an outcome that nobody knows.
pub(crate) const UNKNOWN_CODES: [&str; 4] = [
    "ack_timeout",
    "connection_lost",
    "deadline",
    "lease_expired_unknown",
];

fn retried_as(code: &str, charged: bool) -> Happening {
    if UNKNOWN_CODES.contains(&code) {
        Happening::Unknown
    } else if code == "held" {
        Happening::Held
    } else if charged {
        Happening::Refusal
    } else {
        Happening::Outage
    }
}
