//! AMQP 0-9-1 as bytes: frames, field tables, and the methods that are used here. It knows no
//! connection.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};

pub(crate) const PROTOCOL: &[u8; 8] = b"AMQP\0\0\x09\x01";
pub(crate) const METHOD: u8 = 1;
pub(crate) const HEADER: u8 = 2;
pub(crate) const BODY: u8 = 3;
pub(crate) const HEARTBEAT: u8 = 8;
const END: u8 = 0xCE;
/// Kind, channel and size before the payload, one byte after it.
pub(crate) const FRAME_OVERHEAD: usize = 8;

/// What came is not AMQP 0-9-1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server sends what is not AMQP 0-9-1")]
pub(crate) struct Garbled;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) channel: u16,
    pub(crate) payload: &'a [u8],
}

/// The first frame of `bytes` and its whole length; `None`: there is more to come.
pub(crate) fn frame(bytes: &[u8], frame_max: usize) -> Result<Option<(Frame<'_>, usize)>, Garbled> {
    let mut reader = Reader(bytes);
    let (Ok(kind), Ok(channel), Ok(size)) = (reader.u8(), reader.u16(), reader.u32()) else {
        return Ok(None);
    };
    let size = usize::try_from(size).map_err(|_| Garbled)?;
    if size.saturating_add(FRAME_OVERHEAD) > frame_max {
        return Err(Garbled);
    }
    let Some((payload, rest)) = reader.0.split_at_checked(size) else {
        return Ok(None);
    };
    match rest.first() {
        None => Ok(None),
        Some(&END) => Ok(Some((
            Frame {
                kind,
                channel,
                payload,
            },
            size + FRAME_OVERHEAD,
        ))),
        Some(_) => Err(Garbled),
    }
}

/// A value of a field table, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
    Flag(bool),
    Table(Table),
    Other,
}

pub(crate) type Table = BTreeMap<String, Value>;

/// A message's properties, as far as they are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Properties {
    pub(crate) headers: Table,
    pub(crate) message_id: Option<String>,
}

/// What a server says on a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Start {
        properties: Table,
        mechanisms: String,
    },
    Secure,
    Tune {
        channel_max: u16,
        frame_max: u32,
        heartbeat_s: u16,
    },
    OpenOk,
    /// The end of the connection.
    Close(Closed),
    CloseOk,
    Blocked(String),
    Unblocked,
    ChannelOpenOk,
    ChannelClose(Closed),
    ChannelCloseOk,
    DeclareOk,
    QueueDeclareOk {
        messages: u32,
    },
    QosOk,
    ConsumeOk,
    /// The queue is gone.
    Cancel,
    Return {
        code: u16,
        text: String,
    },
    Deliver {
        tag: u64,
        exchange: String,
        routing_key: String,
    },
    Ack {
        tag: u64,
        multiple: bool,
    },
    Nack {
        tag: u64,
        multiple: bool,
    },
    SelectOk,
    /// Of no interest here.
    Other,
}

/// Why the server closed a channel or the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) code: u16,
    pub(crate) text: String,
}

pub(crate) fn method(payload: &[u8]) -> Result<Method, Garbled> {
    let mut from = Reader(payload);
    let id = (from.u16()?, from.u16()?);
    Ok(match id {
        (10, 10) => {
            from.take(2)?;
            Method::Start {
                properties: from.table()?,
                mechanisms: from.long()?,
            }
        }
        (10, 20) => Method::Secure,
        (10, 30) => Method::Tune {
            channel_max: from.u16()?,
            frame_max: from.u32()?,
            heartbeat_s: from.u16()?,
        },
        (10, 41) => Method::OpenOk,
        (10, 50) => Method::Close(from.closed()?),
        (10, 51) => Method::CloseOk,
        (10, 60) => Method::Blocked(from.short()?),
        (10, 61) => Method::Unblocked,
        (20, 11) => Method::ChannelOpenOk,
        (20, 40) => Method::ChannelClose(from.closed()?),
        (20, 41) => Method::ChannelCloseOk,
        (40, 11) | (50, 21) => Method::DeclareOk,
        (50, 11) => {
            from.short()?;
            Method::QueueDeclareOk {
                messages: from.u32()?,
            }
        }
        (60, 11) => Method::QosOk,
        (60, 21) => Method::ConsumeOk,
        (60, 30) => Method::Cancel,
        (60, 50) => Method::Return {
            code: from.u16()?,
            text: from.short()?,
        },
        (60, 60) => {
            from.short()?;
            let tag = from.u64()?;
            from.u8()?;
            Method::Deliver {
                tag,
                exchange: from.short()?,
                routing_key: from.short()?,
            }
        }
        (60, 80) => Method::Ack {
            tag: from.u64()?,
            multiple: from.u8()? & 1 != 0,
        },
        (60, 120) => Method::Nack {
            tag: from.u64()?,
            multiple: from.u8()? & 1 != 0,
        },
        (85, 11) => Method::SelectOk,
        _ => Method::Other,
    })
}

