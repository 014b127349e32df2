//! Where the repository is and what its packages are, as cargo tells it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The folder that holds the root Cargo.toml.
pub(crate) fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("xtask is not in a folder of the repository")
}

/// One package of this repository.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
}

/// A dependency on another package of this repository.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    pub(crate) reach: Reach,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Normal,
    /// Only with a feature that is off by default or not.
    Optional,
    Dev,
}

/// The packages of this repository with the arrows between them.
pub(crate) fn packages() -> Result<Vec<Package>> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version=1", "--no-deps"])
        .current_dir(root()?)
        .output()
        .context("running cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value =
        serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    list(&metadata, "packages")?.iter().map(package).collect()
}

fn package(value: &Value) -> Result<Package> {
    let mut dependencies = Vec::new();
    for dependency in list(value, "dependencies")? {
        // Our own packages are those found by path.
        if dependency.get("path").is_some_and(Value::is_string) {
            dependencies.push(Dependency {
                name: text(dependency, "name")?,
                reach: reach(dependency),
            });
        }
    }
    Ok(Package {
        name: text(value, "name")?,
        dependencies,
    })
}

/// A build dependency counts as a normal one: it runs at build time, but its reach is the same.
fn reach(dependency: &Value) -> Reach {
    if dependency.get("kind").is_some_and(|kind| kind == "dev") {
        Reach::Dev
    } else if dependency
        .get("optional")
        .is_some_and(|optional| optional == true)
    {
        Reach::Optional
    } else {
        Reach::Normal
    }
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a [Value]> {
    let list = value.get(name).and_then(Value::as_array);
    list.map(Vec::as_slice)
        .with_context(|| format!("cargo metadata has no list `{name}`"))
}

fn text(value: &Value, name: &str) -> Result<String> {
    let text = value.get(name).and_then(Value::as_str);
    text.map(ToOwned::to_owned)
        .with_context(|| format!("cargo metadata has no text `{name}`"))
}
