//! Running other programs, shown on the terminal as they are run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Runs a command with our terminal; a failure is an error that shows the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("$ {line}");
    let status = command
        .status()
        .with_context(|| format!("starting {line}"))?;
    ensure!(status.success(), "`{line}` failed with {status}");
    Ok(())
}

/// Runs a command in silence and returns its standard output.
pub(crate) fn read(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .output()
        .with_context(|| format!("starting {line}"))?;
    ensure!(
        output.status.success(),
        "`{line}` failed with {}:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` printed no text"))
}

/// Whether a command can be started and succeeds.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}

/// The program `name` in the folders of PATH, or in those that only root has there.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
