//! Checks a process on this machine: `GET URL`, or a connection to each of its addresses.
//!
//! 2xx passes, 503 means not serving, anything else fails: the same reading as of the proxy's
//! `check = "http"`.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use plimsoll_core::health::CheckOutcome;
use tokio::net::TcpStream;
use tokio::time::timeout;

const AGENT: HeaderValue = HeaderValue::from_static("plimsoll-answer");
/// The port of a URL without one.
const HTTP_PORT: u16 = 80;

/// The URL that says whether a process is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadyUrl {
    authority: Authority,
    path: PathAndQuery,
}

impl FromStr for ReadyUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write http://HOST:PORT/PATH, such as http://127.0.0.1:8080/healthz";
        let parts = text.parse::<Uri>().map_err(|error| format!("{error}; {form}"))?.into_parts();
        match (parts.scheme, parts.authority) {
            (Some(scheme), Some(authority)) if scheme == Scheme::HTTP => {
                Ok(Self { authority, path: parts.path_and_query.unwrap_or(PathAndQuery::from_static("/")) })
            }
            (Some(scheme), _) if scheme == Scheme::HTTPS => {
                Err("https is not supported; serve the readiness of the process over http at loopback".to_owned())
            }
            _ => Err(form.to_owned()),
        }
    }
}

impl ReadyUrl {
    async fn status(&self) -> Result<StatusCode, CheckOutcome> {
        // A literal IPv6 address has brackets in a URL alone.
        let host = self.authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, self.authority.port_u16().unwrap_or(HTTP_PORT)));
        let stream = stream.await.map_err(|error| unconnected(&error))?;
        let failed = |_| CheckOutcome::Failed;
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.uri_mut() = Uri::from(self.path.clone());
        // The name and the password of a URL are no part of its host.
        let host = self.authority.as_str().rsplit('@').next().unwrap_or_default();
        let host = HeaderValue::from_str(host).map_err(|_| CheckOutcome::Failed)?;
        request.headers_mut().extend([(HOST, host), (USER_AGENT, AGENT)]);
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let mut response = std::pin::pin!(sender.send_request(request));
        let response = tokio::select! {
            response = &mut response => response,
            // A server may close with its answer: the connection has read it.
            _ = connection => response.await,
        };
        Ok(response.map_err(failed)?.status())
    }
}

/// The checks of a process.
#[derive(Debug)]
pub(crate) struct Checks {
    addresses: Vec<SocketAddr>,
    ready: Option<ReadyUrl>,
    timeout: Duration,
}

impl Checks {
    /// Checks of the process that listens at `addresses`, each of at most `timeout`.
    pub(crate) fn new(addresses: &[SocketAddr], ready: Option<ReadyUrl>, timeout: Duration) -> Self {
        Self { addresses: addresses.iter().copied().map(reachable).collect(), ready, timeout }
    }

    /// Makes a check.
    pub(crate) async fn check(&self) -> CheckOutcome {
        let check = async {
            match &self.ready {
                Some(url) => outcome(url.status().await),
                None => self.connect().await.map_or_else(|error| unconnected(&error), |()| CheckOutcome::Passed),
            }
        };
        timeout(self.timeout, check).await.unwrap_or(CheckOutcome::Failed)
    }

    /// Whether each address refuses connections: the process has ended.
    pub(crate) async fn is_refused(&self) -> bool {
        for address in &self.addresses {
            match timeout(self.timeout, TcpStream::connect(address)).await {
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return false,
            }
        }
        true
    }

    async fn connect(&self) -> io::Result<()> {
        for address in &self.addresses {
            TcpStream::connect(address).await?;
        }
        Ok(())
    }
}

fn outcome(status: Result<StatusCode, CheckOutcome>) -> CheckOutcome {
    match status {
        Ok(status) if status.is_success() => CheckOutcome::Passed,
        Ok(StatusCode::SERVICE_UNAVAILABLE) => CheckOutcome::NotServing,
        Ok(_) => CheckOutcome::Failed,
        Err(outcome) => outcome,
    }
}

