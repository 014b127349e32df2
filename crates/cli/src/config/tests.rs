//! What a configuration file, the environment and their mistakes come to.

use super::*;

const GOOD: &str = r#"
[store]
url = "sqlite:shop.db"

[connections.files]
kind = "file"
folder = "out"

[destinations.audit]
connection = "files"
target = "audit.jsonl"

[[event_types]]
event_type = "order.placed"
schema_version = "1"

[[routes]]
event_type = "order.placed"
schema_version = "1"
destinations = ["audit"]
"#;

fn read(text: &str, variables: &[(&str, &str)], flags: &[&str]) -> Result<Config, Vec<Fault>> {
    let mut settings = Settings::default();
    let mut faults = Vec::new();
    settings.add_file("postrider.toml", text, &mut faults);
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    settings.add_environment(variables, &mut faults);
    for flag in flags {
        settings.add_flag(flag, &mut faults);
    }
    completeness::check(&settings, &mut faults);
    if !faults.is_empty() {
        return Err(faults);
    }
    build::build(PathBuf::from("."), settings)
}

/// One fault, whose text is exactly this.
fn refused(text: &str, expect: &str) {
    let faults = read(text, &[], &[]).expect_err("refused");
    let said: Vec<String> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, [expect], "of {text}");
}

fn refused_below_good(text: &str, expect: &str) {
    refused(&format!("{GOOD}{text}"), expect);
}

#[test]
fn a_small_file_is_enough() {
    let config = read(GOOD, &[], &[]).unwrap();
    assert_eq!(config.relay.batch_max, 2000);
    assert_eq!(config.destinations["audit"].lanes, 16);
    assert!(config.routes[0].mandatory);
    assert_eq!(config.admin_listen, "127.0.0.1:7678".parse().ok());
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    refused_below_good(
        "[relay]\nbatch_maks = 1\n",
        "[P0003] postrider.toml:22: there is no key relay.batch_maks\n  fix: did you mean relay.batch_max?",
    );
    // The right name in the wrong table.
    refused_below_good(
        "[relay]\nlease = '1m'\n",
        "[P0003] postrider.toml:22: there is no key relay.lease\n  fix: did you mean relay.deadlines.lease?",
    );
    refused_below_good(
        "[destination.x]\nconnection = 'files'\n",
        "[P0003] postrider.toml:21: there is no key destination\n  fix: did you mean destinations?",
    );
    refused_below_good(
        "[relay]\nzzz = 1\n",
        "[P0003] postrider.toml:22: there is no key relay.zzz\n  fix: remove it; `postrider config keys` lists every key",
    );
}

#[test]
fn an_unknown_variable_names_the_nearest_one() {
    let faults = read(GOOD, &[("POSTRIDER_RELAY__BATCHMAX", "1")], &[]).unwrap_err();
    assert_eq!(
        faults[0].to_string(),
        "[P0003] POSTRIDER_RELAY__BATCHMAX: there is no key relay.batchmax\n  fix: did you mean POSTRIDER_RELAY__BATCH_MAX?"
    );
}

#[test]
fn a_wrong_value_says_what_is_right() {
    refused_below_good(
        "[relay]\nbatch_max = 0\n",
        "[P0004] postrider.toml:22: relay.batch_max must be a whole number from 1 to 10000; it is 0\n  fix: correct it, or leave it out for the default, 2000",
    );
    refused_below_good(
        "[relay.deadlines]\nlease = 30\n",
        "[P0004] postrider.toml:22: relay.deadlines.lease must be a length of time with its unit, such as \"250ms\", \"5s\" or \"1m30s\" (us, ms, s, m, h, d); it is 30\n  fix: correct it, or leave it out for the default, 30s",
    );
    refused_below_good(
        "[connections.x]\nkind = 'pigeon'\n",
        "[P0004] postrider.toml:22: connections.x.kind must be one of jetstream, http, file, redis-streams, kafka, rabbitmq; it is \"pigeon\"\n  fix: correct it",
    );
    refused_below_good(
        "[admin]\nlisten = 'localhost'\n",
        "[P0004] postrider.toml:22: admin.listen is not an address with a port\n  fix: write for example \"127.0.0.1:7678\" or \"[::1]:7678\", or \"off\"",
    );
    refused(
        "store = 'sqlite:x'",
        "[P0004] postrider.toml:1: store is \"sqlite:x\"\n  fix: write it as [store] with its keys below",
    );
}

