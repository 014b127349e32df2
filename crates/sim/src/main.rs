//! The simulator's command line.

#![expect(clippy::print_stdout, reason = "its output is its product")]

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use postrider_sim::{Coverage, run};

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
    },
    /// Runs many, and fails if any promise is broken.
    Gate {
        #[arg(long)]
        trajectories: u64,
        /// The first seed.
        #[arg(long, default_value_t = 0)]
        from: u64,
    },
}

fn main() -> ExitCode {
    match Arguments::parse() {
        Arguments::Run { seed, trace } => one(seed, trace),
        Arguments::Gate { trajectories, from } => gate(from, trajectories),
    }
}

fn one(seed: u64, trace: bool) -> ExitCode {
    let outcome = run(seed, trace);
    for line in &outcome.story {
        println!("{line}");
    }
    match outcome.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            println!("seed {seed}: {violation}");
            println!("replay it: cargo run -p postrider-sim -- run --seed {seed} --trace");
            ExitCode::FAILURE
        }
    }
}

fn gate(from: u64, trajectories: u64) -> ExitCode {
    let start = Instant::now();
    let mut total = Coverage::default();
    let mut broken = 0;
    for seed in from..from + trajectories {
        let outcome = run(seed, false);
        total.add(&outcome.coverage);
        if let Some(violation) = outcome.violation {
            broken += 1;
            println!("seed {seed}: {violation}");
        }
    }
    let took = start.elapsed();
    println!("{total:#?}");
    println!("unreached: {:?}", total.unreached());
    println!("{trajectories} trajectories in {took:?}, {broken} broken");
    if broken == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
