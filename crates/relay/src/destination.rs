//! One destination in one session: executes what its dispatcher machine asks for.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_contract::{EventId, Timestamp};
use postrider_core::{
    AttemptId, DestinationId, Instant, Lane, Outcome, SessionId, breaker,
    dispatcher::{Candidate, Command, Dispatcher, Evidence, Input, Reply},
    exchange::{Exchange, SettledAs},
};
use postrider_schema::Schemas;
use postrider_store::{
    ExchangeError, Store, StoreError,
    dispatch::{Exchanged, Fetched},
    evidence::{Evidence as StoreEvidence, Verdict},
    sessions::{BreakerReport, OpenBreaker},
};
use postrider_transport::{Answer, Batch, Late, Message, Transport, wire};
use tokio::{
    sync::{broadcast, mpsc},
    task::{AbortHandle, JoinError, JoinHandle, JoinSet},
};
use tracing::{info, warn};

use crate::{
    clock::Clock,
    meters::{self, CodeLabel, Meters, OutcomeLabel},
    outgoing::{self, Opened, Outgoing},
    status::Counts,
};

/// From the session to the destination.
#[derive(Clone, Debug)]
pub(crate) enum Control {
    Lanes(BTreeSet<Lane>),
    Drain(BTreeSet<Lane>),
    LeaseUntil(Instant),
    Suspended(bool),
    Doorbell,
    Stop,
    Fence,
}

/// From the destination to the session.
#[derive(Debug)]
pub(crate) enum Notice {
    Drained(DestinationId, BTreeSet<Lane>),
    Idle(DestinationId, bool),
    /// It has made all the fetches it may, or was told to stop and has stopped.
    Done(DestinationId),
    /// The store says that the session is over.
    Ended,
}

/// What serves one destination, for as long as its transport is open.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) id: DestinationId,
    pub(crate) place: wire::Place,
    pub(crate) transport: Arc<dyn Transport>,
    /// Receipts that come after their answers, where the transport hears them. Every session
    /// listens, ended ones too: each knows its own attempts.
    pub(crate) late: Option<broadcast::Sender<Late>>,
    pub(crate) breaker: Mutex<Option<OpenBreaker>>,
    pub(crate) meters: meters::Of,
}

impl Served {
    pub(crate) fn name(&self) -> &str {
        &self.place.destination.name
    }

    pub(crate) fn breaker_report(&self) -> BreakerReport {
        let open = self
            .breaker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        BreakerReport {
            destination: self.id,
            open,
        }
    }
}

/// What all destinations of a relay share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) schemas: tokio::sync::RwLock<Schemas>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) counts: Counts,
    pub(crate) clock: Clock,
    pub(crate) send: Duration,
    pub(crate) hard: Duration,
}

/// The deliveries of one attempt.
type Members = Arc<[Candidate<Outgoing>]>;

enum Sent {
    Answers(AttemptId, Vec<Answer>),
    Ended(AttemptId),
    LateEnded(AttemptId),
}

/// What was fetched, ready to be sent.
type Prepared = Result<Vec<Candidate<Outgoing>>, StoreError>;

enum Called {
    Exchanged(Arc<Exchange>, Result<Exchanged, ExchangeError>),
    Evidence(
        Arc<Vec<Evidence<Outgoing>>>,
        Result<Vec<Verdict>, StoreError>,
    ),
}

/// The task of one destination in one session.
pub(crate) struct Task {
    served: Arc<Served>,
    shared: Arc<Shared>,
    session: SessionId,
    dispatcher: Dispatcher<Outgoing>,
    notices: mpsc::UnboundedSender<Notice>,
    sent: mpsc::UnboundedSender<Sent>,
    calls: JoinSet<Called>,
    /// In the order in which they were fetched.
    preparing: VecDeque<JoinHandle<Prepared>>,
    /// Attempts that the machine still listens to.
    open: BTreeMap<AttemptId, (Members, AbortHandle)>,
    fenced: bool,
    stopping: bool,
    idle: bool,
    done: bool,
}

