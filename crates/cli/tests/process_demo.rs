//! The demo, smaller: it must prove its own promise, leave its folder behind, and overwrite
//! nothing.

mod process;

use process::Place;

#[test]
fn it_proves_that_what_was_committed_is_what_arrived() {
    let mut place = Place::new("");
    // Settings of the caller are for another database.
    place.set(
        "POSTRIDER_STORE__URL",
        "postgresql://nobody@127.0.0.1:1/none",
    );
    let demo = place.answer("demo --dir shop --orders 300 --kills 2");
    assert_eq!(demo.code, Some(0), "{}{}", demo.stdout, demo.stderr);
    let says = |text: &str| {
        assert!(
            demo.stdout.contains(text),
            "{text:?} is not in {}",
            demo.stdout
        );
    };
    says("300 taken: 270 committed with their events, 30 rolled back");
    says("2 killed with SIGKILL");
    says("proven: committed = in the outbox");
    says("270 events each; of the 30 rolled back, none");
    // Each kill left a request that was taken and not answered, which was sent again.
    let deduplicated = demo
        .stdout
        .lines()
        .find(|line| line.starts_with("deduplicated"))
        .and_then(|line| line.split_whitespace().nth(1)?.parse::<u32>().ok());
    assert!(
        deduplicated.is_some_and(|count| count >= 2),
        "{}",
        demo.stdout
    );

    // The command that it prints works as it stands, wherever the program is.
    let printed = demo
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("look around:"))
        .unwrap();
    let mut shell = std::process::Command::new("sh");
    let looked = shell
        .args(["-c", printed])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert!(looked.status.success(), "{printed}: {looked:?}");
    // And so does the rest; only the receiver is gone.
    let mut shell = std::process::Command::new("sh");
    let check = shell
        .args(["-c", &printed.replace("events list", "check")])
        .current_dir(place.path())
        .output()
        .unwrap();
    let check = String::from_utf8(check.stdout).unwrap();
    assert!(check.contains("takes no connection"), "{check}");
    assert!(check.contains("destination audit#1: ok"), "{check}");
    assert!(!check.contains("secret"), "{check}");

    // What it left behind answers.
    let config = place.file("shop/postrider.toml");
    let config = config.to_str().unwrap();
    place.set("POSTRIDER_STORE__URL", "sqlite:shop.db");
    let list = place.answer_args([
        "--config", config, "events", "list", "--limit", "1000", "--json",
    ]);
    assert_eq!(list.json()["rows"].as_array().unwrap().len(), 270);
    let open = place.answer_args(["--config", config, "deliveries", "list", "--json"]);
    assert_eq!(open.json()["rows"].as_array().unwrap().len(), 0);

    let again = place.answer("demo --dir shop");
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("P0029"), "{}", again.stderr);
}
