//! `postrider.toml`, the environment and `--set`, read as one configuration. Nothing is started
//! and no secret is read here.

mod build;
mod completeness;
pub(crate) mod duration;
pub(crate) mod keys;
pub(crate) mod layers;
pub(crate) mod model;
mod nearest;
mod path;
pub(crate) mod secret;
mod section;
pub(crate) mod show;
mod value;

use std::path::{Path as FilePath, PathBuf};

pub(crate) use model::Config;

use crate::{code::Code, fault::Fault};
use layers::Settings;

/// The file that is read when none is named.
pub(crate) const FILE_NAME: &str = "postrider.toml";

/// Where the layers come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    /// `--config` or `POSTRIDER_CONFIG`.
    pub(crate) file: Option<PathBuf>,
    /// `--set`, in order.
    pub(crate) assignments: Vec<String>,
    /// The environment is not looked at.
    pub(crate) alone: bool,
}

/// Reads the configuration of this process.
///
/// # Errors
/// Everything that is wrong with it, not only the first fault.
pub(crate) fn load(sources: &Sources) -> Result<Config, Vec<Fault>> {
    let mut faults = Vec::new();
    let mut settings = Settings::default();
    let path = sources
        .file
        .clone()
        .unwrap_or_else(|| PathBuf::from(FILE_NAME));
    let variables = if sources.alone {
        Vec::new()
    } else {
        environment()
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            settings.add_file(&path.display().to_string(), &text, &mut faults);
            if faults.iter().any(|fault| fault.code == Code::ConfigNotToml) {
                // Everything would be missing now.
                return Err(faults);
            }
        }
        // Everything may be in the environment.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                && sources.file.is_none()
                && has_store(&variables, &sources.assignments) => {}
        Err(error) => return Err(vec![missing(&path, sources.file.is_some(), &error)]),
    }
    settings.add_environment(variables, &mut faults);
    for assignment in &sources.assignments {
        settings.add_flag(assignment, &mut faults);
    }
    completeness::check(&settings, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    let base = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(FilePath::new("."))
        .to_owned();
    build::build(base, settings)
}

/// Variables that are not UTF-8 have names or values that no setting can have.
fn environment() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

fn has_store(variables: &[(String, String)], assignments: &[String]) -> bool {
    let variable = layers::variable("store.url");
    variables.iter().any(|(name, _)| *name == variable)
        || assignments
            .iter()
            .any(|assignment| assignment.starts_with("store.url="))
}

fn missing(path: &FilePath, named: bool, error: &std::io::Error) -> Fault {
    let what = format!("{} cannot be read: {error}", path.display());
    let fix = if named {
        "check the path given by --config or POSTRIDER_CONFIG"
    } else {
        "run `postrider init` to write one, name another with --config, or set POSTRIDER_STORE__URL"
    };
    Fault::new(
        Code::ConfigMissing,
        what,
        "Without it postrider does not know which database to use.",
        fix,
    )
}

#[cfg(test)]
mod tests;
