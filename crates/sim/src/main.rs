//! The simulator's command line.

#![expect(clippy::print_stdout, reason = "its output is its product")]

use std::{process::ExitCode, thread::available_parallelism};

use clap::Parser;
use postrider_sim::{Fault, Shrunk, faults, gate, run_faults, shrink};

/// A trajectory is some thousand small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The relay that ships, in a simulated world.
#[derive(Debug, Parser)]
enum Arguments {
    /// Runs one trajectory.
    Run {
        #[arg(long)]
        seed: u64,
        /// Tells the whole story.
        #[arg(long)]
        trace: bool,
        /// Only these of its faults, by their place in the list; `none` for none.
        #[arg(long, value_parser = places)]
        faults: Option<Places>,
        /// With this deliberate bug.
        #[cfg(feature = "mutations")]
        #[arg(long)]
        mutation: Option<String>,
    },
    /// Runs many, and fails if a promise is broken or something never happened.
    Gate {
        #[arg(long, default_value_t = 1_000_000)]
        trajectories: u64,
        /// The first seed: a number, or the hash of a commit.
        #[arg(long, default_value = "0", value_parser = first_seed)]
        from: u64,
        #[arg(long)]
        threads: Option<usize>,
    },
    /// Makes the fault list of a failing seed as short as it goes.
    Shrink {
        #[arg(long)]
        seed: u64,
        /// With this deliberate bug.
        #[cfg(feature = "mutations")]
        #[arg(long)]
        mutation: Option<String>,
    },
    /// Shows that each deliberate bug is seen.
    #[cfg(feature = "mutations")]
    Mutations {
        #[arg(long, default_value_t = 20_000)]
        seeds_max: u64,
    },
}

/// A commit's hash gives fresh seeds to each commit, and the same ones to whoever looks again.
fn first_seed(text: &str) -> Result<u64, String> {
    if text.len() >= 40 {
        let head = text.get(..12).unwrap_or(text);
        return u64::from_str_radix(head, 16).map_err(|error| error.to_string());
    }
    text.parse::<u64>().map_err(|error| error.to_string())
}

/// Places in a list of faults.
#[derive(Clone, Debug)]
struct Places(Vec<usize>);

fn places(text: &str) -> Result<Places, std::num::ParseIntError> {
    if text == "none" {
        return Ok(Places(Vec::new()));
    }
    let places = text.split(',').map(str::parse);
    places.collect::<Result<_, _>>().map(Places)
}

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::Run {
            seed,
            trace,
            faults,
            #[cfg(feature = "mutations")]
            mutation,
        } => {
            #[cfg(feature = "mutations")]
            if let Some(name) = mutation {
                return with_mutation::one(&name, || one(seed, trace, faults.map(|kept| kept.0)));
            }
            one(seed, trace, faults.map(|kept| kept.0))
        }
        Arguments::Gate {
            trajectories,
            from,
            threads: given,
        } => {
            let report = gate(from, trajectories, given.unwrap_or_else(threads));
            println!("{report}");
            if let Some(seed) = report.broken.keys().next() {
                println!("replay it: {}", replay(*seed, None));
            }
            exit(report.passes())
        }
        Arguments::Shrink {
            seed,
            #[cfg(feature = "mutations")]
            mutation,
        } => {
            #[cfg(feature = "mutations")]
            if let Some(name) = mutation {
                return with_mutation::shrink(seed, &name);
            }
            shrunk(seed)
        }
        #[cfg(feature = "mutations")]
        Arguments::Mutations { seeds_max } => with_mutation::table(seeds_max),
    }
}

fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn replay(seed: u64, kept: Option<&[usize]>) -> String {
    format!("cargo run -p postrider-sim -- run{}", arguments(seed, kept))
}

/// What `run` takes to tell the story of a seed, with these of its faults.
fn arguments(seed: u64, kept: Option<&[usize]>) -> String {
    let faults = kept.map_or_else(String::new, |kept| {
        let places: Vec<String> = kept.iter().map(ToString::to_string).collect();
        let places = if places.is_empty() {
            "none".to_owned()
        } else {
            places.join(",")
        };
        format!(" --faults {places}")
    });
    format!(" --seed {seed}{faults} --trace")
}

