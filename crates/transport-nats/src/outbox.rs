//! Bytes on their way to a socket: filled by senders, emptied by one writer. It knows, for each
//! message, whether any of its bytes can have left.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{BufMut, BytesMut};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::Notify,
};

/// Bytes that wait before senders must. Enough to keep a socket busy; little to lose.
const BYTES_MAX: usize = 512 * 1024;
/// Bytes that are worth a write. A write for each message costs this side, and the server's
/// reader even more, a system call and a task switch each.
const WRITE_BYTES: usize = 32 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: BytesMut,
    /// Bytes that the writer has taken, ever: they may have left.
    taken: u64,
    closed: bool,
}

/// One message to publish.
pub(crate) struct Publish<'a> {
    pub(crate) subject: &'a str,
    pub(crate) reply: &'a str,
    /// The whole header block, with its empty line; may be empty.
    pub(crate) headers: &'a [u8],
    pub(crate) body: &'a [u8],
}

/// The connection ended, and took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed;

impl Outbox {
    /// Waits until a message may be put in.
    pub(crate) async fn room(&self) -> Result<(), Closed> {
        loop {
            let emptied = self.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            {
                let waiting = self.waiting();
                if waiting.closed {
                    return Err(Closed);
                }
                if waiting.bytes.len() < BYTES_MAX {
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    /// Puts in one message; where it starts in all that this connection sends. It may stay here
    /// until [`Outbox::flush`].
    pub(crate) fn publish(&self, publish: &Publish<'_>) -> Result<u64, Closed> {
        let Publish {
            subject,
            reply,
            headers,
            body,
        } = publish;
        let mut waiting = self.waiting();
        if waiting.closed {
            return Err(Closed);
        }
        let start = waiting.taken + waiting.bytes.len() as u64;
        let out = &mut waiting.bytes;
        out.reserve(subject.len() + reply.len() + headers.len() + body.len() + 64);
        out.put_slice(if headers.is_empty() {
            b"PUB "
        } else {
            b"HPUB "
        });
        out.put_slice(subject.as_bytes());
        out.put_u8(b' ');
        out.put_slice(reply.as_bytes());
        out.put_u8(b' ');
        if !headers.is_empty() {
            put_number(out, headers.len());
            out.put_u8(b' ');
        }
        put_number(out, headers.len() + body.len());
        out.put_slice(b"\r\n");
        out.put_slice(headers);
        out.put_slice(body);
        out.put_slice(b"\r\n");
        let is_much = out.len() >= WRITE_BYTES;
        drop(waiting);
        if is_much {
            self.flush();
        }
        Ok(start)
    }

    /// Has everything written that was put in.
    pub(crate) fn flush(&self) {
        self.filled.notify_one();
    }

    /// Puts in a line of the protocol, such as `PONG`, room or not.
    pub(crate) fn line(&self, line: &str) {
        let mut waiting = self.waiting();
        if !waiting.closed {
            waiting.bytes.put_slice(line.as_bytes());
            waiting.bytes.put_slice(b"\r\n");
        }
        drop(waiting);
        self.filled.notify_one();
    }

    /// Ends it. What the writer has not taken is thrown away; how much it took in all.
    pub(crate) fn close(&self) -> u64 {
        let taken = {
            let mut waiting = self.waiting();
            waiting.closed = true;
            waiting.bytes = BytesMut::new();
            waiting.taken
        };
        self.filled.notify_one();
        self.emptied.notify_waiters();
        taken
    }

    /// Writes until closed, or until the socket fails.
    pub(crate) async fn write_to(
        &self,
        socket: &mut (impl AsyncWrite + Unpin),
    ) -> std::io::Result<()> {
        let mut spare = BytesMut::new();
        loop {
            {
                let mut waiting = self.waiting();
                if waiting.closed {
                    return Ok(());
                }
                std::mem::swap(&mut waiting.bytes, &mut spare);
                waiting.taken += spare.len() as u64;
            }
            if spare.is_empty() {
                self.filled.notified().await;
                continue;
            }
            self.emptied.notify_waiters();
            socket.write_all(&spare).await?;
            socket.flush().await?;
            spare.clear();
        }
    }

    /// A panic while this is locked would be a bug in a few lines without calls outwards.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put_number(out: &mut BytesMut, number: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;

    use super::*;

    fn publish(outbox: &Outbox, body: &[u8]) -> Result<u64, Closed> {
        outbox.publish(&Publish {
            subject: "s",
            reply: "r",
            headers: b"H\r\n\r\n",
            body,
        })
    }

    #[tokio::test]
    async fn messages_are_written_whole_and_in_order() {
        let outbox = Arc::new(Outbox::default());
        assert_eq!(publish(&outbox, b"one"), Ok(0));
        let second = publish(&outbox, b"").unwrap();
        outbox.line("PONG");
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let writer = Arc::clone(&outbox);
        let writing = tokio::spawn(async move { writer.write_to(&mut near).await });
        let first = "HPUB s r 5 8\r\nH\r\n\r\none\r\n";
        let expected = format!("{first}HPUB s r 5 5\r\nH\r\n\r\n\r\nPONG\r\n");
        assert_eq!(second, first.len() as u64);
        let mut read = vec![0; expected.len()];
        far.read_exact(&mut read).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap(), expected);
        assert_eq!(outbox.close(), expected.len() as u64);
        writing.await.unwrap().unwrap();
        assert_eq!(publish(&outbox, b"late"), Err(Closed));
    }

    #[tokio::test]
    async fn what_the_writer_did_not_take_never_left() {
        let outbox = Arc::new(Outbox::default());
        publish(&outbox, b"taken").unwrap();
        // A socket that takes nothing: the writer hangs in its first write.
        let (mut near, far) = tokio::io::duplex(1);
        let writer = Arc::clone(&outbox);
        let writing = tokio::spawn(async move { writer.write_to(&mut near).await });
        outbox.emptied.notified().await;
        let second = publish(&outbox, b"waiting").unwrap();
        assert!(outbox.close() <= second);
        drop(far);
        assert!(writing.await.unwrap().is_err());
    }

    #[tokio::test]
    async fn senders_wait_for_room_and_learn_of_the_end() {
        let outbox = Arc::new(Outbox::default());
        outbox.room().await.unwrap();
        publish(&outbox, &vec![0; BYTES_MAX]).unwrap();
        let waiter = Arc::clone(&outbox);
        let waiting = tokio::spawn(async move { waiter.room().await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        outbox.close();
        assert_eq!(waiting.await.unwrap(), Err(Closed));
    }

    #[test]
    fn numbers_are_decimal() {
        for number in [0, 7, 10, 12_345, usize::MAX] {
            let mut out = BytesMut::new();
            put_number(&mut out, number);
            assert_eq!(out, number.to_string().as_bytes());
        }
    }
}