#[test]
fn res_1_zero_is_refused_and_does_not_mean_no_limit() {
    let bounded = keys::KEYS
        .iter()
        .filter(|key| key.pattern.ends_with("_max"));
    for key in bounded {
        let keys::Kind::Integer { min, max } = key.kind else {
            continue;
        };
        // No late answer at all is a limit, and the smallest there is.
        assert!(
            min > 0 || key.pattern == "relay.late_max",
            "{}",
            key.pattern
        );
        assert!(max < i64::MAX, "{}", key.pattern);
    }
    for key in ["batch_max", "batch_bytes_max", "sending_max"] {
        let faults = read(GOOD, &[], &[&format!("relay.{key}=0")]).unwrap_err();
        assert!(faults[0].what.contains("it is \"0\""), "{}", faults[0]);
    }
    // Unset is a small number of each, by count and by bytes.
    let relay = read(GOOD, &[], &[]).unwrap().relay;
    assert_eq!(
        (relay.batch_max, relay.batch_bytes_max, relay.sending_max),
        (2000, 8 << 20, 2)
    );
}

#[test]
fn contradictions_name_both_settings() {
    refused_below_good(
        "[relay.deadlines]\nlease = '9s'\n",
        "[P0006] relay.deadlines: hard + settle_margin (10s) must be less than lease (9s): an outcome must be written down before the lease can end\n  fix: change one of the two, in [relay.deadlines] or by POSTRIDER_RELAY__DEADLINES__…",
    );
    refused_below_good(
        "[relay]\npoll_min = '2s'\n",
        "[P0006] postrider.toml:22: relay.poll_min (2s) must be at most relay.poll_max (100ms)\n  fix: lower the one or raise the other",
    );
}

#[test]
fn what_is_missing_is_named() {
    refused(
        "",
        "[P0005] store.url is missing\n  The database: `sqlite:PATH` or `postgresql://USER:PASSWORD@HOST/DATABASE`. A URL with a password is better given as `{ env = \"NAME\" }` or `{ file = \"PATH\" }`.\n  fix: set it to a URL in quotes, or { env = \"NAME\" }, or { file = \"PATH\" }",
    );
    let faults = read(
        &format!("{GOOD}[connections.n]\nkind = 'jetstream'\n"),
        &[],
        &[],
    );
    let said = faults.unwrap_err()[0].to_string();
    assert!(said.starts_with("[P0005] postrider.toml:21: connections.n.servers is missing"));
}

/// A key is looked up by its name alone: two kinds that share a name share its default.
#[test]
fn no_key_is_listed_twice() {
    let mut patterns: Vec<_> = keys::KEYS.iter().map(|key| key.pattern).collect();
    let all = patterns.len();
    patterns.sort_unstable();
    patterns.dedup();
    assert_eq!(patterns.len(), all);
}

#[test]
fn a_key_of_another_kind_is_refused() {
    refused_below_good(
        "[connections.h]\nkind = 'http'\nurl = 'https://h'\nfolder = 'x'\n",
        "[P0003] postrider.toml:24: connections.h.folder belongs to kind file; connections.h is of kind http\n  fix: remove it, or correct the kind",
    );
}

#[test]
fn references_must_lead_somewhere() {
    refused_below_good(
        "[destinations.b]\nconnection = 'filez'\ntarget = 't'\n",
        "[P0008] postrider.toml:22: destinations.b.connection names \"filez\", which is not in connections\n  fix: did you mean \"files\"?",
    );
    refused_below_good(
        "[[event_types]]\nevent_type = 'x'\nschema_version = '1'\n",
        "[P0008] postrider.toml:22: event_types[1].event_type \"x\" version \"1\" has no route: its events would go nowhere\n  fix: add a [[routes]] for it, or remove the event type",
    );
    refused_below_good(
        "[[routes]]\nevent_type = 'order.placed'\nschema_version = '1'\ndestinations = ['audit']\n",
        "[P0004] postrider.toml:24: routes[1].destinations sends order.placed 1 to \"audit\" a second time\n  fix: remove one of the two: one event is delivered to one destination once",
    );
}