impl Task {
    pub(crate) fn new(
        served: Arc<Served>,
        shared: Arc<Shared>,
        session: SessionId,
        dispatcher: Dispatcher<Outgoing>,
        notices: mpsc::UnboundedSender<Notice>,
    ) -> (Self, Inbox) {
        let (sent, answers) = mpsc::unbounded_channel();
        let task = Self {
            served,
            shared,
            session,
            dispatcher,
            notices,
            sent,
            calls: JoinSet::new(),
            preparing: VecDeque::new(),
            open: BTreeMap::new(),
            fenced: false,
            stopping: false,
            idle: false,
            done: false,
        };
        (task, Inbox { answers })
    }

    /// Runs until it is stopped and drained, or fenced and out of evidence.
    pub(crate) async fn run(
        mut self,
        mut inbox: Inbox,
        mut control: mpsc::UnboundedReceiver<Control>,
    ) {
        let mut late = self.served.late.as_ref().map(broadcast::Sender::subscribe);
        let clock = self.shared.clock;
        let mut fenced_until = None;
        self.handle(Input::Tick);
        loop {
            if slept_past(fenced_until, clock.now(), self.shared.hard) {
                fenced_until = Some(clock.now() + self.shared.hard * 2);
            }
            if self.finished(fenced_until) {
                break;
            }
            // Once that time has come, only what is still being handed in is waited for: a wakeup
            // in the past would spin.
            let waiting = fenced_until.filter(|until| *until > clock.now());
            let wakeup = [self.dispatcher.next_wakeup(), waiting]
                .into_iter()
                .flatten()
                .min();
            tokio::select! {
                biased;
                // Once fenced, whoever gave orders is gone.
                message = control.recv(), if !self.fenced => match message {
                    Some(Control::Fence) | None => {
                        self.fenced = true;
                        // Late answers may come for as long as a send may last.
                        fenced_until = Some(clock.now() + self.shared.hard * 2);
                        self.handle(Input::Fenced);
                    }
                    Some(message) => self.control(message),
                },
                Some(sent) = inbox.answers.recv() => self.sent(sent),
                Some(called) = self.calls.join_next() => match called {
                    Ok(called) => self.called(called),
                    Err(error) => {
                        // A call that panicked is a call without an answer.
                        warn!(destination = self.served.name(), %error, "a store call broke");
                        self.handle(Input::ExchangeFailed);
                        self.handle(Input::EvidenceFailed);
                    }
                },
                prepared = next_prepared(&mut self.preparing) => self.prepared(prepared),
                Some(receipt) = next_late(&mut late) => self.late(receipt),
                () = clock.sleep_until(wakeup) => self.handle(Input::Tick),
            }
        }
        for (_, abort) in self.open.values() {
            abort.abort();
        }
        for preparing in &self.preparing {
            preparing.abort();
        }
    }

    fn finished(&self, fenced_until: Option<Instant>) -> bool {
        if self.fenced {
            let waited = fenced_until.is_some_and(|until| self.shared.clock.now() >= until);
            return self.dispatcher.is_drained() && (waited || self.dispatcher.sends_open() == 0);
        }
        self.stopping && self.dispatcher.is_drained()
    }

    fn control(&mut self, message: Control) {
        match message {
            Control::Lanes(lanes) => self.handle(Input::Lanes(lanes)),
            Control::Drain(lanes) => self.handle(Input::Release(lanes)),
            Control::LeaseUntil(until) => self.handle(Input::LeaseUntil(until)),
            Control::Suspended(suspended) => self.handle(Input::Suspended(suspended)),
            Control::Doorbell => self.handle(Input::Doorbell),
            Control::Stop => {
                self.stopping = true;
                self.handle(Input::Stop);
            }
            Control::Fence => self.handle(Input::Fenced),
        }
    }

    fn handle(&mut self, input: Input<Outgoing>) {
        self.dispatcher.handle(self.shared.clock.now(), input);
        while let Some(command) = self.dispatcher.poll_command() {
            self.execute(command);
        }
        self.tell();
    }

    fn execute(&mut self, command: Command<Outgoing>) {
        match command {
            Command::Exchange(exchange) => {
                let (shared, served) = (Arc::clone(&self.shared), Arc::clone(&self.served));
                self.calls.spawn(async move {
                    let result = exchange_with(&shared, &served, &exchange).await;
                    Called::Exchanged(exchange, result)
                });
            }
            Command::Send {
                attempt,
                members,
                skip,
            } => self.send(attempt, members, &skip),
            Command::Evidence(evidence) => {
                let store = Arc::clone(&self.shared.store);
                let batch = self.store_evidence(&evidence);
                self.calls.spawn(async move {
                    let result = store.accept_receipts(&batch).await;
                    Called::Evidence(evidence, result)
                });
            }
            Command::Drained(lanes) => {
                self.notify(Notice::Drained(self.served.id, lanes));
            }
            Command::Forget(attempt) => {
                if let Some((_, abort)) = self.open.remove(&attempt) {
                    abort.abort();
                }
            }
        }
    }

