//! Names of things, so that one kind of number is never taken for another.

use std::fmt;

use uuid::Uuid;

/// One run of one worker. Random, never reused: it is the fencing token of all it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub Uuid);

/// One registered attempt. Chosen by the worker, so that an answer lost after the commit can be
/// asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub Uuid);

/// A registered destination version, numbered by its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationId(pub i32);

/// The place of an event in append order, assigned by the database. Positive.
///
/// Positions become visible out of order and have holes: never a proof that all below is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub i64);

impl Position {
    /// Before every event.
    pub const START: Self = Self(0);
}

/// A hash slice of a destination's partition keys, 0 to lanes - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u16);

macro_rules! display_inner {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

display_inner!(SessionId, AttemptId, DestinationId, Position, Lane);