#[test]
fn every_fault_is_reported_at_once() {
    let faults = read(
        "[store]\nurl = 1\n[relay]\nbatch_max = 0\nx = 1\n",
        &[],
        &["relay.owner"],
    );
    assert_eq!(faults.unwrap_err().len(), 4);
}

#[test]
fn sec_1_a_broken_file_is_not_quoted() {
    // The line with the fault holds the secret.
    for text in [
        "[store]\nurl = \"postgresql://u:S3CRET6@h/db\n",
        "[store]\nurl = postgresql://u:S3CRET6@h/db\n",
        "[connections.h]\nkind = 'http'\nurl = ['S3CRET6']\n",
        "[connections.h]\nkind = 'http'\nsigning_secrets = ['S3CRET6']\n",
        "[connections.h]\nkind = 'http'\nheaders = { Authorization = 'S3CRET6' }\n",
        "[connections.n]\nkind = 'jetstream'\nservers = ['nats://u:S3CRET6@h']\n",
        "[connections.h]\nkind = 'http'\nurl = 'https://u:S3CRET6@h/'\n",
    ] {
        for fault in read(text, &[], &[]).unwrap_err() {
            assert!(!fault.to_string().contains("S3CRET6"), "{fault}");
        }
    }
    let faults = read(
        GOOD,
        &[],
        &["store.url={ S3CRET6 }", "connections.files.token=S3CRET6"],
    );
    for fault in faults.unwrap_err() {
        assert!(!fault.to_string().contains("S3CRET6"), "{fault}");
    }
}

#[test]
fn the_environment_goes_over_the_file_and_flags_over_both() {
    let config = read(
        &format!("{GOOD}[relay]\nbatch_max = 1\nlate_max = 1\nowner = 'a'\n"),
        &[
            ("POSTRIDER_RELAY__BATCH_MAX", "2"),
            ("POSTRIDER_RELAY__LATE_MAX", "2"),
            ("POSTRIDER_RELAY__DEADLINES__LEASE", "1m"),
            // Not settings.
            ("POSTRIDER_CONFIG", "x"),
            ("POSTRIDER_TEST_POSTGRES_URL", "x"),
        ],
        &["relay.late_max=3"],
    )
    .unwrap();
    assert_eq!(config.relay.owner.as_deref(), Some("a"));
    assert_eq!(config.relay.batch_max, 2);
    assert_eq!(config.relay.late_max, 3);
    assert_eq!(config.relay.deadlines.settings().lease.as_secs(), 60);
}

#[test]
fn names_and_lists_are_reached_from_the_environment() {
    let config = read(
        &GOOD
            .replace("audit]", "audit-log]")
            .replace("\"audit\"]", "\"audit-log\"]"),
        &[
            ("POSTRIDER_DESTINATIONS__AUDIT_LOG__LANES", "4"),
            ("POSTRIDER_ROUTES__0__MANDATORY", "false"),
            ("POSTRIDER_EVENT_TYPES__1__EVENT_TYPE", "order.paid"),
            ("POSTRIDER_EVENT_TYPES__1__SCHEMA_VERSION", "1"),
            ("POSTRIDER_ROUTES__1__DESTINATIONS", "audit-log"),
            ("POSTRIDER_ROUTES__1__EVENT_TYPE", "order.paid"),
            ("POSTRIDER_ROUTES__1__SCHEMA_VERSION", "1"),
            ("POSTRIDER_CONNECTIONS__MORE__KIND", "file"),
            ("POSTRIDER_CONNECTIONS__MORE__FOLDER", "more"),
        ],
        &["destinations.audit-log.on_unknown=hold"],
    )
    .unwrap();
    let audit = &config.destinations["audit-log"];
    assert_eq!(audit.lanes, 4);
    assert_eq!(
        audit.on_unknown,
        postrider_contract::destination::OnUnknown::Hold
    );
    assert!(!config.routes[0].mandatory);
    assert_eq!(config.routes[1].destinations, ["audit-log"]);
    assert!(config.connections.contains_key("more"));
}

#[test]
fn a_list_from_the_environment_has_no_holes() {
    let faults = read(GOOD, &[("POSTRIDER_ROUTES__7__MANDATORY", "false")], &[]).unwrap_err();
    assert_eq!(faults[0].code, Code::UnknownKey);
}