    fn send(
        &mut self,
        attempt: AttemptId,
        members: Arc<[Candidate<Outgoing>]>,
        skip: &BTreeSet<usize>,
    ) {
        let indices: Vec<usize> = (0..members.len())
            .filter(|index| !skip.contains(index))
            .collect();
        let messages: Arc<[Arc<Message>]> = indices
            .iter()
            .map(|index| {
                let message = members[*index].event.message.as_ref();
                Arc::clone(message.expect("what is unfit is never registered"))
            })
            .collect();
        self.served.meters.attempts.inc();
        let batch = Batch {
            messages,
            send_timeout: self.shared.send,
        };
        let sending = send_attempt(
            Arc::clone(&self.served.transport),
            batch,
            indices,
            self.shared.hard,
            Guard {
                attempt,
                sent: self.sent.clone(),
                ended: false,
            },
        );
        let abort = tokio::spawn(sending).abort_handle();
        self.open.insert(attempt, (members, abort));
    }

    fn sent(&mut self, sent: Sent) {
        match sent {
            Sent::Answers(attempt, answers) => {
                let answers = answers
                    .into_iter()
                    .map(|Answer { index, outcome }| {
                        self.observe(attempt, index, &outcome);
                        (index, outcome)
                    })
                    .collect();
                self.handle(Input::Answers(attempt, answers));
            }
            Sent::Ended(attempt) => self.handle(Input::SendEnded(attempt)),
            Sent::LateEnded(attempt) => {
                if self.served.late.is_none() {
                    self.open.remove(&attempt);
                    self.handle(Input::LateEnded(attempt));
                }
            }
        }
    }

    fn observe(&self, attempt: AttemptId, index: usize, outcome: &Outcome) {
        if let Outcome::Acknowledged(_) = outcome
            && let Some(member) = self
                .open
                .get(&attempt)
                .and_then(|(members, _)| members.get(index))
        {
            let latency = member.event.age_at_fetch + member.event.fetched_at.elapsed();
            self.served
                .meters
                .commit_to_receipt
                .observe(latency.as_secs_f64());
        }
    }

    /// A receipt that came after its message was given up as unknown. Not ours: another session
    /// sent it, or it is too late for anybody here, and a look at the destination finds it.
    fn late(&mut self, late: Late) {
        let found = self.open.iter().find_map(|(attempt, (members, _))| {
            let index = position_of(members, late.event_id)?;
            Some((*attempt, index))
        });
        if let Some((attempt, index)) = found {
            let outcome = Outcome::Acknowledged(late.receipt);
            self.handle(Input::Answers(attempt, vec![(index, outcome)]));
        }
    }

    fn called(&mut self, called: Called) {
        match called {
            Called::Exchanged(exchange, Ok(exchanged)) => {
                self.count(&exchange);
                if self.served.late.is_some() {
                    self.forget_settled(&exchange);
                }
                self.exchanged(exchanged);
            }
            Called::Exchanged(_, Err(ExchangeError::Ended)) => {
                self.notify(Notice::Ended);
            }
            Called::Exchanged(_, Err(ExchangeError::Store(error))) => {
                self.shared.meters.store_errors.inc();
                warn!(destination = self.served.name(), %error, "an exchange failed");
                self.handle(Input::ExchangeFailed);
            }
            Called::Evidence(evidence, Ok(verdicts)) => {
                for (evidence, verdict) in evidence.iter().zip(&verdicts) {
                    self.count_verdict(evidence, verdict);
                }
                self.handle(Input::EvidenceAccepted);
            }
            Called::Evidence(_, Err(error)) => {
                self.shared.meters.store_errors.inc();
                warn!(destination = self.served.name(), %error, "evidence was not taken");
                self.handle(Input::EvidenceFailed);
            }
        }
    }

