//! Append for applications, against real databases.

mod documentation;
mod drivers;
mod field_cases;
mod postgres;
mod programs;
mod sealing;
mod sqlite;
mod support;
