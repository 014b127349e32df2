//! Appending a batch: one command that carries it whole, so that the server takes the messages in
//! order and nothing comes between them.

use bytes::Bytes;
use postrider_contract::cloudevents::RAW_ID;
use postrider_transport::Message;
use uuid::fmt::Hyphenated;

use crate::{connection::Settings, resp};

/// What runs in the server.
pub(crate) const SCRIPT: &str = include_str!("append.lua");

/// First field of an entry: the event id.
pub(crate) const FIELD_ID: &str = RAW_ID;
/// Last field of an entry. No header has this name: the prefix is reserved.
pub(crate) const FIELD_BODY: &str = "postrider-body";

/// Texts of one message before its fields: stream, key, event id, age, number of texts.
const BEFORE_FIELDS: usize = 5;

/// A message on its way into the script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    /// In the batch.
    pub(crate) index: usize,
    pub(crate) message: &'a Message,
    /// Among the streams, from 0.
    pub(crate) stream: usize,
    /// Its key among those of the batch, from 1; 0: it orders with nothing.
    pub(crate) key: usize,
    /// Milliseconds since the first send; `None`: there was none, or it was looked for already.
    pub(crate) first_sent_ago_ms: Option<u64>,
}

/// What the script did with one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    Appended(String),
    /// The server knew its id: this is the first copy's entry.
    Known(String),
    StreamMissing,
    Refused(String),
    Held,
    /// It may have been appended longer ago than the server remembers. Nothing was written.
    Forgotten,
    /// Not looked at, because another one is forgotten.
    Waits,
}

