//! One connection: a channel that publishes, a channel for questions, a reader and a writer.
//!
//! A connection is never reconnected. When it ends, what was not written is thrown away, and what
//! may have been written is unknown: nothing is ever sent after it was given up. Connecting again
//! is [`crate::dial::Dial`]'s, with a new link.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Buf, BufMut, BytesMut};
use postrider_core::Outcome;
use postrider_transport::Late;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    ask::{Asking, Delivery, Heard},
    connection::{Server, Settings},
    flight::Flight,
    handshake::{self, Ready, Refused, Socket},
    lane::{Lane, Next, Queued, Terms, Verdict},
    wire::{
        self, BODY, Closed, Garbled, HEADER, HEARTBEAT, METHOD, Method, Properties, Table, Value,
        put_frame, put_method, put_short,
    },
};

/// The channel that publishes.
pub(crate) const PUBLISHING: u16 = 1;

/// Room for one read.
const READ_BYTES: usize = 16 * 1024;
/// A write buffer larger than this is not kept: it held one large message.
const KEEP_BYTES: usize = 1024 * 1024;

/// One live or ended connection.
pub(crate) struct Link {
    properties: Table,
    shared: Arc<Shared>,
    pub(crate) asking: tokio::sync::Mutex<Asking>,
    pub(crate) api_timeout: Duration,
    tasks: [JoinHandle<()>; 2],
    /// The exchange was there.
    pub(crate) exchange_seen: AtomicBool,
}

/// What the destination's limits are known to be.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    /// Largest body; 0: not known.
    pub(crate) body_bytes_max: AtomicUsize,
    /// 0: never connected.
    pub(crate) frame_max: AtomicUsize,
}

/// What the tasks of a connection share with its senders.
struct Shared {
    lane: Mutex<Lane>,
    /// Frames that go before any message: answers to the server, questions, heartbeats.
    control: Mutex<BytesMut>,
    wake: Notify,
    ended: AtomicBool,
    heard: mpsc::UnboundedSender<(u16, Heard)>,
    learned: Arc<Learned>,
}

impl Link {
    /// Connects to one server.
    pub(crate) async fn connect(
        settings: &Settings,
        server: &Server,
        terms: impl FnOnce(usize) -> Terms,
        late: mpsc::Sender<Late>,
        learned: Arc<Learned>,
    ) -> Result<Self, Refused> {
        let Ready {
            socket,
            properties,
            frame_max,
            heartbeat,
            rest,
        } = handshake::connect(settings, server).await?;
        learned.frame_max.store(frame_max, Ordering::Release);
        let (heard, hearing) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            lane: Mutex::new(Lane::new(terms(frame_max), late)),
            control: Mutex::default(),
            wake: Notify::new(),
            ended: AtomicBool::new(false),
            heard,
            learned,
        });
        let (reader, writer) = tokio::io::split(socket);
        let reading = Reading {
            shared: Arc::clone(&shared),
            frame_max,
            contents: HashMap::new(),
        };
        let tasks = [
            tokio::spawn(reading.run(reader, rest, heartbeat)),
            tokio::spawn(write(writer, Arc::clone(&shared), heartbeat)),
        ];
        Ok(Self {
            properties,
            shared,
            asking: tokio::sync::Mutex::new(Asking::new(hearing)),
            api_timeout: settings.api_timeout,
            tasks,
            exchange_seen: AtomicBool::new(false),
        })
    }

    /// A text among the server's properties, such as `cluster_name`.
    pub(crate) fn property(&self, name: &str) -> Option<&str> {
        match self.properties.get(name) {
            Some(Value::Text(text)) => Some(text),
            Some(Value::Number(_) | Value::Flag(_) | Value::Table(_) | Value::Other) | None => None,
        }
    }

    /// Whether messages can still be handed over.
    pub(crate) fn is_alive(&self) -> bool {
        !self.shared.ended.load(Ordering::Acquire)
    }

    /// What every message comes to while the server takes nothing.
    pub(crate) fn blocked(&self) -> Option<Outcome> {
        self.shared.lane().is_blocked()
    }

    /// Hands messages to the connection, which answers for them from here on.
    pub(crate) fn publish(&self, queued: impl Iterator<Item = Queued>) {
        let mut lane = self.shared.lane();
        for queued in queued {
            lane.enqueue(queued);
        }
        drop(lane);
        self.shared.wake.notify_one();
    }

    /// Answers what is open of one batch.
    pub(crate) fn give_up(&self, flight: &Arc<Flight>) {
        self.shared.lane().give_up(flight);
        self.shared.wake.notify_one();
    }

    /// Puts a method before everything that waits.
    pub(crate) fn say(&self, channel: u16, id: (u16, u16), arguments: impl FnOnce(&mut BytesMut)) {
        self.shared.say(channel, id, arguments);
    }

    /// Ends the connection. What is in flight becomes unknown.
    pub(crate) fn end(&self) {
        self.shared.end("");
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("cluster", &self.property("cluster_name"))
            .field("alive", &self.is_alive())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// A panic while the lane is locked would be a bug in a few lines without calls outwards.
    fn lane(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn control(&self) -> MutexGuard<'_, BytesMut> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, channel: u16, id: (u16, u16), arguments: impl FnOnce(&mut BytesMut)) {
        put_method(&mut self.control(), channel, id, arguments);
        self.wake.notify_one();
    }

    fn end(&self, why: &str) {
        self.lane().end(why);
        self.ended.store(true, Ordering::Release);
        // Who asks now learns that nobody answers.
        drop(self.heard.send((0, Heard::Ended)));
        self.wake.notify_one();
    }
}

