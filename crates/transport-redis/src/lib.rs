//! Delivery into Redis Streams. An acknowledgement is the entry id that XADD gave, with WAIT where
//! the destination asks for replicas; nothing here ever creates a stream but `provision`.

mod append;
mod connection;
mod flight;
mod info;
mod line;
mod link;
mod lookup;
mod outcome;
mod positions;
mod preflight;
mod provision;
mod resp;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use postrider_contract::{
    Destination, Receipt,
    destination::{Durability, Serializer},
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, ConsumerPosition, Error, Message, Probe, ProbeStrength, Probed, Problem,
    Provisioning, Template, Traits, Transport, Usage,
    holds::{Holding, Holds, held},
    target::Alphabet,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

pub use connection::{Connection, Tls};

use crate::{
    append::{Done, Entry},
    connection::Settings,
    flight::Flight,
    line::{Held, Known, Line},
    link::{Broken, Failed, Link},
    resp::Reply,
};

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "redis-streams";

/// The `type` of its receipts.
pub const RECEIPT_TYPE: &str = "redis.entry/1";

/// What may stand unencoded in a stream's key. No braces: they would choose a cluster's slot.
const ALPHABET: Alphabet = Alphabet {
    punctuation: "~!$&'()*+,;=:@/",
    target_bytes_max: 1_024,
};

/// Longest batch. The server takes no other command while it appends one: some 30 ms for this many.
const BATCH_MAX: u32 = 2_000;
/// Bytes that one command carries, about; a longer batch goes in several, one after the other. The
/// server closes a connection that has 1 GiB waiting to be read.
const COMMAND_BYTES_MAX: usize = 32 << 20;
/// How long an acknowledged entry stays a good place to start looking.
const NEWEST_FOR: Duration = Duration::from_secs(1);

/// One destination in Redis Streams.
#[derive(Debug)]
pub struct RedisStreams {
    place: Place,
    settings: Settings,
    /// Whoever holds it sends: batches go one after the other.
    sends: Line,
    /// For everything else, so that a batch that waits for replicas holds up no probe.
    looks: Line,
    known: Known,
    holds: Holds,
    newest: Mutex<Option<(String, Instant)>>,
}

/// What the destination's frozen definition says, as far as it matters here.
#[derive(Debug)]
struct Place {
    key: Template,
    cluster: String,
    serializer: Serializer,
    durability: Durability,
    holding: Holding,
}

impl RedisStreams {
    /// Checks the definition and the settings. Connects to nothing: that happens with the first
    /// send or look-up, again and again until it succeeds.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        let settings = Settings::check(connection)?;
        let place = Place::of(destination)?;
        let known = Known::default();
        Ok(Self {
            place,
            settings,
            sends: Line::new(known.clone()),
            looks: Line::new(known.clone()),
            known,
            holds: Holds::default(),
            newest: Mutex::default(),
        })
    }

    /// Hands the batch to the server and answers every message of it. The connection is lost on the
    /// way if anything but its answers came.
    async fn publish(
        &self,
        line: &mut Held<'_>,
        link: Link,
        flight: &mut Flight<'_>,
        deadline: Instant,
    ) {
        let (streams, entries) = self.prepare(flight);
        let mut link = link;
        let mut rest = entries.into_iter().peekable();
        while rest.peek().is_some() {
            let mut part: Vec<Entry<'_>> = Vec::new();
            let mut bytes = 0;
            while let Some(entry) = rest.next_if(|entry| {
                part.is_empty() || bytes + append::size(entry.message) <= COMMAND_BYTES_MAX
            }) {
                bytes += append::size(entry.message);
                // One of an earlier part may have failed since this one was prepared.
                if flight.is_held(entry.message) {
                    flight.answer(entry.index, held());
                } else {
                    part.push(entry);
                }
            }
            match self.append(link, &streams, part, flight, deadline).await {
                Some(usable) => link = usable,
                None => {
                    let why = "the connection ended before it was sent";
                    flight.answer_rest(&Outcome::outage("not_connected", why));
                    return;
                }
            }
        }
        line.give_back(link);
    }

