//! The shipped binary in a folder of its own.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test binary uses what it needs of it"
)]

pub mod receiver;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A folder with a configuration, and the environment of every command in it.
pub struct Place {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

/// What a command answered.
pub struct Answer {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// A configuration with one destination, of one connection of the same name, to which events of
/// type `order.placed` go. `store` is the URL as TOML; `connection` and `destination` are what
/// stands in their tables beside that.
pub fn configuration(store: &str, name: &str, connection: &str, destination: &str) -> String {
    format!(
        r#"
[store]
url = {store}
[admin]
listen = "off"
[connections.{name}]
{connection}
[destinations.{name}]
connection = "{name}"
{destination}
[[event_types]]
event_type = "order.placed"
schema_version = "1"
[[routes]]
event_type = "order.placed"
schema_version = "1"
destinations = ["{name}"]
"#
    )
}

/// As `store` for a database of a test's own, in the variable `DATABASE_URL`.
pub const DATABASE_URL: &str = r#"{ env = "DATABASE_URL" }"#;

impl Place {
    pub fn new(configuration: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("postrider.toml"), configuration).unwrap();
        Self {
            folder,
            environment: Vec::new(),
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// What was set.
    pub fn variable(&self, name: &str) -> String {
        let set = self.environment.iter().find(|(known, _)| known == name);
        set.map_or_else(String::new, |(_, value)| value.clone())
    }

    pub fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_postrider"));
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("USER", "tester")
            .envs(self.environment.iter().cloned())
            .args(args);
        command
    }

    /// Runs a command, its words separated by blanks.
    pub fn answer(&self, line: &str) -> Answer {
        self.answer_args(line.split_whitespace())
    }

    pub fn answer_args<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Answer {
        let command = self.command(args);
        // A command that hangs fails its test, and not the whole run.
        let mut bounded = Command::new("timeout");
        bounded
            .arg("120")
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(self.folder.path())
            .env_clear();
        for (name, value) in command.get_envs() {
            bounded.env(name, value.unwrap_or_default());
        }
        let output: Output = bounded.output().unwrap();
        Answer {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must be done.
    pub fn done(&self, line: &str) -> String {
        let answer = self.answer(line);
        assert_eq!(answer.code, Some(0), "{line}: {}", answer.stderr);
        answer.stdout
    }

    /// Appends an event of type `order.placed` with this id's last digits.
    pub fn append(&self, number: u32, key: &str) -> String {
        let id = format!("01980000-0000-7000-8000-{number:012}");
        let number = number.to_string();
        let answer = self.answer_args([
            "append",
            "--event-id",
            &id,
            "--event-type",
            "order.placed",
            "--schema-version",
            "1",
            "--aggregate-type",
            "order",
            "--aggregate-id",
            &number,
            "--partition-key",
            key,
            "--payload",
            "{}",
        ]);
        assert_eq!(answer.code, Some(0), "{}", answer.stderr);
        id
    }
}

impl Answer {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}
