//! The NATS client protocol, as far as a publisher needs it: bytes to operations and back. No I/O.

use serde::{Deserialize, Serialize};

/// Longest control line, the server's `INFO` with a large cluster's addresses included.
const LINE_MAX: usize = 64 * 1024;
/// Largest message that is taken: what a server may be configured to send at all.
const MESSAGE_MAX: usize = 64 << 20;

/// What the server says of itself, in its first line and again when that changes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ServerInfo {
    pub(crate) server_id: String,
    pub(crate) server_name: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) max_payload: usize,
    pub(crate) tls_required: bool,
    pub(crate) headers: bool,
    pub(crate) nonce: String,
    pub(crate) cluster: Option<String>,
    pub(crate) domain: Option<String>,
    /// Lame duck mode: it asks its clients to go elsewhere.
    pub(crate) ldm: bool,
}

/// The client's side of the handshake.
#[derive(Debug, Serialize)]
pub(crate) struct Connect<'a> {
    pub(crate) verbose: bool,
    pub(crate) pedantic: bool,
    pub(crate) tls_required: bool,
    pub(crate) name: &'a str,
    pub(crate) lang: &'a str,
    pub(crate) version: &'a str,
    pub(crate) protocol: u8,
    pub(crate) echo: bool,
    pub(crate) headers: bool,
    pub(crate) no_responders: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) auth_token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pass: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nkey: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jwt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sig: Option<String>,
}

/// One operation of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    /// JSON.
    Info(&'a [u8]),
    Ping,
    Pong,
    Ok,
    Error(&'a str),
    Message(Delivered<'a>),
}

/// A message for our subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivered<'a> {
    pub(crate) subject: &'a str,
    /// The status in its headers, such as 503 for "no responders".
    pub(crate) status: Option<u16>,
    pub(crate) body: &'a [u8],
}

/// Bytes that are not this protocol. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server does not speak the NATS protocol: {0}")]
pub(crate) struct Garbled(&'static str);

/// The first operation in `bytes` and its length; `None`: more bytes are needed.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Op<'_>, usize)>, Garbled> {
    let Some(end) = memchr(bytes) else {
        if bytes.len() > LINE_MAX {
            return Err(Garbled("a line is too long"));
        }
        return Ok(None);
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let after = end + 1;
    let (verb, rest) = match line.iter().position(u8::is_ascii_whitespace) {
        Some(at) => (&line[..at], line[at..].trim_ascii()),
        None => (line, &line[..0]),
    };
    let op = if verb.eq_ignore_ascii_case(b"MSG") {
        return message(bytes, rest, after, false);
    } else if verb.eq_ignore_ascii_case(b"HMSG") {
        return message(bytes, rest, after, true);
    } else if verb.eq_ignore_ascii_case(b"PING") {
        Op::Ping
    } else if verb.eq_ignore_ascii_case(b"PONG") {
        Op::Pong
    } else if verb.eq_ignore_ascii_case(b"+OK") {
        Op::Ok
    } else if verb.eq_ignore_ascii_case(b"INFO") {
        Op::Info(rest)
    } else if verb.eq_ignore_ascii_case(b"-ERR") {
        let text = std::str::from_utf8(rest).map_err(|_| Garbled("an error is not UTF-8"))?;
        Op::Error(text.trim_matches('\''))
    } else {
        return Err(Garbled("an operation is unknown"));
    };
    Ok(Some((op, after)))
}

/// `MSG subject sid [reply] bytes`, `HMSG subject sid [reply] header-bytes bytes`.
fn message<'a>(
    bytes: &'a [u8],
    line: &'a [u8],
    start: usize,
    with_headers: bool,
) -> Result<Option<(Op<'a>, usize)>, Garbled> {
    let garbled = Garbled("a message line cannot be read");
    let line = std::str::from_utf8(line).map_err(|_| garbled)?;
    let mut words = line.split_ascii_whitespace();
    let subject = words.next().ok_or(garbled)?;
    let total: usize = words
        .next_back()
        .and_then(|word| word.parse().ok())
        .ok_or(garbled)?;
    let headers: usize = if with_headers {
        words
            .next_back()
            .and_then(|word| word.parse().ok())
            .ok_or(garbled)?
    } else {
        0
    };
    if total > MESSAGE_MAX || headers > total || !(1..=2).contains(&words.count()) {
        return Err(garbled);
    }
    let end = start + total;
    if bytes.len() < end + 2 {
        return Ok(None);
    }
    let status = status(&bytes[start..start + headers]);
    let body = &bytes[start + headers..end];
    Ok(Some((
        Op::Message(Delivered {
            subject,
            status,
            body,
        }),
        end + 2,
    )))
}

/// The number in `NATS/1.0 503 …`.
fn status(headers: &[u8]) -> Option<u16> {
    let rest = headers.strip_prefix(b"NATS/1.0")?.strip_prefix(b" ")?;
    let digits = rest.get(..3)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn memchr(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|&byte| byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Op<'_> {
        let (op, length) = parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len(), "{text:?}");
        op
    }

    #[test]
    fn each_operation_is_read_whole() {
        assert_eq!(one("PING\r\n"), Op::Ping);
        assert_eq!(one("pong\r\n"), Op::Pong);
        assert_eq!(one("+OK\r\n"), Op::Ok);
        assert_eq!(one("INFO {\"a\":1} \r\n"), Op::Info(b"{\"a\":1}"));
        assert_eq!(
            one("-ERR 'Stale Connection'\r\n"),
            Op::Error("Stale Connection")
        );
        let message = |subject, status, body| {
            Op::Message(Delivered {
                subject,
                status,
                body,
            })
        };
        assert_eq!(
            one("MSG a.b 1 5\r\nhello\r\n"),
            message("a.b", None, b"hello")
        );
        assert_eq!(one("MSG a.b 1 reply 0\r\n\r\n"), message("a.b", None, b""));
        assert_eq!(
            one("HMSG a 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"),
            message("a", Some(503), b"")
        );
        assert_eq!(
            one("HMSG a 9 r 18 20\r\nNATS/1.0\r\nk: v\r\n\r\nhi\r\n"),
            message("a", None, b"hi")
        );
    }

    #[test]
    fn nothing_is_read_before_it_is_complete() {
        let text = "HMSG a.b 1 r 18 20\r\nNATS/1.0\r\nk: v\r\n\r\nhi\r\nPING\r\n";
        let length = parse(text.as_bytes()).unwrap().unwrap().1;
        for cut in 0..length {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
        assert_eq!(&text[length..], "PING\r\n");
    }

    #[test]
    fn garbled_bytes_are_an_error_and_never_a_panic() {
        for bad in [
            "HTTP/1.1 400 Bad Request\r\n",
            "MSG\r\n",
            "MSG a\r\n",
            "MSG a 1\r\n",
            "MSG a 1 x\r\n",
            "MSG a 1 2 3 4\r\n",
            "MSG a 1 -5\r\n",
            "MSG a 1 99999999999\r\n",
            "HMSG a 1 9 5\r\nxxxxx\r\n",
            "HMSG a 1 5\r\nxxxxx\r\n",
            "\r\n",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(parse(&vec![b'x'; LINE_MAX + 1]).is_err());
        assert!(parse(b"MSG \xff 1 0\r\n\r\n").is_err());
    }
}
