//! The address of an API server.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::Uri;

use super::account::AccountError;

/// The address of an API server: `https://HOST[:PORT]`, or `http://HOST[:PORT]` for `kubectl proxy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiServer {
    is_tls: bool,
    /// Without brackets.
    host: String,
    port: u16,
}

/// A text that is no address of an API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of an API server: use http://HOST:PORT or https://HOST:PORT, without a path")]
pub struct NoApiServer(String);

impl ApiServer {
    /// The one of the cluster that this process runs in, by its environment.
    pub(super) fn of_cluster() -> Result<Self, AccountError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let host = variable("KUBERNETES_SERVICE_HOST").ok_or(AccountError::NoCluster)?;
        let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
        let bracketed = if host.parse::<Ipv6Addr>().is_ok() { format!("[{host}]") } else { host };
        format!("https://{bracketed}:{port}")
            .parse()
            .map_err(|_| AccountError::NoAddress(format!("{bracketed}:{port}")))
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Whether nobody in between can read a token: by TLS, or on this machine. Others get none. A name
    /// such as `localhost` is an address by somebody else's word.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        self.is_tls || self.host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// The host and port, for the header field.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl FromStr for ApiServer {
    type Err = NoApiServer;

    fn from_str(text: &str) -> Result<Self, NoApiServer> {
        let no = || NoApiServer(text.chars().take(80).collect());
        let uri: Uri = text.parse().map_err(|_| no())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(no()),
        };
        let authority = uri.authority().ok_or_else(no)?;
        if uri.query().is_some() || uri.path() != "/" || authority.as_str().contains('@') {
            return Err(no());
        }
        let port = match &authority.as_str()[authority.host().len()..] {
            "" if is_tls => 443,
            "" => 80,
            port => {
                port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0).ok_or_else(no)?
            }
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() { Err(no()) } else { Ok(Self { is_tls, host, port }) }
    }
}

impl fmt::Display for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_with_or_without_a_port() {
        for (text, shown, is_safe) in [
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001", true),
            ("http://localhost:8001/", "http://localhost:8001", false),
            ("http://[::1]:8001", "http://[::1]:8001", true),
            ("http://[::ffff:127.0.0.1]:8001", "http://[::ffff:127.0.0.1]:8001", false),
            ("http://127.0.0.1.example", "http://127.0.0.1.example:80", false),
            ("http://10.0.0.1", "http://10.0.0.1:80", false),
            ("https://api.example", "https://api.example:443", true),
            ("https://[fd00::1]:6443", "https://[fd00::1]:6443", true),
        ] {
            let server: ApiServer = text.parse().unwrap();
            assert_eq!((server.to_string(), server.is_safe()), (shown.to_owned(), is_safe));
        }
    }

    #[test]
    fn wrong_address_is_an_error_that_shows_the_form() {
        for text in [
            "",
            "10.0.0.1:443",
            "ftp://a",
            "https://a/path",
            "https://a?q",
            "https://user@a",
            "https://a:0",
            "https://a:99999",
            "https://a:",
            "https://",
        ] {
            let error = text.parse::<ApiServer>().unwrap_err().to_string();
            assert!(error.contains("use http://HOST:PORT"), "{error}");
        }
    }
}