/// Writes control frames and messages until the connection ends.
async fn write(mut socket: WriteHalf<Box<dyn Socket>>, shared: Arc<Shared>, heartbeat: Duration) {
    let mut out = BytesMut::new();
    loop {
        if shared.ended.load(Ordering::Acquire) {
            break;
        }
        if out.capacity() > KEEP_BYTES {
            out = BytesMut::new();
        }
        out.clear();
        out.unsplit(shared.control().split());
        if shared.lane().take(&mut out) == Next::GiveUp {
            tracing::warn!("the broker confirms nothing any more: the connection is given up");
            break;
        }
        if out.is_empty() {
            if timeout(heartbeat / 2, shared.wake.notified())
                .await
                .is_err()
            {
                put_frame(&mut shared.control(), HEARTBEAT, 0, |_| {});
            }
            continue;
        }
        if socket.write_all(&out).await.is_err() || socket.flush().await.is_err() {
            break;
        }
    }
    shared.end("");
}

/// What the reader knows between two frames.
struct Reading {
    shared: Arc<Shared>,
    frame_max: usize,
    /// By channel: a message that is not whole yet.
    contents: HashMap<u16, Content>,
}

struct Content {
    about: About,
    properties: Properties,
    /// What is still to come; `None`: its header is.
    missing: Option<u64>,
    body: BytesMut,
}

enum About {
    Returned(String),
    Delivered {
        tag: u64,
        exchange: String,
        routing_key: String,
    },
}

/// How a connection ends by the server's word; the text goes on after "the confirm".
struct Over(String);

impl From<Garbled> for Over {
    fn from(error: Garbled) -> Self {
        Self(format!(": {error}"))
    }
}

impl Reading {
    /// Reads until the connection ends, or is silent for two heartbeats.
    async fn run(
        mut self,
        mut socket: ReadHalf<Box<dyn Socket>>,
        mut bytes: BytesMut,
        heartbeat: Duration,
    ) {
        let why = loop {
            if let Err(Over(why)) = self.heed(&mut bytes) {
                break why;
            }
            bytes.reserve(READ_BYTES);
            match timeout(heartbeat * 2, socket.read_buf(&mut bytes)).await {
                Ok(Ok(0) | Err(_)) => break String::new(),
                Ok(Ok(_)) => {}
                Err(_) => break ": two heartbeats did not come".to_owned(),
            }
        };
        self.shared.end(&why);
    }

    /// Handles every whole frame in `bytes`.
    fn heed(&mut self, bytes: &mut BytesMut) -> Result<(), Over> {
        while let Some((frame, length)) = wire::frame(bytes, self.frame_max)? {
            let channel = frame.channel;
            match frame.kind {
                METHOD => {
                    let method = wire::method(frame.payload)?;
                    self.method(channel, method)?;
                }
                HEADER => {
                    let (size, properties) = wire::content_header(frame.payload)?;
                    let content = self.contents.get_mut(&channel).ok_or(Garbled)?;
                    content.properties = properties;
                    content.missing = Some(size);
                    self.whole(channel);
                }
                BODY => {
                    let content = self.contents.get_mut(&channel).ok_or(Garbled)?;
                    let missing = content.missing.ok_or(Garbled)?;
                    let part = frame.payload;
                    content.missing = Some(missing.checked_sub(part.len() as u64).ok_or(Garbled)?);
                    // What comes back was sent from here: its body is not looked at.
                    if matches!(content.about, About::Delivered { .. }) {
                        content.body.put_slice(part);
                    }
                    self.whole(channel);
                }
                _ => {}
            }
            bytes.advance(length);
        }
        Ok(())
    }

