//! From an address to a connection that is ready: TCP, TLS, credentials, first ping.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::BytesMut;
use postrider_transport::{Secret, tls};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    connection::{Credentials, Server, Settings},
    protocol::{Connect, Op, ServerInfo, parse},
};

/// Plain or TLS.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// A connection that the server has accepted.
pub(crate) struct Ready {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) info: ServerInfo,
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

/// Connects within the configured time.
pub(crate) async fn connect(settings: &Settings, server: &Server) -> Result<Ready, Refused> {
    let within = tokio::time::timeout(settings.connect_timeout, dial(settings, server)).await;
    let place = server.to_string();
    match within {
        Ok(Ok(ready)) => Ok(ready),
        Ok(Err(Refused::Unavailable(why))) => Err(Refused::Unavailable(format!(
            "{place} cannot be reached: {why}"
        ))),
        Ok(Err(Refused::Misconfigured { code, message })) => Err(Refused::Misconfigured {
            code,
            message: format!("{place}: {message}"),
        }),
        Err(_) => Err(Refused::Unavailable(format!(
            "{place} did not answer within {:?}",
            settings.connect_timeout
        ))),
    }
}

async fn dial(settings: &Settings, server: &Server) -> Result<Ready, Refused> {
    let tcp = TcpStream::connect((server.host.as_str(), server.port)).await?;
    tcp.set_nodelay(true)?;
    let mut socket: Box<dyn Socket> = Box::new(tcp);
    let mut rest = BytesMut::with_capacity(8 * 1024);
    if settings.tls.first {
        socket = Box::new(tls::secure(socket, &settings.tls.files(), &server.host).await?);
    }
    let info = first_line(&mut socket, &mut rest).await?;
    let wants_tls = settings.tls.required || server.tls || info.tls_required;
    if wants_tls && !settings.tls.first {
        if !rest.is_empty() {
            // Bytes before the TLS handshake could be anybody's.
            return Err(Refused::Unavailable(
                "unexpected bytes before TLS".to_owned(),
            ));
        }
        socket = Box::new(tls::secure(socket, &settings.tls.files(), &server.host).await?);
    }
    if !info.headers {
        return Err(Refused::Misconfigured {
            code: "no_headers",
            message: "the server does not support headers; allow them, or update it".to_owned(),
        });
    }
    introduce(&mut socket, settings, &info, wants_tls).await?;
    await_pong(&mut socket, &mut rest).await?;
    Ok(Ready { socket, info, rest })
}

async fn first_line(
    socket: &mut Box<dyn Socket>,
    rest: &mut BytesMut,
) -> Result<ServerInfo, Refused> {
    loop {
        let read = match parse(rest) {
            Ok(Some((Op::Info(json), length))) => Some((serde_json::from_slice(json), length)),
            Ok(None) => None,
            Ok(Some(_)) | Err(_) => return Err(not_nats()),
        };
        if let Some((info, length)) = read {
            bytes::Buf::advance(rest, length);
            return info.map_err(|_| not_nats());
        }
        more(socket, rest).await?;
    }
}

async fn await_pong(socket: &mut Box<dyn Socket>, rest: &mut BytesMut) -> Result<(), Refused> {
    loop {
        let (done, length) = match parse(rest) {
            Ok(Some((Op::Pong, length))) => (true, length),
            Ok(Some((Op::Error(text), _))) => return Err(rejected(text)),
            Ok(Some((Op::Ok | Op::Ping | Op::Info(_), length))) => (false, length),
            Ok(Some((Op::Message(_), _))) | Err(_) => return Err(not_nats()),
            Ok(None) => {
                more(socket, rest).await?;
                continue;
            }
        };
        bytes::Buf::advance(rest, length);
        if done {
            return Ok(());
        }
    }
}

async fn more(socket: &mut Box<dyn Socket>, rest: &mut BytesMut) -> Result<(), Refused> {
    if socket.read_buf(rest).await? == 0 {
        return Err(Refused::Unavailable(
            "the server closed the connection".to_owned(),
        ));
    }
    Ok(())
}

