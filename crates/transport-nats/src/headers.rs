//! A message's headers as NATS has them.

use postrider_contract::cloudevents::{Binding, rebind};
use postrider_core::Outcome;
use postrider_transport::Message;
use uuid::fmt::Hyphenated;

pub(crate) const MESSAGE_ID: &str = "Nats-Msg-Id";
const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
const VERSION: &[u8] = b"NATS/1.0\r\n";
const BETWEEN: &[u8] = b": ";
const END: &[u8] = b"\r\n";

/// Writes the header block of a message over what `block` holds: what JetStream must know of it,
/// then the message's own headers.
pub(crate) fn write(message: &Message, stream: &str, block: &mut Vec<u8>) -> Result<(), Outcome> {
    block.clear();
    block.extend_from_slice(VERSION);
    lines(message, stream, |name, value| {
        block.extend_from_slice(name.as_bytes());
        block.extend_from_slice(BETWEEN);
        block.extend_from_slice(value.as_bytes());
        block.extend_from_slice(END);
    })?;
    block.extend_from_slice(END);
    Ok(())
}

/// The length of what [`write()`] writes.
pub(crate) fn length(message: &Message, stream: &str) -> Result<usize, Outcome> {
    let mut length = VERSION.len() + END.len();
    lines(message, stream, |name, value| {
        length += name.len() + BETWEEN.len() + value.len() + END.len();
    })?;
    Ok(length)
}

fn lines(message: &Message, stream: &str, mut give: impl FnMut(&str, &str)) -> Result<(), Outcome> {
    let mut id = [0; Hyphenated::LENGTH];
    give(
        MESSAGE_ID,
        message.event_id.0.hyphenated().encode_lower(&mut id),
    );
    give(EXPECTED_STREAM, stream);
    for (name, value) in message.headers.iter() {
        let (name, value) = rebind(name, value, Binding::NATS);
        if name.is_empty()
            || !name
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b':')
        {
            let detail = format!("NATS cannot carry the header {name:?}");
            return Err(Outcome::rejected("header_name", &detail));
        }
        // Encoded values hold no line break, whatever the value held.
        give(&name, &value);
    }
    Ok(())
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
            headers: headers.iter().copied().collect(),
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

    fn block(headers: &[(&str, &str)]) -> Result<String, Outcome> {
        let mut block = b"what was there before".to_vec();
        let message = message(headers);
        write(&message, "ORDERS", &mut block)?;
        assert_eq!(length(&message, "ORDERS"), Ok(block.len()));
        Ok(String::from_utf8(block).unwrap())
    }

    #[test]
    fn ctr_1_values_are_encoded_and_the_stream_is_always_expected() {
        let headers = [
            ("content-type", "application/json; charset=utf-8"),
            ("ce-subject", "a\r\nX-Evil: 1"),
            ("ce-empty", ""),
            ("x-note", "é 100%"),
        ];
        let expected = "NATS/1.0\r\n\
                        Nats-Msg-Id: 01890a5d-ac96-774b-bcce-b302099a8057\r\n\
                        Nats-Expected-Stream: ORDERS\r\n\
                        ce-datacontenttype: application/json;%20charset=utf-8\r\n\
                        ce-subject: a%0D%0AX-Evil:%201\r\n\
                        ce-empty: \r\n\
                        x-note: %C3%A9%20100%25\r\n\r\n";
        assert_eq!(block(&headers).unwrap(), expected);
    }

    #[test]
    fn a_name_that_breaks_the_protocol_is_rejected() {
        for name in ["", "a b", "a:b", "a\r\n", "é"] {
            assert!(
                matches!(block(&[(name, "v")]), Err(Outcome::Rejected { .. })),
                "{name:?}"
            );
        }
    }
}
