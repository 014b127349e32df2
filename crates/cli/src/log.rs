//! Logs to standard error: a constant message with fields, as text or JSON, without secrets.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::{config::model::Log, scrub};

/// For a daemon: as configured.
pub(crate) fn start(log: &Log) {
    init(log, &log.level);
}

/// For a command whose answer is on standard output: only what went wrong, unless a level is
/// configured.
pub(crate) fn start_quiet(log: &Log) {
    let level = if log.level_given { &log.level } else { "warn" };
    init(log, level);
}

fn init(log: &Log, level: &str) {
    // The configuration was checked, so that the directives can be read.
    let filter = EnvFilter::try_new(level).unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Clean);
    let result = if log.json {
        builder.json().flatten_event(true).try_init()
    } else {
        let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        builder.with_ansi(colour).try_init()
    };
    if let Err(error) = result {
        crate::output::say(&format!("warning: logs cannot be written: {error}"));
    }
}

/// Writes each line without the secrets that were read.
struct Clean;

impl<'a> MakeWriter<'a> for Clean {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line(Vec::new())
    }
}

/// One line, written whole when it is complete.
struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.0);
        // A log that nobody can read any more must not stop the relay.
        drop(io::stderr().write_all(scrub::clean(&text).as_bytes()));
    }
}
