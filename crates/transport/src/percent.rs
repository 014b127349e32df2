//! Percent-encoding of header values, as in the CloudEvents HTTP binding.
//!
//! Encoded: everything outside printable ASCII, and space, `"` and `%`. Decoding is one round:
//! `%25` becomes `%` and is not looked at again. A `%` that two hex digits do not follow stays as
//! it is; bytes that are not UTF-8 after decoding are an error.

use std::borrow::Cow;

/// Headers whose own standards make them plain ASCII, spaces included: sent as they are.
const PLAIN: [&str; 3] = ["content-type", "traceparent", "tracestate"];

/// The value of a header in a transport that encodes them (HTTP, NATS).
#[must_use]
pub fn encode<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    let plain = |byte: u8| matches!(byte, b'!' | b'#' | b'$' | b'&'..=b'~');
    if value.bytes().all(plain)
        || PLAIN.contains(&name) && value.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
    {
        return Cow::Borrowed(value);
    }
    let mut encoded = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            push(&mut encoded, byte);
        }
    }
    Cow::Owned(encoded)
}

/// The reverse of [`encode`], one round. `None`: what comes out is not UTF-8.
#[must_use]
pub fn decode<'a>(name: &str, value: &'a str) -> Option<Cow<'a, str>> {
    if PLAIN.contains(&name) || !value.contains('%') {
        return Some(Cow::Borrowed(value));
    }
    let hex = |byte: u8| char::from(byte).to_digit(16);
    let bytes = value.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let pair = match (byte, bytes.get(at + 1), bytes.get(at + 2)) {
            (b'%', Some(&high), Some(&low)) => hex(high).zip(hex(low)),
            _ => None,
        };
        match pair.and_then(|(high, low)| u8::try_from(high * 16 + low).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

pub(crate) fn push(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctr_1_values_are_encoded_once() {
        let check = |value: &str, expect: &str| {
            let encoded = encode("ce-subject", value);
            assert_eq!(encoded, expect);
            assert_eq!(decode("ce-subject", &encoded).unwrap(), value);
        };
        check("", "");
        check("a b", "a%20b");
        check("100%", "100%25");
        check("a%20b", "a%2520b");
        check("\"quoted\"", "%22quoted%22");
        check("é", "%C3%A9");
        check("\u{1F600}", "%F0%9F%98%80");
        check("a~!#/:@", "a~!#/:@");
        check("a\r\nX-Evil: 1", "a%0D%0AX-Evil:%201");
    }

    #[test]
    fn ctr_1_decoding_is_one_round_and_refuses_what_is_not_utf8() {
        let check = |value: &str, expect: Option<&str>| {
            assert_eq!(decode("ce-subject", value).as_deref(), expect, "{value}");
        };
        check("a%20b", Some("a b"));
        check("%41", Some("A"));
        check("%2541", Some("%41"));
        check("%zz", Some("%zz"));
        check("%4", Some("%4"));
        check("%", Some("%"));
        check("%ff", None);
        check("\"quoted\"", Some("\"quoted\""));
    }

    #[test]
    fn headers_with_their_own_syntax_stay_as_they_are() {
        assert_eq!(
            encode("content-type", "text/plain; a=\"b%\""),
            "text/plain; a=\"b%\""
        );
        assert_eq!(encode("tracestate", "a=1, b=2"), "a=1, b=2");
        assert_eq!(encode("content-type", "a\r\nb"), "a%0D%0Ab");
        assert_eq!(decode("content-type", "a%20b").unwrap(), "a%20b");
    }
}
