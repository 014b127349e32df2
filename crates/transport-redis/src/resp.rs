//! The protocol, version 2: commands to bytes, bytes to answers. It knows no command's meaning.

use bytes::{Bytes, BytesMut};

/// Longest answer that is taken, in bytes: one entry of the largest size that a server has by
/// default, 512 MiB, and what stands around it.
const ANSWER_BYTES_MAX: usize = 600 << 20;
/// Deepest nesting of arrays. No command here answers with more than five levels.
const DEPTH_MAX: u32 = 16;

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(Bytes),
    Error(String),
    Number(i64),
    Null,
    List(Vec<Self>),
}

impl Reply {
    /// As text; `None`: it is none.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Error(_) | Self::Number(_) | Self::Null | Self::List(_) => None,
        }
    }

    pub(crate) fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            Self::Text(_) | Self::Error(_) | Self::Number(_) | Self::Null => None,
        }
    }

    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::Error(_) | Self::Null | Self::List(_) => None,
        }
    }

    /// The value after a name in a list of names and values.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        self.list()?
            .chunks_exact(2)
            .find(|pair| pair[0].text() == Some(name))
            .map(|pair| &pair[1])
    }

    /// An error answer as `Err`.
    pub(crate) fn ok(self) -> Result<Self, String> {
        match self {
            Self::Error(error) => Err(error),
            other @ (Self::Text(_) | Self::Number(_) | Self::Null | Self::List(_)) => Ok(other),
        }
    }
}

/// What came is no answer of this protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Garbled;

/// Starts a command of so many texts.
pub(crate) fn begin(to: &mut Vec<u8>, texts: usize) {
    to.push(b'*');
    decimal(to, texts);
}

/// One text of a command.
pub(crate) fn push(to: &mut Vec<u8>, text: &[u8]) {
    to.push(b'$');
    decimal(to, text.len());
    to.extend_from_slice(text);
    to.extend_from_slice(b"\r\n");
}

/// A whole command.
pub(crate) fn command(to: &mut Vec<u8>, texts: &[&str]) {
    begin(to, texts.len());
    for text in texts {
        push(to, text.as_bytes());
    }
}

/// Takes one whole answer off the front; `None`: it is not all there yet.
pub(crate) fn take(from: &mut BytesMut) -> Result<Option<Reply>, Garbled> {
    let Some(length) = measure(from, 0, DEPTH_MAX)? else {
        return if from.len() > ANSWER_BYTES_MAX {
            Err(Garbled)
        } else {
            Ok(None)
        };
    };
    let whole = from.split_to(length).freeze();
    let mut at = 0;
    read(&whole, &mut at).map(Some)
}

/// Where the answer that begins at `at` ends; `None`: not here yet.
fn measure(bytes: &[u8], at: usize, depth: u32) -> Result<Option<usize>, Garbled> {
    if depth == 0 {
        return Err(Garbled);
    }
    let Some((kind, number, mut at)) = line(bytes, at)? else {
        return Ok(None);
    };
    match kind {
        b'+' | b'-' | b':' => Ok(Some(at)),
        b'$' if number >= 0 => {
            let length = usize::try_from(number).map_err(|_| Garbled)?;
            let end = at.saturating_add(length).saturating_add(2);
            if end > ANSWER_BYTES_MAX {
                return Err(Garbled);
            }
            Ok((end <= bytes.len()).then_some(end))
        }
        b'*' if number >= 0 => {
            for _ in 0..number {
                match measure(bytes, at, depth - 1)? {
                    Some(end) => at = end,
                    None => return Ok(None),
                }
            }
            Ok(Some(at))
        }
        // Minus one: null.
        _ => Ok(Some(at)),
    }
}

