//! A message as AMQP has it: what is checked before it is sent, and its frames.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use postrider_contract::cloudevents::{Binding, rebind};
use postrider_core::Outcome;
use postrider_transport::Message;
use uuid::fmt::Hyphenated;

use crate::wire::{BODY, FRAME_OVERHEAD, HEADER, put_frame, put_method, put_number_field};
use crate::wire::{put_short, put_text_field, sized};

/// Free headers of an event that become the message's own properties instead of headers.
const PRIORITY: &str = "amqp-priority";
const EXPIRATION: &str = "amqp-expiration";
/// Carries the delivery tag to whoever reads the message back from a stream.
pub(crate) const TAG: &str = "postrider-tag";

/// Longest short text of the protocol, in bytes.
pub(crate) const SHORT_MAX: usize = 255;

/// What the connection's settings give to messages that say nothing themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) priority: Option<u8>,
    pub(crate) expiration_ms: Option<u32>,
}

/// Checks everything that the broker would refuse, or that cannot be said in AMQP at all, but for
/// the sizes. How long the headers are, in bytes, at most.
pub(crate) fn check(message: &Message) -> Result<usize, Outcome> {
    // Flags, fixed properties, message id, the table's length and the tag.
    let mut length = 160;
    for (name, value) in message.headers.iter() {
        match name {
            PRIORITY => {
                number::<u8>(value)
                    .ok_or_else(|| invalid(PRIORITY, value, "a whole number from 0 to 255"))?;
            }
            EXPIRATION => {
                number::<u32>(value)
                    .ok_or_else(|| invalid(EXPIRATION, value, "whole milliseconds below 2^32"))?;
            }
            "content-type" if value.len() > SHORT_MAX => {
                return Err(Outcome::rejected(
                    "header_invalid",
                    "AMQP carries content types of 255 bytes at most",
                ));
            }
            "content-type" => length += value.len(),
            name => {
                let (bound, _) = rebind(name, value, Binding::AMQP);
                if bound.is_empty() || bound.len() > SHORT_MAX {
                    let detail = format!("AMQP cannot carry the header name {bound:?}");
                    return Err(Outcome::rejected("header_invalid", &detail));
                }
                length += 1 + bound.len() + 5 + value.len();
            }
        }
    }
    Ok(length)
}

fn number<T: std::str::FromStr>(value: &str) -> Option<T> {
    // The server reads digits only, and so does this: no sign, no spaces.
    value
        .bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| value.parse().ok())?
}

fn invalid(name: &str, value: &str, wanted: &str) -> Outcome {
    let detail = format!("the header {name} is {value:?}; it must be {wanted}");
    Outcome::rejected("header_invalid", &detail)
}

/// Where a message goes, and how.
pub(crate) struct Envelope<'a> {
    pub(crate) channel: u16,
    pub(crate) exchange: &'a str,
    pub(crate) routing_key: &'a str,
    pub(crate) extras: Extras,
    pub(crate) frame_max: usize,
    /// Whether the tag travels with the message.
    pub(crate) tag: Option<u64>,
}

/// Puts the frames of a checked message. `mandatory` is always set: what reaches no queue comes
/// back.
pub(crate) fn put(out: &mut BytesMut, message: &Message, to: &Envelope<'_>) {
    const MANDATORY: u8 = 1;
    out.reserve(message.body.len() + 1_024);
    put_method(out, to.channel, (60, 40), |out| {
        out.put_u16(0);
        put_short(out, to.exchange);
        put_short(out, to.routing_key);
        out.put_u8(MANDATORY);
    });
    put_frame(out, HEADER, to.channel, |out| {
        out.put_u16(60);
        out.put_u16(0);
        out.put_u64(message.body.len() as u64);
        put_properties(out, message, to);
    });
    for part in message
        .body
        .chunks(to.frame_max.saturating_sub(FRAME_OVERHEAD).max(1))
    {
        put_frame(out, BODY, to.channel, |out| out.put_slice(part));
    }
}

