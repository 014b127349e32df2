//! Header values as the CloudEvents HTTP and NATS bindings have them.

use std::borrow::Cow;

/// Headers whose own standards make them ASCII with spaces: written as they are.
const VERBATIM: [&str; 3] = ["content-type", "traceparent", "tracestate"];

/// Bytes that are written as they are. A table, because every byte of every header is asked about.
const PLAIN: [bool; 256] = {
    let mut plain = [false; 256];
    let mut byte = 0_u8;
    while byte.is_ascii() {
        plain[byte as usize] = byte.is_ascii_graphic() && byte != b'"' && byte != b'%';
        byte += 1;
    }
    plain
};

/// Bytes that are not UTF-8 after percent-decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header value is not UTF-8 after percent-decoding; its sender must encode UTF-8 bytes")]
pub struct NotUtf8;

/// Percent-encodes a header value: space, `"`, `%` and everything outside printable ASCII, as
/// UTF-8, with upper-case hex digits. Free headers are encoded too, so that any text comes
/// through; `content-type`, `traceparent` and `tracestate` stay as they are.
#[must_use]
pub fn encode_header<'a>(name: &str, value: &'a str) -> Cow<'a, str> {
    let plain = |byte: u8| PLAIN[usize::from(byte)];
    let verbatim = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if value.bytes().all(plain) || VERBATIM.contains(&name) && value.bytes().all(verbatim) {
        return Cow::Borrowed(value);
    }
    let mut encoded = String::with_capacity(value.len() + 16);
    for byte in value.bytes() {
        if plain(byte) {
            encoded.push(char::from(byte));
        } else {
            push_percent(&mut encoded, byte);
        }
    }
    Cow::Owned(encoded)
}

/// The reverse of [`encode_header`]. A value in double quotes is unquoted first (older senders
/// quote instead of encoding), then percent-decoded in one round: `%25` becomes `%` and is not
/// looked at again. A `%` without two hex digits after it stays as it is.
///
/// # Errors
/// When the decoded bytes are not UTF-8.
pub fn decode_header<'a>(name: &str, value: &'a str) -> Result<Cow<'a, str>, NotUtf8> {
    if VERBATIM.contains(&name) {
        return Ok(Cow::Borrowed(value));
    }
    let unquoted = unquote(value);
    if !unquoted.contains('%') {
        return Ok(unquoted);
    }
    percent_decode(&unquoted).map(Cow::Owned)
}

/// RFC 9110 quoted-string; anything else stays as it is.
fn unquote(value: &str) -> Cow<'_, str> {
    let inner = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    let Some(inner) = inner else {
        return Cow::Borrowed(value);
    };
    let mut text = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            // A quote or a lone backslash inside: not a quoted-string after all.
            '"' => return Cow::Borrowed(value),
            '\\' => match chars.next() {
                Some(escaped) => text.push(escaped),
                None => return Cow::Borrowed(value),
            },
            c => text.push(c),
        }
    }
    Cow::Owned(text)
}

/// One round of percent-decoding.
pub(super) fn percent_decode(text: &str) -> Result<String, NotUtf8> {
    let hex = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let pair = (byte == b'%').then(|| hex(bytes.get(at + 1)).zip(hex(bytes.get(at + 2))));
        if let Some(Some((high, low))) = pair {
            decoded.push(u8::try_from(high * 16 + low).expect("two hex digits make a byte"));
            at += 3;
        } else {
            decoded.push(byte);
            at += 1;
        }
    }
    String::from_utf8(decoded).map_err(|_| NotUtf8)
}

pub(super) fn push_percent(text: &mut String, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}
