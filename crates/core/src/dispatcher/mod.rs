//! The pipeline of one destination in one session: fetch, register, send, settle.
//!
//! A machine without I/O: [`Dispatcher::handle`] takes what happened, [`Dispatcher::poll_command`]
//! says what to do. At most one exchange with the store is under way; it settles what is over,
//! registers what goes next and fetches what comes after, while a registered batch is being sent
//! and what the exchange before it fetched is being prepared: read, checked, written as messages.
//!
//! It never sends what is not registered (I4), never starts a send that the lease may not cover
//! (I8), never lets a delivery overtake an earlier one of its key that failed (I15), and never
//! drops an acknowledgement (I7): what cannot be settled by a live session leaves as evidence.
//!
//! | step | crash before | crash after | recovery sees | converges because |
//! | --- | --- | --- | --- | --- |
//! | fetch, prepare | nothing happened | nothing is stored | open rows | another session fetches them |
//! | register | as before | an open attempt, nothing sent | open attempt of an ended session | unknown by policy: sent again, or looked for |
//! | send | attempt without a send | attempt with a send | the same | the destination deduplicates, or its consumers' inbox does |
//! | settle | accepted, not written down | written down | open attempt, or none | the receipt comes again as a duplicate, or by the evidence path |
//! | settle, answer lost | | committed | a finished attempt | the exchange is repeated and is idempotent by attempt id |

mod batch;
mod buffer;
mod evidence;
mod plan;
mod scan;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use postrider_contract::destination::{Destination, OnQuarantine, Ordering};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};

use crate::{
    AttemptId, Class, DestinationId, Instant, Lane, Outcome, Position, SessionId,
    backoff::Backoff,
    breaker::{self, Admission, Breaker},
    delivery::Policy,
    exchange::{Exchange, Horizon, Suspend, Unfit},
    mutation::{self, Mutation},
};

use batch::{Batch, Finished};
use buffer::Buffer;
pub use evidence::Evidence;
use evidence::Evidences;
use scan::Scan;

/// How one destination is to be served.
#[derive(Clone, Debug)]
pub struct Config {
    pub session: SessionId,
    pub destination: DestinationId,
    pub policy: Policy,
    /// Backoff of the circuit breaker.
    pub breaker: Backoff,
    /// Failed deliveries hold the later ones of their key.
    pub holds_key: bool,
    /// Quarantined ones do too.
    pub quarantine_holds_key: bool,
    /// One message of a key in flight at a time.
    pub one_per_key: bool,
    /// Deliveries in one attempt.
    pub batch_max: usize,
    /// Payload bytes in one attempt; a single larger delivery still goes, alone.
    pub batch_bytes_max: u64,
    /// Batches being sent at the same time.
    pub sending_max: usize,
    /// Attempts whose unanswered members are still listened to after their deadline.
    pub late_max: usize,
    /// What must be left of the lease when a send starts.
    pub send_needs: Duration,
    /// Between two looks at an empty queue: this after something came, doubling up to `poll_max`.
    pub poll_min: Duration,
    pub poll_max: Duration,
    /// Least time between two scans from the front of the queue while it is not empty. A scan
    /// passes over what is held, which lies behind it afterwards.
    pub rescan: Duration,
    /// Stop fetching after this many fetches.
    pub fetches_max: Option<u64>,
    pub seed: u64,
}

impl Config {
    /// The rules of `destination`; `in_order` is whether its transport keeps the order of what it
    /// is given.
    pub fn set_ordering(&mut self, destination: &Destination, in_order: bool) {
        self.holds_key = destination.ordering != Ordering::None;
        self.quarantine_holds_key =
            self.holds_key && destination.on_quarantine == OnQuarantine::Hold;
        self.one_per_key = match destination.ordering {
            Ordering::None => false,
            Ordering::Key => !in_order,
            Ordering::Strict => true,
        };
    }
}

