//! What a run came to, as a table and as JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

use crate::{
    audit::Check,
    evidence::{Counts, Evidence},
    fault::Kind,
    journal::Endings,
    run::Tally,
};

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) schema: &'static str,
    pub(crate) world: &'static str,
    pub(crate) seed: u64,
    pub(crate) minutes: f64,
    /// The names of the only faults; empty: all.
    pub(crate) only: Vec<String>,
    pub(crate) faults: BTreeMap<Kind, Tally>,
    /// What was still open when the wait ended.
    pub(crate) not_drained: Option<String>,
    /// Why a relay did not end well when it was told to.
    pub(crate) not_stopped: Option<String>,
    pub(crate) audit: Vec<Check>,
    pub(crate) transactions: Endings,
    pub(crate) events: u64,
    pub(crate) outbox: Counts,
    /// Of sends that were not acknowledged, unknown ones among them.
    pub(crate) codes: BTreeMap<String, u64>,
    pub(crate) destinations: BTreeMap<String, Copies>,
    pub(crate) redeliveries_to_consumers: Option<u64>,
    pub(crate) relays_ended_by_themselves: u64,
}

/// What a destination holds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Copies {
    pub(crate) events: u64,
    /// Beyond the first copy of each.
    pub(crate) duplicates: u64,
}

pub(crate) fn copies(evidence: &Evidence) -> BTreeMap<String, Copies> {
    let of = |arrivals: &[crate::evidence::Arrival]| {
        let distinct: BTreeSet<_> = arrivals.iter().map(|arrival| arrival.event).collect();
        Copies {
            events: distinct.len() as u64,
            duplicates: (arrivals.len() - distinct.len()) as u64,
        }
    };
    let destinations = evidence.arrivals.iter();
    destinations
        .map(|(name, arrivals)| (name.clone(), of(arrivals)))
        .collect()
}

impl Report {
    /// Nothing is broken or left over, and every kind of fault really struck, or cannot here.
    pub(crate) fn passes(&self) -> bool {
        self.not_drained.is_none()
            && self.not_stopped.is_none()
            && self.audit.iter().all(|check| check.broken == 0)
            && self.events > 0
            && self.faults.values().all(Tally::has_struck)
    }

    /// The command that runs the same again.
    pub(crate) fn replay(&self) -> String {
        let Self {
            world,
            seed,
            minutes,
            only,
            ..
        } = self;
        let only: String = only.iter().map(|name| format!(" --only {name}")).collect();
        format!("cargo xtask torture {world} --seed {seed} --minutes {minutes}{only}")
    }
}

impl Tally {
    pub(crate) fn has_struck(&self) -> bool {
        self.failed.is_empty() && self.scheduled > 0 && (self.struck > 0 || self.left_out > 0)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            world,
            seed,
            minutes,
            ..
        } = self;
        writeln!(f, "{world}, seed {seed}, {minutes} minutes\n")?;
        self.write_faults(f)?;
        self.write_counts(f)?;
        self.write_audit(f)?;
        for story in self.not_drained.iter().chain(&self.not_stopped) {
            writeln!(f, "{story}")?;
        }
        if self.passes() {
            writeln!(f, "all good")
        } else {
            writeln!(f, "FAILED; replay it: {}", self.replay())
        }
    }
}

impl Report {
    fn write_faults(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<32}{:>10}{:>8}{:>10}",
            "fault", "scheduled", "struck", "left out"
        )?;
        for (kind, tally) in &self.faults {
            let Tally {
                scheduled,
                struck,
                left_out,
                ..
            } = tally;
            let kind = kind.to_string();
            write!(f, "{kind:<32}{scheduled:>10}{struck:>8}{left_out:>10}")?;
            if let Some(why) = tally.why_left_out {
                write!(f, "  {why}")?;
            }
            writeln!(f)?;
            for story in &tally.failed {
                writeln!(f, "    did not strike: {story}")?;
            }
        }
        writeln!(f)
    }

    fn write_counts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |what: &str, count: u64| writeln!(f, "{what:<32}{count:>10}");
        let Endings {
            committed,
            rolled_back,
            failed,
            unknown,
            unknown_committed,
        } = self.transactions;
        line("transactions committed", committed)?;
        line("  rolled back", rolled_back)?;
        line("  failed before COMMIT", failed)?;
        line("  COMMIT without an answer", unknown)?;
        line("    had committed", unknown_committed)?;
        line("events committed", self.events)?;
        let counts = &self.outbox;
        line("sessions", counts.sessions)?;
        line("  lost", counts.sessions_expired)?;
        line("attempts", counts.attempts)?;
        line("  finished by recovery", counts.attempts_recovered)?;
        line("sends that were not accepted", self.codes.values().sum())?;
        for (code, count) in &self.codes {
            line(&format!("  {code}"), *count)?;
        }
        line("late receipts", counts.late_receipts)?;
        line("duplicate receipts", counts.duplicate_receipts)?;
        for (destination, copies) in &self.destinations {
            line(&format!("events at {destination}"), copies.events)?;
            line("  duplicates there", copies.duplicates)?;
        }
        if let Some(count) = self.redeliveries_to_consumers {
            line("redeliveries to consumers", count)?;
        }
        let ended = self.relays_ended_by_themselves;
        line("relays that ended by themselves", ended)?;
        writeln!(f)
    }

    fn write_audit(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32}{:>10}", "audit", "broken")?;
        for check in &self.audit {
            writeln!(f, "{:<32}{:>10}", check.name, check.broken)?;
            for example in &check.examples {
                writeln!(f, "    {example}")?;
            }
        }
        writeln!(f)
    }
}