fn not_nats() -> Refused {
    Refused::Unavailable("what answers there is not a NATS server".to_owned())
}

fn rejected(error: &str) -> Refused {
    let lower = error.to_ascii_lowercase();
    if lower.contains("authorization") || lower.contains("authentication") {
        return Refused::Misconfigured {
            code: "not_authorized",
            message: "the server refuses these credentials".to_owned(),
        };
    }
    Refused::Unavailable(format!("the server says {error:?}"))
}

/// Sends who we are, and a ping whose answer says that it was accepted.
async fn introduce(
    socket: &mut Box<dyn Socket>,
    settings: &Settings,
    info: &ServerInfo,
    tls_required: bool,
) -> Result<(), Refused> {
    let mut connect = Connect {
        verbose: false,
        pedantic: false,
        tls_required,
        name: "postrider",
        lang: "rust",
        version: env!("CARGO_PKG_VERSION"),
        protocol: 1,
        echo: false,
        headers: true,
        no_responders: true,
        auth_token: None,
        user: None,
        pass: None,
        nkey: None,
        jwt: None,
        sig: None,
    };
    match &settings.credentials {
        None => {}
        Some(Credentials::Token(token)) => connect.auth_token = Some(token.reveal()),
        Some(Credentials::UserPassword { user, password }) => {
            connect.user = Some(user);
            connect.pass = Some(password.reveal());
        }
        Some(Credentials::NkeySeed(seed)) => {
            let (public, signature) = sign(seed.reveal(), &info.nonce)?;
            connect.nkey = Some(public);
            connect.sig = Some(signature);
        }
        Some(Credentials::Creds(creds)) => {
            let (jwt, seed) = creds_parts(creds).ok_or_else(bad_creds)?;
            connect.jwt = Some(jwt);
            connect.sig = Some(sign(seed, &info.nonce)?.1);
        }
    }
    let json = serde_json::to_string(&connect).map_err(|_| bad_creds())?;
    socket
        .write_all(format!("CONNECT {json}\r\nPING\r\n").as_bytes())
        .await?;
    socket.flush().await?;
    Ok(())
}

fn sign(seed: &str, nonce: &str) -> Result<(String, String), Refused> {
    let pair = nkeys::KeyPair::from_seed(seed.trim()).map_err(|_| bad_creds())?;
    let signature = pair.sign(nonce.as_bytes()).map_err(|_| bad_creds())?;
    Ok((pair.public_key(), URL_SAFE_NO_PAD.encode(signature)))
}

fn bad_creds() -> Refused {
    Refused::Misconfigured {
        code: "not_authorized",
        message: "the credentials cannot be used: not a user's nkey seed, or not a .creds file"
            .to_owned(),
    }
}

/// The token and the seed in the text of a `.creds` file.
pub(crate) fn creds_parts(creds: &Secret) -> Option<(&str, &str)> {
    let part = |mark: &str| {
        let mut lines = creds.reveal().lines().map(str::trim);
        lines.find(|line| line.starts_with("-----BEGIN") && line.contains(mark))?;
        lines
            .find(|line| !line.is_empty())
            .filter(|line| !line.starts_with('-'))
    };
    Some((part("JWT")?, part("SEED")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creds_file_has_a_token_and_a_seed() {
        let text = "-----BEGIN NATS USER JWT-----\neyJ0\n------END NATS USER JWT------\n\n\
                    *** IMPORTANT ***\n-----BEGIN USER NKEY SEED-----\r\nSUAX\r\n\
                    ------END USER NKEY SEED------\n";
        assert_eq!(creds_parts(&Secret::new(text)), Some(("eyJ0", "SUAX")));
        for bad in [
            "",
            "SUAX",
            "-----BEGIN NATS USER JWT-----\n------END",
            "JWT\nSEED\n",
        ] {
            assert_eq!(creds_parts(&Secret::new(bad)), None, "{bad}");
        }
    }
}
