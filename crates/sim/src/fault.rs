//! What goes wrong in a trajectory: an explicit list, drawn from the seed before the run, so that
//! a failing one can be made shorter entry by entry.

use std::{collections::BTreeSet, fmt};

use crate::{
    plan::{CHAOS_MS, Plan},
    random::Draw,
};

/// One fault, with where it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The nth call of this kind that this worker makes of the store, over all its lives.
    Call {
        worker: usize,
        kind: CallKind,
        nth: u32,
        what: OfCall,
    },
    /// The nth message given to the broker of a destination.
    Message {
        place: usize,
        nth: u32,
        what: OfMessage,
    },
    /// At a time, in milliseconds since the start.
    Timed { at: u64, what: Timed },
}

/// Calls of the store, by what a fault in them means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    /// Opens, renews and ends sessions; lanes; the registry.
    Lease,
    /// An exchange that only looks at the queue.
    Look,
    /// An exchange that settles, registers or quarantines.
    Work,
    Recover,
    Evidence,
}

/// What becomes of a store call. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfCall {
    FailBefore,
    /// It commits and the answer is lost.
    FailAfter,
    CrashBefore,
    /// It commits and the worker dies before it hears so.
    CrashAfter,
    PauseBefore(u64),
    PauseAfter(u64),
    /// It takes long to reach the database.
    SlowBefore(u64),
    /// It commits and the answer takes long.
    SlowAfter(u64),
}

/// What becomes of a message. Times are in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OfMessage {
    LoseAck,
    LoseMessage,
    Outage,
    Refuse,
    Reject,
    /// Rejected, and the destination says that it is gone for good.
    RejectAndSuspend,
    /// Silence until the timeout; it was stored.
    HoleStored,
    /// Silence until the timeout; it was not stored.
    HoleLost,
    /// The outcome is unknown; it is stored later, or never.
    Late,
    Twice,
    /// Stored at once; the acknowledgement takes this long, past the hard deadline.
    AckLate(u64),
    /// The worker dies after the broker stored it.
    CrashAfter,
    PauseAfter(u64),
    /// The worker dies before anything is sent.
    CrashBefore,
    /// The worker sleeps between its decision to send and the send.
    PauseBefore(u64),
}

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timed {
    Crash(usize),
    Pause(usize, u64),
    /// The worker's own clock jumps ahead.
    WorkerClock(usize, u64),
    /// The database's clock steps, either way.
    DatabaseClock(i64),
    /// A graceful stop; the worker comes back later.
    Stop(usize),
    /// Somebody ends the worker's session in the database.
    EndSession(usize),
    BrokerDown(usize, u64),
    /// The broker forgets which ids it has seen.
    Forget(usize),
    /// Copies still under way arrive.
    DeliverLate(usize),
    /// Brokers answer what they were silent about.
    Release(usize),
    /// An operator replays all that is quarantined.
    Replay,
    /// An operator lets suspended destinations run again.
    Resume,
    /// Somebody hands in evidence that does not match.
    Forge(Forged),
    /// What is read of the nth event is not what was written, until it is repaired.
    Corrupt(usize),
}

/// How forged evidence differs from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Forged {
    Payload,
    Destination,
    Event,
    Generation,
    /// An attempt that nobody registered.
    Attempt,
}

/// The faults of a seed.
pub(crate) fn draw(plan: &Plan) -> Vec<Fault> {
    let mut draw = Draw::of(plan.seed, &[10]);
    // Some trajectories are calm, and some kinds of fault are off in each.
    let count = draw.pick(&[1, 3, 4, 5, 6, 7, 8, 10]);
    let weights = [
        draw.pick(&[0, 20, 40, 60]),
        draw.pick(&[0, 30, 60, 60]),
        draw.pick(&[10, 20, 30]),
    ];
    let total: u64 = weights.iter().sum();
    let mut faults: Vec<Fault> = (0..count)
        .map(|_| {
            let chosen = draw.below(total);
            if chosen < weights[0] {
                of_call(&mut draw, plan)
            } else if chosen < weights[0] + weights[1] {
                Fault::Message {
                    place: draw.index(plan.places.len()),
                    nth: u32::try_from(draw.skewed(1, 16)).expect("small"),
                    what: of_message(&mut draw),
                }
            } else {
                Fault::Timed {
                    at: draw.between(20, CHAOS_MS),
                    what: timed(&mut draw, plan),
                }
            }
        })
        .collect();
    faults.sort_unstable();
    faults.dedup();
    faults
}

