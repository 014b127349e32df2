//! A webhook receiver, as a process of its own: it writes down every request with what it did, and
//! does what a file says. Its log outlives it.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};
use uuid::Uuid;

use crate::{digest::Sha256, relay::SEND};

/// What it does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Manner {
    /// Keeps it and answers 204.
    Well,
    /// Answers 500 and keeps nothing.
    Fails,
    /// Keeps it and closes the connection.
    AnswerLost,
    /// Keeps it and answers when nobody waits any more.
    Slow,
    /// Answers 429 and keeps nothing.
    Busy,
}

impl Manner {
    fn keeps(self) -> bool {
        match self {
            Self::Well | Self::AnswerLost | Self::Slow => true,
            Self::Fails | Self::Busy => false,
        }
    }
}

/// A line of the log, written before the answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) event: Uuid,
    pub(crate) path: String,
    pub(crate) digest: Sha256,
    pub(crate) manner: Manner,
}

impl Line {
    pub(crate) fn accepted(&self) -> bool {
        self.manner.keeps()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    #[arg(long)]
    port: u16,
    #[arg(long)]
    folder: PathBuf,
}

/// Says how the receiver that works in `folder` behaves from now on.
pub(crate) fn behave(folder: &Path, manner: Manner) -> Result<()> {
    let new = folder.join("manner.new");
    std::fs::write(&new, serde_json::to_string(&manner)?)?;
    std::fs::rename(&new, folder.join("manner")).context("telling the receiver its manner")
}

/// Everything that was ever received, in order.
pub(crate) fn log(folder: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(log_file(folder)).context("reading the receiver's log")?;
    text.lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the log line {line:?}")))
        .collect()
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("received.jsonl")
}

/// Receives until it is killed.
pub(crate) async fn receive(args: &Receive) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", args.port)).await?;
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(log_file(&args.folder))?;
    let (log, folder) = (Arc::new(log), Arc::new(args.folder.clone()));
    loop {
        let (stream, _) = listener.accept().await?;
        let (log, folder) = (Arc::clone(&log), Arc::clone(&folder));
        // A connection that breaks is its client's concern.
        tokio::spawn(async move { drop(serve(stream, &log, &folder).await) });
    }
}

struct Request {
    path: String,
    event: Uuid,
    body: Vec<u8>,
}

async fn serve(stream: TcpStream, log: &File, folder: &Path) -> Result<()> {
    let mut stream = BufReader::new(stream);
    while let Some(request) = read(&mut stream).await? {
        let manner: Manner = serde_json::from_slice(&std::fs::read(folder.join("manner"))?)?;
        let line = Line {
            event: request.event,
            path: request.path,
            digest: Sha256::of(&request.body),
            manner,
        };
        let mut text = serde_json::to_string(&line)?;
        text.push('\n');
        // One write for a line: a kill leaves it whole or away.
        let mut log = log;
        log.write_all(text.as_bytes())?;
        let answer = match manner {
            Manner::Well => "204 No Content\r\n",
            Manner::Slow => {
                tokio::time::sleep(SEND + Duration::from_millis(500)).await;
                "204 No Content\r\n"
            }
            Manner::Fails => "500 Internal Server Error\r\ncontent-length: 0\r\n",
            Manner::Busy => "429 Too Many Requests\r\ncontent-length: 0\r\nretry-after: 1\r\n",
            Manner::AnswerLost => return Ok(()),
        };
        let answer = format!("HTTP/1.1 {answer}\r\n");
        stream.get_mut().write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// The next request of a connection, nothing at its end. It understands what the relay sends and
/// no more of HTTP.
async fn read(stream: &mut BufReader<TcpStream>) -> Result<Option<Request>> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).context("a request line")?.to_owned();
    let (mut length, mut event) = (None, None);
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            bail!("the request broke off");
        }
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = Some(value.trim().parse()?),
            "webhook-id" => event = Some(value.trim().parse()?),
            _ => {}
        }
    }
    let mut body = vec![0; length.context("content-length")?];
    stream.read_exact(&mut body).await?;
    Ok(Some(Request {
        path,
        event: event.context("webhook-id")?,
        body,
    }))
}
