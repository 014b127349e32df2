//! What every file must say, and what none may.

use std::process::Command;

use anyhow::{Context, Result};

use crate::run::read;
use crate::workspace;

/// A text file of the repository.
#[derive(Debug)]
pub(super) struct File {
    /// From the root, with slashes.
    pub(super) path: String,
    pub(super) text: String,
}

/// Something no line may hold, in files whose names end as given.
struct Forbidden {
    text: &'static str,
    ends: &'static [&'static str],
    why: &'static str,
    /// Lines with this are spared.
    unless: Option<&'static str>,
}

/// This file names what it forbids.
const SELF: &str = "xtask/src/tidy/files.rs";
const CODE: &[&str] = &[".rs", ".sql", ".toml", ".py", ".js", ".mjs", ".sh"];
const ANY: &[&str] = &[""];

const FORBIDDEN: [Forbidden; 12] = [
    Forbidden {
        text: "TODO",
        ends: CODE,
        why: "a TODO names its owner or condition: TODO(who)",
        unless: Some("TODO("),
    },
    Forbidden {
        text: "FIXME",
        ends: CODE,
        why: "fix it, or say what is missing",
        unless: None,
    },
    Forbidden {
        text: "#[ignore",
        ends: &[".rs"],
        why: "a test that does not run is no test: fix or delete it",
        unless: None,
    },
    Forbidden {
        text: "<<<<<<< ",
        ends: ANY,
        why: "an unresolved conflict",
        unless: None,
    },
    Forbidden {
        text: ">>>>>>> ",
        ends: ANY,
        why: "an unresolved conflict",
        unless: None,
    },
    Forbidden {
        text: " /work/",
        ends: ANY,
        why: "a path of one machine",
        unless: None,
    },
    Forbidden {
        text: "\"/work/",
        ends: ANY,
        why: "a path of one machine",
        unless: None,
    },
    Forbidden {
        text: "/home/",
        ends: ANY,
        why: "a path of one machine",
        unless: None,
    },
    Forbidden {
        text: "blazing",
        ends: &[".md"],
        why: "boasting",
        unless: None,
    },
    Forbidden {
        text: "seamless",
        ends: &[".md"],
        why: "boasting",
        unless: None,
    },
    Forbidden {
        text: "effortless",
        ends: &[".md"],
        why: "boasting",
        unless: None,
    },
    Forbidden {
        text: "battle-tested",
        ends: &[".md"],
        why: "boasting",
        unless: None,
    },
];

/// Endings of type names that say nothing.
const EMPTY_NAMES: [&str; 4] = ["Manager", "Helper", "Util", "Utils"];

/// The text files that git tracks or would track.
pub(super) fn tracked() -> Result<Vec<File>> {
    let root = workspace::root()?;
    let mut list = Command::new("git");
    list.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(&root);
    let mut files = Vec::new();
    for path in read(&mut list)?.split('\0').filter(|path| !path.is_empty()) {
        let full = root.join(path);
        // A file may be deleted and still be tracked, and links are checked where they lead.
        if !full.symlink_metadata().is_ok_and(|data| data.is_file()) {
            continue;
        }
        let bytes = std::fs::read(&full).with_context(|| format!("reading {path}"))?;
        // What is not UTF-8 is no text of ours: a hostile test vector, or a picture.
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File {
                path: path.to_owned(),
                text,
            });
        }
    }
    Ok(files)
}

pub(super) fn check(files: &[File]) -> Vec<String> {
    files
        .iter()
        .filter(|file| file.path != SELF)
        .flat_map(check_file)
        .collect()
}

fn check_file(file: &File) -> Vec<String> {
    let path = &file.path;
    let mut faults = Vec::new();
    let is_rust = path.ends_with(".rs");
    if is_rust && !file.text.starts_with("//!") {
        faults.push(format!(
            "{path}:1: must start with `//!`: what this is and what it never does"
        ));
    }
    for (line, number) in file.text.lines().zip(1..) {
        for forbidden in &FORBIDDEN {
            if forbidden.ends.iter().any(|end| path.ends_with(end))
                && line.contains(forbidden.text)
                && !forbidden.unless.is_some_and(|unless| line.contains(unless))
            {
                let (text, why) = (forbidden.text.trim(), forbidden.why);
                faults.push(format!("{path}:{number}: `{text}`: {why}"));
            }
        }
        if is_rust && let Some(name) = empty_name(line) {
            faults.push(format!(
                "{path}:{number}: `{name}`: name the thing, not that it is one"
            ));
        }
    }
    faults
}

fn empty_name(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| ["struct", "enum", "trait"].contains(word))?;
    words
        .next()
        .filter(|name| EMPTY_NAMES.iter().any(|end| name.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check_file(&File {
            path: path.to_owned(),
            text: text.to_owned(),
        })
        .len()
    }

    #[test]
    fn each_rule_can_fail() {
        assert_eq!(faults("a.rs", "//! What it is.\npub struct Lanes;\n"), 0);
        assert_eq!(faults("a.rs", "pub struct Lanes;\n"), 1);
        assert_eq!(faults("a.rs", "//! x\npub struct LaneManager;\n"), 1);
        assert_eq!(faults("a.rs", "//! x\n// TODO later\n"), 1);
        assert_eq!(faults("a.rs", "//! x\n// TODO(relay): later\n"), 0);
        assert_eq!(faults("a.md", "the TODO column\n"), 0);
        assert_eq!(faults("a.rs", "//! x\n#[ignore = \"slow\"]\n"), 1);
        assert_eq!(faults("a.md", "a blazing relay\n"), 1);
        assert_eq!(faults("a.json", "<<<<<<< ours\n"), 1);
    }
}