    /// Everything that can be sent, with the streams that it goes to. The rest is answered.
    fn prepare<'a>(&self, flight: &mut Flight<'a>) -> (Vec<String>, Vec<Entry<'a>>) {
        let batch = flight.batch;
        let mut streams: Vec<String> = Vec::new();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut keys: BTreeMap<&'a str, usize> = BTreeMap::new();
        let mut entries = Vec::with_capacity(batch.messages.len());
        for (index, message) in batch.messages.iter().enumerate() {
            if flight.is_held(message) {
                flight.answer(index, held());
                continue;
            }
            let stream = self.check_size(message);
            let stream = match stream.and_then(|()| self.place.key.render(&message.routing)) {
                Ok(stream) => stream,
                Err(outcome) => {
                    flight.answer(index, outcome);
                    continue;
                }
            };
            let stream = *numbers.entry(stream).or_insert_with_key(|stream| {
                streams.push(stream.clone());
                streams.len() - 1
            });
            let key = if self.place.holding.by_key {
                let next = keys.len() + 1;
                *keys.entry(&message.partition_key).or_insert(next)
            } else {
                0
            };
            // It may still be on its way for as long as the send timeout.
            let first_sent_ago_ms = message.earlier.as_ref().map(|earlier| {
                let ago = earlier.first_sent_ago + batch.send_timeout;
                u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)
            });
            entries.push(Entry {
                index,
                message,
                stream,
                key,
                first_sent_ago_ms,
            });
        }
        (streams, entries)
    }

    /// One command. `None`: the connection is gone.
    async fn append(
        &self,
        mut link: Link,
        streams: &[String],
        mut entries: Vec<Entry<'_>>,
        flight: &mut Flight<'_>,
        deadline: Instant,
    ) -> Option<Link> {
        let replicas = self.place.replicas(&self.settings);
        let mut reloaded = false;
        while !entries.is_empty() {
            let script = &link.facts.script;
            let touch = replicas.is_some();
            let mut bytes = append::command(script, streams, &entries, &self.settings, touch);
            let first = bytes.len();
            if let Some(replicas) = replicas {
                let patience = patience(deadline).to_string();
                resp::command(&mut bytes, &["WAIT", &replicas.to_string(), &patience]);
            }
            let answers = if replicas.is_some() { 2 } else { 1 };
            let called = link.call(&bytes, first, answers, deadline).await;
            let all = |flight: &mut Flight<'_>, outcome: &Outcome| {
                for entry in &entries {
                    flight.answer(entry.index, outcome.clone());
                }
            };
            let replies = match called {
                Ok(replies) => replies,
                Err(broken) => {
                    all(flight, &lost(&broken));
                    return None;
                }
            };
            let done = match replies.first() {
                Some(Reply::Error(error)) if error.starts_with("NOSCRIPT") && !reloaded => {
                    reloaded = true;
                    match preflight::reload(&mut link, &self.settings).await {
                        Ok(()) => continue,
                        Err(failed) => {
                            let error = Error::from(failed).to_string();
                            all(flight, &Outcome::outage("script_missing", &error));
                            return None;
                        }
                    }
                }
                Some(Reply::Error(error)) => {
                    all(flight, &outcome::refusal(error));
                    return None;
                }
                Some(Reply::List(items)) if items.len() == entries.len() => items
                    .iter()
                    .map(append::done)
                    .collect::<Option<Vec<Done>>>(),
                Some(_) | None => None,
            };
            let Some(done) = done else {
                let why = "the answer is not one per message";
                all(flight, &Outcome::unknown("answer_unreadable", why));
                return None;
            };
            if done.contains(&Done::Forgotten) {
                let forgotten = done.iter().map(|done| *done == Done::Forgotten);
                let looked = entries.iter().zip(forgotten).filter(|(_, lost)| *lost);
                let looked: Vec<Entry<'_>> = looked.map(|(entry, _)| *entry).collect();
                let found = self.look(&mut link, streams, &looked, flight, deadline);
                if let Err(failed) = found.await {
                    let error = Error::from(failed).to_string();
                    all(flight, &Outcome::outage("lookup_failed", &error));
                    return None;
                }
                entries.retain_mut(|entry| {
                    // Looked for now: it goes, whatever the server remembers.
                    entry.first_sent_ago_ms = None;
                    if !flight.is_answered(entry.index) && flight.is_held(entry.message) {
                        flight.answer(entry.index, held());
                    }
                    !flight.is_answered(entry.index)
                });
                continue;
            }
            let missing = replicas.and_then(|needed| short(replies.get(1), needed));
            for (entry, done) in entries.iter().zip(done) {
                let stream = &streams[entry.stream];
                flight.answer(entry.index, self.outcome(stream, done, missing.as_ref()));
            }
            return Some(link);
        }
        Some(link)
    }

    /// What became of one message.
    fn outcome(&self, stream: &str, done: Done, missing: Option<&Outcome>) -> Outcome {
        match done {
            Done::Appended(entry_id) | Done::Known(entry_id) => {
                if let Some(missing) = missing {
                    return missing.clone();
                }
                self.note(&entry_id);
                Outcome::Acknowledged(Receipt::Redis {
                    key: stream.to_owned(),
                    entry_id,
                })
            }
            Done::StreamMissing => Outcome::outage(
                "stream_missing",
                &format!("there is no stream {stream:?}; create it, or run `provision`"),
            ),
            Done::Refused(error) => outcome::refusal(&error),
            Done::Held => held(),
            // Answered by a look-up before.
            Done::Forgotten | Done::Waits => Outcome::unknown(
                "answer_unreadable",
                "the server looked for an earlier copy that was looked for already",
            ),
        }
    }

    /// Looks for messages whose first send the server may have forgotten, and answers those that
    /// are there.
    async fn look(
        &self,
        link: &mut Link,
        streams: &[String],
        entries: &[Entry<'_>],
        flight: &mut Flight<'_>,
        deadline: Instant,
    ) -> Result<(), Failed> {
        // Half of what is left: the other half is for sending what was not found.
        let now = Instant::now();
        let until = now + deadline.saturating_duration_since(now) / 2;
        for (number, stream) in streams.iter().enumerate() {
            let here = || entries.iter().filter(|entry| entry.stream == number);
            let earlier = || here().filter_map(|entry| entry.message.earlier.as_ref());
            let wanted: BTreeMap<String, usize> = here()
                .map(|entry| (entry.message.event_id.to_string(), entry.index))
                .collect();
            let Some(ago) = earlier().map(|earlier| earlier.first_sent_ago).max() else {
                continue;
            };
            let anchors: Option<Vec<(u64, u64)>> = earlier()
                .map(|earlier| append::entry_id(&earlier.anchor.as_ref()?.0))
                .collect();
            let anchor = anchors.and_then(|anchors| anchors.into_iter().min());
            let anchor = anchor.map(|(ms, n)| Anchor(format!("{ms}-{n}").into()));
            let ago = ago + flight.batch.send_timeout;
            let from = lookup::start(link, &self.settings, anchor.as_ref(), Some(ago)).await?;
            let found = lookup::scan(link, &self.settings, stream, from, wanted, until).await?;
            if !found.complete {
                tracing::warn!(
                    stream,
                    entries_max = self.settings.lookup_entries_max,
                    "a look-up before a late retry ended at its bound; what it missed may be \
                     stored twice"
                );
            }
            for (index, stored) in found.seen {
                let outcome = if stored.body != flight.batch.messages[index].body {
                    Outcome::rejected(
                        "digest_conflict",
                        "the stream holds this id with another body",
                    )
                } else if self.place.replicas(&self.settings).is_some()
                    && !lookup::replicated(link, &self.settings).await?
                {
                    Outcome::unknown(
                        "replicas_missing",
                        "it is in the stream, and not shown to be at its replicas",
                    )
                } else {
                    Outcome::Acknowledged(Receipt::Redis {
                        key: stream.clone(),
                        entry_id: stored.entry_id,
                    })
                };
                flight.answer(index, outcome);
            }
        }
        Ok(())
    }

    /// Remembers where the stream ends, where there is only one.
    fn note(&self, entry_id: &str) {
        if !self.place.key.is_constant() {
            return;
        }
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let later = |known: &str| append::entry_id(known) < append::entry_id(entry_id);
        if newest.as_ref().is_none_or(|(known, _)| later(known)) {
            *newest = Some((entry_id.to_owned(), Instant::now()));
        }
    }

    fn newest(&self) -> Option<Anchor> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let (entry_id, at) = newest.as_ref()?;
        (at.elapsed() < NEWEST_FOR).then(|| Anchor(entry_id.as_str().into()))
    }

    fn check_size(&self, message: &Message) -> Result<(), Outcome> {
        let (bytes, max) = (append::size(message) as u64, self.known.text_bytes_max());
        if bytes <= max {
            return Ok(());
        }
        let detail = format!("{bytes} bytes with headers; the server takes {max}");
        Err(Outcome::rejected("message_too_large", &detail))
    }

    /// A connection for looking, and the line that it goes back to.
    async fn looking(&self) -> Result<(Held<'_>, Link), Error> {
        let mut line = self.looks.hold().await;
        match line.take(&self.settings, &self.place).await {
            Ok(link) => Ok((line, link)),
            Err((refused, _)) => Err(refused.into()),
        }
    }
}

