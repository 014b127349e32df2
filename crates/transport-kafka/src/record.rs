//! A message as Kafka has it: key, headers, value and its size.

use postrider_contract::{
    cloudevents::{Binding, RAW_ID, rebind},
    destination::{Key, Serializer},
    media,
};
use postrider_core::Outcome;
use postrider_transport::Message;
use rdkafka::message::{Header, OwnedHeaders};

/// What a record, and the batch around it, may add to the bytes that are counted here.
const OVERHEAD: usize = 128;
/// What one header adds beside its name and value: two lengths.
const HEADER_OVERHEAD: usize = 10;

/// The header by which an event is found again.
pub(crate) fn id_header(serializer: Serializer) -> &'static str {
    match serializer {
        Serializer::CloudeventsBinary => "ce_id",
        // A structured body holds the id, but looking for it would mean reading every body.
        Serializer::CloudeventsStructured | Serializer::Raw => RAW_ID,
    }
}

pub(crate) fn key(how: Key, message: &Message) -> Option<&str> {
    match how {
        // Empty is a key of no bytes, which is not the same as no key.
        Key::PartitionKey => Some(&message.partition_key),
        Key::None => None,
    }
}

/// A tombstone is the null value; everything else, nothing and `null` included, is its own bytes.
pub(crate) fn value(serializer: Serializer, message: &Message) -> Option<&[u8]> {
    if serializer != Serializer::CloudeventsStructured && is_tombstone(message) {
        return None;
    }
    Some(&message.body)
}

fn is_tombstone(message: &Message) -> bool {
    message.body.is_empty()
        && message
            .headers
            .iter()
            .any(|(name, value)| name == Binding::PLAIN.content_type && media::is_tombstone(value))
}

/// A tombstone without a key says nothing, and a compacted topic would refuse it.
pub(crate) fn check(
    serializer: Serializer,
    how: Key,
    message: &Message,
    bytes_max: u32,
) -> Result<(), Outcome> {
    if value(serializer, message).is_none() && key(how, message).is_none_or(str::is_empty) {
        return Err(Outcome::rejected(
            "tombstone_without_key",
            "a tombstone says which key is gone, and this destination sends none",
        ));
    }
    if message.headers.iter().any(|(name, _)| name.contains('\0')) {
        return Err(Outcome::rejected(
            "header_name",
            "Kafka cannot carry a header with NUL in its name",
        ));
    }
    let bytes = size(serializer, how, message);
    if u64::try_from(bytes).unwrap_or(u64::MAX) > u64::from(bytes_max) {
        return Err(too_large(bytes, Some(bytes_max)));
    }
    Ok(())
}

pub(crate) fn too_large(bytes: usize, max: Option<u32>) -> Outcome {
    let limit = max.map_or_else(
        || "the broker takes less".to_owned(),
        |max| format!("at most {max} are taken"),
    );
    Outcome::rejected(
        "message_too_large",
        &format!("the message has up to {bytes} bytes with headers, and {limit}"),
    )
}

pub(crate) fn size(serializer: Serializer, how: Key, message: &Message) -> usize {
    let mut bytes = OVERHEAD + message.body.len() + key(how, message).map_or(0, str::len);
    give(serializer, message, |name, value| {
        bytes += name.len() + value.len() + HEADER_OVERHEAD;
    });
    bytes
}

pub(crate) fn headers(serializer: Serializer, message: &Message) -> OwnedHeaders {
    let mut headers = Some(OwnedHeaders::new_with_capacity(32));
    give(serializer, message, |key, value| {
        let value = Some(value);
        headers = headers.take().map(|own| own.insert(Header { key, value }));
    });
    headers.unwrap_or_default()
}

fn give(serializer: Serializer, message: &Message, mut give: impl FnMut(&str, &str)) {
    if serializer == Serializer::CloudeventsStructured {
        give(RAW_ID, &message.event_id.to_string());
    }
    for (name, value) in message.headers.iter() {
        let (name, value) = rebind(name, value, Binding::KAFKA);
        give(&name, &value);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_contract::EventId;
    use postrider_transport::Routing;
    use rdkafka::message::Headers;

    use super::*;

    fn message(key: &str, content_type: &str, body: &'static str) -> Message {
        Message {
            event_id: "01890a5d-ac96-774b-bcce-b302099a8057"
                .parse::<EventId>()
                .unwrap(),
            partition_key: key.to_owned(),
            headers: [
                ("content-type", content_type),
                ("ce-subject", "a b é"),
                ("x-empty", ""),
            ]
            .into_iter()
            .collect(),
            body: Bytes::from_static(body.as_bytes()),
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
    fn kaf_5_only_an_explicit_tombstone_has_no_value() {
        let binary = Serializer::CloudeventsBinary;
        let value_of = |content_type, body| {
            value(binary, &message("k", content_type, body)).map(<[u8]>::to_vec)
        };
        assert_eq!(value_of(media::TOMBSTONE, ""), None);
        assert_eq!(value_of("application/json", "null"), Some(b"null".to_vec()));
        assert_eq!(value_of("text/plain", ""), Some(Vec::new()));
        let keyless = message("", media::TOMBSTONE, "");
        for how in [Key::PartitionKey, Key::None] {
            let refused = check(binary, how, &keyless, 10_000);
            assert!(
                matches!(
                    refused,
                    Err(Outcome::Rejected {
                        code: "tombstone_without_key",
                        ..
                    })
                ),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn an_empty_key_is_not_the_same_as_none() {
        let message = message("", "text/plain", "x");
        assert_eq!(key(Key::PartitionKey, &message), Some(""));
        assert_eq!(key(Key::None, &message), None);
    }

    #[test]
    fn ctr_1_headers_are_plain_utf_8() {
        let message = message("k", "text/plain", "x");
        let headers = headers(Serializer::Raw, &message);
        let got: Vec<(String, Vec<u8>)> = headers
            .iter()
            .map(|header| (header.key.to_owned(), header.value.unwrap().to_vec()))
            .collect();
        let expect = [
            ("content-type", "text/plain"),
            ("ce_subject", "a b é"),
            ("x-empty", ""),
        ];
        let expect = expect.map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        assert_eq!(got, expect);
    }
}
