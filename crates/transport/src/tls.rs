//! TLS by rustls, for transports that speak over a socket of their own.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::client::TlsStream;

/// What certificates are made of. Read anew for each connection: they may have been renewed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// PEM file of the authorities to trust; the system's if absent.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// PEM files of a client certificate and its key; both or neither.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// Why a socket was not secured.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The connection ended. It may work later.
    #[error(transparent)]
    Unavailable(#[from] io::Error),
    /// A file, the address or the other side's certificate must be changed by a person.
    #[error("TLS: {0}")]
    Misconfigured(String),
}

/// The code under which transports report [`Failed::Misconfigured`].
pub const CODE: &str = "tls";

/// Secures a connection to `host`, whose name its certificate must have.
///
/// # Errors
/// Says what does not fit, without the contents of any file.
pub async fn secure<S>(socket: S, files: &Files, host: &str) -> Result<TlsStream<S>, Failed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let files = files.clone();
    let config = tokio::task::spawn_blocking(move || client_config(&files)).await;
    let config = config.map_err(|_| bad("its settings cannot be read"))??;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| bad("the address has no host name that a certificate could have"))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    match connector.connect(name, socket).await {
        Ok(secured) => Ok(secured),
        // A fault of the protocol (certificate, version) is wrapped in InvalidData.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(bad(
            "it was refused; check authorities, certificates and host name",
        )),
        Err(error) => Err(error.into()),
    }
}

fn client_config(files: &Files) -> Result<ClientConfig, Failed> {
    let mut roots = RootCertStore::empty();
    match &files.ca_file {
        Some(path) => {
            for authority in certificates(path)? {
                roots.add(authority).map_err(|_| unreadable(path))?;
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|_| bad("no protocol version fits"))?
        .with_root_certificates(roots);
    match (&files.cert_file, &files.key_file) {
        (Some(cert), Some(key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|_| unreadable(key))?;
            builder
                .with_client_auth_cert(certificates(cert)?, own)
                .map_err(|_| unreadable(cert))
        }
        (None | Some(_), None) | (None, Some(_)) => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failed> {
    CertificateDer::pem_file_iter(path)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|_| unreadable(path))
}

fn unreadable(path: &Path) -> Failed {
    bad(&format!(
        "{} cannot be read, or is not what it should be",
        path.display()
    ))
}

fn bad(why: &str) -> Failed {
    Failed::Misconfigured(why.to_owned())
}