#[test]
fn show_tells_origins_and_no_secret() {
    let config = read(
        &format!("{GOOD}[connections.h]\nkind = 'http'\nurl = 'https://h/S3CRET2?t=S3CRET3'\nsigning_secrets = [{{ env = 'SIGN' }}]\n"),
        &[
            ("POSTRIDER_CONNECTIONS__H__HEADERS", "{ Authorization = { file = 'a' } }"),
            ("POSTRIDER_STORE__URL", "postgresql://u:S3CRET6@h/db"),
            ("POSTRIDER_CONNECTIONS__H__SIGNING_SECRETS", "S3CRET7,S3CRET8"),
        ],
        &[],
    )
    .unwrap();
    let shown = show::effective(&config.settings);
    let text = format!("{shown:?} {config:?}");
    assert!(!text.contains("S3CRET"), "{text}");
    let line = |key: &str| {
        let one = shown.iter().find(|one| one.key == key).unwrap();
        format!("{} from {}", one.value, one.origin)
    };
    assert_eq!(
        line("store.url"),
        "{ env = \"POSTRIDER_STORE__URL\" } from POSTRIDER_STORE__URL"
    );
    assert_eq!(
        line("connections.h.url"),
        "\"https://h/…\" from postrider.toml:23"
    );
    assert_eq!(line("relay.batch_max"), "2000 from default");
    assert_eq!(line("destinations.audit.lanes"), "16 from default");
}

#[test]
fn every_choice_is_a_word_of_the_contract() {
    for key in keys::KEYS {
        let keys::Kind::Choice(words) = key.kind else {
            continue;
        };
        // The destination below is on a file: a kind's own key does not belong there.
        if !key.pattern.starts_with("destinations.") || !key.only.is_empty() {
            continue;
        }
        for word in words {
            let name = key.pattern.rsplit('.').next().unwrap();
            let flag = format!("destinations.audit.{name}={word}");
            read(GOOD, &[], &[&flag]).unwrap();
        }
    }
}

#[test]
fn the_reference_in_the_docs_is_this_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    const MARK: &str = "<!-- `postrider config keys --markdown` from here -->\n";
    let (head, reference) = page.split_once(MARK).expect("the mark");
    if std::env::var_os("POSTRIDER_UPDATE").is_some() {
        std::fs::write(path, format!("{head}{MARK}{}", show::reference())).unwrap();
    } else {
        assert_eq!(
            reference,
            show::reference(),
            "run the tests of postrider-cli with POSTRIDER_UPDATE=1"
        );
    }
}

#[test]
fn a_url_of_an_unknown_kind_names_the_known_ones() {
    refused(
        &GOOD.replace("sqlite:shop.db", "mysql://u:hush@h/db"),
        "[P0004] postrider.toml:3: store.url is of no known kind\n  fix: start it with sqlite: or postgresql:// or postgres://",
    );
    refused_below_good(
        "[connections.x]\nkind = 'jetstream'\nservers = ['nats://a', 'http://b']\n",
        "[P0004] postrider.toml:23: connections.x.servers is of no known kind\n  fix: start it with nats:// or tls://",
    );
    refused_below_good(
        "[connections.x]\nkind = 'http'\nurl = 'ftp://h/'\n",
        "[P0004] postrider.toml:23: connections.x.url is of no known kind\n  fix: start it with https:// or http://",
    );
    refused_below_good(
        "[connections.x]\nkind = 'redis-streams'\nservers = ['nats://a']\n",
        "[P0004] postrider.toml:23: connections.x.servers is of no known kind\n  fix: start it with redis:// or rediss://",
    );
    // What only a secret says is found when it is read.
    let variables = [("POSTRIDER_STORE__URL", "mysql://h/db")];
    let faults = read(GOOD, &variables, &[]).unwrap_err();
    assert!(
        faults[0].what.starts_with("POSTRIDER_STORE__URL"),
        "{faults:?}"
    );
    assert!(
        read(
            &GOOD.replace("\"sqlite:shop.db\"", "{ env = 'X' }"),
            &[],
            &[]
        )
        .is_ok()
    );
}
