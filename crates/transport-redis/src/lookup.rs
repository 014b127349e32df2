//! Looking for messages by their id, without sending anything: reads a stream forward from the
//! anchor, page by page.

use std::{collections::BTreeMap, time::Duration};

use postrider_contract::{Receipt, destination::Durability};
use postrider_transport::{Anchor, Probe, Probed, wire::payload_digest};
use tokio::time::Instant;

use crate::{
    Place,
    append::{self, Stored},
    connection::Settings,
    info::Info,
    link::{Failed, Link, ask},
    resp::Reply,
};

/// Entries of the first page; further pages are as long as [`PAGE_BYTES`] allows.
const PAGE_FIRST: u64 = 8;
const PAGE_MAX: u64 = 1_000;
/// About what one page may hold in memory. One larger entry comes alone.
const PAGE_BYTES: usize = 4 << 20;
/// The clocks of a primary and of the replica that takes its place may differ by this much.
pub(crate) const CLOCK_MARGIN: Duration = Duration::from_secs(300);
/// Replicas say once a second how far they have come.
const REPLICAS_WITHIN: Duration = Duration::from_secs(3);
const REPLICAS_EVERY: Duration = Duration::from_millis(100);

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// By what the caller calls it.
    pub(crate) seen: BTreeMap<usize, Stored>,
    /// The stream was read to its end, or everything was found.
    pub(crate) complete: bool,
}

/// Looks for events by id in one stream, from an entry id on, until `until` or the bound of entries.
/// The first copy counts.
pub(crate) async fn scan(
    link: &mut Link,
    settings: &Settings,
    stream: &str,
    from: String,
    mut wanted: BTreeMap<String, usize>,
    until: Instant,
) -> Result<Found, Failed> {
    let mut found = Found::default();
    let mut left = u64::from(settings.lookup_entries_max);
    let (mut from, mut count) = (from, PAGE_FIRST);
    while !wanted.is_empty() {
        if left == 0 || Instant::now() >= until {
            return Ok(found);
        }
        count = count.min(left);
        let text = count.to_string();
        let command = ["XRANGE", stream, &from, "+", "COUNT", &text];
        let page = one(link, settings, &command).await?;
        let entries = page.list().unwrap_or_default();
        let mut bytes = 0;
        for entry in entries.iter().filter_map(append::stored) {
            bytes += entry.bytes;
            from = format!("({}", entry.entry_id);
            let index = entry
                .event_id
                .as_ref()
                .and_then(|event_id| wanted.remove(event_id));
            if let Some(index) = index {
                found.seen.insert(index, entry);
            }
        }
        let read = entries.len() as u64;
        if read < count {
            break;
        }
        left -= read;
        let average = bytes / entries.len().max(1);
        count = (PAGE_BYTES / average.max(1)) as u64;
        count = count.clamp(1, PAGE_MAX);
    }
    found.complete = true;
    Ok(found)
}

/// Where to start: behind the anchor, or at the time of the first send, or at the beginning.
pub(crate) async fn start(
    link: &mut Link,
    settings: &Settings,
    anchor: Option<&Anchor>,
    ago: Option<Duration>,
) -> Result<String, Failed> {
    if let Some(anchor) = anchor.filter(|anchor| append::is_entry_id(&anchor.0)) {
        return Ok(format!("({}", anchor.0));
    }
    let Some(ago) = ago else {
        return Ok("-".to_owned());
    };
    let now = time_ms(link, settings).await?;
    let ago = u64::try_from(ago.saturating_add(CLOCK_MARGIN).as_millis()).unwrap_or(u64::MAX);
    Ok(now.saturating_sub(ago).to_string())
}

/// The server's clock, in milliseconds since 1970.
pub(crate) async fn time_ms(link: &mut Link, settings: &Settings) -> Result<u64, Failed> {
    let reply = one(link, settings, &["TIME"]).await?;
    let number = |at: usize| {
        let text = reply.list()?.get(at)?.text()?;
        text.parse::<u64>().ok()
    };
    match (number(0), number(1)) {
        (Some(seconds), Some(micros)) => Ok(seconds * 1_000 + micros / 1_000),
        (_, _) => Err(Failed::error("the answer to TIME is no time")),
    }
}

