//! What docs/cli.md promises to scripts is what the sources have.

use std::path::Path;

fn page(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(root.join(name)).unwrap()
}

fn sources(folder: &Path, into: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else {
            into.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// The names of shapes in a text.
fn shapes(text: &str) -> Vec<&str> {
    let mut found: Vec<&str> = text
        .split(['"', '`'])
        .filter(|part| part.starts_with("postrider.cli."))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn every_json_shape_is_documented_and_every_documented_one_exists() {
    let mut text = String::new();
    sources(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        &mut text,
    );
    let page = page("cli.md");
    assert_eq!(shapes(&text), shapes(&page));
}

#[test]
fn every_command_is_documented() {
    let help = include_str!("transcripts/help.txt");
    let commands = help.lines().filter_map(|line| {
        let line = line.strip_prefix("$ postrider ")?.strip_suffix(" --help")?;
        Some(line)
    });
    let page = page("cli.md");
    for command in commands {
        // `config` alone has its sub-commands below.
        if command != "config" {
            assert!(
                page.contains(&format!("| `{command}")),
                "{command} is not in docs/cli.md"
            );
        }
    }
}