/// The connection goes on unless it broke.
fn looked<T>(mut line: Held<'_>, link: Link, result: Result<T, Failed>) -> Result<T, Error> {
    match &result {
        Ok(_) | Err(Failed::Answered(Error::Misconfigured { .. })) => line.give_back(link),
        // What is wrong with the server now may be another server's to do better.
        Err(Failed::Answered(Error::Unavailable { .. }) | Failed::Broken(_)) => drop(link),
    }
    result.map_err(Error::from)
}

fn lost(broken: &Broken) -> Outcome {
    match broken {
        Broken::NotSent(why) => Outcome::outage("not_connected", why),
        Broken::Lost(why) => Outcome::unknown("connection_lost", why),
        Broken::Silent(why) => Outcome::unknown("answer_timeout", why),
    }
}

/// How long WAIT may wait, in milliseconds: its answer must come before the deadline. 0 would mean
/// for ever.
fn patience(deadline: Instant) -> u128 {
    let left = deadline.saturating_duration_since(Instant::now());
    let margin = (left / 4).min(Duration::from_millis(500));
    (left - margin).as_millis().max(1)
}

/// The outcome of what was appended and is not at enough replicas: a failover may lose it, or not.
fn short(waited: Option<&Reply>, needed: u32) -> Option<Outcome> {
    let why = match waited {
        Some(Reply::Number(at)) if *at >= i64::from(needed) => return None,
        Some(Reply::Number(at)) => format!("{at} of {needed} replicas have it"),
        Some(Reply::Error(error)) => error.clone(),
        Some(Reply::Text(_) | Reply::Null | Reply::List(_)) | None => {
            "WAIT was not answered".to_owned()
        }
    };
    Some(Outcome::unknown("replicas_missing", &why))
}

