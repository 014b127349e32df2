//! Append for applications, against real databases.

mod drivers;
mod postgres;
mod sealing;
mod support;
