//! Whether a relay does its work. Pure: the facts were read before.

use postrider_relay::{DestinationStatus, Status};
use postrider_store::control::SchemaStatus;
use serde::Serialize;

/// The answer of `/readyz`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Readiness {
    /// There is no reason against it.
    pub ready: bool,
    pub stopping: bool,
    /// Another dispatcher holds the exclusive lease; this one waits, which is what it was asked.
    pub standby: bool,
    pub schema_version: Option<u32>,
    pub reasons: Vec<Reason>,
    /// What this relay leaves to others: no reason against it.
    pub degraded: Vec<Reason>,
    pub destinations: Vec<Destination>,
}

/// Why a relay is not ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// A stable word: `stopping`, `store`, `schema`, `session`, `registry`, `destination`.
    pub what: &'static str,
    pub message: String,
}

/// One destination as this relay sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Destination {
    pub name: String,
    pub generation: u64,
    pub ready: bool,
    pub lanes_held: usize,
    pub lanes: u16,
    /// Warnings of the preflight too.
    pub problems: Vec<String>,
}

pub(crate) fn judge(status: &Status, schema: &Result<SchemaStatus, String>) -> Readiness {
    let mut reasons = Vec::new();
    let mut because = |what: &'static str, message: String| reasons.push(Reason { what, message });
    let standby = status.exclusive_held_by.is_some();
    if status.stopping {
        because("stopping", "the relay was asked to stop".to_owned());
    }
    let schema_version = match schema {
        Ok(SchemaStatus::Current { version }) => Some(*version),
        Ok(other) => {
            because("schema", words(other));
            None
        }
        Err(error) => {
            because("store", error.clone());
            None
        }
    };
    if let Some(problem) = &status.store_problem {
        because("store", problem.clone());
    }
    if status.session.is_none() && !standby && !status.stopping {
        because("session", "no session is open yet".to_owned());
    }
    if status.session.is_some() && status.destinations.is_empty() {
        because(
            "registry",
            "nothing is registered, so nothing is relayed: postrider apply".to_owned(),
        );
    }
    let mut degraded = Vec::new();
    let mut destinations = Vec::new();
    for status in &status.destinations {
        let shown = destination(status);
        if !shown.ready {
            let message = format!(
                "{}#{}: {}",
                shown.name,
                shown.generation,
                shown.problems.join("; ")
            );
            if status.is_left_to_others() {
                degraded.push(Reason {
                    what: "destination",
                    message,
                });
            } else {
                because("destination", message);
            }
        }
        destinations.push(shown);
    }
    Readiness {
        ready: reasons.is_empty(),
        stopping: status.stopping,
        standby,
        schema_version,
        reasons,
        degraded,
        destinations,
    }
}

fn words(schema: &SchemaStatus) -> String {
    match schema {
        SchemaStatus::Missing => "the database has no schema: postrider migrate".to_owned(),
        SchemaStatus::Current { version } => format!("version {version}"),
        SchemaStatus::Older { found, expected } => {
            format!("version {found}, {expected} is needed: postrider migrate")
        }
        SchemaStatus::Newer { found, expected } => {
            format!("version {found}, only {expected} is known: use a newer postrider")
        }
        SchemaStatus::Altered { version } => format!("migration {version} was altered by hand"),
    }
}

fn destination(status: &DestinationStatus) -> Destination {
    let problems = match &status.preflight {
        Ok(problems) => problems
            .iter()
            .map(|problem| format!("{}: {}", problem.code, problem.message))
            .collect(),
        Err(problem) => vec![format!("{}: {}", problem.code, problem.message)],
    };
    Destination {
        name: status.name.clone(),
        generation: status.generation,
        ready: status.is_ready(),
        lanes_held: status.lanes_held,
        lanes: status.lanes,
        problems,
    }
}

#[cfg(test)]
mod tests {
    use postrider_core::{DestinationId, SessionId};
    use postrider_relay::KIND_UNKNOWN;
    use postrider_transport::{Problem, Severity};

    use super::*;

    fn refused(code: &'static str) -> Result<(), Problem> {
        Err(Problem {
            code,
            severity: Severity::Refused,
            message: "it is said why".to_owned(),
        })
    }

    fn status(preflight: Result<(), Problem>) -> Status {
        Status {
            session: Some(SessionId(Default::default())),
            destinations: vec![DestinationStatus {
                id: DestinationId(1),
                name: "orders".to_owned(),
                generation: 2,
                preflight: preflight.map(|()| Vec::new()),
                served_elsewhere: false,
                lanes_held: 3,
                lanes: 16,
            }],
            ..Status::default()
        }
    }

    fn current() -> Result<SchemaStatus, String> {
        Ok(SchemaStatus::Current { version: 4 })
    }

    /// The reasons for a status.
    fn check(status: &Status, schema: &Result<SchemaStatus, String>, expect: &[&str]) {
        let readiness = judge(status, schema);
        let words: Vec<&str> = readiness.reasons.iter().map(|one| one.what).collect();
        assert_eq!(words, expect);
        assert_eq!(readiness.ready, expect.is_empty());
    }

    #[test]
    fn every_reason_is_named() {
        check(&status(Ok(())), &current(), &[]);
        check(
            &status(refused("stream_missing")),
            &current(),
            &["destination"],
        );
        check(&status(Ok(())), &Err("gone".to_owned()), &["store"]);
        let older = Ok(SchemaStatus::Older {
            found: 3,
            expected: 4,
        });
        check(&status(Ok(())), &older, &["schema"]);
        let no_session = Status {
            session: None,
            ..status(Ok(()))
        };
        check(&no_session, &current(), &["session"]);
        let nothing = Status {
            destinations: Vec::new(),
            ..status(Ok(()))
        };
        check(&nothing, &current(), &["registry"]);
        let stopping = Status {
            stopping: true,
            ..no_session.clone()
        };
        check(&stopping, &current(), &["stopping"]);
    }

    #[test]
    fn dep_1_what_others_serve_does_not_make_a_relay_unready() {
        let mut elsewhere = status(refused("locked"));
        elsewhere.destinations[0].served_elsewhere = true;
        for status in [elsewhere, status(refused(KIND_UNKNOWN))] {
            check(&status, &current(), &[]);
            let degraded = judge(&status, &current()).degraded;
            assert_eq!(degraded.len(), 1);
            assert!(degraded[0].message.starts_with("orders#2: "));
        }
    }

    #[test]
    fn a_dispatcher_that_waits_for_the_lease_is_ready() {
        let standby = Status {
            session: None,
            exclusive_held_by: Some("other".to_owned()),
            ..status(Ok(()))
        };
        check(&standby, &current(), &[]);
        assert!(judge(&standby, &current()).standby);
    }
}
