//! Many trajectories on several threads, and the report of what they came to.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{Coverage, Fault, Violation, run};

/// Unknown longer than this is past its objective (I11).
const UNKNOWN_SECONDS_MAX: u64 = 15 * 60;

/// What many trajectories came to.
#[derive(Debug)]
pub struct Report {
    pub from: u64,
    pub trajectories: u64,
    pub threads: usize,
    pub took: Duration,
    pub coverage: Coverage,
    pub events: u64,
    /// Virtual milliseconds of all.
    pub lasted: u64,
    /// By seed, each with its first violation.
    pub broken: BTreeMap<u64, Violation>,
}

/// Runs the seeds from `from` on. Threads share nothing but the count of seeds given out.
#[must_use]
pub fn gate(from: u64, trajectories: u64, threads: usize) -> Report {
    let start = Instant::now();
    let given = AtomicU64::new(0);
    let report = Mutex::new(Report {
        from,
        trajectories,
        threads,
        took: Duration::ZERO,
        coverage: Coverage::default(),
        events: 0,
        lasted: 0,
        broken: BTreeMap::new(),
    });
    let under_way: Vec<AtomicU64> = (0..threads).map(|_| AtomicU64::new(NOTHING)).collect();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watchdog = scope.spawn(|| watch(&under_way, &over));
        let mut workers = Vec::new();
        for under_way in &under_way {
            workers.push(scope.spawn(|| {
                let part = work(from, trajectories, &given, under_way);
                report
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(part);
            }));
        }
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        watchdog.thread().unpark();
        for worker in ended {
            // A panic outside of a trajectory is a fault of the simulator.
            worker.expect("no worker panics");
        }
    });
    let mut report = report.into_inner().unwrap_or_else(PoisonError::into_inner);
    report.took = start.elapsed();
    report
}

/// What one thread found.
#[derive(Default)]
struct Part {
    coverage: Coverage,
    events: u64,
    lasted: u64,
    broken: BTreeMap<u64, Violation>,
}

/// No seed is under way.
const NOTHING: u64 = u64::MAX;

/// A relay that spins without waiting lets no virtual time pass, and its thread cannot be
/// stopped. Nothing is left but to name the seed and end the process.
#[expect(clippy::print_stderr, reason = "the process ends here")]
fn watch(under_way: &[AtomicU64], over: &AtomicBool) {
    /// Ten thousand times what a trajectory takes.
    const STUCK: Duration = Duration::from_secs(30);
    let mut seen: Vec<(u64, Instant)> = vec![(NOTHING, Instant::now()); under_way.len()];
    while !over.load(Ordering::Relaxed) {
        for (seen, seed) in seen.iter_mut().zip(under_way) {
            let seed = seed.load(Ordering::Relaxed);
            if seed != seen.0 || seed == NOTHING {
                *seen = (seed, Instant::now());
            } else if seen.1.elapsed() > STUCK {
                eprintln!("seed {seed} does not end: something spins without waiting");
                std::process::exit(1);
            }
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// The seed of a thread, for as long as it has one: a thread that panicked has none.
struct UnderWay<'a>(&'a AtomicU64);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.store(NOTHING, Ordering::Relaxed);
    }
}

fn work(from: u64, trajectories: u64, given: &AtomicU64, under_way: &AtomicU64) -> Part {
    let mut part = Part::default();
    let under_way = UnderWay(under_way);
    loop {
        let next = given.fetch_add(1, Ordering::Relaxed);
        if next >= trajectories {
            return part;
        }
        let seed = from.wrapping_add(next);
        under_way.0.store(seed, Ordering::Relaxed);
        let outcome = run(seed, false);
        part.coverage.add(&outcome.coverage);
        part.events += outcome.events;
        part.lasted += outcome.lasted;
        if let Some(violation) = outcome.violation {
            part.broken.insert(seed, violation);
        }
    }
}