    /// The next exchange starts before what this one fetched is prepared.
    fn exchanged(&mut self, exchanged: Exchanged) {
        let duplicates = usize::try_from(exchanged.duplicates).unwrap_or(usize::MAX);
        self.shared.counts.duplicates.add(duplicates);
        let fetched = exchanged.fetched;
        self.handle(Input::Exchanged(Reply {
            fetched: fetched.iter().map(|fetched| fetched.position).collect(),
            exhausted: exchanged.exhausted,
            next_due: exchanged.next_due,
            horizon: exchanged.horizon,
        }));
        if !fetched.is_empty() {
            let (shared, served) = (Arc::clone(&self.shared), Arc::clone(&self.served));
            let now = exchanged.now;
            let preparing = async move { prepare(&shared, &served, fetched, now).await };
            self.preparing.push_back(tokio::spawn(preparing));
        }
    }

    fn prepared(&mut self, prepared: Result<Prepared, JoinError>) {
        match prepared {
            Ok(Ok(candidates)) => self.handle(Input::Prepared(candidates)),
            Ok(Err(error)) => {
                self.shared.meters.store_errors.inc();
                warn!(destination = self.served.name(), %error, "the registry cannot be read");
                self.handle(Input::NotPrepared);
            }
            Err(error) => {
                warn!(destination = self.served.name(), %error, "preparing messages broke");
                self.handle(Input::NotPrepared);
            }
        }
    }

    /// An attempt of which everything was acknowledged has nothing late to come.
    fn forget_settled(&mut self, exchange: &Exchange) {
        for settlement in &exchange.settle {
            let all = settlement
                .members
                .iter()
                .all(|member| matches!(member.next, SettledAs::Acknowledged(_)));
            if all {
                self.open.remove(&settlement.attempt);
                self.dispatcher.handle(
                    self.shared.clock.now(),
                    Input::LateEnded(settlement.attempt),
                );
            }
        }
    }

    fn count(&self, exchange: &Exchange) {
        let counts = &self.shared.counts;
        for registration in &exchange.register {
            counts.claimed.add(registration.members.len());
        }
        counts.quarantined.add(exchange.quarantine.len());
        for unfit in &exchange.quarantine {
            self.count_failure("quarantined", unfit.code);
        }
        let mut acknowledged = 0;
        for member in exchange
            .settle
            .iter()
            .flat_map(|settlement| &settlement.members)
        {
            match &member.next {
                SettledAs::Acknowledged(_) => acknowledged += 1,
                SettledAs::Retry { code, .. } => {
                    counts.retried.add(1);
                    self.count_failure("retryable", code);
                }
                SettledAs::Unknown { code, .. } => {
                    counts.unknown.add(1);
                    self.count_failure("unknown", code);
                }
                SettledAs::Quarantined { code, .. } => {
                    counts.quarantined.add(1);
                    self.count_failure("quarantined", code);
                }
            }
        }
        counts.acknowledged.add(acknowledged);
        self.served.meters.acknowledged.inc_by(acknowledged as u64);
    }

    fn outcome_label(&self, outcome: &'static str) -> OutcomeLabel {
        OutcomeLabel {
            destination: self.served.name().to_owned(),
            outcome,
        }
    }

    fn count_failure(&self, outcome: &'static str, code: &'static str) {
        let meters = &self.shared.meters;
        meters
            .deliveries
            .get_or_create(&self.outcome_label(outcome))
            .inc();
        let label = CodeLabel {
            destination: self.served.name().to_owned(),
            code,
        };
        meters.failures.get_or_create(&label).inc();
    }

    fn count_verdict(&self, evidence: &Evidence<Outgoing>, verdict: &Verdict) {
        let word = match verdict {
            Verdict::Primary => {
                self.shared.counts.acknowledged.add(1);
                "primary"
            }
            Verdict::Duplicate => {
                self.shared.counts.duplicates.add(1);
                "duplicate"
            }
            Verdict::Mismatch { finding } => {
                warn!(
                    destination = self.served.name(),
                    event_id = %evidence.members[evidence.index].event.event_id,
                    finding,
                    "a receipt does not match what was registered"
                );
                "mismatch"
            }
        };
        self.shared
            .meters
            .late_receipts
            .get_or_create(&self.outcome_label(word))
            .inc();
    }

