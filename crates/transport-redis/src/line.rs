//! Keeping a connection: one at a time, made on demand, tried again without end. It belongs to
//! whoever holds the line; a connection that was not given back is gone.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use postrider_core::{Class, Outcome};
use postrider_transport::tls;
use rand::Rng;
use tokio::{
    net::TcpStream,
    sync::MutexGuard,
    time::{Instant, timeout},
};

use crate::{
    Place, append,
    connection::{Server, Settings},
    info::Info,
    link::{Facts, Link, Named, Refused, Socket, TEXT_BYTES_MAX, ask},
    outcome,
};

/// Wait before the second try; it doubles from there.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// Longest wait between two tries: a server that comes back is used this much later at most.
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// Servers of a cluster that may point to the next one for one slot. One is usual, two while a slot
/// moves.
const MOVES_MAX: u32 = 5;
/// The first version whose groups say how far they are behind.
const VERSION_MIN: u32 = 7;

pub(crate) struct Line {
    state: tokio::sync::Mutex<State>,
    known: Known,
}

/// What the last connection learnt; lines to the same server share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<Mutex<Option<Facts>>>);

impl Known {
    pub(crate) fn learn(&self, facts: &Facts) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(facts.clone());
    }

    /// Largest text that the server takes; before the first connection, its default.
    pub(crate) fn text_bytes_max(&self) -> u64 {
        let facts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        facts
            .as_ref()
            .map_or(TEXT_BYTES_MAX, |facts| facts.text_bytes_max)
    }
}

#[derive(Default)]
pub(crate) struct State {
    link: Option<Link>,
    tries: Tries,
}

#[derive(Default)]
struct Tries {
    failures: u32,
    next_server: usize,
    not_before: Option<Instant>,
    last: Option<Refused>,
}

/// The line in hand: nobody else calls meanwhile.
pub(crate) struct Held<'a> {
    line: &'a Line,
    state: MutexGuard<'a, State>,
}

impl Line {
    pub(crate) async fn hold(&self) -> Held<'_> {
        Held {
            line: self,
            state: self.state.lock().await,
        }
    }

    pub(crate) fn new(known: Known) -> Self {
        Self {
            state: tokio::sync::Mutex::default(),
            known,
        }
    }

    /// Lets the connection go, unless it is in use: then it goes with that.
    pub(crate) fn close(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            state.link = None;
        }
    }
}

impl Held<'_> {
    /// Takes the live connection, or a new one. Who is done with it and could read every answer
    /// gives it back.
    pub(crate) async fn take(
        &mut self,
        settings: &Settings,
        place: &Place,
    ) -> Result<Link, (Refused, Duration)> {
        if let Some(link) = self.state.link.take() {
            return Ok(link);
        }
        let tries = &mut self.state.tries;
        let wait = tries
            .not_before
            .map(|at| at.saturating_duration_since(Instant::now()));
        if let Some(wait) = wait.filter(|wait| !wait.is_zero()) {
            let given_up = || {
                let why = "the last try to connect was given up".to_owned();
                Refused::of("not_connected", why)
            };
            return Err((tries.last.clone().unwrap_or_else(given_up), wait));
        }
        // Noted before the try, so that one that is given up half way counts too.
        let backoff = tries.backoff();
        tries.failures = tries.failures.saturating_add(1);
        tries.not_before = Some(Instant::now() + backoff);
        tries.last = None;
        match dial_all(settings, place, &mut tries.next_server).await {
            Ok(link) => {
                *tries = Tries {
                    next_server: tries.next_server,
                    ..Tries::default()
                };
                self.line.known.learn(&link.facts);
                Ok(link)
            }
            Err(refused) => {
                tries.not_before = Some(Instant::now() + backoff);
                tries.last = Some(refused.clone());
                Err((refused, backoff))
            }
        }
    }

    pub(crate) fn give_back(&mut self, link: Link) {
        self.state.link = Some(link);
    }
}