/// The size of the body and the properties, from a content header.
pub(crate) fn content_header(payload: &[u8]) -> Result<(u64, Properties), Garbled> {
    let mut from = Reader(payload);
    from.take(4)?;
    let size = from.u64()?;
    let flags = from.u16()?;
    let has = |bit: u8| flags & (1 << bit) != 0;
    let mut properties = Properties::default();
    for bit in [15, 14] {
        if has(bit) {
            from.short()?;
        }
    }
    if has(13) {
        properties.headers = from.table()?;
    }
    for bit in [12, 11] {
        if has(bit) {
            from.u8()?;
        }
    }
    for bit in [10, 9, 8] {
        if has(bit) {
            from.short()?;
        }
    }
    if has(7) {
        properties.message_id = Some(from.short()?);
    }
    Ok((size, properties))
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Garbled> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Garbled)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        self.take(N)?.try_into().map_err(|_| Garbled)
    }

    fn u8(&mut self) -> Result<u8, Garbled> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Result<u16, Garbled> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Garbled> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, Garbled> {
        self.array().map(u64::from_be_bytes)
    }

    fn bytes(&mut self) -> Result<&'a [u8], Garbled> {
        let length = usize::try_from(self.u32()?).map_err(|_| Garbled)?;
        self.take(length)
    }

    fn short(&mut self) -> Result<String, Garbled> {
        let length = self.u8()?.into();
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn long(&mut self) -> Result<String, Garbled> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    fn closed(&mut self) -> Result<Closed, Garbled> {
        Ok(Closed {
            code: self.u16()?,
            text: self.short()?,
        })
    }

    fn table(&mut self) -> Result<Table, Garbled> {
        self.table_within(DEPTH_MAX)
    }

    fn table_within(&mut self, depth: u8) -> Result<Table, Garbled> {
        let mut own = Reader(self.bytes()?);
        let mut table = Table::new();
        while !own.0.is_empty() {
            let name = own.short()?;
            let value = own.value(depth)?;
            table.insert(name, value);
        }
        Ok(table)
    }

    fn value(&mut self, depth: u8) -> Result<Value, Garbled> {
        Ok(match self.u8()? {
            b't' => Value::Flag(self.u8()? != 0),
            b'b' => Value::Number(i8::from_be_bytes(self.array()?).into()),
            b'B' => Value::Number(self.u8()?.into()),
            b's' => Value::Number(i16::from_be_bytes(self.array()?).into()),
            b'u' => Value::Number(self.u16()?.into()),
            b'I' => Value::Number(i32::from_be_bytes(self.array()?).into()),
            b'i' => Value::Number(self.u32()?.into()),
            b'l' => Value::Number(i64::from_be_bytes(self.array()?)),
            b'S' => Value::Text(self.long()?),
            b'F' => Value::Table(self.table_within(depth.checked_sub(1).ok_or(Garbled)?)?),
            b'A' | b'x' => {
                self.bytes()?;
                Value::Other
            }
            b'f' => self.skip(4)?,
            b'D' => self.skip(5)?,
            b'd' | b'T' | b'L' => self.skip(8)?,
            b'V' => Value::Other,
            _ => return Err(Garbled),
        })
    }

    fn skip(&mut self, length: usize) -> Result<Value, Garbled> {
        self.take(length)?;
        Ok(Value::Other)
    }
}

/// Tables in tables that are still read: a server's own are two deep.
const DEPTH_MAX: u8 = 16;

