//! What an error answer of the server says of a message. An error answer to a whole command means
//! that the command did nothing: the server checks before it runs one.

use postrider_core::{Class, Outcome};

/// The code of an error answer that says something of the server, by the error's first word.
/// `None`: it says something of the command.
pub(crate) fn code(error: &str) -> Option<&'static str> {
    let word = error.split([' ', ':']).next().unwrap_or_default();
    Some(match word {
        "LOADING" => "loading",
        "READONLY" => "read_only",
        "MASTERDOWN" => "master_down",
        "OOM" => "out_of_memory",
        "MISCONF" => "misconf",
        "NOREPLICAS" => "replicas_missing",
        "NOAUTH" | "WRONGPASS" => "not_authorized",
        "NOPERM" => "permission_denied",
        "WRONGTYPE" => "wrong_type",
        "CLUSTERDOWN" | "TRYAGAIN" => "cluster_down",
        "MOVED" | "ASK" => "moved",
        "CROSSSLOT" => "cluster_many_slots",
        "BUSY" | "UNKILLABLE" => "server_busy",
        "NOSCRIPT" => "script_missing",
        "ERR" if error.starts_with("ERR Protocol error") => "protocol_error",
        "ERR" if error.starts_with("ERR max number of clients") => "not_connected",
        _ => return None,
    })
}

/// The outcome of a message that was not appended, because of this error.
pub(crate) fn refusal(error: &str) -> Outcome {
    match code(error) {
        Some(code) => Outcome::outage(code, error),
        None => Outcome::retryable(Class::Refusal, "refused", error, None),
    }
}

/// Whether an error with this code does not pass by itself.
pub(crate) fn needs_a_person(code: &str) -> bool {
    matches!(
        code,
        "not_authorized"
            | "permission_denied"
            | "tls"
            | "wrong_cluster"
            | "server_too_old"
            | "cluster_many_slots"
            | "wrong_type"
            | "database_missing"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_row() {
        for (error, expect) in [
            ("LOADING Redis is loading the dataset in memory", "loading"),
            (
                "READONLY You can't write against a read only replica.",
                "read_only",
            ),
            ("MASTERDOWN Link with MASTER is down and ...", "master_down"),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                "out_of_memory",
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots, ...",
                "misconf",
            ),
            (
                "NOREPLICAS Not enough good replicas to write.",
                "replicas_missing",
            ),
            ("NOAUTH Authentication required.", "not_authorized"),
            ("WRONGPASS invalid username-password pair", "not_authorized"),
            ("NOPERM this user has no permissions", "permission_denied"),
            (
                "WRONGTYPE Operation against a key holding the wrong kind",
                "wrong_type",
            ),
            ("CLUSTERDOWN Hash slot not served", "cluster_down"),
            (
                "TRYAGAIN Multiple keys request during rehashing",
                "cluster_down",
            ),
            ("MOVED 3999 127.0.0.1:6381", "moved"),
            ("ASK 3999 127.0.0.1:6381", "moved"),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                "cluster_many_slots",
            ),
            ("BUSY Redis is busy running a script", "server_busy"),
            ("ERR Protocol error: invalid bulk length", "protocol_error"),
            ("ERR max number of clients reached", "not_connected"),
        ] {
            let Outcome::Retryable {
                class: Class::Outage,
                code,
                ..
            } = refusal(error)
            else {
                panic!("{error}")
            };
            assert_eq!(code, expect, "{error}");
        }
        for error in [
            "ERR The stream has exhausted the last possible ID",
            "",
            "NEW thing",
        ] {
            assert!(
                matches!(
                    refusal(error),
                    Outcome::Retryable {
                        class: Class::Refusal,
                        code: "refused",
                        ..
                    }
                ),
                "{error}"
            );
        }
    }
}
