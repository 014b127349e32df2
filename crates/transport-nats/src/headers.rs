//! A message's headers as NATS has them.

use std::str::FromStr;

use async_nats::{HeaderMap, HeaderName};
use postrider_contract::cloudevents::{Binding, rebind};
use postrider_core::Outcome;
use postrider_transport::Message;

use crate::ack::rejected;

pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";

/// The headers of a message, in order, and what JetStream must know of it. `push` takes name and
/// value.
fn each(message: &Message, stream: &str, mut push: impl FnMut(&str, String)) {
    push(MESSAGE_ID, message.event_id.to_string());
    push(EXPECTED_STREAM, stream.to_owned());
    for (name, value) in &message.headers {
        let (name, value) = rebind(name, value, Binding::NATS);
        push(&name, value.into_owned());
    }
}

pub(crate) fn map(message: &Message, stream: &str) -> Result<HeaderMap, Outcome> {
    let mut map = HeaderMap::new();
    let mut bad = None;
    each(message, stream, |name, value| {
        match HeaderName::from_str(name) {
            Ok(name) => map.append(name, value),
            Err(_) => bad = Some(name.to_owned()),
        }
    });
    match bad {
        None => Ok(map),
        Some(name) => Err(rejected(
            "header_name",
            &format!("NATS cannot carry the header {name:?}"),
        )),
    }
}

/// Bytes of headers and body on the wire, as `max_payload` counts them.
pub(crate) fn bytes(message: &Message, stream: &str) -> usize {
    // "NATS/1.0\r\n", "name: value\r\n" each, "\r\n".
    let mut bytes = 12 + message.body.len();
    bytes += MESSAGE_ID.len() + 36 + 4 + EXPECTED_STREAM.len() + stream.len() + 4;
    for (name, value) in &message.headers {
        let (name, value) = rebind(name, value, Binding::NATS);
        bytes += name.len() + value.len() + 4;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postrider_contract::EventId;
    use postrider_transport::Routing;

    use super::*;

    fn message(headers: &[(&str, &str)]) -> Message {
        Message {
            event_id: "01890a5d-ac96-774b-bcce-b302099a8057"
                .parse::<EventId>()
                .unwrap(),
            partition_key: String::new(),
            headers: headers
                .iter()
                .map(|(n, v)| ((*n).to_owned(), (*v).to_owned()))
                .collect(),
            body: Bytes::from_static(b"body"),
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
    fn ctr_1_values_are_encoded_and_the_stream_is_always_expected() {
        let message = message(&[
            ("content-type", "application/json; charset=utf-8"),
            ("ce-subject", "a\r\nX-Evil: 1"),
            ("ce-empty", ""),
            ("x-note", "é 100%"),
        ]);
        let map = map(&message, "ORDERS").unwrap();
        let get = |name: &str| map.get(name).unwrap().as_str();
        assert_eq!(get("Nats-Msg-Id"), "01890a5d-ac96-774b-bcce-b302099a8057");
        assert_eq!(get("Nats-Expected-Stream"), "ORDERS");
        assert_eq!(
            get("ce-datacontenttype"),
            "application/json;%20charset=utf-8"
        );
        assert_eq!(get("ce-subject"), "a%0D%0AX-Evil:%201");
        assert_eq!(get("ce-empty"), "");
        assert_eq!(get("x-note"), "%C3%A9%20100%25");
        assert_eq!(map.len(), 6);
    }

    #[test]
    fn bytes_are_what_goes_over_the_wire() {
        let headers = [("content-type", "text/plain"), ("x-note", "a b")];
        let block = "NATS/1.0\r\nNats-Msg-Id: 01890a5d-ac96-774b-bcce-b302099a8057\r\n\
                     Nats-Expected-Stream: ORDERS\r\nce-datacontenttype: text/plain\r\n\
                     x-note: a%20b\r\n\r\n";
        assert_eq!(bytes(&message(&headers), "ORDERS"), block.len() + 4);
    }

    #[test]
    fn a_name_that_breaks_the_protocol_is_rejected() {
        for name in ["a b", "a:b", "a\r\n"] {
            assert!(matches!(
                map(&message(&[(name, "v")]), "S"),
                Err(Outcome::Rejected { .. })
            ));
        }
    }
}