impl Place {
    fn of(destination: &Destination) -> Result<Self, Error> {
        let misfit = |message: String| Error::Misconfigured {
            code: "destination",
            message,
        };
        let name = &destination.name;
        if destination.kind != KIND {
            return Err(misfit(format!(
                "{name} is of kind {:?}, not {KIND}",
                destination.kind
            )));
        }
        if destination.receipt_type != RECEIPT_TYPE {
            return Err(misfit(format!(
                "{name} asks for receipts of type {:?}; a stream gives {RECEIPT_TYPE}",
                destination.receipt_type
            )));
        }
        Ok(Self {
            key: Template::parse(&destination.target, ALPHABET)?,
            cluster: destination.cluster.clone(),
            serializer: destination.serializer,
            durability: destination.durability,
            holding: Holding::of(destination),
        })
    }

    /// The stream of a target without placeholders; else a key like those of its streams.
    fn first_key(&self) -> String {
        self.key.pattern("x")
    }

    /// The key whose value names the server's data. It lies in the slot of a single stream.
    fn marker(&self) -> String {
        if self.key.is_constant() {
            append::memory(&self.first_key(), "cluster")
        } else {
            "postrider:cluster".to_owned()
        }
    }

    /// How many replicas must have a message before it is acknowledged.
    fn replicas(&self, settings: &Settings) -> Option<u32> {
        match self.durability {
            Durability::Stored | Durability::Synced => None,
            Durability::Replicated => Some(settings.replicas_min),
        }
    }
}

