//! What never changes of a backend while it is a member, made once so that no request formats it.

use std::net::SocketAddr;

use http::HeaderValue;
use http::uri::Authority;

use crate::discover::Endpoint;

/// A member of a cluster.
#[derive(Debug)]
pub struct Backend {
    endpoint: Endpoint,
    authority: Authority,
    host: HeaderValue,
    label: Box<str>,
}

impl Backend {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        let label = endpoint.address.to_string();
        let authority = endpoint.authority.clone().unwrap_or_else(|| {
            label.parse().expect("a socket address reads as an authority: digits, dots, colons, brackets")
        });
        let host = HeaderValue::from_str(authority.as_str()).expect("an authority is visible ASCII");
        Self { endpoint, authority, host, label: label.into() }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address
    }

    /// The same as text, as metrics and logs name it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// As its source named it when it became a member; its zone and locality may have changed since.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sent to it in requests that name no host.
    #[must_use]
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(crate) fn host(&self) -> &HeaderValue {
        &self.host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_makes_an_authority() {
        for address in ["127.0.0.1:80", "[::1]:8080", "[2001:db8::1]:65535", "[fe80::1%3]:80"] {
            let Ok(address) = address.parse() else { continue };
            let backend = Backend::new(Endpoint::new(address));
            assert!(backend.host().as_bytes().ends_with(address.port().to_string().as_bytes()));
        }
    }
}