impl Report {
    fn add(&mut self, part: Part) {
        self.coverage.add(&part.coverage);
        self.events += part.events;
        self.lasted += part.lasted;
        self.broken.extend(part.broken);
    }

    /// Nothing broke, and everything that can happen did.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.broken.is_empty()
            && self.coverage.unreached().is_empty()
            && self.unstruck().is_empty()
            && self.past_objective() == 0
    }

    /// Faults that are drawn and never struck.
    fn unstruck(&self) -> Vec<String> {
        let struck = |name: &String| self.coverage.faults.contains_key(name);
        Fault::names()
            .into_iter()
            .filter(|name| !struck(name))
            .collect()
    }

    fn broken_by(&self, invariants: &[&str]) -> usize {
        let named = |violation: &&Violation| {
            let number = violation.invariant.split(' ').next().unwrap_or_default();
            invariants.contains(&number)
        };
        self.broken.values().filter(named).count()
    }

    fn past_objective(&self) -> u64 {
        let late = self.coverage.unknown_seconds.range(UNKNOWN_SECONDS_MAX..);
        late.map(|(_, count)| count).sum()
    }

    /// The 99th percentile, in whole virtual seconds.
    fn unknown_p99(&self) -> u64 {
        let seconds = &self.coverage.unknown_seconds;
        let total: u64 = seconds.values().sum();
        let mut below = 0;
        for (value, count) in seconds {
            below += count;
            if below * 100 >= total * 99 {
                return *value;
            }
        }
        0
    }

    fn faults(&self) -> u64 {
        self.coverage.faults.values().sum()
    }
}

impl fmt::Display for Report {
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.trajectories.max(1) as f64;
        writeln!(
            f,
            "{} trajectories from seed {} on {} threads in {:.1} s: {:.0} each second",
            self.trajectories,
            self.from,
            self.threads,
            self.took.as_secs_f64(),
            each / self.took.as_secs_f64()
        )?;
        writeln!(
            f,
            "each: {:.1} events, {:.1} faults, {:.1} virtual seconds",
            self.events as f64 / each,
            self.faults() as f64 / each,
            self.lasted as f64 / each / 1000.0
        )?;
        let lines = [
            (
                "lost events (I1, I2, I18)",
                self.broken_by(&["I1", "I2", "I18"]),
            ),
            (
                "second logical ids (I3, I12)",
                self.broken_by(&["I3", "I12"]),
            ),
            ("cross-destination sends (I9)", self.broken_by(&["I9"])),
            (
                "late valid acknowledgements not kept (I7)",
                self.broken_by(&["I7"]),
            ),
            ("all violations", self.broken.len()),
        ];
        for (what, count) in lines {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(
            f,
            "{:>9}  unknown past 15 virtual minutes, where the destination resends; p99 {} s",
            self.past_objective(),
            self.unknown_p99()
        )?;
        for (what, count) in &self.coverage.counts {
            writeln!(f, "{count:>9}  {what}")?;
        }
        writeln!(f, "faults that struck:")?;
        for (name, count) in &self.coverage.faults {
            writeln!(f, "{count:>9}  {name}")?;
        }
        for name in self.unstruck() {
            writeln!(f, "NO STRIKE  {name}")?;
        }
        writeln!(f, "rows of the delivery table that were walked:")?;
        for ((state, happening), count) in &self.coverage.transitions {
            writeln!(f, "{count:>9}  {} {happening:?}", state.word())?;
        }
        for (state, happening, reason) in Coverage::excused() {
            writeln!(f, "  excused  {} {happening:?}: {reason}", state.word())?;
        }
        for (state, happening) in self.coverage.unreached() {
            writeln!(f, "UNREACHED  {} {happening:?}", state.word())?;
        }
        for (seed, violation) in self.broken.iter().take(20) {
            writeln!(f, "BROKEN     seed {seed}: {violation}")?;
        }
        Ok(())
    }
}
