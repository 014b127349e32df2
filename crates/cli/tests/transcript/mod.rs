//! Runs a transcript and compares.

mod mask;
mod receiver;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use mask::Mask;
use receiver::Receiver;

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

/// Runs the transcript of this name, and fails at the first answer that differs.
pub(crate) fn check(name: &str) {
    let path = folder().join(format!("{name}.txt"));
    let text = std::fs::read_to_string(&path).unwrap();
    let steps = parse(&text);
    let work = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(work.path().to_owned());
    let port = receiver.address().port().to_string();
    let mask = Mask::new(&text, [(port, "<port>"), (shown(work.path()), "<folder>")]);

    let mut answered = String::new();
    let mut differs = None;
    for step in &steps {
        let output = run(&step.command(), work.path(), &receiver);
        let answer = mask.apply(&written(&output));
        answered.push_str(&step.head);
        answered.push_str(&answer);
        if answer.trim_end() != step.answer.trim_end() && differs.is_none() {
            differs = Some(format!(
                "$ {}\nexpected:\n{}\nanswered:\n{answer}",
                step.command(),
                step.answer
            ));
        }
        answered.push_str(step.gap());
    }
    if std::env::var_os("POSTRIDER_UPDATE").is_some() {
        std::fs::write(&path, answered).unwrap();
    } else if let Some(differs) = differs {
        panic!("{}:\n{differs}", path.display());
    }
}

/// A command with all that stands before its answer.
struct Step {
    /// Comments and the command, as in the file.
    head: String,
    answer: String,
}

impl Step {
    fn command(&self) -> String {
        let lines = self
            .head
            .lines()
            .filter_map(|line| line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The empty line between steps.
    fn gap(&self) -> &str {
        "\n"
    }
}

fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut head = String::new();
    for line in text.lines() {
        let is_head = line.starts_with("#: ") || line.starts_with("$ ") || line.starts_with("> ");
        if is_head {
            head.push_str(line);
            head.push('\n');
            continue;
        }
        if !head.is_empty() {
            steps.push(Step {
                head: std::mem::take(&mut head),
                answer: String::new(),
            });
        }
        if let Some(step) = steps.last_mut() {
            step.answer.push_str(line);
            step.answer.push('\n');
        }
    }
    if !head.is_empty() {
        steps.push(Step {
            head,
            answer: String::new(),
        });
    }
    steps
}

fn run(command: &str, work: &Path, receiver: &Receiver) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_postrider"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", shown(program.parent().unwrap()));
    // Nothing of the caller's environment but where programs are.
    let environment: BTreeMap<&str, String> = [
        ("PATH", path),
        ("USER", "tester".to_owned()),
        ("HOME", shown(work)),
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("COLUMNS", "100".to_owned()),
        ("POSTRIDER_RELAY__OWNER", "worker".to_owned()),
        // Preflights warn of a receiver without TLS.
        ("POSTRIDER_LOG__LEVEL", "error".to_owned()),
        ("RECEIVER", receiver.address().to_string()),
    ]
    .into();
    Command::new("sh")
        .args(["-c", command])
        .current_dir(work)
        .env_clear()
        .envs(environment)
        .output()
        .unwrap()
}

fn written(output: &Output) -> String {
    let mut text = String::new();
    let stdout = String::from_utf8_lossy(&output.stdout);
    for line in stdout.lines() {
        text.push_str(line);
        text.push('\n');
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    for line in stderr.lines() {
        text.push_str(format!("2> {line}").trim_end());
        text.push('\n');
    }
    if output.status.code() != Some(0) {
        let code = output.status.code().map_or(-1, |code| code);
        text.push_str(&format!("? {code}\n"));
    }
    text
}

fn shown(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
