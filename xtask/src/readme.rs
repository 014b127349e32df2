//! The README's commands exist: each `cargo xtask` task, and each `postrider` command with its
//! flags, asked of the program itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::{read, run};
use crate::test::count::Count;
use crate::{TASKS, workspace};

const PROGRAM: &str = "postrider";

/// Checks every command in the README's `sh` blocks; says what is wrong with each that fails.
pub(crate) fn check() -> Result<Count> {
    let root = workspace::root()?;
    let text = std::fs::read_to_string(root.join("README.md")).context("reading README.md")?;
    let commands = commands(&text);
    let mut count = Count::default();
    // A program that does not build fails its commands, not the whole run.
    let program = build()
        .inspect_err(|error| eprintln!("README.md: {error:#}"))
        .ok();
    for command in commands {
        match fault(&command, program.as_deref()) {
            None => count.passed += 1,
            Some(fault) => {
                eprintln!("README.md: `{}`: {fault}", command.join(" "));
                count.failed += 1;
            }
        }
    }
    eprintln!("README.md: {count}");
    Ok(count)
}

/// The words of each command line in the `sh` blocks. Lines that end in a backslash go on.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    let mut in_block = false;
    let mut goes_on = false;
    for line in text.lines() {
        if line.starts_with("```") {
            in_block = !in_block && line.trim_end() == "```sh";
            goes_on = false;
            continue;
        }
        if !in_block {
            continue;
        }
        let part = line.trim_end_matches('\\');
        match lines.last_mut() {
            Some(last) if goes_on => last.push_str(part),
            _ => lines.push(part.to_owned()),
        }
        goes_on = line.ends_with('\\');
    }
    let words = |line: &String| -> Vec<String> {
        let line = line.split(" #").next().unwrap_or("").trim_start();
        let comment = line.starts_with('#');
        line.split_whitespace()
            .filter(|_| !comment)
            .map(ToOwned::to_owned)
            .collect()
    };
    lines
        .iter()
        .map(words)
        .filter(|words| !words.is_empty())
        .collect()
}

/// What is wrong with a command, if anything. Programs of others are not asked.
fn fault(command: &[String], program: Option<&Path>) -> Option<String> {
    if let [cargo, xtask, rest @ ..] = command
        && cargo == "cargo"
        && xtask == "xtask"
    {
        let task = rest.first()?;
        return (!TASKS.contains(&task.as_str())).then(|| format!("no task `{task}`"));
    }
    let arguments = invocation(command)?;
    let Some(program) = program else {
        return Some("there is no program to ask".to_owned());
    };
    let path: Vec<&String> = arguments.iter().take_while(|word| is_name(word)).collect();
    // Names after the command's own are its arguments, and which is which only the program knows:
    // the longest path that has a help page is the command.
    let help = (0..=path.len()).rev().find_map(|length| {
        let mut ask = Command::new(program);
        ask.args(&path[..length]).arg("--help");
        read(&mut ask).ok().map(|help| (length, help))
    });
    let Some((length, help)) = help else {
        return Some("the program shows no help".to_owned());
    };
    if length == 0 && !path.is_empty() {
        return Some(format!("no command `{}`", path[0]));
    }
    arguments
        .iter()
        .filter_map(|word| word.split('=').next().filter(|flag| flag.starts_with("--")))
        .find(|flag| {
            !help
                .split(|c: char| !is_flag_char(c))
                .any(|word| word == *flag)
        })
        .map(|flag| format!("no flag `{flag}`"))
}

/// The arguments to our program, whether it is run by name or by cargo.
fn invocation(command: &[String]) -> Option<&[String]> {
    let first = command
        .iter()
        .position(|word| !word.contains('=') || word.starts_with('-'))?;
    let (program, arguments) = command[first..].split_first()?;
    if program == PROGRAM || program.ends_with("/postrider") {
        return Some(arguments);
    }
    let is_ours = program == "cargo" && arguments.iter().any(|word| word == PROGRAM);
    let end = arguments
        .iter()
        .position(|word| word == "--")
        .filter(|_| is_ours)?;
    Some(&arguments[end + 1..])
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

fn is_flag_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

/// Builds the program as the tests do, and tells where it is.
fn build() -> Result<PathBuf> {
    let root = workspace::root()?;
    run(Command::new("cargo")
        .args([
            "build",
            "--quiet",
            "--package=postrider-cli",
            "--bin",
            PROGRAM,
        ])
        .current_dir(&root))?;
    let metadata = read(
        Command::new("cargo")
            .args(["metadata", "--format-version=1", "--no-deps"])
            .current_dir(&root),
    )?;
    let metadata: serde_json::Value =
        serde_json::from_str(&metadata).context("reading cargo metadata")?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo names no target folder")?;
    Ok(PathBuf::from(target).join("debug").join(PROGRAM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_come_from_sh_blocks_alone() {
        let text = "```toml\nnot = 'this'\n```\ntext\n```sh\n# a comment\ncargo xtask test  # why\n\
                    postrider events list \\\n  --json\n```\npostrider nothing\n";
        let commands: Vec<String> = commands(text).iter().map(|words| words.join(" ")).collect();
        assert_eq!(
            commands,
            ["cargo xtask test", "postrider events list --json"]
        );
    }

    #[test]
    fn our_program_is_known_by_name_and_through_cargo() {
        let check = |line: &str, expected: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
            assert_eq!(
                invocation(&words).map(|found| found.join(" ")).as_deref(),
                expected,
                "{line}"
            );
        };
        check("postrider run --exclusive", Some("run --exclusive"));
        check("URL=x target/release/postrider migrate", Some("migrate"));
        check("cargo run --release --bin postrider -- demo", Some("demo"));
        check("cargo xtask test", None);
        check("psql -f x.sql", None);
    }

    #[test]
    fn an_unknown_task_and_a_program_that_did_not_build_are_faults() {
        let words = |line: &str| line.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
        assert_eq!(fault(&words("cargo xtask test"), None), None);
        assert!(fault(&words("cargo xtask tset"), None).is_some());
        assert!(fault(&words("postrider run"), None).is_some());
    }
}