fn of_call(draw: &mut Draw, plan: &Plan) -> Fault {
    let kind = draw.pick(&[
        CallKind::Lease,
        CallKind::Look,
        CallKind::Work,
        CallKind::Work,
        CallKind::Work,
        CallKind::Recover,
        CallKind::Evidence,
    ]);
    let most = match kind {
        CallKind::Lease | CallKind::Look => 20,
        CallKind::Work => 8,
        CallKind::Recover => 5,
        CallKind::Evidence => 3,
    };
    let what = match draw.below(8) {
        0 => OfCall::FailBefore,
        1 => OfCall::FailAfter,
        2 => OfCall::CrashBefore,
        3 => OfCall::CrashAfter,
        4 => OfCall::PauseBefore(pause(draw)),
        5 => OfCall::PauseAfter(pause(draw)),
        6 => OfCall::SlowBefore(pause(draw)),
        _ => OfCall::SlowAfter(pause(draw)),
    };
    Fault::Call {
        worker: draw.index(plan.starts.len()),
        kind,
        nth: u32::try_from(draw.skewed(1, most)).expect("small"),
        what,
    }
}

/// Half of them outlast a lease.
fn pause(draw: &mut Draw) -> u64 {
    if draw.percent(50) {
        draw.between(1_700, 3_500)
    } else {
        draw.skewed(20, 1_700)
    }
}

fn of_message(draw: &mut Draw) -> OfMessage {
    match draw.below(19) {
        0 | 1 => OfMessage::LoseAck,
        2 => OfMessage::LoseMessage,
        3 => OfMessage::Outage,
        4..7 => OfMessage::Refuse,
        7 => OfMessage::Reject,
        8 => OfMessage::RejectAndSuspend,
        9 => OfMessage::HoleStored,
        10 => OfMessage::HoleLost,
        11 => OfMessage::Late,
        12 => OfMessage::Twice,
        13 | 14 => OfMessage::AckLate(draw.between(360, 3_000)),
        15 => OfMessage::CrashAfter,
        16 => OfMessage::PauseAfter(pause(draw)),
        17 => OfMessage::CrashBefore,
        _ => OfMessage::PauseBefore(pause(draw)),
    }
}

fn timed(draw: &mut Draw, plan: &Plan) -> Timed {
    let worker = draw.index(plan.starts.len());
    let place = draw.index(plan.places.len());
    match draw.below(18) {
        0 | 1 => Timed::Crash(worker),
        2 => Timed::Pause(worker, pause(draw)),
        3 => Timed::WorkerClock(worker, pause(draw)),
        4 => Timed::DatabaseClock(draw.pick(&[-2_000, -400, 300, 1_000, 1_900])),
        5 => Timed::Stop(worker),
        6 => Timed::EndSession(worker),
        7 | 8 => Timed::BrokerDown(place, draw.skewed(50, 2_000)),
        9 => Timed::Forget(place),
        10 => Timed::DeliverLate(place),
        11 => Timed::Release(place),
        12 => Timed::Replay,
        13 => Timed::Resume,
        14 | 15 => Timed::Forge(draw.pick(&[
            Forged::Payload,
            Forged::Destination,
            Forged::Event,
            Forged::Generation,
            Forged::Attempt,
        ])),
        _ => Timed::Corrupt(draw.index(8)),
    }
}

impl Fault {
    /// The name of every fault that is ever drawn.
    #[must_use]
    pub fn names() -> BTreeSet<String> {
        /// The rarest of a kind is one in ninety.
        const DRAWS: u64 = 5_000;
        let plan = Plan::new(0);
        let mut draw = Draw::of(0, &[11]);
        let mut names = BTreeSet::new();
        for _ in 0..DRAWS {
            let message = Self::Message {
                place: 0,
                nth: 1,
                what: of_message(&mut draw),
            };
            let timed = Self::Timed {
                at: 0,
                what: timed(&mut draw, &plan),
            };
            let call = of_call(&mut draw, &plan);
            names.extend([message, timed, call].map(|fault| fault.name()));
        }
        names
    }

    /// What is counted: the kind without the place and the duration.
    #[must_use]
    pub fn name(&self) -> String {
        let debug = match self {
            Self::Call { kind, what, .. } => format!("{kind:?} {what:?}"),
            Self::Message { what, .. } => format!("Message {what:?}"),
            Self::Timed { what, .. } => match what {
                Timed::Forge(forged) => format!("Forge {forged:?}"),
                Timed::DatabaseClock(by) if *by < 0 => "DatabaseClock back".to_owned(),
                other @ (Timed::Crash(_)
                | Timed::Pause(..)
                | Timed::WorkerClock(..)
                | Timed::DatabaseClock(_)
                | Timed::Stop(_)
                | Timed::EndSession(_)
                | Timed::BrokerDown(..)
                | Timed::Forget(_)
                | Timed::DeliverLate(_)
                | Timed::Release(_)
                | Timed::Replay
                | Timed::Resume
                | Timed::Corrupt(_)) => format!("{other:?}"),
            },
        };
        debug
            .split('(')
            .next()
            .map_or_else(String::new, str::to_owned)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call {
                worker,
                kind,
                nth,
                what,
            } => write!(f, "worker {worker}, {kind:?} call {nth}: {what:?}"),
            Self::Message { place, nth, what } => {
                write!(f, "destination {place}, message {nth}: {what:?}")
            }
            Self::Timed { at, what } => write!(f, "at {at} ms: {what:?}"),
        }
    }
}
