//! A member of a cluster: its names, formatted once, and whether it keeps connections open.
//!
//! A [`Backend`] never changes. When the source describes a member anew, the cluster has another one in its place,
//! and each pool takes that over before its next request: a request reads one description from its begin to its end,
//! without a lock.

use crate::address::Address;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use http::HeaderValue;
use http::uri::Authority;
use plimsoll_core::subset;

use crate::discover::Endpoint;

/// A member of a cluster.
#[derive(Debug)]
pub struct Backend {
    endpoint: Arc<Endpoint>,
    authority: Authority,
    host: HeaderValue,
    label: Box<str>,
    /// Common to all descriptions of a member.
    persistence: Arc<AtomicU8>,
}

/// Whether a backend keeps a connection open after a response.
///
/// One response that leaves its connection open is proof. A later one that closes is none of the contrary: servers
/// announce the end while they drain, and after a number of requests.
///
/// Many servers of one connection per worker close after each response (gunicorn with sync workers, wsgiref). A
/// connection without a request occupies such a worker until the server's own timeout, and requests wait behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Persistence {
    /// No response yet.
    Unknown = 0,
    /// It serves further requests on the same connection.
    Keeps = 1,
    /// It closes after each response.
    Closes = 2,
}

/// The host of a Unix socket without a name, as nginx and curl send it.
const LOCALHOST: &str = "localhost";

impl Backend {
    pub(crate) fn new(endpoint: impl Into<Arc<Endpoint>>) -> Self {
        let endpoint = endpoint.into();
        let label = endpoint.address.to_string();
        let authority = endpoint.authority.clone().unwrap_or_else(|| match endpoint.address {
            Address::Inet(_) => label.parse().expect("digits, dots, colons and brackets read as an authority"),
            Address::Unix(_) => Authority::from_static(LOCALHOST),
        });
        let host = HeaderValue::from_str(authority.as_str()).expect("an authority is visible ASCII");
        let persistence = Arc::new(AtomicU8::new(Persistence::Unknown as u8));
        Self { endpoint, authority, host, label: label.into(), persistence }
    }

    /// The identity of a backend, on which all clients agree: that of its ordinal if it has one,
    /// else of its address.
    pub(crate) fn identity(endpoint: &Endpoint) -> u64 {
        match endpoint.ordinal {
            Some(ordinal) => subset::Backend::key_of(&format!("ordinal {ordinal}")),
            None => subset::Backend::key_of(&endpoint.address.to_string()),
        }
    }

    /// The same member as its source describes it now.
    pub(crate) fn described(&self, endpoint: Arc<Endpoint>) -> Self {
        Self { persistence: self.persistence.clone(), ..Self::new(endpoint) }
    }

    /// Whether TLS asks for the same name, where that is the member's own.
    pub(crate) fn has_host_of(&self, other: &Self) -> bool {
        self.authority.host().eq_ignore_ascii_case(other.authority.host())
    }

    /// Whether it keeps connections open, as far as is known.
    pub(crate) fn persistence(&self) -> Persistence {
        match self.persistence.load(Ordering::Relaxed) {
            kept if kept == Persistence::Keeps as u8 => Persistence::Keeps,
            closed if closed == Persistence::Closes as u8 => Persistence::Closes,
            _ => Persistence::Unknown,
        }
    }

    /// Records whether a response left its connection open.
    pub(crate) fn note_keep_alive(&self, keep_alive: bool) {
        let known = self.persistence();
        // Written rarely: all threads share the cache line. A race between two threads costs at most a later proof.
        if keep_alive && known != Persistence::Keeps {
            self.persistence.store(Persistence::Keeps as u8, Ordering::Relaxed);
        } else if !keep_alive && known == Persistence::Unknown {
            self.persistence.store(Persistence::Closes as u8, Ordering::Relaxed);
        }
    }

    /// The address that it listens at.
    #[must_use]
    pub fn address(&self) -> Address {
        self.endpoint.address
    }

    /// The address as text, for metrics and logs.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The entry of its source.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether its source describes it so.
    pub(crate) fn is_described_as(&self, endpoint: &Arc<Endpoint>) -> bool {
        self.endpoint == *endpoint
    }

    /// The host of requests that name none.
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
    fn persistence_is_proved_by_one_open_connection() {
        for (responses, want) in [
            (&[][..], Persistence::Unknown),
            (&[false, false], Persistence::Closes),
            (&[false, true], Persistence::Keeps),
            (&[true, false], Persistence::Keeps),
        ] {
            let backend = Backend::new(Endpoint::new(([127, 0, 0, 1], 80)));
            responses.iter().for_each(|keep_alive| backend.note_keep_alive(*keep_alive));
            assert_eq!(backend.persistence(), want, "{responses:?}");
        }
    }

    #[test]
    fn any_address_makes_an_authority() {
        for address in ["127.0.0.1:80", "[::1]:8080", "[2001:db8::1]:65535", "[fe80::1%3]:80"] {
            let Ok(address) = address.parse::<Address>() else { continue };
            let backend = Backend::new(Endpoint::new(address));
            assert!(backend.host().as_bytes().ends_with(address.port().unwrap().to_string().as_bytes()));
        }
        let unix: Address = "unix:/run/a.sock".parse().unwrap();
        let backend = Backend::new(Endpoint::new(unix));
        assert_eq!((backend.label(), backend.host()), ("unix:/run/a.sock", &HeaderValue::from_static("localhost")));
    }
}