/// The command for these entries.
pub(crate) fn command(
    script: &str,
    streams: &[String],
    entries: &[Entry<'_>],
    settings: &Settings,
    touch: bool,
) -> Vec<u8> {
    let window = settings.dedup_window;
    let texts: usize = entries.iter().map(|entry| texts(entry.message)).sum();
    let bytes: usize = entries.iter().map(|entry| size(entry.message)).sum();
    let keys = streams.len() * if window.is_some() { 3 } else { 1 };
    let before = 3 + keys + 5 + settings.groups.len();
    // Some 10 bytes of protocol stand around each text.
    let guess = bytes + 10 * (texts + before) + 64 * entries.len() + 256;
    let mut to = Vec::with_capacity(guess);
    resp::begin(&mut to, before + entries.len() * BEFORE_FIELDS + texts);
    resp::push(&mut to, b"EVALSHA");
    resp::push(&mut to, script.as_bytes());
    number(&mut to, keys as u64);
    for stream in streams {
        resp::push(&mut to, stream.as_bytes());
    }
    if window.is_some() {
        for name in ["ids", "ids-before"] {
            for stream in streams {
                resp::push(&mut to, memory(stream, name).as_bytes());
            }
        }
    }
    number(&mut to, window.map_or(0, millis));
    number(&mut to, settings.dedup_ids_max.into());
    resp::push(&mut to, if touch { b"1" } else { b"0" });
    number(&mut to, settings.length_max.unwrap_or(0));
    number(&mut to, settings.groups.len() as u64);
    for group in &settings.groups {
        resp::push(&mut to, group.as_bytes());
    }
    let mut id = [0; Hyphenated::LENGTH];
    for entry in entries {
        let message = entry.message;
        let id = message.event_id.0.hyphenated().encode_lower(&mut id);
        number(&mut to, entry.stream as u64 + 1);
        number(&mut to, entry.key as u64);
        resp::push(&mut to, id.as_bytes());
        match entry.first_sent_ago_ms {
            Some(ago) => number(&mut to, ago),
            None => resp::push(&mut to, b"-1"),
        }
        number(&mut to, self::texts(message) as u64);
        resp::push(&mut to, FIELD_ID.as_bytes());
        resp::push(&mut to, id.as_bytes());
        for (name, value) in headers(message) {
            resp::push(&mut to, name.as_bytes());
            resp::push(&mut to, value.as_bytes());
        }
        resp::push(&mut to, FIELD_BODY.as_bytes());
        resp::push(&mut to, &message.body);
    }
    to
}

/// The key of what the server remembers of a stream. The braces make a cluster keep it where the
/// stream is; a rendered target never holds any.
pub(crate) fn memory(stream: &str, name: &str) -> String {
    format!("{{{stream}}}:postrider:{name}")
}

/// Reads one answer of the script; `None`: it is none.
pub(crate) fn done(answer: &resp::Reply) -> Option<Done> {
    let text = answer.text()?;
    let rest = text.get(1..).unwrap_or_default();
    Some(match text.as_bytes().first()? {
        b'A' if is_entry_id(rest) => Done::Appended(rest.to_owned()),
        b'D' if is_entry_id(rest) => Done::Known(rest.to_owned()),
        b'N' => Done::StreamMissing,
        b'E' => Done::Refused(rest.to_owned()),
        b'H' => Done::Held,
        b'F' => Done::Forgotten,
        b'W' => Done::Waits,
        _ => return None,
    })
}

/// The bytes that an entry takes, without what the protocol and the stream add.
pub(crate) fn size(message: &Message) -> usize {
    let headers: usize = headers(message)
        .map(|(name, value)| name.len() + value.len())
        .sum();
    FIELD_ID.len() + Hyphenated::LENGTH + headers + FIELD_BODY.len() + message.body.len()
}

fn texts(message: &Message) -> usize {
    2 * (headers(message).count() + 2)
}

/// In raw mode the event id is a header already.
fn headers(message: &Message) -> impl Iterator<Item = (&str, &str)> {
    message.headers.iter().filter(|(name, _)| *name != FIELD_ID)
}

fn number(to: &mut Vec<u8>, number: u64) {
    resp::push(to, number.to_string().as_bytes());
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// `<milliseconds>-<number>`.
pub(crate) fn is_entry_id(text: &str) -> bool {
    entry_id(text).is_some()
}

/// The two numbers of an entry id, which order entries.
pub(crate) fn entry_id(text: &str) -> Option<(u64, u64)> {
    let (ms, n) = text.split_once('-')?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(ms) || !plain(n) {
        return None;
    }
    Some((ms.parse().ok()?, n.parse().ok()?))
}

/// An entry as it is read back: its id, the event's id and the body, as far as they are there.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) entry_id: String,
    pub(crate) event_id: Option<String>,
    pub(crate) body: Bytes,
    pub(crate) bytes: usize,
}

/// Reads an entry of an XRANGE answer; `None`: it is none.
pub(crate) fn stored(entry: &resp::Reply) -> Option<Stored> {
    let [id, fields] = entry.list()? else {
        return None;
    };
    let texts = fields.list()?;
    let bytes = |reply: &resp::Reply| match reply {
        resp::Reply::Text(bytes) => bytes.clone(),
        resp::Reply::Error(_)
        | resp::Reply::Number(_)
        | resp::Reply::Null
        | resp::Reply::List(_) => Bytes::new(),
    };
    Some(Stored {
        entry_id: id.text()?.to_owned(),
        event_id: fields
            .field(FIELD_ID)
            .and_then(resp::Reply::text)
            .map(str::to_owned),
        body: fields.field(FIELD_BODY).map(bytes).unwrap_or_default(),
        bytes: texts.iter().map(|text| bytes(text).len()).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_ids_are_two_numbers() {
        assert_eq!(entry_id("1700000000000-5"), Some((1_700_000_000_000, 5)));
        for bad in [
            "",
            "-",
            "1",
            "1-",
            "-1",
            "+1-0",
            "a-1",
            "1-2-3",
            "99999999999999999999-0",
        ] {
            assert_eq!(entry_id(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_a_server_remembers_lies_in_the_slot_of_its_stream() {
        assert_eq!(memory("orders:eu", "ids"), "{orders:eu}:postrider:ids");
    }
}
