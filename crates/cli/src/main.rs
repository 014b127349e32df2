//! `postrider`: the command line.

mod code;
mod config;
mod fault;

fn main() {}
