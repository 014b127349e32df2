//! Delivery to a webhook by HTTP POST. Acknowledged is a 2xx answer, or the consumer's typed
//! receipt in it; no redirect is followed, and no address connected to that was not checked.

pub mod address;
pub mod signature;

mod connection;
mod outcome;
mod resolve;

use std::{
    fmt,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use futures::{StreamExt, stream::FuturesUnordered};
use postrider_contract::{
    Destination, Digest, Receipt,
    cloudevents::{Binding, rebind},
};
use postrider_core::Outcome;
use postrider_transport::{
    Anchor, Answer, Batch, Error, Message, Probe, ProbeStrength, Probed, Problem, Provisioning,
    Severity, Template, Traits, Transport, Usage, target::Alphabet,
};
use reqwest::{
    Response,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, timeout_at},
};
use url::Url;

pub use connection::Connection;

use crate::connection::Settings;

/// The `kind` of destinations that this transport serves.
pub const KIND: &str = "http";

/// Receipts of a receiver that only says 2xx.
pub const RECEIPT_TYPE: &str = "http.response/1";
/// Receipts of a receiver that answers with one of its own.
pub const CONSUMER_RECEIPT_TYPE: &str = "consumer.receipt/1";

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What may stand unencoded in one segment of a path (RFC 3986), but for dots.
const ALPHABET: Alphabet = Alphabet {
    punctuation: "~!$&'()*+,;=:@",
    target_bytes_max: 4_096,
};

/// Tells the time of an attempt.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// One webhook destination.
pub struct Webhook {
    settings: Settings,
    path: Template,
    /// The receiver's own receipt is what counts.
    wants_receipt: bool,
    requests: Semaphore,
    clock: Clock,
}

impl Webhook {
    /// Checks the definition and the settings. Connects to nothing.
    ///
    /// # Errors
    /// [`Error::Misconfigured`] with the field that does not fit, and nothing of its value.
    pub fn open(destination: &Destination, connection: Connection) -> Result<Self, Error> {
        Self::open_with_clock(destination, connection, Arc::new(SystemTime::now))
    }

    /// As [`Webhook::open`], with another clock for the timestamps of signatures.
    ///
    /// # Errors
    /// As [`Webhook::open`].
    pub fn open_with_clock(
        destination: &Destination,
        connection: Connection,
        clock: Clock,
    ) -> Result<Self, Error> {
        // Another default may be installed already, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let name = &destination.name;
        let misfit = |message: String| Error::Misconfigured {
            code: "destination",
            message,
        };
        if destination.kind != KIND {
            return Err(misfit(format!(
                "{name} is of kind {:?}, not {KIND}",
                destination.kind
            )));
        }
        let wants_receipt = match destination.receipt_type.as_str() {
            RECEIPT_TYPE => false,
            CONSUMER_RECEIPT_TYPE => true,
            other => {
                return Err(misfit(format!(
                    "{name} asks for receipts of type {other:?}; a webhook gives {RECEIPT_TYPE} \
                     or {CONSUMER_RECEIPT_TYPE}"
                )));
            }
        };
        let path = Template::parse(&destination.target, ALPHABET)?;
        let pattern = path.pattern("x");
        let dots = pattern
            .split('/')
            .any(|segment| segment == "." || segment == "..");
        let plain = pattern
            .bytes()
            .all(|b| b.is_ascii_graphic() && !b"?#\\".contains(&b));
        if !pattern.starts_with('/') || dots || !plain {
            return Err(misfit(format!(
                "{name}: the target must be a path that starts with /, without query, dot \
                 segments or characters outside ASCII; it is added to the connection's URL, and / \
                 adds nothing"
            )));
        }
        let settings = Settings::check(&connection)?;
        let permits = usize::try_from(settings.concurrency_max).unwrap_or(usize::MAX);
        Ok(Self {
            settings,
            path,
            wants_receipt,
            requests: Semaphore::new(permits),
            clock,
        })
    }

    fn url(&self, message: &Message) -> Result<Url, Outcome> {
        let path = self.path.render(&message.routing)?;
        let mut url = self.settings.url.clone();
        if path != "/" {
            let whole = format!("{}{path}", url.path().trim_end_matches('/'));
            url.set_path(&whole);
        }
        Ok(url)
    }

