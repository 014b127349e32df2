//! Keeping a connection: one at a time, made on demand, tried again without end.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use postrider_core::{Class, Outcome};
use rand::Rng;
use tokio::time::Instant;

use crate::{
    Place,
    connection::Settings,
    handshake::Refused,
    inbox::Inbox,
    link::Link,
    protocol::ServerInfo,
    stream::{self, Facts, Info},
};

/// Wait before the second try; it doubles from there.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait between two tries: a server that comes back is used this much later at most.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long an acknowledged sequence stays a good place to start looking. Others publish into the
/// stream too, and each of their messages would have to be read.
const NEWEST_FOR: Duration = Duration::from_secs(1);

pub(crate) struct Dial {
    /// Only one task dials at a time; the others wait for what it finds.
    dialling: tokio::sync::Mutex<Tries>,
    current: Mutex<Option<Arc<Link>>>,
    facts: Mutex<Facts>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct Tries {
    failures: u32,
    next_server: usize,
    not_before: Option<Instant>,
    last: Option<(&'static str, String)>,
}

impl Dial {
    pub(crate) fn new(inbox: Inbox) -> Self {
        Self {
            dialling: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            facts: Mutex::default(),
            inbox: Arc::new(inbox),
        }
    }

    /// The live connection, or a new one. `Err` is an outage: nothing was sent.
    pub(crate) async fn link(
        &self,
        settings: &Settings,
        place: &Place,
    ) -> Result<Arc<Link>, Outcome> {
        let several = settings.servers.len() > 1;
        let usable = |link: &Arc<Link>| link.is_alive() && !(several && link.is_leaving());
        if let Some(link) = self.current().filter(usable) {
            return Ok(link);
        }
        let mut tries = self.dialling.lock().await;
        if let Some(link) = self.current().filter(usable) {
            return Ok(link);
        }
        let wait = tries
            .not_before
            .map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            let (code, why) = tries.last.as_ref().map_or(
                ("not_connected", "the last try to connect was given up"),
                |(code, why)| (*code, why.as_str()),
            );
            return Err(Outcome::retryable(Class::Outage, code, why, Some(wait)));
        }
        // Noted before the try, so that one that is given up half way counts too.
        let backoff = tries.backoff();
        tries.failures = tries.failures.saturating_add(1);
        tries.not_before = Some(Instant::now() + backoff);
        tries.last = None;
        match self.dial_all(settings, place, &mut tries.next_server).await {
            Ok(link) => {
                *tries = Tries {
                    next_server: tries.next_server,
                    ..Tries::default()
                };
                let link = Arc::new(link);
                *lock(&self.current) = Some(Arc::clone(&link));
                Ok(link)
            }
            Err((code, why)) => {
                tries.not_before = Some(Instant::now() + backoff);
                let outcome = Outcome::retryable(Class::Outage, code, &why, Some(backoff));
                tries.last = Some((code, why));
                Err(outcome)
            }
        }
    }

    pub(crate) fn current(&self) -> Option<Arc<Link>> {
        lock(&self.current).clone()
    }

    pub(crate) fn facts(&self) -> Facts {
        *lock(&self.facts)
    }

    /// A sequence that was acknowledged just now.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.inbox.newest(NEWEST_FOR)
    }

    pub(crate) fn learn(&self, info: Option<&Info>, link: &Link) {
        *lock(&self.facts) = Facts::of(info, link.info().max_payload);
    }

    pub(crate) async fn close(&self) {
        if let Some(link) = lock(&self.current).take() {
            link.end();
        }
    }

    /// Each server once, from where the last round ended.
    async fn dial_all(
        &self,
        settings: &Settings,
        place: &Place,
        next_server: &mut usize,
    ) -> Result<Link, (&'static str, String)> {
        let mut last = ("not_connected", "there is no server".to_owned());
        for _ in 0..settings.servers.len() {
            let server = &settings.servers[*next_server % settings.servers.len()];
            *next_server = next_server.wrapping_add(1);
            let inbox = Arc::clone(&self.inbox);
            match Link::connect(settings, server, &place.stream, inbox).await {
                Ok(link) => {
                    if let Err(problem) = identity(&link, &place.cluster) {
                        last = ("wrong_cluster", problem);
                        continue;
                    }
                    // What the stream says may be unknown for now (no permission, no leader): then
                    // nothing is assumed of it.
                    let info = stream::info(&link, &place.stream).await;
                    self.learn(info.as_ref().ok(), &link);
                    return Ok(link);
                }
                Err(Refused::Unavailable(why)) => last = ("not_connected", why),
                Err(Refused::Misconfigured { code, message }) => last = (code, message),
            }
        }
        Err(last)
    }
}

impl Tries {
    /// Full jitter: many relays must not come back in step.
    fn backoff(&self) -> Duration {
        let ceiling = BACKOFF_FIRST
            .saturating_mul(1 << self.failures.min(16))
            .min(BACKOFF_MAX);
        rand::rng().random_range(BACKOFF_FIRST / 2..=ceiling)
    }
}

/// Whether a connection failure with this code will not pass by itself.
pub(crate) fn needs_a_person(code: &str) -> bool {
    matches!(
        code,
        "not_authorized" | "tls" | "no_headers" | "wrong_cluster"
    )
}

/// Compares the destination's cluster with the names that the server gives itself: its cluster,
/// its domain, its own name. A server with none of them (its name is its random id) cannot be
/// checked; the preflight warns.
pub(crate) fn identity(link: &Link, expected: &str) -> Result<Checked, String> {
    let info = link.info();
    let names = names(info);
    if names.is_empty() {
        return Ok(Checked::Unnamed);
    }
    if names.contains(&expected) {
        return Ok(Checked::Matches);
    }
    Err(format!(
        "{}:{} is {}; the destination expects {expected:?}",
        info.host,
        info.port,
        names
            .iter()
            .map(|name| format!("{name:?}"))
            .collect::<Vec<_>>()
            .join(" / ")
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Matches,
    Unnamed,
}

fn names(info: &ServerInfo) -> Vec<&str> {
    let own = (info.server_name != info.server_id).then_some(info.server_name.as_str());
    [info.cluster.as_deref(), info.domain.as_deref(), own]
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty())
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial")
            .field("link", &self.current())
            .finish_non_exhaustive()
    }
}
