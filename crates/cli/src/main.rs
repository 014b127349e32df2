//! `postrider`: the command line. It alone knows every backend; what it decides is only how to
//! ask and how to answer.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "what is not the expected kind of value is one and the same mistake of the user"
)]

mod args;
mod backend;
mod code;
mod commands;
mod config;
mod demo;
mod fault;
mod log;
mod names;
mod output;
mod plan;
mod scrub;
mod why;
mod words;

use std::{
    io::{self, BufWriter, Write},
    process::ExitCode,
};

use clap::Parser;

use fault::{Exit, Failure, Fault, Outcome};

const _: () = assert!(
    !postrider_core::mutation::COMPILED_IN,
    "the feature `mutations` holds deliberate bugs for the simulator; this program must not have it"
);

/// The relay makes and frees many small values on one thread and another, which the system's
/// allocator is slow at.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Arguments that cannot be parsed end with 2, as every other "could not".
    let cli = args::Cli::parse();
    // Two providers are built in, so one must be chosen; another choice before ours is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let outcome = match postrider_relay::runtime() {
        Ok(runtime) => runtime.block_on(async {
            let mut out = BufWriter::new(io::stdout());
            let outcome = commands::execute(cli, &mut out).await;
            finish(outcome, out.flush())
        }),
        Err(error) => Err(Fault::new(
            code::Code::RelayFailed,
            format!("the runtime cannot be started: {error}"),
            "Nothing was done.",
            "check this process's limits on threads and open files",
        )
        .into()),
    };
    end(outcome)
}

/// Output that was lost counts only if nothing worse happened.
fn finish(outcome: Outcome, flushed: io::Result<()>) -> Outcome {
    let exit = outcome?;
    flushed?;
    Ok(exit)
}

fn end(outcome: Outcome) -> ExitCode {
    let exit = match outcome {
        Ok(exit) => exit,
        Err(Failure { exit, faults }) => {
            for fault in &faults {
                output::fault(fault);
            }
            exit
        }
    };
    match exit {
        Exit::Done => ExitCode::SUCCESS,
        Exit::No => ExitCode::from(1),
        Exit::CouldNot => ExitCode::from(2),
        Exit::NotReady => ExitCode::from(3),
    }
}