/// A due delivery, fetched and prepared. `E` is what the sender needs of its event; the machine
/// only carries it.
#[derive(Clone, Debug)]
pub struct Candidate<E> {
    pub position: Position,
    pub lane: Lane,
    pub key_hash: i64,
    pub attempts: u32,
    /// Payload bytes.
    pub bytes: u64,
    /// Why it cannot be sent as it is.
    pub unfit: Option<(&'static str, String)>,
    pub event: E,
}

/// The answer to an exchange.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    /// In order. If there are any, [`Input::Prepared`] is to follow for them.
    pub fetched: Vec<Position>,
    pub exhausted: bool,
    pub next_due: Option<Duration>,
    pub horizon: Option<Horizon>,
}

/// What happened.
#[derive(Debug)]
pub enum Input<E> {
    /// The session holds these lanes now, and may keep them.
    Lanes(BTreeSet<Lane>),
    /// These lanes are to be handed over: drain them.
    Release(BTreeSet<Lane>),
    /// The session's lease lasts at least until then.
    LeaseUntil(Instant),
    /// Whether the session keeps this destination closed. What it knows of suspensions is as old
    /// as the heartbeat that told it; an answer that suspended is not undone by an older one.
    Suspended(bool),
    /// Something may have been appended.
    Doorbell,
    Exchanged(Reply),
    /// The exchange failed, or its answer was lost.
    ExchangeFailed,
    /// What an exchange fetched can be sent now: all of it, in position order. Fetches are
    /// prepared in the order in which they were answered.
    Prepared(Vec<Candidate<E>>),
    /// It cannot be prepared now. It is fetched again.
    NotPrepared,
    /// What became of members of an attempt, by their index. Together, because what to do next is
    /// worked out once for all of them.
    Answers(AttemptId, Vec<(usize, Outcome)>),
    /// Every message was answered, or the hard deadline is over.
    SendEnded(AttemptId),
    /// The send of an attempt whose deadline was over has ended too: nothing more will come.
    LateEnded(AttemptId),
    EvidenceAccepted,
    EvidenceFailed,
    /// Finish what is in flight, start nothing.
    Stop,
    /// The session has ended: only evidence is left to hand in.
    Fenced,
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Command<E> {
    Exchange(Arc<Exchange>),
    /// Send the members that are not in `skip`, in order.
    Send {
        attempt: AttemptId,
        members: Arc<[Candidate<E>]>,
        skip: BTreeSet<usize>,
    },
    /// Hand these to the evidence path.
    Evidence(Arc<Vec<Evidence<E>>>),
    /// Nothing of these lanes is in flight any more.
    Drained(BTreeSet<Lane>),
    /// Stop listening to the late answers of this attempt.
    Forget(AttemptId),
}

/// An exchange under way, kept until it is answered so that it can be repeated.
#[derive(Debug)]
struct Pending<E> {
    exchange: Arc<Exchange>,
    /// The members of what it settles, in the order of `exchange.settle`.
    settling: Vec<Arc<[Candidate<E>]>>,
    registering: Option<Batch<E>>,
    started: Instant,
    stale: Stale,
    /// When to ask again; `None` while it is being asked.
    repeat_at: Option<Instant>,
    failures: u32,
}

/// What became stale of a fetch since it was asked for.
#[derive(Debug, Default)]
struct Stale {
    /// Keys of which something failed or was left out, and from where on: what follows there may
    /// overtake it.
    keys: BTreeMap<i64, Position>,
    /// Lanes given up. What was fetched of them is stale even if they are held again: another
    /// session may have sent it meanwhile.
    lanes: BTreeSet<Lane>,
    /// All of it: something that comes before it was given up.
    all: bool,
}

impl Stale {
    fn add_key(&mut self, key: i64, from: Position) {
        let known = self.keys.entry(key).or_insert(from);
        *known = from.min(*known);
    }