fn put_properties(out: &mut BytesMut, message: &Message, to: &Envelope<'_>) {
    let find = |wanted: &str| {
        let mut headers = message.headers.iter();
        headers
            .find(|(name, _)| *name == wanted)
            .map(|(_, value)| value)
    };
    let content_type = find("content-type");
    let priority = find(PRIORITY).and_then(number).or(to.extras.priority);
    let expiration: Option<Cow<'_, str>> = find(EXPIRATION).map(Cow::Borrowed).or_else(|| {
        let ms = to.extras.expiration_ms?;
        Some(Cow::Owned(ms.to_string()))
    });
    // Headers, delivery mode, message id and app id are always there.
    let mut flags: u16 = 1 << 13 | 1 << 12 | 1 << 7 | 1 << 3;
    for (there, bit) in [
        (content_type.is_some(), 15),
        (priority.is_some(), 11),
        (expiration.is_some(), 8),
    ] {
        if there {
            flags |= 1 << bit;
        }
    }
    out.put_u16(flags);
    if let Some(content_type) = content_type {
        put_short(out, content_type);
    }
    sized(out, |out| {
        for (name, value) in message.headers.iter() {
            if ["content-type", PRIORITY, EXPIRATION].contains(&name) {
                continue;
            }
            let (name, value) = rebind(name, value, Binding::AMQP);
            put_text_field(out, &name, &value);
        }
        if let Some(tag) = to.tag.and_then(|tag| i64::try_from(tag).ok()) {
            put_number_field(out, TAG, tag);
        }
    });
    // Persistent.
    out.put_u8(2);
    if let Some(priority) = priority {
        out.put_u8(priority);
    }
    if let Some(expiration) = expiration {
        put_short(out, &expiration);
    }
    let mut id = [0; Hyphenated::LENGTH];
    put_short(out, message.event_id.0.hyphenated().encode_lower(&mut id));
    put_short(out, "postrider");
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_contract::EventId;
    use postrider_transport::Routing;

    use super::*;
    use crate::wire::{Value, content_header, frame};

    fn message(headers: &[(&str, &str)], body: &'static [u8]) -> Message {
        Message {
            event_id: "01890a5d-ac96-774b-bcce-b302099a8057"
                .parse::<EventId>()
                .unwrap(),
            partition_key: String::new(),
            headers: headers.iter().copied().collect(),
            body: Bytes::from_static(body),
            routing: Routing {
                event_type: "e".into(),
                tenant: "t".into(),
                aggregate_type: "a".into(),
                aggregate_id: "1".into(),
            },
            earlier: None,
        }
    }

    #[test]
    fn a_body_is_cut_at_the_frame_size_and_headers_come_through() {
        let sent = message(
            &[
                ("content-type", "application/json"),
                ("ce-subject", "é 100%"),
                ("amqp-priority", "7"),
                ("amqp-expiration", "60000"),
                ("x-empty", ""),
            ],
            b"0123456789",
        );
        let length = check(&sent).unwrap();
        let mut out = BytesMut::new();
        let to = Envelope {
            channel: 1,
            exchange: "x",
            routing_key: "k",
            extras: Extras::default(),
            frame_max: FRAME_OVERHEAD + 4,
            tag: Some(5),
        };
        put(&mut out, &sent, &to);
        let mut frames = Vec::new();
        let mut rest = &out[..];
        while let Some((frame, length)) = frame(rest, 1 << 20).unwrap() {
            frames.push((frame.kind, frame.payload.to_vec()));
            rest = &rest[length..];
        }
        let kinds: Vec<u8> = frames.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [1, HEADER, BODY, BODY, BODY]);
        assert_eq!(frames[4].1, b"89");
        assert!(frames[1].1.len() <= length, "the bound holds");
        let (size, properties) = content_header(&frames[1].1).unwrap();
        assert_eq!(size, 10);
        assert_eq!(
            properties.message_id.as_deref(),
            Some("01890a5d-ac96-774b-bcce-b302099a8057")
        );
        let text = |text: &str| Value::Text(text.to_owned());
        let expected = [
            ("cloudEvents_subject", text("é 100%")),
            ("postrider-tag", Value::Number(5)),
            ("x-empty", text("")),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value));
        assert_eq!(properties.headers, expected.into());
    }

    #[test]
    fn what_amqp_cannot_carry_is_rejected() {
        let long = "x".repeat(256);
        for headers in [
            [("amqp-priority", "256")],
            [("amqp-priority", "+1")],
            [("amqp-priority", "")],
            [("amqp-expiration", "1.5")],
            [("amqp-expiration", "4294967296")],
            [("content-type", long.as_str())],
            [(long.as_str(), "")],
        ] {
            let checked = check(&message(&headers, b""));
            assert!(
                matches!(
                    checked,
                    Err(Outcome::Rejected {
                        code: "header_invalid",
                        ..
                    })
                ),
                "{headers:?}: {checked:?}"
            );
        }
    }
}
