//! Questions to the broker, one at a time, on a channel of their own: a refusal closes the channel
//! it was asked on, and must never touch the one that publishes.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use postrider_transport::Error;
use tokio::{
    sync::{MutexGuard, mpsc},
    time::timeout,
};

use crate::{
    link::{Link, PUBLISHING},
    wire::{Closed, Method, Properties, put_number_field, put_short},
    wire::{put_text_field, sized},
};

/// What comes on the channel of questions.
#[derive(Debug)]
pub(crate) enum Heard {
    Method(Method),
    Delivery(Delivery),
    /// The broker refuses, and closed the channel.
    Closed(Closed),
    /// The connection is over.
    Ended,
}

/// A message read from a stream.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) tag: u64,
    pub(crate) exchange: String,
    pub(crate) routing_key: String,
    pub(crate) properties: Properties,
    pub(crate) body: BytesMut,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The broker says no.
    Refused(Closed),
    Silent(String),
}

impl Unanswered {
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused(Closed { code: 404, .. }))
    }
}

impl From<Unanswered> for Error {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Refused(closed) => Self::Misconfigured {
                code: "broker_refused",
                message: closed.text,
            },
            Unanswered::Silent(message) => Self::Unavailable {
                code: "broker_silent",
                message,
            },
        }
    }
}

/// The state between two questions.
#[derive(Debug)]
pub(crate) struct Asking {
    channel: u16,
    open: bool,
    hearing: mpsc::UnboundedReceiver<(u16, Heard)>,
}

/// Channels are used one after the other, so that a late answer on a former one is recognised.
const CHANNELS: std::ops::RangeInclusive<u16> = PUBLISHING + 1..=PUBLISHING + 100;

impl Asking {
    pub(crate) fn new(hearing: mpsc::UnboundedReceiver<(u16, Heard)>) -> Self {
        Self {
            channel: PUBLISHING,
            open: false,
            hearing,
        }
    }
}

/// The right to ask, and an open channel to do it on.
pub(crate) struct Talk<'a> {
    link: &'a Link,
    asking: MutexGuard<'a, Asking>,
    /// Nothing more can come: the channel may be used again.
    clean: bool,
}

impl Drop for Talk<'_> {
    fn drop(&mut self) {
        if self.asking.open && !self.clean {
            self.asking.open = false;
            self.link.say(self.asking.channel, (20, 40), |out| {
                out.put_u16(200);
                put_short(out, "");
                out.put_u16(0);
                out.put_u16(0);
            });
        }
    }
}