    fn method(&mut self, channel: u16, method: Method) -> Result<(), Over> {
        if channel == PUBLISHING {
            self.of_messages(method);
            return Ok(());
        }
        if let Method::Close(closed) = method {
            return Err(Over(format!(": {}", closed.text)));
        }
        if let Method::Blocked(reason) = method {
            tracing::warn!(reason, "the broker takes no messages for now");
            self.shared.lane().block(&reason);
        } else if method == Method::Unblocked {
            tracing::info!("the broker takes messages again");
            self.shared.lane().unblock();
            self.shared.wake.notify_one();
        } else if let Method::Deliver {
            tag,
            exchange,
            routing_key,
        } = method
        {
            let about = About::Delivered {
                tag,
                exchange,
                routing_key,
            };
            self.begin(channel, about);
        } else if let Method::ChannelClose(closed) = method {
            self.contents.remove(&channel);
            self.shared.say(channel, (20, 41), |_| {});
            self.hear(channel, Heard::Closed(closed));
        } else {
            self.hear(channel, Heard::Method(method));
        }
        Ok(())
    }

    /// What concerns the channel that publishes.
    fn of_messages(&mut self, method: Method) {
        let shared = &self.shared;
        if let Method::Ack { tag, multiple } = method {
            shared.lane().settle(tag, multiple, Verdict::Ack);
            shared.wake.notify_one();
        } else if let Method::Nack { tag, multiple } = method {
            shared.lane().settle(tag, multiple, Verdict::Nack);
            shared.wake.notify_one();
        } else if let Method::Return { code, text } = method {
            self.begin(PUBLISHING, About::Returned(format!("{code} {text}")));
        } else if let Method::ChannelClose(closed) = method {
            self.reopen(&closed);
        } else if method == Method::ChannelOpenOk {
            shared.say(PUBLISHING, (85, 10), |out| out.put_u8(0));
        } else if method == Method::SelectOk {
            shared.lane().reopened();
            shared.wake.notify_one();
        }
    }

    /// The server closed the channel: everything sent over it is answered for, and there will be
    /// another one.
    fn reopen(&mut self, closed: &Closed) {
        tracing::warn!(
            code = closed.code,
            text = closed.text,
            "the broker closed the publishing channel"
        );
        self.contents.remove(&PUBLISHING);
        let limit = self.shared.lane().closed(closed);
        if let Some(limit) = limit {
            self.shared
                .learned
                .body_bytes_max
                .store(limit, Ordering::Release);
        }
        self.shared.say(PUBLISHING, (20, 41), |_| {});
        self.shared
            .say(PUBLISHING, (20, 10), |out| put_short(out, ""));
    }

    fn begin(&mut self, channel: u16, about: About) {
        let content = Content {
            about,
            properties: Properties::default(),
            missing: None,
            body: BytesMut::new(),
        };
        self.contents.insert(channel, content);
    }

    /// Passes a message on once nothing is missing.
    fn whole(&mut self, channel: u16) {
        let is_whole = self
            .contents
            .get(&channel)
            .is_some_and(|content| content.missing == Some(0));
        if !is_whole {
            return;
        }
        let Some(content) = self.contents.remove(&channel) else {
            return;
        };
        match content.about {
            About::Returned(why) => {
                let id = content.properties.message_id;
                match id.and_then(|id| id.parse().ok()) {
                    Some(event_id) => self.shared.lane().returned(event_id, &why),
                    None => tracing::warn!("a message without an id came back"),
                }
            }
            About::Delivered {
                tag,
                exchange,
                routing_key,
            } => self.hear(
                channel,
                Heard::Delivery(Delivery {
                    tag,
                    exchange,
                    routing_key,
                    properties: content.properties,
                    body: content.body,
                }),
            ),
        }
    }

    fn hear(&self, channel: u16, heard: Heard) {
        // Whoever asked may be gone.
        drop(self.shared.heard.send((channel, heard)));
    }
}
