//! The allowed arrows between our packages. Decisions depend on nothing that does I/O, ports know
//! no adapter, adapters do not know each other, and only the command line knows every backend.

use crate::workspace::{Package, Reach};

const PORTS: [&str; 4] = [
    "postrider-store",
    "postrider-transport",
    "postrider-core",
    "postrider-contract",
];
const STORE: [&str; 3] = ["postrider-store", "postrider-core", "postrider-contract"];
const TRANSPORT: [&str; 3] = [
    "postrider-transport",
    "postrider-core",
    "postrider-contract",
];

/// Packages that hold a backend: `postrider-store-*` and `postrider-transport-*`.
fn is_adapter(name: &str) -> bool {
    name.starts_with("postrider-store-") || name.starts_with("postrider-transport-")
}

fn is_memory(name: &str) -> bool {
    name == "postrider-store-memory" || name == "postrider-transport-memory"
}

/// Whether package `from` may depend on `to`; nothing if `from` is not in the table.
fn allowed(from: &str, to: &str, reach: Reach) -> Option<bool> {
    let normal = match from {
        "postrider-contract" | "postrider-testkit" => false,
        // Schemas of payloads, compiled and applied without any I/O.
        "postrider-core" | "postrider-schema" => to == "postrider-contract",
        "postrider-store" | "postrider-transport" => {
            ["postrider-core", "postrider-contract"].contains(&to)
        }
        "postrider-relay" => PORTS.contains(&to) || to == "postrider-schema",
        "postrider-consumer" => {
            to == "postrider-contract"
                || (reach == Reach::Optional && to.starts_with("postrider-store-"))
        }
        "postrider" => {
            [
                "postrider-contract",
                "postrider-core",
                "postrider-schema",
                "postrider-consumer",
            ]
            .contains(&to)
                || (reach == Reach::Optional && to.starts_with("postrider-store"))
        }
        "postrider-admin" => to == "postrider-relay" || STORE.contains(&to),
        "postrider-conformance" => {
            PORTS.contains(&to) || is_memory(to) || to == "postrider-testkit"
        }
        "postrider-sim" => to == "postrider-relay" || PORTS.contains(&to) || is_memory(to),
        "postrider-cli" => !is_a_program(to) && !is_test_only(to),
        "postrider-bench" => !is_a_program(to),
        // It knows the program under test from outside only.
        "postrider-torture" => ["postrider", "postrider-testkit"].contains(&to),
        "xtask" => to == "postrider-testkit",
        store if store.starts_with("postrider-store-") => STORE.contains(&to),
        transport if transport.starts_with("postrider-transport-") => TRANSPORT.contains(&to),
        _ => return None,
    };
    Some(normal || (reach == Reach::Dev && allowed_in_tests(from, to)))
}

/// Nothing depends on these.
fn is_a_program(name: &str) -> bool {
    [
        "postrider-cli",
        "postrider-bench",
        "postrider-torture",
        "xtask",
    ]
    .contains(&name)
}

fn is_test_only(name: &str) -> bool {
    name == "postrider-conformance" || name == "postrider-testkit"
}

/// What tests may use beside. A test of the whole may use the adapters; a test of an adapter may
/// not use another one, or a fault in one would show as a fault of the other.
fn allowed_in_tests(from: &str, to: &str) -> bool {
    let tests_the_whole = [
        "postrider",
        "postrider-relay",
        "postrider-bench",
        "postrider-cli",
        "postrider-consumer",
    ];
    // A package that depends on itself turns its own features on for its tests.
    from == to
        || is_test_only(to)
        || is_memory(to)
        || (tests_the_whole.contains(&from) && is_adapter(to))
        // A fake behind a port is how the parts above the ports are tested.
        || ((tests_the_whole.contains(&from) || from == "postrider-admin") && PORTS.contains(&to))
}

/// One line for each arrow that is not in the table.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in packages {
        let from = &package.name;
        for dependency in &package.dependencies {
            let to = &dependency.name;
            match allowed(from, to, dependency.reach) {
                Some(true) => {}
                Some(false) => faults.push(format!(
                    "{from} → {to}: not an allowed arrow ({:?}); if it should be, write the reason \
                     in ARCHITECTURE.md and add it in xtask/src/tidy/arrows.rs",
                    dependency.reach
                )),
                None => faults.push(format!(
                    "{from}: which packages may it depend on? say it in xtask/src/tidy/arrows.rs"
                )),
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn faults(from: &str, to: &str, reach: Reach) -> usize {
        let dependencies = vec![Dependency {
            name: to.to_owned(),
            reach,
        }];
        check(&[Package {
            name: from.to_owned(),
            dependencies,
        }])
        .len()
    }

    #[test]
    fn the_arrows_that_matter_most() {
        let check = |from: &str, to: &str, reach, allowed: bool| {
            assert_eq!(
                faults(from, to, reach) == 0,
                allowed,
                "{from} → {to} ({reach:?})"
            );
        };
        use Reach::{Dev, Normal, Optional};
        check("postrider-core", "postrider-contract", Normal, true);
        check("postrider-core", "postrider-store", Normal, false);
        check("postrider-store", "postrider-store-postgres", Normal, false);
        check("postrider-store-sqlite", "postrider-store", Normal, true);
        check(
            "postrider-store-sqlite",
            "postrider-store-postgres",
            Normal,
            false,
        );
        check(
            "postrider-store-sqlite",
            "postrider-store-postgres",
            Dev,
            false,
        );
        check(
            "postrider-store-sqlite",
            "postrider-store-memory",
            Dev,
            true,
        );
        check(
            "postrider-store-sqlite",
            "postrider-store-memory",
            Normal,
            false,
        );
        check(
            "postrider-store-postgres",
            "postrider-transport",
            Normal,
            false,
        );
        check("postrider-relay", "postrider-store-postgres", Normal, false);
        check("postrider-relay", "postrider-store-postgres", Dev, true);
        check("postrider", "postrider-store-sqlite", Normal, false);
        check("postrider", "postrider-store-sqlite", Optional, true);
        check("postrider-cli", "postrider-transport-nats", Normal, true);
        check("postrider-cli", "postrider-testkit", Normal, false);
        check("postrider-cli", "postrider-testkit", Dev, true);
        check("postrider-bench", "postrider-cli", Normal, false);
        check("postrider-cli", "postrider-torture", Normal, false);
        check("postrider-torture", "postrider-testkit", Normal, true);
        check("postrider-torture", "postrider-relay", Normal, false);
        check("postrider", "postrider", Dev, true);
        check("postrider-testkit", "postrider-core", Normal, false);
        check("postrider-new", "postrider-core", Normal, false);
    }
}
