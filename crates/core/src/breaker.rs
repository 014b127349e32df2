//! The circuit breaker of one destination.
