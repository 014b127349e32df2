//! `postrider`: the command line.

mod code;
mod config;
mod args;
mod fault;
mod output;
mod scrub;

fn main() {}
