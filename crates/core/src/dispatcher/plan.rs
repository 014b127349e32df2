//! What the next exchange is to contain, and what its answer means.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    Instant, Position,
    breaker::Admission,
    exchange::{Exchange, Fetch, Registration, Unfit},
    mutation::{self, Mutation},
};

use super::{
    Batch, Candidate, Command, Dispatcher, Pending, Preparing, Reply, STORE_BACKOFF, Stale,
};

/// Fetches that may wait to be prepared when another one starts.
const PREPARING_MAX: usize = 1;

/// Deliveries that a fetch may walk over again for what may still appear among them: some 10 ms on
/// Postgres.
const LOOK_BACK_MAX: u64 = 32_000;

impl<E> Dispatcher<E> {
    /// Asks for an exchange if there is anything to settle, register or fetch, and none is
    /// under way.
    pub(super) fn start_exchange(&mut self, now: Instant) {
        if self.pending.is_some() {
            return;
        }
        let finished = std::mem::take(&mut self.finished);
        let quarantine = std::mem::take(&mut self.unfit);
        let suspend = self.suspend.take();
        let registering = self.next_batch(now);
        let fetch = self.next_fetch(now, registering.as_ref());
        if finished.is_empty()
            && quarantine.is_empty()
            && suspend.is_none()
            && registering.is_none()
            && fetch.is_none()
        {
            return;
        }
        let (settling, settle) = finished
            .into_iter()
            .map(|finished| (finished.members, finished.settlement))
            .unzip();
        let exchange = Arc::new(Exchange {
            session: self.config.session,
            destination: self.config.destination,
            settle,
            quarantine,
            suspend,
            register: registering
                .iter()
                .map(|batch| Registration {
                    attempt: batch.attempt,
                    members: batch.members.iter().map(|member| member.position).collect(),
                })
                .collect(),
            fetch,
        });
        if mutation::on(Mutation::SentBeforeRegistered)
            && let Some(batch) = &registering
        {
            self.commands.push_back(Command::Send {
                attempt: batch.attempt,
                members: Arc::clone(&batch.members),
                skip: BTreeSet::new(),
            });
        }
        self.commands
            .push_back(Command::Exchange(Arc::clone(&exchange)));
        self.pending = Some(Pending {
            exchange,
            settling,
            registering,
            started: now,
            stale: Stale::default(),
            repeat_at: None,
            failures: 0,
        });
    }

    /// The batch to register next: one is kept ready while others are being sent.
    fn next_batch(&mut self, now: Instant) -> Option<Batch<E>> {
        if self.stopping || self.suspended() || self.ready.is_some() || self.buffer.is_empty() {
            return None;
        }
        let (count_max, probe) = match self.breaker.admission(now) {
            Admission::All if self.tried => (self.config.batch_max, false),
            Admission::All if self.sending.is_empty() => (1, false),
            // A probe goes alone, so that nothing else is in flight with it.
            Admission::One if self.sending.is_empty() => (1, true),
            Admission::All | Admission::One | Admission::Nothing | Admission::NothingUntil(_) => {
                return None;
            }
        };
        let members = self.buffer.take(
            count_max,
            self.config.batch_bytes_max,
            self.config.one_per_key,
            &self.busy_keys(),
        );
        if members.is_empty() {
            return None;
        }
        if probe {
            self.breaker.probe();
        }
        Some(Batch::new(self.new_attempt(), members, probe))
    }

    /// Keys of which a message is registered or in flight, where only one may be.
    fn busy_keys(&self) -> BTreeSet<i64> {
        if !self.config.one_per_key {
            return BTreeSet::new();
        }
        let registering = self
            .pending
            .iter()
            .filter_map(|pending| pending.registering.as_ref());
        self.ready
            .iter()
            .chain(self.sending.values())
            .chain(registering)
            .flat_map(|batch| batch.members.iter().map(|member| member.key_hash))
            .collect()
    }

