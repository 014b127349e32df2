//! Names become addresses here and nowhere else: the client connects to what was checked, so a
//! name cannot show one address to the check and another to the connection.

use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

use crate::address::{Network, Refused, check};

/// Resolves by the system, and keeps what the rules allow.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    pub(crate) allowed: Arc<[Network]>,
}

impl Resolver {
    /// The addresses of a host that may be connected to.
    pub(crate) async fn addresses(
        &self,
        host: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
        let found = tokio::net::lookup_host((host, port)).await?;
        let mut refused = Refused::NoAddress;
        let allowed: Vec<_> = found
            .filter(|address| match check(address.ip(), &self.allowed) {
                Ok(()) => true,
                Err(rule) => {
                    refused = rule;
                    false
                }
            })
            .collect();
        if allowed.is_empty() {
            Err(refused.into())
        } else {
            Ok(allowed)
        }
    }

    /// A host that is an address never reaches the resolver: it is checked when the destination
    /// is opened.
    pub(crate) fn check_literal(&self, host: &Host<&str>) -> Result<(), Refused> {
        match host {
            Host::Domain(_) => Ok(()),
            Host::Ipv4(v4) => check(IpAddr::V4(*v4), &self.allowed),
            Host::Ipv6(v6) => check(IpAddr::V6(*v6), &self.allowed),
        }
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let own = self.clone();
        Box::pin(async move {
            // Port 0: the client puts in its own.
            let addresses = own.addresses(name.as_str(), 0).await?;
            let addresses: Addrs = Box::new(addresses.into_iter());
            Ok(addresses)
        })
    }
}

/// The refusal inside an error, however deep.
pub(crate) fn refusal(error: &(dyn Error + 'static)) -> Option<Refused> {
    let mut next = Some(error);
    // Chains are short; the bound is against one that runs in a circle.
    for _ in 0..16 {
        let error = next?;
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return Some(*refused);
        }
        next = error.source();
    }
    None
}
