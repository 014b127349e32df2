//! One connection: commands go out in one write, their answers come back in order. Whoever stops
//! half way must drop it: the next answer would be somebody else's.

use std::time::Duration;

use bytes::BytesMut;
use postrider_transport::{Error, tls};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    time::{Instant, timeout_at},
};

use crate::resp::{self, Reply};

/// `proto-max-bulk-len` of a server that was not told otherwise.
pub(crate) const TEXT_BYTES_MAX: u64 = 512 << 20;

/// Plain or TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Socket for T {}

pub(crate) struct Link {
    socket: Box<dyn Socket>,
    read: BytesMut,
    pub(crate) facts: Facts,
}

/// What was learnt of the server when the connection was made.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Largest text that it takes, in bytes.
    pub(crate) text_bytes_max: u64,
    pub(crate) named: Named,
    /// The digest by which it knows the script.
    pub(crate) script: String,
}

/// Whether the server is the destination's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Matches,
    /// It says nothing that could be compared.
    Unnamed,
}

/// Why there is no connection. Texts hold no secrets.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

impl Refused {
    pub(crate) fn of(code: &'static str, message: String) -> Self {
        Self { code, message }
    }

    /// An error answer to a command that came before any message.
    pub(crate) fn error(error: &str) -> Self {
        let code = crate::outcome::code(error).unwrap_or("server_refuses");
        Self::of(code, format!("the server says {error:?}"))
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::of("not_connected", error.kind().to_string())
    }
}

impl From<tls::Failed> for Refused {
    fn from(failed: tls::Failed) -> Self {
        match failed {
            tls::Failed::Unavailable(error) => error.into(),
            tls::Failed::Misconfigured(_) => Self::of(tls::CODE, failed.to_string()),
        }
    }
}

impl From<Broken> for Refused {
    fn from(broken: Broken) -> Self {
        let (Broken::NotSent(why) | Broken::Lost(why) | Broken::Silent(why)) = broken;
        Self::of("not_connected", why)
    }
}

/// A call without its answers. The connection is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The command never left whole, and a part of a command is never carried out.
    NotSent(String),
    /// It may have been carried out; the connection ended.
    Lost(String),
    /// It may have been carried out; no answer came in time.
    Silent(String),
}

impl Link {
    pub(crate) fn new(socket: Box<dyn Socket>) -> Self {
        Self {
            socket,
            read: BytesMut::with_capacity(8 * 1024),
            facts: Facts {
                text_bytes_max: TEXT_BYTES_MAX,
                named: Named::Unnamed,
                script: String::new(),
            },
        }
    }

    /// Writes `commands`, reads `answers` answers. `first`: the length of the first command, which
    /// is the one that matters: if less of it was written, nothing was done.
    pub(crate) async fn call(
        &mut self,
        commands: &[u8],
        first: usize,
        answers: usize,
        deadline: Instant,
    ) -> Result<Vec<Reply>, Broken> {
        let mut written = 0;
        let done = timeout_at(deadline, self.exchange(commands, answers, &mut written)).await;
        let failed = match done {
            Ok(Ok(replies)) => return Ok(replies),
            Ok(Err(why)) => Broken::Lost(why),
            Err(_) => Broken::Silent("no answer in time".to_owned()),
        };
        if written < first {
            let (Broken::NotSent(why) | Broken::Lost(why) | Broken::Silent(why)) = failed;
            return Err(Broken::NotSent(why));
        }
        Err(failed)
    }

    async fn exchange(
        &mut self,
        commands: &[u8],
        answers: usize,
        written: &mut usize,
    ) -> Result<Vec<Reply>, String> {
        let mut replies = Vec::with_capacity(answers);
        if let Err(why) = self.write(commands, written).await {
            // A server that refuses a command in the middle says why before it closes.
            while self.read_more().await.is_ok() {}
            self.parse(&mut replies, answers)?;
            return if closes(&replies) {
                Ok(replies)
            } else {
                Err(why)
            };
        }
        loop {
            self.parse(&mut replies, answers)?;
            if replies.len() == answers || closes(&replies) {
                return Ok(replies);
            }
            self.read_more().await?;
        }
    }

    async fn write(&mut self, commands: &[u8], written: &mut usize) -> Result<(), String> {
        while *written < commands.len() {
            match self.socket.write(&commands[*written..]).await {
                Ok(0) => return Err(ENDED.to_owned()),
                Ok(more) => *written += more,
                Err(error) => return Err(error.kind().to_string()),
            }
        }
        let flushed = self.socket.flush().await;
        flushed.map_err(|error| error.kind().to_string())
    }

    async fn read_more(&mut self) -> Result<(), String> {
        match self.socket.read_buf(&mut self.read).await {
            Ok(0) => Err(ENDED.to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.kind().to_string()),
        }
    }

    fn parse(&mut self, replies: &mut Vec<Reply>, answers: usize) -> Result<(), String> {
        while replies.len() < answers {
            match resp::take(&mut self.read) {
                Ok(Some(reply)) => replies.push(reply),
                Ok(None) => break,
                Err(resp::Garbled) => {
                    return Err("what answers there does not speak Redis' protocol".to_owned());
                }
            }
        }
        Ok(())
    }
}

const ENDED: &str = "the server closed the connection";

/// Whether the server has said its last word.
fn closes(replies: &[Reply]) -> bool {
    matches!(replies.last(), Some(Reply::Error(error)) if error.starts_with("ERR Protocol error"))
}

/// One call of single commands, each of which answers once.
pub(crate) async fn ask(
    link: &mut Link,
    commands: &[&[&str]],
    within: Duration,
) -> Result<Vec<Reply>, Broken> {
    let mut bytes = Vec::with_capacity(256);
    for texts in commands {
        resp::command(&mut bytes, texts);
    }
    let deadline = Instant::now() + within;
    link.call(&bytes, bytes.len(), commands.len(), deadline)
        .await
}

/// A look at the server that came to nothing.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The connection is of no use any more.
    Broken(Broken),
    /// The server answered, and the connection goes on.
    Answered(Error),
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

impl Failed {
    /// From an error answer.
    pub(crate) fn error(error: &str) -> Self {
        Self::Answered(Refused::error(error).into())
    }
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Broken(broken) => Refused::from(broken).into(),
            Failed::Answered(error) => error,
        }
    }
}

impl From<Refused> for Error {
    fn from(Refused { code, message }: Refused) -> Self {
        if crate::outcome::needs_a_person(code) {
            Self::Misconfigured { code, message }
        } else {
            Self::Unavailable { code, message }
        }
    }
}