    fn contains<E>(&self, candidate: &Candidate<E>) -> bool {
        let from = self.keys.get(&candidate.key_hash);
        self.all
            || from.is_some_and(|from| *from <= candidate.position)
            || self.lanes.contains(&candidate.lane)
    }
}

/// A fetch that was answered and is not prepared yet.
#[derive(Debug)]
struct Preparing {
    positions: Vec<Position>,
    stale: Stale,
}

/// The machine. See the module's page.
#[derive(Debug)]
pub struct Dispatcher<E> {
    config: Config,
    rng: StdRng,
    commands: VecDeque<Command<E>>,
    /// When it was last called.
    now: Instant,
    lanes: BTreeSet<Lane>,
    draining: BTreeSet<Lane>,
    lease_until: Instant,
    /// By the session.
    closed: bool,
    /// By the destination itself.
    gone: Gone,
    /// A send has ended since the session began, or since the destination was resumed. The first
    /// one goes alone: should the destination want no more, it is asked once, and not once for
    /// each key.
    tried: bool,
    stopping: bool,
    fenced: bool,
    breaker: Breaker,
    /// In the order in which they were fetched.
    preparing: VecDeque<Preparing>,
    buffer: Buffer<E>,
    ready: Option<Batch<E>>,
    sending: BTreeMap<AttemptId, Batch<E>>,
    finished: Vec<Finished<E>>,
    unfit: Vec<Unfit>,
    suspend: Option<Suspend>,
    pending: Option<Pending<E>>,
    evidence: Evidences<E>,
    /// Attempts whose deadline is over, still listened to. Oldest first.
    late: VecDeque<(AttemptId, Arc<[Candidate<E>]>)>,
    scan: Scan,
}

/// Whether an answer of the destination suspended it.
///
/// A heartbeat that read the store before the suspension was written says that nothing is
/// suspended, and may come after. One heartbeat is under way at a time, so of those that grant a
/// lease after the suspension was written, the first may be such a one and the second is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    No,
    /// Not in the store yet, or nobody knows.
    Unwritten,
    /// In the store; so many leases were granted since.
    Written {
        grants: u8,
    },
}

impl Gone {
    const GRANTS_MIN: u8 = 2;

    fn written(&mut self) {
        match self {
            Self::Unwritten => *self = Self::Written { grants: 0 },
            Self::No | Self::Written { .. } => {}
        }
    }

    fn granted(&mut self) {
        match self {
            Self::Written { grants } => *grants = grants.saturating_add(1),
            Self::No | Self::Unwritten => {}
        }
    }

    /// The session says that nothing keeps the destination closed.
    fn reopened(&mut self) {
        match self {
            Self::Written { grants } if *grants >= Self::GRANTS_MIN => *self = Self::No,
            Self::No | Self::Unwritten | Self::Written { .. } => {}
        }
    }
}

/// How long a failed exchange or evidence call waits before it is repeated.
const STORE_BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(50),
    max: Duration::from_secs(2),
};

