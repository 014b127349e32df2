//! From an address to a connection that is ready: TCP, TLS, credentials, virtual host, and a
//! channel in confirm mode.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use postrider_transport::tls;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    connection::{Credentials, Server, Settings},
    link::PUBLISHING,
    wire::{
        self, Closed, METHOD, Method, Table, Value, put_flag_field, put_long, put_method,
        put_short, put_text_field, sized,
    },
};

/// Plain or TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that the server has accepted.
pub(crate) struct Ready {
    pub(crate) socket: Box<dyn Socket>,
    /// What the server says of itself.
    pub(crate) properties: Table,
    pub(crate) frame_max: usize,
    pub(crate) heartbeat: Duration,
    /// Read already, and not looked at.
    pub(crate) rest: BytesMut,
}

/// Why there is none. Texts hold no secrets.
#[derive(Debug)]
pub(crate) enum Refused {
    /// It may work later.
    Unavailable(String),
    /// A person must change something.
    Misconfigured { code: &'static str, message: String },
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self::Unavailable(error.kind().to_string())
    }
}

impl From<tls::Failed> for Refused {
    fn from(failed: tls::Failed) -> Self {
        match failed {
            tls::Failed::Unavailable(error) => error.into(),
            tls::Failed::Misconfigured(_) => Self::Misconfigured {
                code: tls::CODE,
                message: failed.to_string(),
            },
        }
    }
}

impl From<wire::Garbled> for Refused {
    fn from(error: wire::Garbled) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Frames of up to this size: what servers offer by default. It bounds what one body part takes.
const FRAME_MAX: usize = 131_072;
/// The smallest that a server may ask for.
const FRAME_MIN: usize = 4_096;

/// Connects within the configured time.
pub(crate) async fn connect(settings: &Settings, server: &Server) -> Result<Ready, Refused> {
    let within = tokio::time::timeout(settings.connect_timeout, dial(settings, server)).await;
    match within {
        Ok(Ok(ready)) => Ok(ready),
        Ok(Err(Refused::Unavailable(why))) => Err(Refused::Unavailable(format!(
            "{server} cannot be reached: {why}"
        ))),
        Ok(Err(Refused::Misconfigured { code, message })) => Err(Refused::Misconfigured {
            code,
            message: format!("{server}: {message}"),
        }),
        Err(_) => Err(Refused::Unavailable(format!(
            "{server} did not answer within {:?}",
            settings.connect_timeout
        ))),
    }
}

async fn dial(settings: &Settings, server: &Server) -> Result<Ready, Refused> {
    let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
    tcp.set_nodelay(true)?;
    let mut talk = Talk {
        socket: Box::new(tcp),
        rest: BytesMut::with_capacity(8 * 1024),
    };
    if server.tls {
        talk.socket = Box::new(tls::secure(talk.socket, &settings.tls, &server.host).await?);
    }
    talk.socket.write_all(wire::PROTOCOL).await?;
    talk.socket.flush().await?;
    let Method::Start {
        properties,
        mechanisms,
    } = talk.hear().await?
    else {
        return Err(unexpected());
    };
    if !can(&properties, "publisher_confirms") || !can(&properties, "basic.nack") {
        return Err(Refused::Misconfigured {
            code: "no_confirms",
            message: "the server does not confirm messages, so nothing could ever be \
                      acknowledged; use RabbitMQ 3.10 or later"
                .to_owned(),
        });
    }
    let (mechanism, response) = credentials(settings, &mechanisms)?;
    talk.say(0, (10, 11), |out| {
        sized(out, |out| {
            put_text_field(out, "product", "postrider");
            put_text_field(out, "version", env!("CARGO_PKG_VERSION"));
            put_short(out, "capabilities");
            out.put_u8(b'F');
            sized(out, |out| {
                for name in [
                    "publisher_confirms",
                    "basic.nack",
                    "connection.blocked",
                    "consumer_cancel_notify",
                    "authentication_failure_close",
                ] {
                    put_flag_field(out, name, true);
                }
            });
        });
        put_short(out, mechanism);
        put_long(out, &response);
        put_short(out, "en_US");
    })
    .await?;
    let Method::Tune {
        channel_max,
        frame_max,
        heartbeat_s,
    } = talk.hear().await?
    else {
        return Err(unexpected());
    };
    let frame_max = match usize::try_from(frame_max).unwrap_or(FRAME_MAX) {
        // No limit of its own.
        0 => FRAME_MAX,
        own => own.clamp(FRAME_MIN, FRAME_MAX),
    };
    let heartbeat_s = match heartbeat_s {
        0 => settings.heartbeat_s,
        own => own.min(settings.heartbeat_s),
    };
    talk.say(0, (10, 31), |out| {
        out.put_u16(channel_max);
        out.put_u32(u32::try_from(frame_max).expect("bounded above"));
        out.put_u16(heartbeat_s);
    })
    .await?;
    talk.say(0, (10, 40), |out| {
        put_short(out, &settings.vhost);
        out.put_u8(0);
        out.put_u8(0);
    })
    .await?;
    talk.expect(&Method::OpenOk).await?;
    talk.say(PUBLISHING, (20, 10), |out| out.put_u8(0)).await?;
    talk.expect(&Method::ChannelOpenOk).await?;
    talk.say(PUBLISHING, (85, 10), |out| out.put_u8(0)).await?;
    talk.expect(&Method::SelectOk).await?;
    Ok(Ready {
        socket: talk.socket,
        properties,
        frame_max,
        heartbeat: Duration::from_secs(heartbeat_s.into()),
        rest: talk.rest,
    })
}

/// The two sides before there is anything else.
struct Talk {
    socket: Box<dyn Socket>,
    rest: BytesMut,
}

impl Talk {
    async fn say(
        &mut self,
        channel: u16,
        id: (u16, u16),
        arguments: impl FnOnce(&mut BytesMut),
    ) -> Result<(), Refused> {
        let mut out = BytesMut::new();
        put_method(&mut out, channel, id, arguments);
        self.socket.write_all(&out).await?;
        self.socket.flush().await?;
        Ok(())
    }