    fn store_evidence(&self, evidence: &[Evidence<Outgoing>]) -> Vec<StoreEvidence> {
        evidence
            .iter()
            .map(|evidence| {
                let member = &evidence.members[evidence.index];
                StoreEvidence {
                    attempt: evidence.attempt,
                    destination: self.served.id,
                    destination_digest: self.served.place.digest,
                    position: member.position,
                    event_id: member.event.event_id,
                    generation: member.event.generation,
                    payload_digest: member.event.payload_digest,
                    receipt: evidence.receipt.clone(),
                }
            })
            .collect()
    }

    /// Keeps the session and the meters informed. After its session has ended, the next one
    /// speaks for the destination.
    fn tell(&mut self) {
        if self.fenced {
            return;
        }
        let idle = self.dispatcher.is_idle();
        if idle != self.idle {
            self.idle = idle;
            self.notify(Notice::Idle(self.served.id, idle));
        }
        if !self.done && self.dispatcher.is_done() {
            self.done = true;
            self.notify(Notice::Done(self.served.id));
        }
        let now = self.shared.clock.now();
        let open = match self.dispatcher.breaker() {
            breaker::State::Closed => None,
            breaker::State::Open { until, cause, .. } => Some((until.since(now), cause)),
            breaker::State::Probing { cause, .. } => Some((Duration::ZERO, cause)),
        };
        let meters = &self.served.meters;
        meters.breaker_open.set(i64::from(open.is_some()));
        let sends = i64::try_from(self.dispatcher.sends_open()).unwrap_or(i64::MAX);
        meters.sends_open.set(sends);
        let mut shown = self
            .served
            .breaker
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if shown.is_some() != open.is_some() {
            match &open {
                Some((_, cause)) => warn!(
                    destination = self.served.name(),
                    code = cause.code,
                    detail = cause.detail,
                    "the destination cannot be sent to"
                ),
                None => info!(destination = self.served.name(), "the destination is back"),
            }
        }
        *shown = open.map(|(next_probe_in, cause)| OpenBreaker {
            refused: false,
            code: cause.code.to_owned(),
            detail: cause.detail.clone(),
            next_probe_in,
        });
    }

    fn notify(&self, notice: Notice) {
        // A session that no longer listens is over, and this task hears so from it.
        if self.notices.send(notice).is_err() {
            info!(session = %self.session, "the session is gone");
        }
    }
}

/// What the task's own sends report.
pub(crate) struct Inbox {
    answers: mpsc::UnboundedReceiver<Sent>,
}

/// Whether a process was paused past the end of a fenced session's listening, which it would have
/// woken up for. What came meanwhile waits to be read: it listens as long again.
fn slept_past(fenced_until: Option<Instant>, now: Instant, hard: Duration) -> bool {
    fenced_until.is_some_and(|until| now >= until + hard)
}

/// The outcome of the oldest. Nothing is lost when it is dropped half-way.
async fn next_prepared(
    preparing: &mut VecDeque<JoinHandle<Prepared>>,
) -> Result<Prepared, JoinError> {
    let Some(oldest) = preparing.front_mut() else {
        return std::future::pending().await;
    };
    let prepared = oldest.await;
    preparing.pop_front();
    prepared
}

async fn next_late(late: &mut Option<broadcast::Receiver<Late>>) -> Option<Late> {
    let Some(receiver) = late else {
        return std::future::pending().await;
    };
    match receiver.recv().await {
        Ok(receipt) => Some(receipt),
        Err(broadcast::error::RecvError::Lagged(missed)) => {
            warn!(missed, "late receipts came faster than they were taken");
            None
        }
        Err(broadcast::error::RecvError::Closed) => {
            *late = None;
            None
        }
    }
}

/// Lets any number of sessions hear the late receipts of one transport.
pub(crate) fn share_late(mut late: mpsc::Receiver<Late>) -> broadcast::Sender<Late> {
    /// Receipts that wait for the slowest session; a look at the destination finds the others.
    const WAITING_MAX: usize = 4_096;
    let (sender, _) = broadcast::channel(WAITING_MAX);
    let shared = sender.clone();
    tokio::spawn(async move {
        while let Some(receipt) = late.recv().await {
            // Between two sessions nobody listens.
            drop(shared.send(receipt));
        }
    });
    sender
}

fn position_of(members: &[Candidate<Outgoing>], event_id: EventId) -> Option<usize> {
    members
        .iter()
        .position(|member| member.event.event_id == event_id)
}

