//! The life of one session.
