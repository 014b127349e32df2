//! The clock of one process, stepped by libfaketime where that is installed. Only the wall clock
//! is: a monotonic one never steps.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// The variant for programs with threads.
const LIBRARY: &str = "libfaketimeMT.so.1";

/// Where the library is, if it is anywhere.
pub(crate) fn library() -> Option<PathBuf> {
    let machines = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let places = machines.map(|machine| format!("/usr/lib/{machine}/faketime/{LIBRARY}"));
    places.into_iter().map(PathBuf::from).find(|at| at.exists())
}

/// A clock that is some seconds off.
#[derive(Debug)]
pub(crate) struct SteppedClock {
    library: PathBuf,
    offset: PathBuf,
}

impl SteppedClock {
    /// A clock that is right, told by a file in `folder`.
    pub(crate) fn new(library: &Path, folder: &Path) -> Result<Self> {
        let clock = Self {
            library: library.to_owned(),
            offset: folder.join("clock"),
        };
        clock.step(0)?;
        Ok(clock)
    }

    pub(crate) fn give_to(&self, command: &mut Command) {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.offset)
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("FAKETIME_NO_CACHE", "1");
    }

    /// Sets it off by so many seconds, at once.
    pub(crate) fn step(&self, seconds: i32) -> Result<()> {
        // Never half written for a reader: each look reads the whole file.
        let new = self.offset.with_extension("new");
        std::fs::write(&new, format!("{seconds:+}s\n"))?;
        std::fs::rename(&new, &self.offset).context("stepping a clock")
    }

    /// That the process has the library, so that the step is one.
    pub(crate) fn ensure_stepped(&self, pid: u32) -> Result<()> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))?;
        ensure!(
            maps.contains(LIBRARY),
            "process {pid} runs by the true clock"
        );
        Ok(())
    }
}
