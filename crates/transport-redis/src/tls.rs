//! TLS by rustls, with certificates read anew for each connection.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::{
    connection::{Server, Tls},
    link::Refused,
};

pub(crate) async fn secure(
    socket: TcpStream,
    tls: &Tls,
    server: &Server,
) -> Result<TlsStream<TcpStream>, Refused> {
    let tls = tls.clone();
    let config = tokio::task::spawn_blocking(move || client_config(&tls)).await;
    let config = config.map_err(|_| bad("its settings cannot be read"))??;
    let name = ServerName::try_from(server.host.clone())
        .map_err(|_| bad("the address has no host name that a certificate could have"))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    match connector.connect(name, socket).await {
        Ok(secured) => Ok(secured),
        // A fault of the protocol (certificate, version) is wrapped in InvalidData.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Err(bad(
            "it was refused; check authorities, certificates and host name",
        )),
        Err(error) => Err(error.into()),
    }
}

fn client_config(tls: &Tls) -> Result<ClientConfig, Refused> {
    let mut roots = RootCertStore::empty();
    match &tls.ca_file {
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
    match (&tls.cert_file, &tls.key_file) {
        (Some(cert), Some(key)) => {
            let own = PrivateKeyDer::from_pem_file(key).map_err(|_| unreadable(key))?;
            builder
                .with_client_auth_cert(certificates(cert)?, own)
                .map_err(|_| unreadable(cert))
        }
        (None | Some(_), None) | (None, Some(_)) => Ok(builder.with_no_client_auth()),
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Refused> {
    CertificateDer::pem_file_iter(path)
        .and_then(|found| found.collect::<Result<Vec<_>, _>>())
        .map_err(|_| unreadable(path))
}

fn unreadable(path: &Path) -> Refused {
    bad(&format!(
        "{} cannot be read, or is not what it should be",
        path.display()
    ))
}

fn bad(why: &str) -> Refused {
    Refused::of("tls", format!("TLS: {why}"))
}
