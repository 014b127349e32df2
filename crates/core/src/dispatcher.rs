//! The pipeline of one destination.
