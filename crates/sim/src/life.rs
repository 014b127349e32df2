//! One life of one worker: a relay on a runtime of its own, from its start to its crash or stop.
//!
//! The runtime is single-threaded, without I/O, its clock paused: time passes only through its own
//! timers and when the scheduler says so. A crash drops the runtime with all its tasks, as a kill
//! does. A pause is not running it for a while; on waking, its clock jumps.

use std::{
    collections::BTreeMap,
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::poll;
use postrider_core::SessionId;
use postrider_relay::{Meters, Relay, Report, Settings, Stop};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    plan::{Plan, life_seed},
    store::SimStore,
    transport::Factory,
    truth::LifeId,
    world::World,
};

/// What the wrappers of one life share with the scheduler. Times are in microseconds.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) id: LifeId,
    /// True time at the start.
    born: u64,
    start: OnceLock<Instant>,
    /// By how much its own clock is ahead of true time.
    ahead: AtomicU64,
    /// Its own clock right after its last jump; sends at that very moment are not judged.
    jumped: AtomicU64,
    halt: Mutex<Halt>,
    interrupt: Notify,
    resumed: Notify,
    /// Until when each of its sessions holds its lease, by its own clock.
    leases: Mutex<BTreeMap<SessionId, u64>>,
}

/// Why a worker does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    No,
    Crashed,
    /// For this many milliseconds.
    Paused(u64),
}

impl Life {
    /// Microseconds since its start, by its own clock.
    fn elapsed(&self) -> u64 {
        let elapsed = self.start.get().map_or(Duration::ZERO, Instant::elapsed);
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
    }

    /// True time, as far as this worker has come. In its runtime only.
    pub(crate) fn now(&self) -> u64 {
        self.born + self.elapsed() - self.ahead.load(Ordering::Relaxed)
    }

    pub(crate) fn halt(&self) -> Halt {
        *self.halt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A crash is for good, whatever else strikes the worker in the same quantum.
    fn set_halt(&self, halt: Halt) {
        let mut current = self.halt.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != Halt::Crashed {
            *current = halt;
        }
    }

    /// Dies here. Never returns.
    pub(crate) async fn crash(&self) {
        self.kill();
        pending().await
    }

    /// Nothing of it reaches the world any more.
    pub(crate) fn kill(&self) {
        self.set_halt(Halt::Crashed);
        self.interrupt.notify_one();
    }

    /// Sleeps here, as a stopped process does.
    pub(crate) async fn pause(&self, ms: u64) {
        if self.halt() == Halt::No {
            self.set_halt(Halt::Paused(ms));
            self.interrupt.notify_one();
        }
        self.proceed().await;
    }

    /// Waits while the worker is halted: nothing leaves a process that does not run.
    pub(crate) async fn proceed(&self) {
        while self.halt() != Halt::No {
            self.resumed.notified().await;
        }
    }

    /// By its own clock.
    pub(crate) fn clock(&self) -> u64 {
        self.elapsed()
    }

    pub(crate) fn granted(&self, session: SessionId, asked_at: u64, lease: Duration) {
        let until = asked_at + u64::try_from(lease.as_micros()).unwrap_or(0);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        leases.insert(session, until);
    }

    /// What is left of each lease by its own clock; `None` right after a jump.
    pub(crate) fn lease_left(&self) -> Option<BTreeMap<SessionId, i64>> {
        let clock = self.clock();
        if self.jumped.load(Ordering::Relaxed) == clock {
            return None;
        }
        let leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |until: u64| {
            i64::try_from(until).unwrap_or(i64::MAX) - i64::try_from(clock).unwrap_or(i64::MAX)
        };
        Some(
            leases
                .iter()
                .map(|(session, until)| (*session, left(*until)))
                .collect(),
        )
    }
}

/// A running worker, as the scheduler holds it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) life: Arc<Life>,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    relay: JoinHandle<Result<Report, postrider_relay::Error>>,
}

impl Running {
    pub(crate) fn start(world: &Arc<World>, id: LifeId, meters: &Arc<Meters>) -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O");
        let life = Arc::new(Life {
            id,
            born: world.state().now,
            start: OnceLock::new(),
            ahead: AtomicU64::new(0),
            jumped: AtomicU64::new(u64::MAX),
            halt: Mutex::new(Halt::No),
            interrupt: Notify::new(),
            resumed: Notify::new(),
            leases: Mutex::new(BTreeMap::new()),
        });
        let (stop, stopped) = Stop::new();
        let guard = runtime.enter();
        life.start.get_or_init(Instant::now);
        let relay = Relay::new(
            Arc::new(SimStore::new(world, &life)),
            Arc::new(Factory::new(world, &life)),
            settings(&world.plan, id),
            Arc::clone(meters),
        );
        let relay = runtime.spawn(async move { relay.run(stopped).await });
        drop(guard);
        Self {
            life,
            runtime,
            stop,
            relay,
        }
    }

    /// Runs until true time `target`, or until it crashes, pauses or ends.
    pub(crate) fn run_until(&self, target: u64) {
        let life = &self.life;
        let clock = target - life.born + life.ahead.load(Ordering::Relaxed);
        let Some(start) = life.start.get() else {
            return;
        };
        let until = *start + Duration::from_micros(clock);
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = life.interrupt.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        });
    }

    /// Its clock jumps ahead, or it slept that long: either way its timers go off at once.
    pub(crate) fn jump(&self, by: Duration, true_time: bool) {
        let life = &self.life;
        self.runtime.block_on(async {
            let mut advance = pin!(tokio::time::advance(by));
            // Its first step moves the clock, and its second one lets the timers go off.
            let moved = poll!(advance.as_mut());
            if !true_time {
                let by = u64::try_from(by.as_micros()).unwrap_or(0);
                life.ahead.fetch_add(by, Ordering::Relaxed);
            }
            life.jumped.store(life.elapsed(), Ordering::Relaxed);
            if moved.is_pending() {
                advance.await;
            }
            // Either what fell due goes off first, or a call that was halted goes on.
            let due_first = by.as_millis().is_multiple_of(2);
            if due_first {
                tokio::task::yield_now().await;
            }
        });
    }

    /// True time, as far as it has come.
    pub(crate) fn now(&self) -> u64 {
        let _guard = self.runtime.enter();
        self.life.now()
    }

    pub(crate) fn resume(&self) {
        self.life.set_halt(Halt::No);
        self.life.resumed.notify_waiters();
    }

    pub(crate) fn halt_for(&self, ms: u64) {
        self.life.set_halt(Halt::Paused(ms));
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.relay.is_finished()
    }

    /// What the relay came to; `Err`: it broke.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.runtime.block_on(self.relay) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn settings(plan: &Plan, id: LifeId) -> Settings {
    let mut settings = Settings::new(format!("worker-{}", id.worker), Plan::deadlines());
    settings.backoff = Plan::backoff();
    settings.breaker = Plan::backoff();
    settings.poll_max = Duration::from_millis(500);
    settings.poll_max_with_doorbell = Duration::from_secs(2);
    settings.rescan = Duration::from_millis(plan.rescan);
    settings.exclusive = plan.exclusive;
    settings.seed = Some(life_seed(plan.seed, id.worker, id.life));
    settings
}