#[async_trait]
impl Transport for RedisStreams {
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: true,
            batch_max: BATCH_MAX,
            dedup_window: self.settings.dedup_window,
            probe: ProbeStrength::Finds,
        }
    }

    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        let (line, mut link) = self.looking().await?;
        let problems = preflight::problems(&mut link, &self.place, &self.settings, usage).await;
        looked(line, link, problems)
    }

    async fn provision(&self, _: &Usage, how: Provisioning) -> Result<Vec<String>, Error> {
        let (line, mut link) = self.looking().await?;
        let done = provision::provision(&mut link, &self.place, &self.settings, how).await;
        looked(line, link, done)
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        self.check_size(message)?;
        self.place.key.render(&message.routing).map(drop)
    }

    /// The server's largest text may be changed while it runs.
    async fn look_again(&self) {
        let Ok((line, mut link)) = self.looking().await else {
            return;
        };
        let ask = ["CONFIG", "GET", "proto-max-bulk-len"];
        let answer = lookup::one(&mut link, &self.settings, &ask).await;
        if let Ok(answer) = &answer
            && let Some(max) = answer.field("proto-max-bulk-len").and_then(Reply::text)
            && let Ok(max) = max.parse()
        {
            link.facts.text_bytes_max = max;
            self.known.learn(&link.facts);
        }
        // What it did not learn, the next look may.
        drop(looked(line, link, answer));
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        if batch.messages.is_empty() {
            return;
        }
        let deadline = Instant::now() + batch.send_timeout;
        let mut flight = Flight::new(&batch, self.place.holding, &self.holds, answers);
        let Ok(mut line) = timeout_at(deadline, self.sends.hold()).await else {
            let why = "earlier batches took all the time";
            return flight.answer_rest(&Outcome::outage("window_full", why));
        };
        let taken = timeout_at(deadline, line.take(&self.settings, &self.place)).await;
        match taken {
            Ok(Ok(link)) => self.publish(&mut line, link, &mut flight, deadline).await,
            Ok(Err(refused)) => flight.answer_rest(&line::outage(refused)),
            Err(_) => {
                let why = "there was no connection in time";
                flight.answer_rest(&Outcome::outage("not_connected", why));
            }
        }
    }

    async fn anchor(&self, _: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        if let Some(newest) = self.newest() {
            return Ok(Some(newest));
        }
        let (line, mut link) = self.looking().await?;
        let anchor = self.end(&mut link).await;
        looked(line, link, anchor)
    }

    async fn probe(&self, probe: &Probe) -> Result<Probed, Error> {
        let (line, mut link) = self.looking().await?;
        let probed = lookup::probe(&mut link, &self.place, &self.settings, probe).await;
        looked(line, link, probed)
    }

    async fn positions(&self, consumer: &str) -> Result<Vec<ConsumerPosition>, Error> {
        if !self.place.key.is_constant() {
            return Err(Error::Misconfigured {
                code: "positions_unknown",
                message: format!(
                    "the target has placeholders, so which streams consumer {consumer:?} reads is \
                     not known here; let it post receipts from its inbox"
                ),
            });
        }
        let (line, mut link) = self.looking().await?;
        let stream = self.place.first_key();
        let position = positions::of(&mut link, &self.settings, &stream, consumer).await;
        looked(line, link, position.map(|position| vec![position]))
    }

    async fn close(&self) {
        self.sends.close();
        self.looks.close();
    }
}

impl RedisStreams {
    /// Where the stream ends now. Where there are several: the server's time, less what the clock of
    /// another server may differ by.
    async fn end(&self, link: &mut Link) -> Result<Option<Anchor>, Failed> {
        if !self.place.key.is_constant() {
            let now = lookup::time_ms(link, &self.settings).await?;
            let margin = u64::try_from(lookup::CLOCK_MARGIN.as_millis()).unwrap_or(0);
            let from = format!("{}-0", now.saturating_sub(margin));
            return Ok(Some(Anchor(from.into())));
        }
        let key = self.place.first_key();
        let info = lookup::one(link, &self.settings, &["XINFO", "STREAM", &key]).await;
        match info {
            Ok(info) => {
                let last = info.field("last-generated-id").and_then(Reply::text);
                Ok(last.map(|last| Anchor(last.into())))
            }
            // No stream yet: whatever comes is behind its beginning.
            Err(Failed::Answered(Error::Unavailable { message, .. }))
                if message.contains("no such key") =>
            {
                Ok(Some(Anchor("0-0".into())))
            }
            Err(failed) => Err(failed),
        }
    }
}
