//! The one owner of every time limit of a worker, refusing contradictory settings.

use std::time::Duration;

/// The limits as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Opening a connection to a destination.
    pub connect: Duration,
    /// What the transport is told to wait for one answer.
    pub send: Duration,
    /// Our own limit around a whole send, outside any client library.
    pub hard: Duration,
    /// Time kept for writing the outcome down.
    pub settle_margin: Duration,
    /// How long a session lives without a heartbeat, by the database's clock.
    pub lease: Duration,
    pub heartbeat: Duration,
    /// How long a graceful stop may take.
    pub shutdown_grace: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            send: Duration::from_secs(5),
            hard: Duration::from_secs(8),
            settle_margin: Duration::from_secs(2),
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(5),
            shutdown_grace: Duration::from_secs(15),
        }
    }
}

/// Two settings that cannot both hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{first} ({first_value:?}) must be {relation} {second} ({second_value:?}): {reason}")]
pub struct Contradiction {
    pub first: &'static str,
    pub first_value: Duration,
    pub relation: &'static str,
    pub second: &'static str,
    pub second_value: Duration,
    pub reason: &'static str,
}

/// Limits that agree with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    settings: Settings,
}

impl Deadlines {
    /// # Errors
    /// [`Contradiction`] names the first pair of settings that clash.
    pub fn new(settings: Settings) -> Result<Self, Contradiction> {
        let Settings {
            connect,
            send,
            hard,
            settle_margin,
            lease,
            heartbeat,
            shutdown_grace,
        } = settings;
        let settled = hard.saturating_add(settle_margin);
        let rules = [
            (
                connect > Duration::ZERO,
                ("connect", connect, "more than", "zero", Duration::ZERO),
                "nothing can be reached in no time",
            ),
            (
                heartbeat > Duration::ZERO,
                ("heartbeat", heartbeat, "more than", "zero", Duration::ZERO),
                "a lease must be renewed at intervals",
            ),
            (
                connect < send,
                ("connect", connect, "less than", "send", send),
                "a send that has to connect first could never succeed",
            ),
            (
                send < hard,
                ("send", send, "less than", "hard", hard),
                "the transport must be able to report its own timeout first",
            ),
            (
                settled < lease,
                ("hard + settle_margin", settled, "less than", "lease", lease),
                "an outcome must be written down before the lease can end",
            ),
            (
                heartbeat.saturating_mul(3) <= lease,
                (
                    "heartbeat * 3",
                    heartbeat.saturating_mul(3),
                    "at most",
                    "lease",
                    lease,
                ),
                "two heartbeats may fail before the lease ends",
            ),
            (
                settled.saturating_add(heartbeat) <= lease,
                (
                    "hard + settle_margin + heartbeat",
                    settled.saturating_add(heartbeat),
                    "at most",
                    "lease",
                    lease,
                ),
                "just before a heartbeat the lease must still cover a whole send",
            ),
            (
                shutdown_grace >= settled,
                (
                    "shutdown_grace",
                    shutdown_grace,
                    "at least",
                    "hard + settle_margin",
                    settled,
                ),
                "sends in flight must be able to end and be written down",
            ),
        ];
        for (holds, (first, first_value, relation, second, second_value), reason) in rules {
            if !holds {
                return Err(Contradiction {
                    first,
                    first_value,
                    relation,
                    second,
                    second_value,
                    reason,
                });
            }
        }
        Ok(Self { settings })
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The least time that must be left on the lease when a send starts.
    #[must_use]
    pub fn send_needs(&self) -> Duration {
        self.settings.hard + self.settings.settle_margin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_agree() {
        Deadlines::new(Settings::default()).expect("the defaults are consistent");
    }

    #[test]
    fn every_contradiction_names_both_settings() {
        let s = Duration::from_secs;
        let base = Settings::default();
        let cases: [(Settings, &str, &str); 8] = [
            (
                Settings {
                    connect: s(0),
                    ..base
                },
                "connect",
                "zero",
            ),
            (
                Settings {
                    heartbeat: s(0),
                    ..base
                },
                "heartbeat",
                "zero",
            ),
            (
                Settings {
                    connect: s(5),
                    ..base
                },
                "connect",
                "send",
            ),
            (Settings { send: s(8), ..base }, "send", "hard"),
            (
                Settings {
                    settle_margin: s(22),
                    ..base
                },
                "hard + settle_margin",
                "lease",
            ),
            (
                Settings {
                    heartbeat: s(11),
                    ..base
                },
                "heartbeat * 3",
                "lease",
            ),
            (
                Settings {
                    settle_margin: s(18),
                    ..base
                },
                "hard + settle_margin + heartbeat",
                "lease",
            ),
            (
                Settings {
                    shutdown_grace: s(9),
                    ..base
                },
                "shutdown_grace",
                "hard + settle_margin",
            ),
        ];
        for (settings, first, second) in cases {
            let error = Deadlines::new(settings).expect_err(first);
            assert_eq!((error.first, error.second), (first, second));
            let text = error.to_string();
            assert!(text.contains(first) && text.contains(second), "{text}");
        }
    }
}
