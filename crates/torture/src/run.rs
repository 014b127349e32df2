//! One run: faults by the schedule while writers write, then healing, draining and the audit.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use futures::future::join_all;
use serde::Serialize;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    audit::audit,
    fault::Kind,
    report::{Report, copies},
    schedule::{self, Course},
    world::{Given, Struck, World},
};

/// Writers go on for this long after the last fault.
const AFTER_THE_FAULTS: Duration = Duration::from_secs(2);
/// What is not delivered this long after everything was healed is stuck: far more than the longest
/// pause between two attempts, a lease and a clock step together.
const DRAIN_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(200);
const ONE_LOOK_WITHIN: Duration = Duration::from_secs(10);

/// How often a kind of fault was due, and what came of it.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Tally {
    pub(crate) scheduled: u64,
    pub(crate) struck: u64,
    pub(crate) left_out: u64,
    pub(crate) why_left_out: Option<&'static str>,
    /// Strikes that failed, and how.
    pub(crate) failed: Vec<String>,
}

/// What is told while it runs.
#[derive(Debug)]
struct Story {
    start: Instant,
    tallies: Mutex<BTreeMap<Kind, Tally>>,
}

/// Runs a world from its building to its report. SIGINT and SIGTERM end it early, as an error; all
/// processes end with the world.
pub(crate) async fn run<W: World>(given: &Given) -> Result<Report> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        report = whole::<W>(given) => report,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("told to end"),
    }
}

async fn whole<W: World>(given: &Given) -> Result<Report> {
    let mut courses = schedule::draw(given.seed, given.time, W::TRACKS);
    if !given.only.is_empty() {
        schedule::keep_only(&mut courses, &given.only)
            .with_context(|| format!("--only {:?}: not all are faults of this run", given.only))?;
    }
    tell(&format!("seed {}, {} s", given.seed, given.time.as_secs()));
    for Course { track, strikes } in &courses {
        tell(&format!("{track}:"));
        strikes.iter().for_each(|strike| tell(&strike.to_string()));
    }
    let world = W::build(given).await.context("building the world")?;
    let (stop, stopped) = watch::channel(false);
    let writers = world.write(given, &stopped);
    let story = Story {
        start: Instant::now(),
        tallies: Mutex::default(),
    };
    let drained = {
        let faults = async {
            join_all(courses.iter().map(|course| follow(&world, course, &story))).await;
            world.heal().await.context("healing")?;
            story.tell("all faults are over");
            // Not before the time of faults is over, where some were left out.
            let striking = schedule::striking(given.time);
            sleep_until(story.start + striking).await;
            sleep(AFTER_THE_FAULTS).await;
            stop.send_replace(true);
            for writer in writers {
                writer.await.context("a writer panicked")?;
            }
            story.tell("the writers stopped");
            anyhow::Ok(drain(&world).await)
        };
        tokio::select! {
            drained = faults => drained?,
            ended = world.keep_running() => bail!("keeping the processes up: {ended:?}"),
        }
    };
    story.tell(drained.as_deref().unwrap_or("drained"));
    let stopping = world.stop().await.err().map(|error| format!("{error:#}"));
    let mut evidence = world.evidence().await.context("asking the stores")?;
    evidence.known = std::mem::take(&mut *given.journal.known());
    let report = Report {
        schema: "postrider.torture/1",
        world: W::NAME,
        seed: given.seed,
        minutes: given.time.as_secs_f64() / 60.0,
        only: given.only.clone(),
        faults: story
            .tallies
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner),
        not_drained: drained,
        not_stopped: stopping,
        audit: audit(&evidence),
        transactions: evidence.known.endings,
        events: evidence.known.committed.len() as u64,
        outbox: evidence.database.counts,
        codes: std::mem::take(&mut evidence.database.codes),
        destinations: copies(&evidence),
        redeliveries_to_consumers: evidence.consumed.as_ref().map(|one| one.redeliveries),
        relays_ended_by_themselves: world.ended_by_themselves(),
    };
    if !report.passes() {
        keep_logs(&world, &report).await?;
    }
    Ok(report)
}

async fn follow<W: World>(world: &W, course: &Course, story: &Story) {
    for strike in &course.strikes {
        sleep_until(story.start + strike.at).await;
        story.tell(&strike.kind.to_string());
        let struck = world.strike(strike).await;
        story.count(strike.kind, struck);
    }
}

/// Nothing once all is delivered, and else what is not.
async fn drain<W: World>(world: &W) -> Option<String> {
    let end = Instant::now() + DRAIN_WITHIN;
    loop {
        let left = match timeout(ONE_LOOK_WITHIN, world.left()).await {
            Ok(Ok(None)) => return None,
            Ok(Ok(Some(left))) => left,
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => "the database does not answer".to_owned(),
        };
        if Instant::now() >= end {
            return Some(format!("not drained within {DRAIN_WITHIN:?}: {left}"));
        }
        sleep(LOOK_EVERY).await;
    }
}

impl Story {
    fn tell(&self, what: &str) {
        tell(&format!(
            "[{:7.1} s] {what}",
            self.start.elapsed().as_secs_f64()
        ));
    }

    fn count(&self, kind: Kind, struck: Result<Struck>) {
        if let Err(error) = &struck {
            self.tell(&format!("{kind} did not strike: {error:#}"));
        }
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let tally = tallies.entry(kind).or_default();
        tally.scheduled += 1;
        match struck {
            Ok(Struck::Yes) => tally.struck += 1,
            Ok(Struck::LeftOut(why)) => {
                tally.left_out += 1;
                tally.why_left_out = Some(why);
            }
            Err(error) => tally.failed.push(format!("{error:#}")),
        }
    }
}

/// For whoever looks for the cause.
async fn keep_logs<W: World>(world: &W, report: &Report) -> Result<()> {
    let seed = report.seed;
    let folder = std::env::temp_dir().join(format!("postrider-torture-{}-{seed}", W::NAME));
    std::fs::create_dir_all(&folder)?;
    for (name, text) in world.logs() {
        std::fs::write(folder.join(format!("{name}.log")), text)?;
    }
    let mut stories = String::new();
    for example in report.audit.iter().flat_map(|check| &check.examples) {
        stories += &format!("{example}\n");
        for event in example
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
        {
            for line in world.story(event).await? {
                stories += &format!("    {event}: {line}\n");
            }
        }
    }
    std::fs::write(folder.join("stories.txt"), stories)?;
    tell(&format!("the logs are kept in {}", folder.display()));
    Ok(())
}

#[expect(
    clippy::print_stderr,
    reason = "the story, beside the report on standard output"
)]
fn tell(what: &str) {
    eprintln!("{what}");
}
