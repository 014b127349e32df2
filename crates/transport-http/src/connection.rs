//! How to reach a receiver: everything that may change without changing what is delivered where.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use postrider_transport::{Error, Secret};
use reqwest::{
    Certificate, Client,
    header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde::Deserialize;
use url::Url;

use crate::{address::Network, resolve::Resolver, signature::Key};

/// Operational settings of one receiver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connection {
    /// `https://host/path?query`. All of it counts as a secret: many receivers are known by
    /// their URL alone. Without user, password or fragment.
    pub url: Secret,
    /// The whole value of the `Authorization` header.
    #[serde(default)]
    pub authorization: Option<Secret>,
    /// More headers, the same for every request.
    #[serde(default)]
    pub headers: BTreeMap<String, Secret>,
    /// `whsec_…`. Each request is signed with all of them: while a secret is replaced, name the
    /// new and the old one.
    #[serde(default)]
    pub signing_secrets: Vec<Secret>,
    /// Networks that are not public and may be sent to all the same, such as `10.1.0.0/16`.
    #[serde(default)]
    pub allow_networks: Vec<Network>,
    /// Allow `http://`. What is sent, signatures included, can then be read on the way.
    #[serde(default)]
    pub allow_plain_http: bool,
    /// PEM file of authorities to trust beside the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Longest time for a connection to be made, in milliseconds; shorter than the send timeout.
    #[serde(default = "defaults::connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// Most requests at a time; also the longest batch.
    #[serde(default = "defaults::concurrency_max")]
    pub concurrency_max: u32,
    /// Most bytes read of a response. The rest is thrown away with its connection.
    #[serde(default = "defaults::response_bytes_max")]
    pub response_bytes_max: u32,
    /// Largest request, headers and body, in bytes; larger ones are rejected before they are
    /// sent. Absent: the receiver decides.
    #[serde(default)]
    pub request_bytes_max: Option<u64>,
}

mod defaults {
    pub(super) fn connect_timeout_ms() -> u64 {
        5_000
    }

    /// Small: most receivers are one process. A batch waits for its slowest request.
    pub(super) fn concurrency_max() -> u32 {
        16
    }

    pub(super) fn response_bytes_max() -> u32 {
        64 * 1024
    }
}

/// Signing secrets at a time: the new one, the old one, and slack.
const SIGNING_SECRETS_MAX: usize = 4;
const CONCURRENCY_LIMIT: u32 = 1_000;

/// A checked [`Connection`], ready for use.
pub(crate) struct Settings {
    pub(crate) url: Url,
    /// Host and port, the only part of the URL that may be shown.
    pub(crate) host: String,
    pub(crate) headers: HeaderMap,
    pub(crate) keys: Vec<Key>,
    pub(crate) resolver: Resolver,
    pub(crate) client: Client,
    pub(crate) connect_timeout: Duration,
    pub(crate) concurrency_max: u32,
    pub(crate) response_bytes_max: usize,
    pub(crate) request_bytes_max: Option<u64>,
}

impl Settings {
    pub(crate) fn check(connection: &Connection) -> Result<Self, Error> {
        let url = url(connection)?;
        let resolver = Resolver {
            allowed: connection.allow_networks.as_slice().into(),
        };
        let host = url.host().ok_or_else(|| invalid("url names no host"))?;
        resolver
            .check_literal(&host)
            .map_err(|rule| Error::Misconfigured {
                code: "address_refused",
                message: format!("url: {rule}"),
            })?;
        let shown = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        if connection.signing_secrets.len() > SIGNING_SECRETS_MAX {
            return Err(invalid(&format!(
                "signing_secrets has {}; at most {SIGNING_SECRETS_MAX} are used at a time",
                connection.signing_secrets.len()
            )));
        }
        let keys = connection
            .signing_secrets
            .iter()
            .enumerate()
            .map(|(at, secret)| {
                Key::parse(secret).map_err(|bad| invalid(&format!("signing_secrets[{at}]: {bad}")))
            });
        let keys = keys.collect::<Result<_, _>>()?;
        bounded(
            "connect_timeout_ms",
            connection.connect_timeout_ms,
            u64::MAX,
        )?;
        bounded(
            "concurrency_max",
            connection.concurrency_max.into(),
            CONCURRENCY_LIMIT.into(),
        )?;
        bounded(
            "response_bytes_max",
            connection.response_bytes_max.into(),
            u64::MAX,
        )?;
        if let Some(max) = connection.request_bytes_max {
            bounded("request_bytes_max", max, u64::MAX)?;
        }
        Ok(Self {
            headers: headers(connection)?,
            client: client(connection, &resolver)?,
            url,
            host: shown,
            keys,
            resolver,
            connect_timeout: Duration::from_millis(connection.connect_timeout_ms),
            concurrency_max: connection.concurrency_max,
            response_bytes_max: usize::try_from(connection.response_bytes_max)
                .unwrap_or(usize::MAX),
            request_bytes_max: connection.request_bytes_max,
        })
    }
}