/// Puts a frame whose payload `write` writes.
pub(crate) fn put_frame(
    out: &mut BytesMut,
    kind: u8,
    channel: u16,
    write: impl FnOnce(&mut BytesMut),
) {
    out.put_u8(kind);
    out.put_u16(channel);
    sized(out, write);
    out.put_u8(END);
}

/// Puts a method: class, id, arguments.
pub(crate) fn put_method(
    out: &mut BytesMut,
    channel: u16,
    (class, id): (u16, u16),
    arguments: impl FnOnce(&mut BytesMut),
) {
    put_frame(out, METHOD, channel, |out| {
        out.put_u16(class);
        out.put_u16(id);
        arguments(out);
    });
}

/// Puts what `write` writes, with its length before it.
pub(crate) fn sized(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let at = out.len();
    out.put_u32(0);
    write(out);
    let length = u32::try_from(out.len() - at - 4).expect("what is written here is bounded");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Puts a short text; at most 255 bytes, which the caller has checked.
pub(crate) fn put_short(out: &mut BytesMut, text: &str) {
    out.put_u8(u8::try_from(text.len()).expect("a short text is checked before"));
    out.put_slice(text.as_bytes());
}

pub(crate) fn put_long(out: &mut BytesMut, text: &[u8]) {
    sized(out, |out| out.put_slice(text));
}

/// Puts one text entry of a field table.
pub(crate) fn put_text_field(out: &mut BytesMut, name: &str, value: &str) {
    put_short(out, name);
    out.put_u8(b'S');
    put_long(out, value.as_bytes());
}

pub(crate) fn put_number_field(out: &mut BytesMut, name: &str, value: i64) {
    put_short(out, name);
    out.put_u8(b'l');
    out.put_i64(value);
}

pub(crate) fn put_flag_field(out: &mut BytesMut, name: &str, value: bool) {
    put_short(out, name);
    out.put_u8(b't');
    out.put_u8(value.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_read_when_it_is_whole() {
        let mut out = BytesMut::new();
        put_method(&mut out, 7, (60, 80), |out| {
            out.put_u64(9);
            out.put_u8(1);
        });
        for length in 0..out.len() {
            assert_eq!(frame(&out[..length], 4_096), Ok(None));
        }
        out.put_slice(b"next");
        let (read, length) = frame(&out, 4_096).unwrap().unwrap();
        assert_eq!((read.kind, read.channel), (METHOD, 7));
        assert_eq!(&out[length..], b"next");
        assert_eq!(
            method(read.payload),
            Ok(Method::Ack {
                tag: 9,
                multiple: true
            })
        );
        assert_eq!(frame(&out, length - 1), Err(Garbled));
        out[length - 1] = 0;
        assert_eq!(frame(&out, 4_096), Err(Garbled));
    }

    #[test]
    fn tables_are_read_with_every_kind_of_value_and_never_past_their_end() {
        let mut out = BytesMut::new();
        sized(&mut out, |out| {
            put_text_field(out, "name", "é");
            put_number_field(out, "offset", -3);
            put_flag_field(out, "yes", true);
            for (kind, length) in [(b'f', 4), (b'D', 5), (b'd', 8), (b'T', 8), (b'V', 0)] {
                put_short(out, "other");
                out.put_u8(kind);
                out.put_bytes(0, length);
            }
            put_short(out, "inner");
            out.put_u8(b'F');
            sized(out, |out| put_text_field(out, "a", "b"));
        });
        let table = Reader(&out).table().unwrap();
        assert_eq!(table["name"], Value::Text("é".to_owned()));
        assert_eq!(table["offset"], Value::Number(-3));
        assert_eq!(table["yes"], Value::Flag(true));
        assert_eq!(table["other"], Value::Other);
        let inner = Table::from([("a".to_owned(), Value::Text("b".to_owned()))]);
        assert_eq!(table["inner"], Value::Table(inner));
        for length in 0..out.len() {
            assert_eq!(Reader(&out[..length]).table(), Err(Garbled));
        }
    }

    #[test]
    fn tables_without_end_are_refused() {
        let mut deep = BytesMut::new();
        for _ in 0..100 {
            let inner = deep.split();
            sized(&mut deep, |out| {
                put_short(out, "t");
                out.put_u8(b'F');
                if inner.is_empty() {
                    out.put_u32(0);
                }
                out.put_slice(&inner);
            });
        }
        assert_eq!(Reader(&deep).table(), Err(Garbled));
    }
}
