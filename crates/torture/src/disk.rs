//! A small disk of our own that can be filled up: a tmpfs, which needs root to be mounted.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// Holds what the longest run stores. It takes memory only as it is used, and for as long as it is
/// full.
const MEGABYTES: u32 = 256;
const BLOCK: usize = 64 * 1024;

/// A folder that is a disk of its own where mounting is permitted, and else just a folder.
#[derive(Debug)]
pub(crate) struct SmallDisk {
    folder: TempDir,
    mounted: bool,
}

impl SmallDisk {
    pub(crate) fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("postrider-test-disk-")
            .tempdir()
            .context("creating a temporary folder")?;
        let mounted = rustix::process::geteuid().is_root()
            && quietly(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &format!("size={MEGABYTES}m"), "tmpfs"])
                    .arg(folder.path()),
            );
        Ok(Self { folder, mounted })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn can_be_filled(&self) -> bool {
        self.mounted
    }

    /// Takes all the space that is left.
    pub(crate) fn fill(&self) -> Result<()> {
        ensure!(self.mounted, "this folder is no disk of its own");
        let mut file = File::create(self.filler())?;
        let block = [0; BLOCK];
        for length in [BLOCK, 1] {
            loop {
                match file.write(&block[..length]) {
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::StorageFull => break,
                    Err(error) => bail!("filling the disk: {error}"),
                }
            }
        }
        Ok(())
    }

    /// Gives it back.
    pub(crate) fn free(&self) -> Result<()> {
        match std::fs::remove_file(self.filler()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error).context("removing the filler"),
        }
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if self.mounted {
            // Lazily: whatever still has a file open there must not keep it in place.
            quietly(Command::new("umount").arg("--lazy").arg(self.path()));
        }
    }
}

fn quietly(command: &mut Command) -> bool {
    let status = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