/// Errors name the field and never repeat any of it.
fn url(connection: &Connection) -> Result<Url, Error> {
    let url = Url::parse(connection.url.reveal())
        .map_err(|_| invalid("url is not a URL; write https://host/path"))?;
    match url.scheme() {
        "https" => {}
        "http" if connection.allow_plain_http => {}
        "http" => {
            return Err(invalid(
                "url is plain http; use https, or set allow_plain_http for a network you trust",
            ));
        }
        _ => return Err(invalid("url must start with https://")),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(
            "url holds a user or password; use `authorization` instead",
        ));
    }
    if url.fragment().is_some() {
        return Err(invalid(
            "url has a fragment (#…), which is never sent; remove it",
        ));
    }
    Ok(url)
}

/// Headers that HTTP, the format or the signature decide.
fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    ["ce-", "webhook-", "postrider-", "proxy-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || [
            "authorization",
            "connection",
            "content-encoding",
            "content-length",
            "content-type",
            "expect",
            "host",
            "idempotency-key",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "traceparent",
            "tracestate",
        ]
        .contains(&name)
}

fn headers(connection: &Connection) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let mut insert = |name: HeaderName, secret: &Secret, field: &str| {
        let mut value = HeaderValue::from_str(secret.reveal()).map_err(|_| {
            invalid(&format!(
                "{field} is not a header value: plain ASCII, one line"
            ))
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    };
    if let Some(secret) = &connection.authorization {
        insert(AUTHORIZATION, secret, "authorization")?;
    }
    for (name, secret) in &connection.headers {
        let field = format!("headers.{name}");
        let name: HeaderName = name
            .parse()
            .map_err(|_| invalid(&format!("{field} is not a header name")))?;
        if is_ours(&name) {
            return Err(invalid(&format!(
                "{field} is set by postrider; choose another"
            )));
        }
        insert(name, secret, &field)?;
    }
    Ok(headers)
}

fn client(connection: &Connection, resolver: &Resolver) -> Result<Client, Error> {
    let idle_max = usize::try_from(connection.concurrency_max).unwrap_or(usize::MAX);
    let mut builder = Client::builder()
        .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
        // A redirect would turn the POST into another request, or send it to another host.
        .redirect(redirect::Policy::none())
        // A proxy from the environment would connect to addresses that nobody checked.
        .no_proxy()
        // An attempt is one request: what follows a failure is decided by its caller.
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .dns_resolver(Arc::new(resolver.clone()))
        .connect_timeout(Duration::from_millis(connection.connect_timeout_ms))
        .pool_max_idle_per_host(idle_max);
    if let Some(path) = &connection.ca_file {
        let shown = path.display();
        let pem = std::fs::read(path)
            .map_err(|error| invalid(&format!("ca_file {shown} cannot be read: {error}")))?;
        let authorities = Certificate::from_pem_bundle(&pem)
            .map_err(|_| invalid(&format!("ca_file {shown} holds no PEM certificates")))?;
        builder = builder.tls_certs_merge(authorities);
    }
    builder
        .build()
        .map_err(|_| invalid("the TLS settings of this system cannot be used"))
}

fn bounded(name: &str, value: u64, max: u64) -> Result<(), Error> {
    if value == 0 {
        return Err(invalid(&format!(
            "{name} is 0; give it a positive value, or leave it out"
        )));
    }
    if value > max {
        return Err(invalid(&format!(
            "{name} is {value}; at most {max} are possible"
        )));
    }
    Ok(())
}

pub(crate) fn invalid(message: &str) -> Error {
    Error::Misconfigured {
        code: "connection",
        message: message.to_owned(),
    }
}