    /// The next method; the end of the connection is an error.
    async fn hear(&mut self) -> Result<Method, Refused> {
        loop {
            if self.rest.starts_with(b"AMQP") {
                return Err(Refused::Unavailable(
                    "the server speaks another version of AMQP than 0-9-1".to_owned(),
                ));
            }
            let heard = wire::frame(&self.rest, FRAME_MAX)?
                .map(|(frame, length)| (frame.kind == METHOD, wire::method(frame.payload), length));
            let Some((is_method, method, length)) = heard else {
                if self.socket.read_buf(&mut self.rest).await? == 0 {
                    return Err(Refused::Unavailable(
                        "the server closed the connection".to_owned(),
                    ));
                }
                continue;
            };
            self.rest.advance(length);
            if !is_method {
                continue;
            }
            let method = method?;
            if let Method::Close(closed) = &method {
                return Err(refused(closed));
            }
            if let Method::ChannelClose(closed) = &method {
                let why = format!("the server closed the channel: {}", closed.text);
                return Err(Refused::Unavailable(why));
            }
            return Ok(method);
        }
    }

    async fn expect(&mut self, expected: &Method) -> Result<(), Refused> {
        if self.hear().await? == *expected {
            Ok(())
        } else {
            Err(unexpected())
        }
    }
}

fn unexpected() -> Refused {
    Refused::Unavailable("the server says something unexpected".to_owned())
}

/// Why a server ends a connection before it begins.
fn refused(closed: &Closed) -> Refused {
    /// Credentials, and a virtual host that is not there or not allowed.
    const ACCESS_REFUSED: u16 = 403;
    const NOT_ALLOWED: u16 = 530;
    let text = &closed.text;
    match closed.code {
        ACCESS_REFUSED => Refused::Misconfigured {
            code: "not_authorized",
            message: "the server refuses these credentials".to_owned(),
        },
        NOT_ALLOWED if text.contains("not found") => Refused::Misconfigured {
            code: "vhost_missing",
            message: format!("{text}; create it, or correct vhost"),
        },
        NOT_ALLOWED if text.contains("refused") => Refused::Misconfigured {
            code: "not_authorized",
            message: format!("{text}; grant the user permissions there"),
        },
        _ => Refused::Unavailable(format!("the server says {text:?}")),
    }
}

/// Whether the server's properties have a capability.
fn can(properties: &Table, capability: &str) -> bool {
    let Some(Value::Table(capabilities)) = properties.get("capabilities") else {
        return false;
    };
    capabilities.get(capability) == Some(&Value::Flag(true))
}

fn credentials(settings: &Settings, mechanisms: &str) -> Result<(&'static str, Vec<u8>), Refused> {
    let (mechanism, response) = match &settings.credentials {
        Credentials::Guest => ("PLAIN", b"\0guest\0guest".to_vec()),
        Credentials::UserPassword { user, password } => {
            let response = ["", user.as_str(), password.reveal()].join("\0");
            ("PLAIN", response.into_bytes())
        }
        Credentials::Certificate => ("EXTERNAL", Vec::new()),
    };
    if !mechanisms.split(' ').any(|offered| offered == mechanism) {
        return Err(Refused::Misconfigured {
            code: "not_authorized",
            message: format!(
                "the server offers the mechanisms {mechanisms:?} and these credentials need \
                 {mechanism}; enable it there, or give other credentials"
            ),
        });
    }
    Ok((mechanism, response))
}