    /// The headers of one attempt, signed now.
    fn headers(&self, message: &Message) -> Result<HeaderMap, Outcome> {
        let mut headers = self.settings.headers.clone();
        let mut insert = |name: &str, value: &str| {
            let bad =
                || Outcome::rejected("header", &format!("HTTP cannot carry the header {name:?}"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            let value = HeaderValue::from_str(value).map_err(|_| bad())?;
            headers.insert(name, value);
            Ok(())
        };
        for (name, value) in message.headers.iter() {
            let (name, value) = rebind(name, value, Binding::HTTP);
            insert(&name, &value)?;
        }
        let id = message.event_id.to_string();
        insert(IDEMPOTENCY_KEY, &id)?;
        insert(signature::ID, &id)?;
        // A clock before 1970 makes timestamps that every receiver refuses, which shows it.
        let now = (self.clock)()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        insert(signature::TIMESTAMP, &seconds.to_string())?;
        if !self.settings.keys.is_empty() {
            let signed = signature::sign(&self.settings.keys, &id, seconds, &message.body);
            insert(signature::SIGNATURE, &signed)?;
        }
        Ok(headers)
    }

    async fn attempt(&self, message: &Message, deadline: Instant) -> Outcome {
        let prepared = self.check(message).and_then(|()| self.url(message));
        let url = match prepared {
            Ok(url) => url,
            Err(outcome) => return outcome,
        };
        let permit = timeout_at(deadline, self.requests.acquire()).await;
        // A permit that comes with the deadline, from a request that ran into it, is too late.
        let (Ok(Ok(_permit)), true) = (permit, Instant::now() < deadline) else {
            return Outcome::outage("concurrency_full", "earlier requests took all the time");
        };
        // After the wait: the signature's time is the attempt's.
        let headers = match self.headers(message) {
            Ok(headers) => headers,
            Err(outcome) => return outcome,
        };
        let request = self.settings.client.post(url.clone()).headers(headers);
        let sent = request.body(message.body.clone()).send();
        let host = &self.settings.host;
        match timeout_at(deadline, sent).await {
            Ok(Ok(response)) => self.answered(response, &url, deadline).await,
            Ok(Err(error)) => self.failed(&error),
            Err(_) => Outcome::unknown(
                "response_timeout",
                &format!("{host} did not answer in time"),
            ),
        }
    }

    /// Before a connection stands, nothing of the message has left. After that, nobody knows what
    /// arrived. The error's own text holds the URL and is never used.
    fn failed(&self, error: &reqwest::Error) -> Outcome {
        let host = &self.settings.host;
        if let Some(rule) = resolve::refusal(error) {
            return Outcome::outage("address_refused", &format!("{host}: {rule}"));
        }
        if error.is_builder() {
            return Outcome::rejected("request", "HTTP cannot carry this message");
        }
        if error.is_connect() {
            let why = if error.is_timeout() {
                "in time"
            } else {
                "(refused, DNS or TLS)"
            };
            return Outcome::outage("not_connected", &format!("{host} cannot be reached {why}"));
        }
        Outcome::unknown(
            "connection_lost",
            &format!("the connection to {host} ended before the answer"),
        )
    }

    async fn answered(&self, response: Response, url: &Url, deadline: Instant) -> Outcome {
        let status = response.status();
        let host = &self.settings.host;
        if !status.is_success() {
            return outcome::of_status(status, response.headers(), url, host, (self.clock)());
        }
        let body = self.body(response, deadline).await;
        if !self.wants_receipt {
            let body_digest = body.as_deref().map(Digest::of_bytes);
            let receipt = Receipt::Http {
                status: status.as_u16(),
                body_digest,
            };
            return Outcome::Acknowledged(receipt);
        }
        let receipt = body.and_then(|body| serde_json::from_slice::<Receipt>(&body).ok());
        match receipt {
            Some(receipt) if receipt.kind() == CONSUMER_RECEIPT_TYPE => {
                Outcome::Acknowledged(receipt)
            }
            // Taken, it says; but the evidence that was asked for is not there.
            Some(_) | None => Outcome::unknown(
                "receipt_missing",
                &format!("{host} answered {status} without a {CONSUMER_RECEIPT_TYPE} as its body"),
            ),
        }
    }

    /// The whole body; `None` if it is too long, too slow or broken off. The status stands anyway.
    async fn body(&self, mut response: Response, deadline: Instant) -> Option<Vec<u8>> {
        let max = self.settings.response_bytes_max;
        let mut body = Vec::new();
        loop {
            match timeout_at(deadline, response.chunk()).await {
                Ok(Ok(Some(chunk))) => {
                    if body.len() + chunk.len() > max {
                        return None;
                    }
                    body.extend_from_slice(&chunk);
                }
                Ok(Ok(None)) => return Some(body),
                Ok(Err(_)) | Err(_) => return None,
            }
        }
    }

    /// The addresses that would be connected to.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, Error> {
        let Settings {
            url,
            host,
            resolver,
            ..
        } = &self.settings;
        let port = url.port_or_known_default().unwrap_or(443);
        match url.host() {
            Some(url::Host::Ipv4(v4)) => return Ok(vec![(v4, port).into()]),
            Some(url::Host::Ipv6(v6)) => return Ok(vec![(v6, port).into()]),
            Some(url::Host::Domain(_)) | None => {}
        }
        let name = url.host_str().unwrap_or(host);
        resolver
            .addresses(name, port)
            .await
            .map_err(|error| match resolve::refusal(&*error) {
                Some(rule) => Error::Misconfigured {
                    code: "address_refused",
                    message: format!("{host}: {rule}"),
                },
                None => Error::Unavailable {
                    code: "not_connected",
                    message: format!("{host} cannot be resolved"),
                },
            })
    }

    fn bytes(&self, message: &Message) -> u64 {
        let headers: usize = message
            .headers
            .iter()
            .map(|(name, value)| {
                let (name, value) = rebind(name, value, Binding::HTTP);
                name.len() + value.len() + 4
            })
            .sum();
        (headers + message.body.len()) as u64
    }
}

#[async_trait]
impl Transport for Webhook {
    fn traits(&self) -> Traits {
        Traits {
            pipelined_in_order: false,
            batch_max: self.settings.concurrency_max,
            dedup_window: None,
            probe: ProbeStrength::None,
        }
    }

