//! Measures what delivery costs, beside the limit of the same machine in the same run.
#![expect(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

mod drain;
mod limit;
mod poison;
mod setup;
mod worker;

use clap::{Parser, Subcommand};

/// The relay makes and frees many small values on one thread and another, which the system's
/// allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Benchmarks of postrider, as ratios to the limit measured in the same run")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drains a backlog from Postgres to a JetStream file stream: the limit, then the relay.
    Drain(drain::Args),
    /// Drains the same backlog without and with keys whose first event is refused.
    Poison(poison::Args),
    /// Runs one relay between a Postgres and a JetStream server, until it is told to stop or has
    /// nothing left to do. The other commands, and tests, run it as a process of its own.
    Relay(worker::Args),
}

fn main() -> anyhow::Result<()> {
    let runtime = postrider_relay::runtime()?;
    match Cli::parse().command {
        Command::Drain(args) => runtime.block_on(drain::run(&args)),
        Command::Poison(args) => runtime.block_on(poison::run(&args)),
        Command::Relay(args) => runtime.block_on(worker::run(args)),
    }
}