/// Looks for one event, for the port's probe. What it does not find is not proven absent: a copy may
/// be in the buffers of a connection that is gone for us and not yet for the server, for a time that
/// nothing bounds.
pub(crate) async fn probe(
    link: &mut Link,
    place: &Place,
    settings: &Settings,
    probe: &Probe,
) -> Result<Probed, Failed> {
    let cannot_tell = |reason: String| Ok(Probed::CannotTell { reason });
    let Ok(stream) = place.key.render(&probe.routing) else {
        return cannot_tell("the event has no stream here".to_owned());
    };
    let id = probe.event_id.to_string();
    let mut seen = remembered(link, settings, &stream, &id).await?;
    let mut complete = true;
    if seen.is_none() {
        let from = start(link, settings, probe.anchor.as_ref(), None).await?;
        let until = Instant::now() + settings.api_timeout;
        let wanted = BTreeMap::from([(id, 0)]);
        let mut found = scan(link, settings, &stream, from, wanted, until).await?;
        seen = found.seen.remove(&0);
        complete = found.complete;
    }
    let Some(stored) = seen else {
        return cannot_tell(if complete {
            "not in the stream; a copy may still be under way".to_owned()
        } else {
            format!(
                "not among the first {} entries after the anchor, or not within {:?}",
                settings.lookup_entries_max, settings.api_timeout
            )
        });
    };
    if payload_digest(place.serializer, &stored.body) != Some(probe.payload_digest) {
        return cannot_tell("the stream holds this id with another payload".to_owned());
    }
    if place.durability == Durability::Replicated && !replicated(link, settings).await? {
        return cannot_tell(format!(
            "it is in the stream, and not shown to be at {} replicas",
            settings.replicas_min
        ));
    }
    Ok(Probed::Found(Receipt::Redis {
        key: stream,
        entry_id: stored.entry_id,
    }))
}

/// The entry that the server's memory of ids names, if it is still there.
async fn remembered(
    link: &mut Link,
    settings: &Settings,
    stream: &str,
    id: &str,
) -> Result<Option<Stored>, Failed> {
    if settings.dedup_window.is_none() {
        return Ok(None);
    }
    for name in ["ids", "ids-before"] {
        let key = append::memory(stream, name);
        let entry = one(link, settings, &["HGET", &key, id]).await?;
        if let Some(entry) = entry.text() {
            let page = one(link, settings, &["XRANGE", stream, entry, entry]).await?;
            let stored = page.list().unwrap_or_default().first();
            let stored = stored.and_then(append::stored);
            return Ok(stored.filter(|stored| stored.event_id.as_deref() == Some(id)));
        }
    }
    Ok(None)
}

/// Whether enough replicas have everything that the primary has at this moment. WAIT would not do:
/// it waits for what this connection wrote, which is nothing.
pub(crate) async fn replicated(link: &mut Link, settings: &Settings) -> Result<bool, Failed> {
    let end = Instant::now() + REPLICAS_WITHIN.min(settings.api_timeout);
    let mut wanted = None;
    loop {
        let info = one(link, settings, &["INFO", "replication"]).await?;
        let info = Info::read(info.text().unwrap_or_default());
        let offset = info.number("master_repl_offset").unwrap_or(u64::MAX);
        let wanted = *wanted.get_or_insert(offset);
        let count = info.replicas().iter().filter(|own| **own >= wanted).count();
        if count >= settings.replicas_min as usize {
            return Ok(true);
        }
        if Instant::now() >= end {
            return Ok(false);
        }
        tokio::time::sleep(REPLICAS_EVERY).await;
    }
}

/// One command, one answer that is no error.
pub(crate) async fn one(
    link: &mut Link,
    settings: &Settings,
    command: &[&str],
) -> Result<Reply, Failed> {
    let mut replies = ask(link, &[command], settings.api_timeout).await?;
    let reply = replies.pop().unwrap_or(Reply::Null);
    reply.ok().map_err(|error| Failed::error(&error))
}