    pub(super) fn may_fetch_at_all(&self) -> bool {
        !self.stopping
            && !self.suspended()
            && !self.fetches_spent()
            && self.lanes.iter().any(|lane| !self.draining.contains(lane))
    }

    fn next_fetch(&mut self, now: Instant, registering: Option<&Batch<E>>) -> Option<Fetch> {
        if !self.may_fetch_at_all() {
            return None;
        }
        match self.breaker.admission(now) {
            Admission::All | Admission::One => {}
            Admission::Nothing | Admission::NothingUntil(_) => return None,
        }
        if self.scan.idle_until.is_some_and(|until| now < until) {
            return None;
        }
        // Where one of a key may be in flight, what is being prepared says which keys wait.
        let preparing_max = if self.config.one_per_key {
            0
        } else {
            PREPARING_MAX
        };
        if self.preparing.len() > preparing_max {
            return None;
        }
        let mut busy_keys = self.busy_keys();
        if self.config.one_per_key {
            let members = registering.iter().flat_map(|batch| batch.members.iter());
            busy_keys.extend(members.map(|member| member.key_hash));
        }
        let sendable = self.buffer.sendable(self.config.one_per_key, &busy_keys);
        if sendable >= self.config.batch_max || self.buffer.bytes() >= self.config.batch_bytes_max {
            return None;
        }
        // Where one of a key may be in flight, a read passes over the rest of that key; only a
        // read from the front is sure to come back for it in order.
        let rescan = now >= self.scan.rescan_at && !mutation::on(Mutation::NeverFromTheFront);
        if self.scan.from_front || rescan || self.config.one_per_key {
            self.scan.rewind();
        }
        self.buffer.restart();
        if self.config.one_per_key {
            busy_keys.extend(self.buffer.waiting_keys());
        }
        let mut exclude: Vec<Position> = self
            .ready
            .iter()
            .chain(self.sending.values())
            .chain(registering)
            .flat_map(|batch| batch.members.iter().map(|member| member.position))
            .chain(self.buffer.positions())
            .chain(
                self.preparing
                    .iter()
                    .flat_map(|preparing| preparing.positions.iter().copied()),
            )
            .collect();
        exclude.sort_unstable();
        Some(Fetch {
            lanes: self.lanes.difference(&self.draining).copied().collect(),
            after: self.scan.start(LOOK_BACK_MAX),
            exclude,
            busy_keys: busy_keys.into_iter().collect(),
            limit: u32::try_from(self.config.batch_max).unwrap_or(u32::MAX),
            bytes_max: self.config.batch_bytes_max,
        })
    }

