//! The store on a real server, directly and through PgBouncer. One program, so that it links once.

mod appending;
mod conformance;
mod differential;
mod field_cases;
mod harness;
mod pooler;
mod vectors;