/// The errors of a process without descriptors, buffers or ports are none of the checked process.
fn unconnected(error: &io::Error) -> CheckOutcome {
    use rustix::io::Errno;
    let own = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    if own.iter().any(|own| error.raw_os_error() == Some(own.raw_os_error())) {
        CheckOutcome::NotMade
    } else {
        CheckOutcome::Unreachable
    }
}

/// An address that can be connected to: a process that listens at all addresses is at loopback too.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    address
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(200);

    /// The outcome for a process that answers its first request with `response`, and then closes.
    async fn checked(response: &'static str) -> CheckOutcome {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://user:secret@{address}/healthz?deep=1").parse().unwrap();
        let serving = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 1024];
            let length = stream.read(&mut head).await.unwrap();
            stream.write_all(response.as_bytes()).await.unwrap();
            if response.is_empty() {
                tokio::time::sleep(PATIENCE * 5).await;
            }
            String::from_utf8_lossy(&head[..length]).into_owned()
        });
        let outcome = Checks::new(&[address], Some(url), PATIENCE).check().await;
        if !response.is_empty() {
            let head = serving.await.unwrap();
            assert!(head.starts_with("GET /healthz?deep=1 HTTP/1.1\r\n"), "{head}");
            assert!(head.contains(&format!("host: {address}\r\n")), "{head}");
        }
        outcome
    }

    #[tokio::test]
    async fn status_decides_the_outcome() {
        assert_eq!(checked("HTTP/1.1 204 No Content\r\n\r\n").await, CheckOutcome::Passed);
        assert_eq!(checked("HTTP/1.0 503 Draining\r\n\r\n").await, CheckOutcome::NotServing);
        assert_eq!(checked("HTTP/1.1 302 Found\r\nlocation: /\r\n\r\n").await, CheckOutcome::Failed);
        assert_eq!(checked("SSH-2.0-OpenSSH\r\n").await, CheckOutcome::Failed);
        assert_eq!(checked("").await, CheckOutcome::Failed, "no answer in time");
    }

    #[tokio::test]
    async fn connection_is_the_check_without_a_url() {
        let listeners =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let [first, second] = &listeners;
        let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), first.local_addr().unwrap().port());
        let checks = Checks::new(&[any, second.local_addr().unwrap()], None, PATIENCE);
        assert_eq!(checks.check().await, CheckOutcome::Passed);
        let [first, second] = listeners;
        drop(second);
        assert_eq!(checks.check().await, CheckOutcome::Unreachable, "one of two is closed");
        assert!(!checks.is_refused().await, "the other is open");
        drop(first);
        assert!(checks.is_refused().await);
    }

    #[test]
    fn own_lack_of_descriptors_is_no_evidence() {
        let error = |errno: rustix::io::Errno| io::Error::from_raw_os_error(errno.raw_os_error());
        assert_eq!(unconnected(&error(rustix::io::Errno::MFILE)), CheckOutcome::NotMade);
        assert_eq!(unconnected(&error(rustix::io::Errno::CONNREFUSED)), CheckOutcome::Unreachable);
    }

    #[test]
    fn urls_that_cannot_be_checked_name_the_form() {
        for (text, help) in [
            ("https://127.0.0.1/healthz", "https is not supported"),
            ("127.0.0.1:8080/healthz", "http://HOST:PORT/PATH"),
            ("/healthz", "http://HOST:PORT/PATH"),
            ("http://", "http://HOST:PORT/PATH"),
            ("http://a b/", "http://HOST:PORT/PATH"),
        ] {
            assert!(text.parse::<ReadyUrl>().is_err_and(|error| error.contains(help)), "{text}");
        }
        assert!("http://[::1]:8080".parse::<ReadyUrl>().is_ok());
    }
}