/// The kind of the answer that begins at `at`, its number where it has one, and where the line ends.
fn line(bytes: &[u8], at: usize) -> Result<Option<(u8, i64, usize)>, Garbled> {
    let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
        return Ok(None);
    };
    let kind = rest[0];
    if !b"+-:$*".contains(&kind) {
        return Err(Garbled);
    }
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Ok(None);
    };
    let number = if b":$*".contains(&kind) {
        let text = std::str::from_utf8(&rest[1..end]).map_err(|_| Garbled)?;
        text.parse().map_err(|_| Garbled)?
    } else {
        0
    };
    Ok(Some((kind, number, at + end + 2)))
}

/// Reads what [`measure`] found whole.
fn read(whole: &Bytes, at: &mut usize) -> Result<Reply, Garbled> {
    let start = *at + 1;
    let (kind, number, end) = line(whole, *at)?.ok_or(Garbled)?;
    *at = end;
    Ok(match kind {
        b'+' => Reply::Text(whole.slice(start..end - 2)),
        b'-' => Reply::Error(String::from_utf8_lossy(&whole[start..end - 2]).into_owned()),
        b':' => Reply::Number(number),
        b'$' if number >= 0 => {
            let length = usize::try_from(number).map_err(|_| Garbled)?;
            *at = end + length + 2;
            Reply::Text(whole.slice(end..end + length))
        }
        b'*' if number >= 0 => {
            let items = (0..number).map(|_| read(whole, at));
            Reply::List(items.collect::<Result<_, _>>()?)
        }
        _ => Reply::Null,
    })
}

fn decimal(to: &mut Vec<u8>, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
        left /= 10;
        if left == 0 {
            break;
        }
    }
    to.extend_from_slice(&digits[at..]);
    to.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &'static str) -> Reply {
        Reply::Text(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn commands_are_counted_and_binary_safe() {
        let mut bytes = Vec::new();
        begin(&mut bytes, 3);
        push(&mut bytes, b"A");
        push(&mut bytes, b"");
        push(&mut bytes, b"\r\n\0");
        assert_eq!(bytes, b"*3\r\n$1\r\nA\r\n$0\r\n\r\n$3\r\n\r\n\0\r\n");
        let mut long = Vec::new();
        push(&mut long, &[b'x'; 1_203]);
        assert!(long.starts_with(b"$1203\r\nx"));
    }

    #[test]
    fn an_answer_is_read_once_it_is_whole_however_it_is_cut() {
        let bytes = b"*5\r\n+OK\r\n-ERR no\r\n:-7\r\n$-1\r\n*2\r\n$4\r\na\r\nb\r\n*-1\r\n+next\r\n";
        let expect = Reply::List(vec![
            text("OK"),
            Reply::Error("ERR no".to_owned()),
            Reply::Number(-7),
            Reply::Null,
            Reply::List(vec![text("a\r\nb"), Reply::Null]),
        ]);
        let whole = bytes.len() - b"+next\r\n".len();
        for cut in 0..whole {
            let mut part = BytesMut::from(&bytes[..cut]);
            assert_eq!(take(&mut part), Ok(None), "{cut}");
            assert_eq!(part.len(), cut, "nothing is taken of a part");
            part.extend_from_slice(&bytes[cut..]);
            assert_eq!(take(&mut part), Ok(Some(expect.clone())), "{cut}");
            assert_eq!(take(&mut part), Ok(Some(text("next"))));
            assert_eq!(take(&mut part), Ok(None));
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let deep = "*1\r\n".repeat(40);
        for bytes in [
            "HTTP/1.1 400\r\n",
            "$x\r\n",
            "$9999999999\r\n",
            &deep,
            ":\r\n",
        ] {
            assert_eq!(take(&mut BytesMut::from(bytes)), Err(Garbled), "{bytes}");
        }
    }

    #[test]
    fn fields_are_found_by_name() {
        let list = Reply::List(vec![text("a"), Reply::Number(1), text("b"), text("c")]);
        assert_eq!(list.field("a").and_then(Reply::number), Some(1));
        assert_eq!(list.field("b").and_then(Reply::text), Some("c"));
        assert_eq!(list.field("c"), None);
    }
}
