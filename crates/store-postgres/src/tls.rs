//! TLS to the server, by the words of libpq's `sslmode`: `disable`, `prefer` (the default),
//! `require` (encrypted, the certificate is not looked at) and `verify-full` (certificate and
//! host name are checked, against `sslrootcert` or the system's authorities).

use std::{future::Future, io, path::Path, pin::Pin, sync::Arc, task};

use postrider_store::StoreError;
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::{
    Config,
    tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream},
};

use crate::error::refused;

/// What to check of the server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verify {
    Nothing,
    /// With the authorities of this PEM file, or the system's.
    Full {
        root_certificates: Option<String>,
    },
}

/// Parses a server's address. The parameters that `tokio_postgres` does not know are taken out.
pub(crate) fn parse(url: &str) -> Result<(Config, Verify), StoreError> {
    let (rest, query) = url.split_once('?').unwrap_or((url, ""));
    let mut kept = Vec::new();
    let mut full = false;
    let mut root_certificates = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sslmode", "verify-full")) => {
                full = true;
                kept.push("sslmode=require");
            }
            Some(("sslmode", "verify-ca")) => {
                return Err(refused(
                    "sslmode=verify-ca is not supported; use verify-full, which also checks the host name",
                ));
            }
            Some(("sslrootcert", "system")) => {}
            Some(("sslrootcert", path)) => root_certificates = Some(decode(path)?),
            Some(_) | None => kept.push(pair),
        }
    }
    if root_certificates.is_some() && !full {
        return Err(refused(
            "sslrootcert is given but the certificate would not be checked; add sslmode=verify-full",
        ));
    }
    let kept = if kept.is_empty() {
        rest.to_owned()
    } else {
        format!("{rest}?{}", kept.join("&"))
    };
    // The parser's error may repeat a part of the address, and so a password.
    let config = kept.parse::<Config>().map_err(|_| {
        refused(
            "the PostgreSQL address cannot be read; expected postgresql://user:password@host:port/database?key=value",
        )
    })?;
    let verify = if full {
        Verify::Full { root_certificates }
    } else {
        Verify::Nothing
    };
    Ok((config, verify))
}

fn decode(path: &str) -> Result<String, StoreError> {
    percent_encoding::percent_decode_str(path)
        .decode_utf8()
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| refused("sslrootcert is not a path in UTF-8"))
}

/// Makes TLS connections with one configuration.
#[derive(Clone, Debug)]
pub(crate) struct Tls(Arc<ClientConfig>);

impl Tls {
    pub(crate) fn new(verify: Verify) -> Result<Self, StoreError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(format!("TLS: {error}")))?;
        let config = match verify {
            Verify::Full { root_certificates } => builder
                .with_root_certificates(authorities(root_certificates.as_deref())?)
                .with_no_client_auth(),
            Verify::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
                .with_no_client_auth(),
        };
        Ok(Self(Arc::new(config)))
    }
}

fn authorities(file: Option<&str>) -> Result<RootCertStore, StoreError> {
    let mut store = RootCertStore::empty();
    let certificates: Vec<CertificateDer<'static>> = match file {
        Some(path) => CertificateDer::pem_file_iter(Path::new(path))
            .and_then(Iterator::collect)
            .map_err(|error| refused(format!("sslrootcert {path}: {error}")))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    store.add_parsable_certificates(certificates);
    if store.is_empty() {
        return Err(refused(
            "no certificate authority was found to check the server with; give sslrootcert",
        ));
    }
    Ok(store)
}

/// Accepts every certificate: encryption against listeners, nothing against impostors. What
/// `prefer` and `require` mean everywhere else, too.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl<S> MakeTlsConnect<S> for Tls
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type TlsConnect = Connect;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Connect, io::Error> {
        // A host without a name (a socket's folder) never gets as far as TLS.
        Ok(Connect {
            config: self.0.clone(),
            name: ServerName::try_from(host.to_owned()).ok(),
        })
    }
}

/// One connection to be encrypted.
#[derive(Debug)]
pub(crate) struct Connect {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

impl<S> TlsConnect<S> for Connect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Encrypted<S>, io::Error>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let name = self
                .name
                .ok_or_else(|| io::Error::other("TLS needs a host with a name"))?;
            let connector = tokio_rustls::TlsConnector::from(self.config);
            let stream = connector.connect(name, stream).await?;
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

/// An encrypted stream.
#[derive(Debug)]
pub(crate) struct Encrypted<S>(Box<tokio_rustls::client::TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> task::Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
        data: &[u8],
    ) -> task::Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, data)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> task::Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_libpq_reads_them() {
        let (config, verify) = parse(
            "postgresql://u:p@h:5/d?sslmode=verify-full&sslrootcert=%2Fa%20b&connect_timeout=3",
        )
        .unwrap();
        assert_eq!(config.get_dbname(), Some("d"));
        assert_eq!(
            config.get_ssl_mode(),
            tokio_postgres::config::SslMode::Require
        );
        assert_eq!(
            verify,
            Verify::Full {
                root_certificates: Some("/a b".to_owned())
            }
        );
        assert_eq!(
            parse("postgresql://h/d?sslmode=require").unwrap().1,
            Verify::Nothing
        );
        for refused in [
            "postgresql://h/d?sslmode=verify-ca",
            "postgresql://h/d?sslrootcert=/a",
            "postgresql://h/d?sslmode=maybe",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_unreadable_address_is_not_repeated() {
        let error = parse("postgresql://user:secret@h:port/d").unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
    }
}