/// The outcome of messages for which there is no connection.
pub(crate) fn outage((refused, wait): (Refused, Duration)) -> Outcome {
    Outcome::retryable(Class::Outage, refused.code, &refused.message, Some(wait))
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

/// Each server once, from where the last round ended: the one that served last comes first.
async fn dial_all(
    settings: &Settings,
    place: &Place,
    next_server: &mut usize,
) -> Result<Link, Refused> {
    let count = settings.servers.len();
    let mut last: Option<Refused> = None;
    for _ in 0..count {
        let server = &settings.servers[*next_server % count];
        match dial(settings, place, server.clone()).await {
            Ok(link) => return Ok(link),
            Err(refused) => {
                // What a person must see is not hidden behind a replica that was tried after it.
                let keeps = |last: &Refused| outcome::needs_a_person(last.code);
                if !last.as_ref().is_some_and(keeps) {
                    last = Some(refused);
                }
                *next_server = next_server.wrapping_add(1);
            }
        }
    }
    Err(last.unwrap_or_else(|| Refused::of("not_connected", "there is no server".to_owned())))
}

/// Connects, in a cluster to the server that has the stream's slot.
async fn dial(settings: &Settings, place: &Place, mut server: Server) -> Result<Link, Refused> {
    for _ in 0..MOVES_MAX {
        let made = timeout(settings.connect_timeout, connect(settings, place, &server)).await;
        match made {
            Ok(Ok(Dialled::Link(link))) => return Ok(link),
            Ok(Ok(Dialled::Moved(next))) => server = next,
            Ok(Err(refused)) => {
                return Err(Refused::of(
                    refused.code,
                    format!("{server}: {}", refused.message),
                ));
            }
            Err(_) => {
                return Err(Refused::of(
                    "not_connected",
                    format!(
                        "{server} did not answer within {:?}",
                        settings.connect_timeout
                    ),
                ));
            }
        }
    }
    Err(Refused::of(
        "moved",
        format!("the cluster pointed to another server {MOVES_MAX} times, last to {server}"),
    ))
}

enum Dialled {
    Link(Link),
    Moved(Server),
}

async fn connect(settings: &Settings, place: &Place, server: &Server) -> Result<Dialled, Refused> {
    let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
    tcp.set_nodelay(true)?;
    let socket: Box<dyn Socket> = if server.tls {
        Box::new(tls::secure(tcp, &settings.tls, &server.host).await?)
    } else {
        Box::new(tcp)
    };
    let mut link = Link::new(socket);
    introduce(&mut link, settings).await?;

    let within = settings.connect_timeout;
    let mut replies = ask(&mut link, &[&["INFO"]], within).await?.into_iter();
    let mut next = || replies.next().unwrap_or(crate::resp::Reply::Null);
    let info = next().ok().map_err(|error| Refused::error(&error))?;
    let info = Info::read(info.text().unwrap_or_default());
    fits(place, &info)?;

    let marker = place.marker();
    let key = place.first_key();
    let commands: [&[&str]; 4] = [
        &["EXISTS", &key],
        &["GET", &marker],
        &["CONFIG", "GET", "proto-max-bulk-len"],
        &["SCRIPT", "LOAD", append::SCRIPT],
    ];
    let replies = ask(&mut link, &commands, within).await?;
    let [exists, named, text_max, script] = replies.try_into().map_err(|_| not_redis())?;
    if let Err(error) = exists.ok() {
        return match server.moved(&error) {
            Some(next) if error.starts_with("MOVED ") => Ok(Dialled::Moved(next)),
            Some(_) | None => Err(Refused::error(&error)),
        };
    }
    let named = match named.ok() {
        Ok(reply) => reply.text().map(str::to_owned),
        Err(error) if outcome::code(&error) == Some("permission_denied") => None,
        Err(error) => return Err(Refused::error(&error)),
    };
    link.facts.named = identity(place, named.as_deref(), &info)?;
    // Where it may not be asked, the server's default holds, and a larger message is refused by the
    // server itself.
    if let Some(max) = text_max
        .field("proto-max-bulk-len")
        .and_then(crate::resp::Reply::text)
        .and_then(|text| text.parse().ok())
    {
        link.facts.text_bytes_max = max;
    }
    let script = script.ok().map_err(|error| Refused::error(&error))?;
    script
        .text()
        .ok_or_else(not_redis)?
        .clone_into(&mut link.facts.script);
    Ok(Dialled::Link(link))
}

/// Says who we are and which database is meant.
async fn introduce(link: &mut Link, settings: &Settings) -> Result<(), Refused> {
    let database = settings.database.to_string();
    let mut commands: Vec<Vec<&str>> = Vec::new();
    match (&settings.user, &settings.password) {
        (Some(user), Some(password)) => commands.push(vec!["AUTH", user, password.reveal()]),
        (None, Some(password)) => commands.push(vec!["AUTH", password.reveal()]),
        (_, None) => {}
    }
    if settings.database != 0 {
        commands.push(vec!["SELECT", &database]);
    }
    let commands: Vec<&[&str]> = commands.iter().map(Vec::as_slice).collect();
    for reply in ask(link, &commands, settings.connect_timeout).await? {
        if let Err(error) = reply.ok() {
            // Only the default user without a password, or a wrong one, answers so.
            if error.starts_with("ERR AUTH") || error.starts_with("ERR Client sent AUTH") {
                let message = "the server has no password for this user; leave it out, or set one";
                return Err(Refused::of("not_authorized", message.to_owned()));
            }
            if error.starts_with("ERR DB index") || error.starts_with("ERR SELECT") {
                let message = format!("database {database}: {error}");
                return Err(Refused::of("database_missing", message));
            }
            return Err(Refused::error(&error));
        }
    }
    Ok(())
}

/// Whether this is a server that takes writes and can do what is needed.
fn fits(place: &Place, info: &Info) -> Result<(), Refused> {
    let version = info.text("redis_version").ok_or_else(not_redis)?;
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or(0);
    if major < VERSION_MIN {
        return Err(Refused::of(
            "server_too_old",
            format!("the server has version {version}; {VERSION_MIN}.0 and later work"),
        ));
    }
    if info.text("role") != Some("master") {
        let primary = match (info.text("master_host"), info.text("master_port")) {
            (Some(host), Some(port)) => format!(" of {host}:{port}"),
            (_, _) => String::new(),
        };
        return Err(Refused::of(
            "read_only",
            format!("it is a replica{primary}; name the primary in servers"),
        ));
    }
    if info.text("cluster_enabled") == Some("1") && !place.key.is_constant() {
        return Err(Refused::of(
            "cluster_many_slots",
            "the target has placeholders, and the streams of one batch would lie on several \
             servers of the cluster; give each stream a destination of its own"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Compares the destination's cluster with the name that was given to the data, or with the ids of
/// the server and of its data.
fn identity(place: &Place, named: Option<&str>, info: &Info) -> Result<Named, Refused> {
    let expected = place.cluster.as_str();
    let ids = ["run_id", "master_replid", "master_replid2"];
    if named == Some(expected) || ids.iter().any(|id| info.text(id) == Some(expected)) {
        return Ok(Named::Matches);
    }
    let is_id = expected.len() == 40 && expected.bytes().all(|byte| byte.is_ascii_hexdigit());
    let other = match named {
        Some(named) => format!("it is {named:?}"),
        None if is_id => {
            let own: Vec<&str> = ids.iter().filter_map(|id| info.text(id)).collect();
            format!("its ids are {}", own.join(", "))
        }
        None => return Ok(Named::Unnamed),
    };
    Err(Refused::of(
        "wrong_cluster",
        format!("{other}; the destination expects {expected:?}"),
    ))
}

fn not_redis() -> Refused {
    let message = "what answers there is not a Redis server".to_owned();
    Refused::of("not_connected", message)
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}