impl<E> Dispatcher<E> {
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            rng: StdRng::seed_from_u64(config.seed),
            breaker: Breaker::new(config.breaker),
            preparing: VecDeque::new(),
            buffer: Buffer::default(),
            commands: VecDeque::new(),
            now,
            lanes: BTreeSet::new(),
            draining: BTreeSet::new(),
            lease_until: now,
            closed: false,
            gone: Gone::No,
            tried: false,
            stopping: false,
            fenced: false,
            ready: None,
            sending: BTreeMap::new(),
            finished: Vec::new(),
            unfit: Vec::new(),
            suspend: None,
            pending: None,
            evidence: Evidences::default(),
            late: VecDeque::new(),
            scan: Scan::new(config.poll_min, now),
            config,
        }
    }

    /// Takes what happened at `now`.
    pub fn handle(&mut self, now: Instant, input: Input<E>) {
        self.now = now;
        match input {
            Input::Lanes(lanes) => self.set_lanes(lanes),
            Input::Release(lanes) => self.drain(&lanes),
            Input::LeaseUntil(until) => {
                self.lease_until = until;
                self.gone.granted();
            }
            Input::Suspended(suspended) => {
                self.closed = suspended;
                if suspended {
                    self.close();
                } else {
                    self.gone.reopened();
                }
            }
            Input::Doorbell => {
                self.scan.idle_until = None;
                self.scan.rang = self.pending.is_some();
            }
            Input::Exchanged(reply) => self.exchanged(now, reply),
            Input::ExchangeFailed => self.exchange_failed(now),
            Input::Prepared(candidates) => self.prepared(candidates),
            Input::NotPrepared => self.not_prepared(now),
            Input::Answers(attempt, answers) => {
                for (index, outcome) in answers {
                    self.answer(now, attempt, index, outcome);
                }
            }
            Input::SendEnded(attempt) => self.finish(now, attempt),
            Input::LateEnded(attempt) => self.late.retain(|(late, _)| *late != attempt),
            Input::EvidenceAccepted => self.evidence.accepted(),
            Input::EvidenceFailed => {
                self.evidence
                    .failed(now, STORE_BACKOFF.delay(6, &mut self.rng));
            }
            Input::Stop => self.stopping = true,
            Input::Fenced => self.fence(),
            Input::Tick => {}
        }
        self.advance(now);
    }

    /// The next thing to do, if there is one.
    pub fn poll_command(&mut self) -> Option<Command<E>> {
        self.commands.pop_front()
    }

    /// When to call again with [`Input::Tick`] if nothing else happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Instant> {
        let mut wakeups = vec![self.evidence.retry_at()];
        if !self.fenced {
            wakeups.push(self.pending.as_ref().and_then(|pending| pending.repeat_at));
            if self.pending.is_none() && self.may_fetch_at_all() {
                wakeups.push(self.scan.idle_until);
            }
            if let breaker::State::Open { until, .. } = self.breaker.state() {
                wakeups.push(Some(*until));
            }
        }
        // What is due already was considered when it was last called.
        wakeups
            .into_iter()
            .flatten()
            .filter(|at| *at > self.now)
            .min()
    }

    /// Nothing is in flight and nothing is left to write down.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        (self.fenced || (self.is_quiet() && self.pending.is_none())) && self.evidence.is_empty()
    }

    fn is_quiet(&self) -> bool {
        self.ready.is_none()
            && self.sending.is_empty()
            && self.finished.is_empty()
            && self.unfit.is_empty()
    }

    /// It has nothing to do until something is appended, or a retry is due. A look at the queue
    /// may be under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let only_looking = self
            .pending
            .as_ref()
            .is_none_or(|pending| pending.settling.is_empty() && pending.registering.is_none());
        only_looking && self.is_quiet() && self.nothing_waits()
    }

    /// It has made all the fetches it may, and finished what they brought.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.fetches_spent() && self.is_drained() && self.nothing_waits()
    }

    /// Nothing is fetched that is not registered.
    fn nothing_waits(&self) -> bool {
        self.buffer.is_empty() && self.preparing.is_empty()
    }

    /// What each fetch has lost whose deliveries are not in the buffer yet.
    fn stale(&mut self) -> impl Iterator<Item = &mut Stale> {
        let pending = self.pending.iter_mut().map(|pending| &mut pending.stale);
        let preparing = self.preparing.iter_mut();
        pending.chain(preparing.map(|preparing| &mut preparing.stale))
    }

    /// It has made all the fetches it may.
    #[must_use]
    pub fn fetches_spent(&self) -> bool {
        self.config
            .fetches_max
            .is_some_and(|max| self.scan.fetches >= max)
    }

    #[must_use]
    pub fn breaker(&self) -> &breaker::State {
        self.breaker.state()
    }

    /// Sends whose answers are still awaited, late ones included.
    #[must_use]
    pub fn sends_open(&self) -> usize {
        self.sending.len() + self.late.len()
    }

    fn suspended(&self) -> bool {
        self.closed || self.gone != Gone::No
    }

    fn advance(&mut self, now: Instant) {
        self.evidence.advance(now, &mut self.commands);
        if self.fenced {
            return;
        }
        self.repeat_exchange(now);
        self.send_ready(now);
        self.start_exchange(now);
        self.report_drained();
    }

    /// Nothing is sent until it is opened again, which may be days later: what was fetched is
    /// fetched again then, and the first send goes alone.
    fn close(&mut self) {
        self.tried = false;
        if !self.buffer.is_empty() {
            self.buffer.clear();
            self.scan.from_front = true;
            // What is on its way was read past what was in the buffer.
            self.stale().for_each(|stale| stale.all = true);
        }
    }

    fn set_lanes(&mut self, lanes: BTreeSet<Lane>) {
        if lanes.iter().any(|lane| !self.lanes.contains(lane)) {
            // New lanes have rows below the position.
            self.start_over();
        }
        self.draining.retain(|lane| lanes.contains(lane));
        let left: BTreeSet<Lane> = self.lanes.difference(&lanes).copied().collect();
        self.stale().for_each(|stale| stale.lanes.extend(&left));
        self.lanes = lanes;
        self.buffer.keep_lanes(|lane| self.lanes.contains(&lane));
    }

    fn drain(&mut self, lanes: &BTreeSet<Lane>) {
        self.draining.extend(lanes.intersection(&self.lanes));
        self.buffer
            .keep_lanes(|lane| !self.draining.contains(&lane));
    }

    fn report_drained(&mut self) {
        if self.draining.is_empty() {
            return;
        }
        let mut busy: BTreeSet<Lane> = BTreeSet::new();
        let pending = self.pending.iter();
        let members = self
            .ready
            .iter()
            .chain(self.sending.values())
            .chain(
                pending
                    .clone()
                    .filter_map(|pending| pending.registering.as_ref()),
            )
            .map(|batch| &batch.members)
            .chain(self.finished.iter().map(|finished| &finished.members))
            .chain(pending.flat_map(|pending| &pending.settling));
        for members in members {
            busy.extend(members.iter().map(|member| member.lane));
        }
        if mutation::on(Mutation::LanesNotDrained) {
            busy.clear();
        }
        let drained: BTreeSet<Lane> = self.draining.difference(&busy).copied().collect();
        if !drained.is_empty() {
            self.draining.retain(|lane| !drained.contains(lane));
            self.lanes.retain(|lane| !drained.contains(lane));
            self.stale().for_each(|stale| stale.lanes.extend(&drained));
            self.commands.push_back(Command::Drained(drained));
        }
    }

    /// Starts the registered batch, or gives it back where it must not go any more.
    fn send_ready(&mut self, now: Instant) {
        let Some(batch) = &self.ready else { return };
        if self.sending.len() >= self.config.sending_max {
            return;
        }
        let allowed = match self.breaker.admission(now) {
            Admission::All => true,
            Admission::Nothing => batch.probe,
            Admission::One | Admission::NothingUntil(_) => false,
        };
        let may_go = allowed && !self.stopping && !self.suspended() && !batch.all_answered();
        let covered = now + self.config.send_needs <= self.lease_until
            || mutation::on(Mutation::LeaseNotCovering);
        if may_go && !covered {
            // The next heartbeat brings more lease, or the session ends.
            return;
        }
        let Some(mut batch) = self.ready.take() else {
            return;
        };
        if may_go {
            self.commands.push_back(Command::Send {
                attempt: batch.attempt,
                members: Arc::clone(&batch.members),
                skip: batch.answered(),
            });
            self.sending.insert(batch.attempt, batch);
        } else {
            batch.hold_unsent();
            self.settle(now, batch);
        }
    }

    fn answer(&mut self, now: Instant, attempt: AttemptId, index: usize, outcome: Outcome) {
        let Some(batch) = self.sending.get_mut(&attempt) else {
            self.late_answer(attempt, index, outcome);
            return;
        };
        let mut closes = false;
        if !batch.is_news(index, &outcome) {
            return;
        }
        match &outcome {
            Outcome::Acknowledged(_)
            | Outcome::Rejected {
                suspends: false, ..
            }
            | Outcome::Retryable {
                class: Class::Refusal,
                ..
            } => self.breaker.reached(),
            Outcome::Rejected {
                code,
                detail,
                suspends: true,
            } => {
                self.breaker.reached();
                self.gone = Gone::Unwritten;
                closes = true;
                self.suspend = Some(Suspend {
                    code,
                    detail: detail.clone(),
                });
            }
            Outcome::Retryable {
                class: Class::Outage,
                code,
                detail,
                ..
            } => {
                let cause = breaker::Cause {
                    code,
                    detail: detail.clone(),
                };
                self.breaker.outage(now, cause, &mut self.rng);
            }
            Outcome::Retryable {
                class: Class::Held, ..
            }
            | Outcome::Unknown { .. } => {}
        }
        batch.answer(index, outcome);
        if closes {
            self.close();
        }
    }

    /// An answer that came after the attempt was settled: an acknowledgement is evidence, and
    /// anything else was known already.
    fn late_answer(&mut self, attempt: AttemptId, index: usize, outcome: Outcome) {
        let Outcome::Acknowledged(receipt) = outcome else {
            return;
        };
        if mutation::on(Mutation::LateAcksDropped) {
            return;
        }
        let Some((_, members)) = self.late.iter().find(|(late, _)| *late == attempt) else {
            return;
        };
        if index < members.len() {
            self.evidence.add(attempt, members, index, receipt);
        }
    }

    fn finish(&mut self, now: Instant, attempt: AttemptId) {
        let Some(mut batch) = self.sending.remove(&attempt) else {
            return;
        };
        let listen = batch.close_unanswered();
        if listen {
            self.late.push_back((attempt, Arc::clone(&batch.members)));
            if self.late.len() > self.config.late_max
                && let Some((oldest, _)) = self.late.pop_front()
            {
                self.commands.push_back(Command::Forget(oldest));
            }
        }
        // The first send of a session is one message, and its silence may be the message's.
        if self.tried
            && let Some(cause) = batch.silence()
        {
            self.breaker.outage(now, cause, &mut self.rng);
        }
        self.tried = !self.suspended();
        self.settle(now, batch);
    }

    /// Works out what each member becomes, and keeps the keys of those that failed in order.
    fn settle(&mut self, now: Instant, batch: Batch<E>) {
        if batch.probe {
            self.breaker.probe_unsent(now);
        }
        let (finished, failed) = batch.finish(&self.config, &mut self.rng);
        if failed.rescan {
            self.start_over();
        }
        self.hold_keys(&failed.held_keys);
        // A retry that is due before the next poll must wake the reader.
        if let (Some(delay), Some(idle)) = (finished.soonest_retry, self.scan.idle_until) {
            self.scan.idle_until = Some(idle.min(now + delay));
        }
        self.finished.push(finished);
    }

    /// Nothing of these keys that was fetched already may go before what failed.
    fn hold_keys(&mut self, keys: &BTreeSet<i64>) {
        if keys.is_empty() || mutation::on(Mutation::RetryOvertaken) {
            return;
        }
        if self.buffer.drop_keys(keys) {
            // It lies below the position now. Evidence may close what failed before that is written
            // down, and then nothing in the store would hold what follows.
            self.scan.from_front = true;
        }
        self.left_out(keys.iter().map(|key| (*key, Position::START)));
        if let Some(pending) = &mut self.pending
            && let Some(registering) = &mut pending.registering
        {
            registering.hold_keys(keys);
        }
        if let Some(ready) = &mut self.ready {
            ready.hold_keys(keys);
        }
    }

    /// Nothing of these keys, from these positions on, that was fetched since may go before what was
    /// left out there.
    fn left_out(&mut self, keys: impl Iterator<Item = (i64, Position)> + Clone) {
        for stale in self.stale() {
            for (key, from) in keys.clone() {
                stale.add_key(key, from);
            }
        }
    }

    /// The session has ended: its settles would fail, so every acknowledgement that is not
    /// settled for certain goes through the evidence path. An exchange whose answer is missing
    /// may have committed; evidence handed in twice is kept once.
    fn fence(&mut self) {
        self.fenced = true;
        self.preparing.clear();
        self.buffer.clear();
        self.ready = None;
        if mutation::on(Mutation::EvidenceDroppedAtFence) {
            self.pending = None;
            self.finished.clear();
            self.sending.clear();
        }
        if let Some(pending) = self.pending.take() {
            for (settlement, members) in pending.exchange.settle.iter().zip(&pending.settling) {
                self.evidence.add_all(members, settlement);
            }
        }
        for finished in self.finished.drain(..) {
            self.evidence
                .add_all(&finished.members, &finished.settlement);
        }
        for (attempt, batch) in std::mem::take(&mut self.sending) {
            for (index, receipt) in batch.receipts() {
                self.evidence.add(attempt, &batch.members, index, receipt);
            }
            // Not bounded by `late_max`: at most `sending_max` more.
            self.late.push_back((attempt, Arc::clone(&batch.members)));
        }
        self.unfit.clear();
    }

    fn new_attempt(&mut self) -> AttemptId {
        AttemptId(uuid::Builder::from_random_bytes(self.rng.random()).into_uuid())
    }
}
