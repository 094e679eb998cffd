//! The settings of a client.

use std::fmt;
use std::sync::Arc;

use http::uri::Authority;
use plimsoll::tls::TlsConfig;
use thiserror::Error;

/// The first part of each key. All programs of a fleet have the same.
pub const DEFAULT_PREFIX: &str = "/plimsoll/v1/";

/// A user of etcd. Without one, etcd takes the common name of the client's certificate as its user.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

pub(crate) type Source<T> = Arc<dyn Fn() -> Result<T, String> + Send + Sync>;

/// The endpoints of a client, and its identity there.
#[derive(Clone)]
pub struct EtcdConfig {
    pub(crate) endpoints: Vec<Authority>,
    pub(crate) prefix: String,
    pub(crate) credentials: Option<Source<Credentials>>,
    pub(crate) tls: Option<Source<TlsConfig>>,
}

impl fmt::Debug for EtcdConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdConfig")
            .field("endpoints", &self.endpoints)
            .field("prefix", &self.prefix)
            .field("has_credentials", &self.credentials.is_some())
            .field("has_tls", &self.tls.is_some())
            .finish()
    }
}

/// A setting that makes no client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidConfig {
    /// There is no endpoint.
    #[error("no endpoint of etcd is named")]
    NoEndpoint,
    /// Not the address of an endpoint.
    #[error("{0:?} is not an endpoint of etcd, such as 10.0.0.1:2379")]
    Endpoint(String),
    /// Keys begin and end with a slash.
    #[error("{0:?} is not a prefix of keys, such as /plimsoll/v1/")]
    Prefix(String),
}

impl EtcdConfig {
    /// A client of these endpoints (`host:port`), in plain text and without a user.
    ///
    /// # Errors
    /// No endpoint, or not an address of one.
    pub fn new<S: AsRef<str>>(endpoints: impl IntoIterator<Item = S>) -> Result<Self, InvalidConfig> {
        let parse = |endpoint: S| {
            let endpoint = endpoint.as_ref();
            let authority: Option<Authority> = endpoint.parse().ok();
            authority.filter(is_endpoint).ok_or_else(|| InvalidConfig::Endpoint(endpoint.to_owned()))
        };
        let endpoints = endpoints.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if endpoints.is_empty() {
            return Err(InvalidConfig::NoEndpoint);
        }
        Ok(Self { endpoints, prefix: DEFAULT_PREFIX.to_owned(), credentials: None, tls: None })
    }

    /// The same with other keys, such as `/staging/plimsoll/`.
    ///
    /// # Errors
    /// A prefix that does not begin and end with a slash.
    pub fn prefix(self, prefix: impl Into<String>) -> Result<Self, InvalidConfig> {
        let prefix = prefix.into();
        let is_prefix = prefix.len() > 1 && prefix.starts_with('/') && prefix.ends_with('/');
        if is_prefix { Ok(Self { prefix, ..self }) } else { Err(InvalidConfig::Prefix(prefix)) }
    }

    /// The same as a user. The function is called for each new token, so a password may rotate.
    #[must_use]
    pub fn credentials(self, source: impl Fn() -> Result<Credentials, String> + Send + Sync + 'static) -> Self {
        Self { credentials: Some(Arc::new(source)), ..self }
    }

    /// The same with TLS. The function is called for each connection, so certificates may rotate.
    #[must_use]
    pub fn tls(self, source: impl Fn() -> Result<TlsConfig, String> + Send + Sync + 'static) -> Self {
        Self { tls: Some(Arc::new(source)), ..self }
    }
}

/// A host, and a port if any.
fn is_endpoint(authority: &Authority) -> bool {
    let host = authority.host();
    // Behind the host there is nothing, or a port that was understood.
    let has_port = authority.port_u16().is_some_and(|port| port > 0);
    !host.is_empty() && !authority.as_str().contains('@') && (has_port || authority.as_str() == host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_with_a_wrong_port_is_refused() {
        for good in ["etcd", "etcd:2379", "10.0.0.1:1", "[::1]", "[::1]:2379"] {
            assert!(EtcdConfig::new([good]).is_ok(), "{good}");
        }
        for bad in ["etcd:", "etcd:99999", "etcd:0", "etcd:x", ":2379", "a@etcd:2379", "http://etcd:2379", ""] {
            assert_eq!(EtcdConfig::new([bad]).unwrap_err(), InvalidConfig::Endpoint(bad.to_owned()));
        }
    }
}
