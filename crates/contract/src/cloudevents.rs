//! CloudEvents 1.0.