impl<'a> Talk<'a> {
    pub(crate) async fn begin(link: &'a Link) -> Result<Talk<'a>, Unanswered> {
        let mut talk = Self {
            link,
            asking: link.asking.lock().await,
            clean: false,
        };
        if !talk.asking.open {
            let next = talk.asking.channel + 1;
            talk.asking.channel = if CHANNELS.contains(&next) {
                next
            } else {
                *CHANNELS.start()
            };
            // From here on a drop closes it.
            talk.asking.open = true;
            talk.say((20, 10), |out| put_short(out, ""));
            talk.expect(&Method::ChannelOpenOk).await?;
        }
        Ok(talk)
    }

    /// Nothing more will be said.
    pub(crate) fn done(mut self) {
        self.clean = true;
    }

    pub(crate) fn say(&self, id: (u16, u16), arguments: impl FnOnce(&mut BytesMut)) {
        self.link.say(self.asking.channel, id, arguments);
    }

    /// The next that comes on this channel; `None`: nothing within this time.
    pub(crate) async fn hear_within(
        &mut self,
        within: Duration,
    ) -> Result<Option<Heard>, Unanswered> {
        if !self.link.is_alive() {
            self.asking.open = false;
            return Err(ended());
        }
        let own = self.asking.channel;
        let hearing = &mut self.asking.hearing;
        let next = async {
            loop {
                match hearing.recv().await {
                    Some((channel, heard)) if channel == own => return Some(heard),
                    Some((_, Heard::Ended)) | None => return None,
                    Some(_) => {}
                }
            }
        };
        match timeout(within, next).await {
            Err(_) => Ok(None),
            Ok(Some(Heard::Closed(closed))) => {
                self.asking.open = false;
                Err(Unanswered::Refused(closed))
            }
            Ok(Some(heard)) => Ok(Some(heard)),
            Ok(None) => {
                self.asking.open = false;
                Err(ended())
            }
        }
    }

    async fn hear(&mut self) -> Result<Heard, Unanswered> {
        let within = self.link.api_timeout;
        self.hear_within(within)
            .await?
            .ok_or_else(|| Unanswered::Silent(format!("no answer within {within:?}")))
    }

    pub(crate) async fn expect(&mut self, expected: &Method) -> Result<(), Unanswered> {
        let heard = self.hear().await?;
        if matches!(&heard, Heard::Method(method) if method == expected) {
            return Ok(());
        }
        Err(unexpected())
    }

    /// Whether an exchange of this name is there.
    pub(crate) async fn exchange_is_there(&mut self, name: &str) -> Result<(), Unanswered> {
        self.declare_exchange(name, "", true).await
    }

    /// Makes an exchange. One of the same kind that is there already is left as it is.
    pub(crate) async fn make_exchange(&mut self, name: &str, kind: &str) -> Result<(), Unanswered> {
        self.declare_exchange(name, kind, false).await
    }

    async fn declare_exchange(
        &mut self,
        name: &str,
        kind: &str,
        passive: bool,
    ) -> Result<(), Unanswered> {
        self.say((40, 10), |out| {
            out.put_u16(0);
            put_short(out, name);
            put_short(out, kind);
            out.put_u8(flags(passive));
            out.put_u32(0);
        });
        self.expect(&Method::DeclareOk).await
    }

    /// How many messages are ready in a queue.
    pub(crate) async fn messages_ready(&mut self, queue: &str) -> Result<u32, Unanswered> {
        self.declare_queue(queue, None).await
    }

    /// Makes a queue of this type.
    pub(crate) async fn make_queue(&mut self, name: &str, kind: &str) -> Result<(), Unanswered> {
        self.declare_queue(name, Some(kind)).await.map(drop)
    }

    async fn declare_queue(&mut self, name: &str, kind: Option<&str>) -> Result<u32, Unanswered> {
        self.say((50, 10), |out| {
            out.put_u16(0);
            put_short(out, name);
            out.put_u8(flags(kind.is_none()));
            sized(out, |out| {
                if let Some(kind) = kind {
                    put_text_field(out, "x-queue-type", kind);
                }
            });
        });
        let Heard::Method(Method::QueueDeclareOk { messages }) = self.hear().await? else {
            return Err(unexpected());
        };
        Ok(messages)
    }

    /// Starts reading a stream. A queue that is none refuses: nothing is ever taken from it.
    pub(crate) async fn read_stream(
        &mut self,
        queue: &str,
        from: Start,
        prefetch: u16,
    ) -> Result<(), Unanswered> {
        self.say((60, 10), |out| {
            out.put_u32(0);
            out.put_u16(prefetch);
            out.put_u8(0);
        });
        self.expect(&Method::QosOk).await?;
        self.say((60, 20), |out| {
            out.put_u16(0);
            put_short(out, queue);
            put_short(out, "");
            out.put_u8(0);
            sized(out, |out| match from {
                Start::Last => put_text_field(out, "x-stream-offset", "last"),
                Start::Offset(offset) => put_number_field(out, "x-stream-offset", offset),
            });
        });
        self.expect(&Method::ConsumeOk).await
    }

    /// Makes room for more, after reading up to this one.
    pub(crate) fn read_up_to(&self, tag: u64) {
        self.say((60, 80), |out| {
            out.put_u64(tag);
            out.put_u8(1);
        });
    }
}

/// Where reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// At the newest part.
    Last,
    Offset(i64),
}

/// Of a declaration: whether it only asks. What it makes is durable.
fn flags(passive: bool) -> u8 {
    const PASSIVE: u8 = 1;
    const DURABLE: u8 = 2;
    if passive { PASSIVE } else { DURABLE }
}

fn unexpected() -> Unanswered {
    Unanswered::Silent("the broker answers something unexpected".to_owned())
}

fn ended() -> Unanswered {
    Unanswered::Silent("the connection ended".to_owned())
}
