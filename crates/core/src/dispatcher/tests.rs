//! Tests of the dispatcher machine.
