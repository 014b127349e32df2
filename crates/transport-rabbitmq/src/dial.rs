//! Keeping a connection: one at a time, made on demand, tried again without end.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};

use postrider_core::{Class, Outcome};
use postrider_transport::Late;
use rand::Rng;
use tokio::{sync::mpsc, time::Instant};

use crate::{
    Place,
    ask::{Talk, Unanswered},
    connection::Settings,
    handshake::Refused,
    link::{Learned, Link},
};

/// Wait before the second try; it doubles from there.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait between two tries: a server that comes back is used this much later at most.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

pub(crate) struct Dial {
    /// Only one task dials at a time; the others wait for what it finds.
    dialling: tokio::sync::Mutex<Tries>,
    current: Mutex<Option<Arc<Link>>>,
    pub(crate) learned: Arc<Learned>,
    late: mpsc::Sender<Late>,
}

#[derive(Default)]
struct Tries {
    failures: u32,
    next_server: usize,
    not_before: Option<Instant>,
    last: Option<(&'static str, String)>,
}

impl Dial {
    pub(crate) fn new(late: mpsc::Sender<Late>) -> Self {
        Self {
            dialling: tokio::sync::Mutex::default(),
            current: Mutex::default(),
            learned: Arc::default(),
            late,
        }
    }

    /// The live connection, or a new one, to a server where the exchange is there. `Err` is an
    /// outage: nothing was sent.
    pub(crate) async fn ready(
        &self,
        settings: &Settings,
        place: &Place,
    ) -> Result<Arc<Link>, Outcome> {
        let link = self.link(settings, place).await?;
        if let Some(outcome) = link.blocked() {
            return Err(outcome);
        }
        if place.exchange.is_empty() || link.exchange_seen.load(Ordering::Acquire) {
            return Ok(link);
        }
        let asked = async {
            let mut talk = Talk::begin(&link).await?;
            talk.exchange_is_there(&place.exchange).await?;
            talk.done();
            Ok(())
        };
        match asked.await {
            Ok(()) => {
                link.exchange_seen.store(true, Ordering::Release);
                Ok(link)
            }
            Err(Unanswered::Refused(closed)) => {
                Err(Outcome::outage("exchange_missing", &closed.text))
            }
            Err(Unanswered::Silent(why)) => Err(Outcome::outage("broker_silent", &why)),
        }
    }

    /// The live connection, or a new one. `Err` is an outage: nothing was sent.
    pub(crate) async fn link(
        &self,
        settings: &Settings,
        place: &Place,
    ) -> Result<Arc<Link>, Outcome> {
        if let Some(link) = self.current().filter(|link| link.is_alive()) {
            return Ok(link);
        }
        let mut tries = self.dialling.lock().await;
        if let Some(link) = self.current().filter(|link| link.is_alive()) {
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

    pub(crate) fn close(&self) {
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
            let terms = |frame_max| place.terms(settings, frame_max);
            let learned = Arc::clone(&self.learned);
            match Link::connect(settings, server, terms, self.late.clone(), learned).await {
                Ok(link) => match identity(&link, settings, &place.cluster) {
                    Ok(_) => return Ok(link),
                    Err(problem) => last = ("wrong_cluster", format!("{server} {problem}")),
                },
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
        "not_authorized" | "tls" | "no_confirms" | "wrong_cluster" | "vhost_missing"
    )
}

/// Compares the destination's cluster with the name that the server gives its own, and the virtual
/// host. A server without such a name cannot be checked; the preflight warns.
pub(crate) fn identity(
    link: &Link,
    settings: &Settings,
    expected: &str,
) -> Result<Checked, String> {
    let Some(cluster) = link
        .property("cluster_name")
        .filter(|name| !name.is_empty())
    else {
        return Ok(Checked::Unnamed);
    };
    let own = match settings.vhost.as_str() {
        "/" => cluster.to_owned(),
        vhost => format!("{cluster}/{vhost}"),
    };
    if own == expected {
        return Ok(Checked::Matches);
    }
    Err(format!(
        "is {own:?} (cluster name and virtual host); the destination expects {expected:?}; correct \
         the addresses or vhost, or name the cluster with `rabbitmqctl set_cluster_name`"
    ))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    Matches,
    Unnamed,
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
