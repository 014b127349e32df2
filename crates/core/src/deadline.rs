//! The one owner of every time limit, refusing contradictory settings.