    /// Resolves and connects; sends nothing.
    async fn preflight(&self, usage: &Usage) -> Result<Vec<Problem>, Error> {
        let mut problems = Vec::new();
        let mut warn = |code, message: String| {
            problems.push(Problem {
                code,
                severity: Severity::Warning,
                message,
            });
        };
        let Settings {
            url,
            host,
            keys,
            request_bytes_max,
            connect_timeout,
            ..
        } = &self.settings;
        if keys.is_empty() {
            warn(
                "unsigned",
                format!(
                    "requests to {host} are not signed: nobody there can tell them from forged ones; \
                 set signing_secrets"
                ),
            );
        }
        if url.scheme() == "http" {
            warn(
                "plain_http",
                format!("requests to {host} can be read on the way; use https"),
            );
        }
        if let Some(max) = request_bytes_max.filter(|max| *max < usage.message_bytes_max) {
            warn(
                "size_limit",
                format!(
                    "messages may have up to {} bytes with headers, and request_bytes_max is {max}; \
                 larger ones will be quarantined",
                    usage.message_bytes_max
                ),
            );
        }
        let addresses = match self.addresses().await {
            Ok(addresses) => addresses,
            Err(Error::Misconfigured { code, message }) => {
                problems.push(Problem {
                    code,
                    severity: Severity::Refused,
                    message,
                });
                return Ok(problems);
            }
            Err(error @ Error::Unavailable { .. }) => return Err(error),
        };
        let deadline = Instant::now() + *connect_timeout;
        for address in addresses {
            let connected = timeout_at(deadline, tokio::net::TcpStream::connect(address)).await;
            if let Ok(Ok(_)) = connected {
                return Ok(problems);
            }
        }
        Err(Error::Unavailable {
            code: "not_connected",
            message: format!("{host} takes no connection"),
        })
    }

    async fn provision(&self, _: &Usage, _: Provisioning) -> Result<Vec<String>, Error> {
        // Somebody else's server is not ours to change.
        Ok(Vec::new())
    }

    fn check(&self, message: &Message) -> Result<(), Outcome> {
        let Some(max) = self.settings.request_bytes_max else {
            return Ok(());
        };
        let bytes = self.bytes(message);
        if bytes <= max {
            return Ok(());
        }
        let detail = format!("{bytes} bytes with headers; request_bytes_max is {max}");
        Err(Outcome::rejected("message_too_large", &detail))
    }

    async fn send(&self, batch: Batch, answers: mpsc::UnboundedSender<Answer>) {
        let deadline = Instant::now() + batch.send_timeout;
        let mut attempts: FuturesUnordered<_> = batch
            .messages
            .iter()
            .enumerate()
            .map(|(index, message)| async move {
                Answer {
                    index,
                    outcome: self.attempt(message, deadline).await,
                }
            })
            .collect();
        while let Some(answer) = attempts.next().await {
            // Nobody listens any more: the attempt stays unknown.
            drop(answers.send(answer));
        }
    }

    async fn anchor(&self, _: &[Arc<Message>]) -> Result<Option<Anchor>, Error> {
        Ok(None)
    }

    async fn probe(&self, _: &Probe) -> Result<Probed, Error> {
        Ok(Probed::CannotTell {
            reason: "a webhook cannot be asked what it has".to_owned(),
        })
    }

    async fn close(&self) {
        self.requests.close();
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("host", &self.settings.host)
            .finish_non_exhaustive()
    }
}