fn chosen(seed: u64, kept: &[usize]) -> Vec<Fault> {
    let all = faults(seed);
    kept.iter()
        .filter_map(|index| all.get(*index))
        .copied()
        .collect()
}

fn one(seed: u64, trace: bool, kept: Option<Vec<usize>>) -> ExitCode {
    let kept = kept.unwrap_or_else(|| (0..faults(seed).len()).collect());
    if trace {
        tell_faults(seed, &kept);
    }
    let outcome = run_faults(seed, &chosen(seed, &kept), trace);
    for line in &outcome.story {
        println!("{line}");
    }
    if let Some(violation) = &outcome.violation {
        println!("seed {seed}: {violation}");
        println!("replay it: {}", replay(seed, Some(&kept)));
    }
    exit(outcome.violation.is_none())
}

fn tell_faults(seed: u64, kept: &[usize]) {
    for (index, fault) in faults(seed).iter().enumerate() {
        let word = if kept.contains(&index) {
            "fault"
        } else {
            "left out"
        };
        println!("{word} {index}: {fault}");
    }
}

fn shrunk(seed: u64) -> ExitCode {
    let Some(Shrunk { kept, violation }) = shrink(seed) else {
        println!("seed {seed} breaks nothing");
        return ExitCode::SUCCESS;
    };
    tell_faults(seed, &kept);
    for line in &run_faults(seed, &chosen(seed, &kept), true).story {
        println!("{line}");
    }
    println!("seed {seed}: {violation}");
    println!("replay it: {}", replay(seed, Some(&kept)));
    ExitCode::FAILURE
}

#[cfg(feature = "mutations")]
mod with_mutation {
    use std::{
        process::ExitCode,
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use postrider_core::mutation::Mutation;
    use postrider_sim::mutations::{Line, hunt, shrink_with, story_with, with};

    fn named(name: &str) -> Option<Mutation> {
        let named = |mutation: &&Mutation| format!("{mutation:?}") == name;
        let found = Mutation::ALL.iter().find(named).copied();
        if found.is_none() {
            println!("there is no mutation {name}; they are {:?}", Mutation::ALL);
        }
        found
    }

    pub(super) fn one(name: &str, run: impl FnOnce() -> ExitCode) -> ExitCode {
        named(name).map_or(ExitCode::FAILURE, |mutation| with(mutation, run))
    }

    pub(super) fn shrink(seed: u64, name: &str) -> ExitCode {
        let Some(mutation) = named(name) else {
            return ExitCode::FAILURE;
        };
        let Some(shrunk) = shrink_with(mutation, seed) else {
            println!("seed {seed} does not see {mutation:?}");
            return ExitCode::FAILURE;
        };
        super::tell_faults(seed, &shrunk.kept);
        for line in &story_with(mutation, seed, &shrunk.kept) {
            println!("{line}");
        }
        println!("seed {seed} with {mutation:?}: {}", shrunk.violation);
        println!(
            "replay it: cargo run -p postrider-sim --features mutations -- run --mutation \
             {mutation:?}{}",
            super::arguments(seed, Some(&shrunk.kept))
        );
        ExitCode::SUCCESS
    }

    pub(super) fn table(seeds_max: u64) -> ExitCode {
        let next = AtomicUsize::new(0);
        let lines: Mutex<Vec<Line>> = Mutex::default();
        std::thread::scope(|scope| {
            for _ in 0..super::threads() {
                scope.spawn(|| {
                    while let Some(mutation) =
                        Mutation::ALL.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let line = hunt(*mutation, seeds_max);
                        lines
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(line);
                    }
                });
            }
        });
        let mut lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
        lines.sort_by_key(|line| line.mutation);
        for line in &lines {
            let name = format!("{:?}", line.mutation);
            match &line.caught {
                Some((seed, violation)) => println!(
                    "{name:<24} {:<24} after {:>5} seeds: {}",
                    violation.invariant,
                    seed + 1,
                    violation.detail
                ),
                None => println!("{name:<24} NOT CAUGHT in {seeds_max} seeds"),
            }
        }
        super::exit(lines.iter().all(|line| line.caught.is_some()))
    }
}
