//! The command line as operators see it: commands in, transcript out, in tests/transcripts. Run
//! with `POSTRIDER_UPDATE=1` to write down what is answered now, and read the difference.
//!
//! A transcript is a file of shell commands after `$ ` (continued after `> `), each with its
//! standard output, its standard error after `2> `, and its exit status after `? ` unless it is
//! 0. Lines after `#: ` say what is shown. Every transcript runs in an empty folder of its own,
//! with a webhook receiver at `$RECEIVER` that refuses while a file `refuse` exists.

mod transcript;

use transcript::check;

#[test]
fn help() {
    check("help");
}

#[test]
fn from_nothing_to_a_delivery() {
    check("first-steps");
}

#[test]
fn configuration() {
    check("configuration");
}

#[test]
fn plan_and_apply() {
    check("plan");
}

#[test]
fn append_and_look() {
    check("events");
}

#[test]
fn bad_input_gets_a_field_and_a_fix() {
    check("bad-input");
}

#[test]
fn dead_letters() {
    check("dead-letter");
}

#[test]
fn a_destination_that_is_gone_is_suspended_and_resumed() {
    check("destination");
}

#[test]
fn an_operator_reads_and_explains() {
    check("explain");
}

#[test]
fn every_file_is_a_test() {
    let mut files: Vec<String> = std::fs::read_dir(transcript::folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let source = include_str!("transcripts.rs");
    for file in files {
        let name = file.strip_suffix(".txt").unwrap();
        assert!(
            source.contains(&format!("check(\"{name}\")")),
            "{file} is not run"
        );
    }
}