/// How long a look at a destination may hold up what was fetched.
const LOOK_AGAIN_WITHIN: Duration = Duration::from_secs(1);

async fn exchange_with(
    shared: &Shared,
    served: &Served,
    exchange: &Exchange,
) -> Result<Exchanged, ExchangeError> {
    let started = tokio::time::Instant::now();
    let exchanged = shared.store.exchange(exchange).await?;
    if !exchange.settle.is_empty() {
        served
            .meters
            .settle
            .observe(started.elapsed().as_secs_f64());
    }
    Ok(exchanged)
}

/// Makes what was fetched ready to be sent.
async fn prepare(
    shared: &Shared,
    served: &Served,
    fetched: Vec<Fetched>,
    now: Option<Timestamp>,
) -> Prepared {
    /// Made without letting others run.
    const TOGETHER: usize = 64;
    let mut opened = Vec::with_capacity(fetched.len());
    for (index, fetched) in fetched.into_iter().enumerate() {
        if index % TOGETHER == TOGETHER - 1 {
            tokio::task::yield_now().await;
        }
        opened.push(Opened::new(fetched));
    }
    let missing = {
        let schemas = shared.schemas.read().await;
        opened.iter().any(|opened| opened.lacks_schema(&schemas))
    };
    if missing {
        // Appended under a schema that was registered after this relay read the registry.
        let registry = shared.store.registry().await?;
        let mut schemas = shared.schemas.write().await;
        for registered in &registry.event_types {
            if let Err(error) = schemas.add(&registered.event_type) {
                warn!(%error, "a registered schema cannot be compiled");
            }
        }
    }
    let schemas = shared.schemas.read().await;
    let transport = served.transport.as_ref();
    let mut candidates = Vec::with_capacity(opened.len());
    for (index, opened) in opened.into_iter().enumerate() {
        if index % TOGETHER == TOGETHER - 1 {
            tokio::task::yield_now().await;
        }
        let candidate = outgoing::prepare(opened, now, &served.place, &schemas, transport);
        candidates.push(candidate);
    }
    drop(schemas);
    if candidates.iter().any(outgoing::is_refused_by_transport) {
        // A person may just have raised the limit and replayed. Where nobody answers, what is
        // known stands.
        drop(tokio::time::timeout(LOOK_AGAIN_WITHIN, transport.look_again()).await);
        for candidate in &mut candidates {
            outgoing::judge_again(candidate, transport);
        }
    }
    Ok(candidates)
}

/// Tells the machine that a send is over even when the transport panics.
struct Guard {
    attempt: AttemptId,
    sent: mpsc::UnboundedSender<Sent>,
    ended: bool,
}

impl Guard {
    fn tell(&self, sent: Sent) {
        // Nobody listens once the destination's task is over; then nobody needs to know.
        drop(self.sent.send(sent));
    }

    fn end(&mut self) {
        if !self.ended {
            self.ended = true;
            self.tell(Sent::Ended(self.attempt));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end();
        self.tell(Sent::LateEnded(self.attempt));
    }
}

/// Sends a batch under the hard deadline, which lies outside the client library: whatever the
/// library does, the machine hears when the time is over. The send itself may go on.
async fn send_attempt(
    transport: Arc<dyn Transport>,
    batch: Batch,
    indices: Vec<usize>,
    hard: Duration,
    mut guard: Guard,
) {
    /// Answers handed on together at most.
    const TOGETHER_MAX: usize = 512;
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut sending = std::pin::pin!(transport.send(batch, answers));
    let mut deadline = std::pin::pin!(tokio::time::sleep(hard));
    let mut sent = false;
    let mut buffer = Vec::with_capacity(TOGETHER_MAX);
    loop {
        tokio::select! {
            // What is known already goes before the deadline; there is one answer per message.
            biased;
            () = &mut sending, if !sent => sent = true,
            count = answered.recv_many(&mut buffer, TOGETHER_MAX) => {
                if count == 0 {
                    return;
                }
                let mapped = buffer
                    .drain(..)
                    .filter_map(|answer| {
                        let index = *indices.get(answer.index)?;
                        Some(Answer { index, outcome: answer.outcome })
                    })
                    .collect();
                guard.tell(Sent::Answers(guard.attempt, mapped));
            }
            () = &mut deadline, if !guard.ended => guard.end(),
        }
    }
}
