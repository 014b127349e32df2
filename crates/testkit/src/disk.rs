//! A small disk of our own that can be filled up: a tmpfs, which needs root to be mounted.

use std::{
    fs::File,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

use crate::watchdog::Watchdog;

/// Holds what tests store. It takes memory only as it is used.
const MEGABYTES: u32 = 256;
const BLOCK: usize = 1024 * 1024;

/// A folder that is a disk of its own where mounting is permitted, and else just a folder.
#[derive(Debug)]
pub struct SmallDisk {
    mounted: bool,
    // Unmounts it when we are killed.
    _watchdog: Watchdog,
    folder: TempDir,
}

impl SmallDisk {
    /// An empty one.
    pub fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("postrider-test-disk-")
            .tempdir()
            .context("creating a temporary folder")?;
        let watchdog = Watchdog::over(folder.path())?;
        let mounted = rustix::process::geteuid().is_root()
            && quietly(
                Command::new("mount")
                    .args(["-t", "tmpfs", "-o", &format!("size={MEGABYTES}m"), "tmpfs"])
                    .arg(folder.path()),
            );
        Ok(Self {
            mounted,
            _watchdog: watchdog,
            folder,
        })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Whether it is a disk of its own.
    #[must_use]
    pub fn can_be_filled(&self) -> bool {
        self.mounted
    }

    /// Takes all the space that is left.
    pub fn fill(&self) -> Result<()> {
        ensure!(self.mounted, "this folder is no disk of its own");
        let mut file = File::create(self.filler())?;
        let block = vec![0; BLOCK];
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
    pub fn free(&self) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_takes_nothing_until_there_is_room_again() -> Result<()> {
        let disk = SmallDisk::new()?;
        if !disk.can_be_filled() {
            assert!(
                disk.fill().is_err(),
                "the disk of the machine must not be filled"
            );
            return Ok(());
        }
        let mine = disk.path().join("mine");
        disk.fill()?;
        let full = std::fs::write(&mine, "x").map_err(|error| error.kind());
        assert_eq!(full, Err(std::io::ErrorKind::StorageFull));
        disk.free()?;
        std::fs::write(&mine, "x")?;
        let path = disk.path().to_owned();
        drop(disk);
        assert!(!path.exists());
        Ok(())
    }
}