    pub(super) fn exchanged(&mut self, now: Instant, reply: Reply) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        if pending.exchange.suspend.is_some() && self.suspend.is_none() {
            self.gone.written();
        }
        if let Some(batch) = pending.registering {
            assert!(self.ready.is_none(), "one batch is kept ready, no more");
            self.ready = Some(batch);
        }
        if let Some(fetch) = &pending.exchange.fetch {
            self.read_on(now, pending.started, fetch, &reply);
        }
        if !reply.fetched.is_empty() {
            self.preparing.push_back(Preparing {
                positions: reply.fetched,
                stale: pending.stale,
            });
        }
    }

    /// Moves the reader on by what a fetch found.
    fn read_on(&mut self, now: Instant, started: Instant, fetch: &Fetch, reply: &Reply) {
        self.scan.fetches += 1;
        if fetch.after == Position::START {
            // Reading from the front walks over dead entries; it may take an eighth of the time.
            let pause = (now.since(started) * 8).max(self.config.rescan);
            self.scan.rescan_at = now + pause;
        }
        self.scan
            .read_on(fetch.after, &reply.fetched, reply.exhausted, reply.horizon);
        self.scan.poll = if reply.fetched.is_empty() {
            (self.scan.poll * 2).min(self.config.poll_max)
        } else {
            self.config.poll_min
        };
        let rang = std::mem::take(&mut self.scan.rang);
        if reply.exhausted && !rang && !self.scan.from_front {
            let mut pause = reply
                .next_due
                .map_or(self.scan.poll, |due| due.min(self.scan.poll));
            if fetch.after > Position::START {
                // Something may have become visible below: do not sleep before having looked.
                pause = pause
                    .min(self.scan.rescan_at.since(now))
                    .max(self.config.poll_min);
            }
            if mutation::on(Mutation::PollingLost) {
                pause = Duration::from_secs(3_600);
            }
            self.scan.idle_until = Some(now + pause);
        } else {
            self.scan.idle_until = None;
        }
    }

    /// Takes into the buffer what may be sent of the oldest fetch that was being prepared.
    pub(super) fn prepared(&mut self, candidates: Vec<Candidate<E>>) {
        let Some(preparing) = self.preparing.pop_front() else {
            return;
        };
        let stale = preparing.stale;
        let suspended = self.suspended();
        // Once one of a key is left out here, so is all that follows it; also of what was fetched
        // since, passing over it because it was in hand.
        let mut left_out = BTreeMap::new();
        let mut unfit_keys = BTreeSet::new();
        for candidate in candidates {
            let lane_kept =
                self.lanes.contains(&candidate.lane) && !self.draining.contains(&candidate.lane);
            let is_stale = stale.contains(&candidate) && !mutation::on(Mutation::StaleKept);
            if suspended || is_stale {
                left_out
                    .entry(candidate.key_hash)
                    .or_insert(candidate.position);
            } else if lane_kept && !unfit_keys.contains(&candidate.key_hash) {
                match candidate.unfit {
                    None if self.config.one_per_key => {
                        self.buffer
                            .add_one_per_key(candidate, self.config.batch_bytes_max);
                    }
                    None => self.buffer.add(candidate),
                    Some((code, detail)) => {
                        if self.config.quarantine_holds_key {
                            unfit_keys.insert(candidate.key_hash);
                        }
                        self.unfit.push(Unfit {
                            position: candidate.position,
                            code,
                            detail,
                        });
                    }
                }
            }
        }
        if !left_out.is_empty() {
            self.start_over();
            if !mutation::on(Mutation::LeftOutOvertaken) {
                self.left_out(left_out.iter().map(|(key, from)| (*key, *from)));
            }
        }
        if !unfit_keys.is_empty() {
            // What stands before it in the buffer may be of its key, and is fetched again.
            self.hold_keys(&unfit_keys);
            self.scan.idle_until = None;
        }
    }

    /// Gives up the oldest fetch that was being prepared, and whatever was fetched behind it.
    pub(super) fn not_prepared(&mut self, now: Instant) {
        if self.preparing.pop_front().is_none() {
            return;
        }
        self.stale().for_each(|stale| stale.all = true);
        self.scan.from_front = true;
        self.scan.idle_until = Some(now + STORE_BACKOFF.ceiling(1));
    }

    /// The reader goes back for what it passed over, at once.
    pub(super) fn start_over(&mut self) {
        self.scan.from_front = true;
        self.scan.idle_until = None;
    }

    pub(super) fn exchange_failed(&mut self, now: Instant) {
        if mutation::on(Mutation::FailedExchangeForgotten) {
            self.pending = None;
        }
        if let Some(pending) = &mut self.pending {
            pending.failures = pending.failures.saturating_add(1);
            let delay = STORE_BACKOFF.ceiling(pending.failures);
            pending.repeat_at = Some(now + delay);
        }
    }

    /// Asks again, word for word: it is idempotent by attempt id, and its fetch only reads.
    pub(super) fn repeat_exchange(&mut self, now: Instant) {
        if let Some(pending) = &mut self.pending
            && pending.repeat_at.is_some_and(|at| at <= now)
        {
            pending.repeat_at = None;
            self.commands
                .push_back(Command::Exchange(Arc::clone(&pending.exchange)));
        }
    }
}
