//! Opening one connection: a socket, the PROXY protocol's header if configured, TLS if configured.
//!
//! The order on the wire is the same: the header is outside TLS, as HAProxy and nginx read it. One
//! limit covers all of it, since a request waits for the whole.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_stream::{Socket, Stream};
use plimsoll_wire::proxy_protocol::{self, Addresses};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixStream};

use super::backend::Backend;
use super::config::{ClusterConfig, Protocol};
use super::error::ConnectError;
use crate::address::{Address, UnixPath};
use crate::tls::Alpn;

/// A connection is lost if nothing that was sent is acknowledged for this time, as in gRPC. So is
/// one with a peer that reads nothing for this time, which no HTTP/2 server may do.
#[cfg(target_os = "linux")]
const LOSS: Duration = Duration::from_secs(20);
/// On a connection without traffic, such as a quiet stream, the kernel probes after this time until
/// `LOSS`. Servers do not see that, unlike a PING. Middleboxes take longer to forget a connection.
#[cfg(target_os = "linux")]
const PROBE_AFTER: Duration = Duration::from_secs(30);
#[cfg(target_os = "linux")]
const PROBE_EVERY: Duration = Duration::from_secs(10);

/// The first pause before a Unix socket with a full queue is tried once more: a server that accepts
/// empties its queue in less.
const QUEUE_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause, which doubles each time. `connect_timeout` ends the wait.
const MAX_QUEUE_PAUSE: Duration = Duration::from_millis(32);

/// A connection to `backend` for the protocol `alpn`, within `limit`. `client` is the client for
/// the header of the PROXY protocol; without, the header states that the connection is this
/// program's own.
///
/// Nagle's algorithm is off: a request must leave at once, and whole messages are written anyway.
pub(crate) async fn connect(
    backend: &Backend,
    config: &ClusterConfig,
    limit: Duration,
    alpn: Alpn,
    client: Option<Addresses>,
) -> Result<Stream, ConnectError> {
    let connecting = async {
        let io = |cause| ConnectError::Io(Arc::new(cause));
        let mut socket = match backend.address() {
            Address::Inet(address) => Socket::Tcp(connect_tcp(address, alpn).await.map_err(io)?),
            Address::Unix(path) => Socket::Unix(connect_unix(path).await.map_err(io)?),
        };
        if let Some(version) = config.proxy_protocol {
            socket.write_all(&proxy_protocol::encode(version, client)).await.map_err(io)?;
        }
        match config.tls() {
            None => Ok(socket.into()),
            Some(tls) => tls.connect(socket, backend.authority().host(), alpn).await.map_err(|cause| {
                let is_guess = alpn == Alpn::Http2 && config.requests.protocol == Protocol::Auto;
                if is_guess && has_no_such_protocol(&cause) {
                    ConnectError::NotHttp2
                } else {
                    ConnectError::Tls(Arc::new(cause))
                }
            }),
        }
    };
    tokio::time::timeout(limit, connecting).await.unwrap_or(Err(ConnectError::Timeout(limit)))
}

async fn connect_tcp(address: SocketAddr, alpn: Alpn) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    if alpn == Alpn::Http2 {
        // Where a sandbox forbids it, it is noticed later.
        if let Err(error) = notice_loss(&tcp) {
            tracing::debug!(%error, "cannot set TCP_USER_TIMEOUT, lost connections are noticed late");
        }
    }
    Ok(tcp)
}

/// Connects to a Unix socket; waits while its queue is full, as a TCP connection does.
///
/// The kernel has no event for a free place in the queue: it refuses (`EAGAIN`) where TCP would
/// send its first packet again. A refused request would count against a backend that is only busy.
async fn connect_unix(path: UnixPath) -> io::Result<UnixStream> {
    // To the runtime a name is abstract if it begins with a zero byte.
    let name = match path.abstract_name() {
        Some(name) => Cow::Owned(format!("\0{name}")),
        None => Cow::Borrowed(path.as_str()),
    };
    let mut pause = QUEUE_PAUSE;
    loop {
        match UnixStream::connect(&*name).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(pause).await,
            connected => return connected,
        }
        pause = (pause * 2).min(MAX_QUEUE_PAUSE);
    }
}

/// Has the kernel notice a dead connection, which takes it a quarter of an hour by default, and for
/// ever while nothing is sent. Only HTTP/2 connections last long enough to matter, and only there
/// the peer has to read at any time.
#[cfg(target_os = "linux")]
fn notice_loss(tcp: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    let millis = u32::try_from(LOSS.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(tcp, millis)?;
    sockopt::set_tcp_keepidle(tcp, PROBE_AFTER)?;
    sockopt::set_tcp_keepintvl(tcp, PROBE_EVERY)?;
    Ok(sockopt::set_socket_keepalive(tcp, true)?)
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "on Linux it may fail")]
fn notice_loss(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// Whether the backend said that it speaks none of the protocols that it was offered.
fn has_no_such_protocol(error: &io::Error) -> bool {
    #[cfg(feature = "tls")]
    {
        use rustls::{AlertDescription, Error};
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
        matches!(cause, Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)))
    }
    #[cfg(not(feature = "tls"))]
    {
        let _ = error;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Endpoint;
    use crate::tls::server_name;

    #[test]
    fn a_backend_is_asked_for_by_its_host_or_else_by_its_address() {
        let named = |authority: Option<&str>, address: &str| {
            let mut endpoint = Endpoint::new(address.parse::<Address>().unwrap());
            endpoint.authority = authority.map(|authority| authority.parse().unwrap());
            server_name(Backend::new(endpoint).authority().host()).unwrap().to_str().into_owned()
        };
        assert_eq!(named(Some("web.internal:443"), "10.0.0.1:443"), "web.internal");
        assert_eq!(named(Some("my_svc:443"), "10.0.0.1:443"), "my_svc");
        assert_eq!(named(None, "10.0.0.1:443"), "10.0.0.1");
        assert_eq!(named(None, "[fd00::1]:443"), "fd00::1");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn the_kernel_notices_that_a_shared_connection_is_lost() {
        use rustix::net::sockopt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Backend::new(Endpoint::new(listener.local_addr().unwrap()));
        for (alpn, is_noticed) in [(Alpn::Http1, false), (Alpn::Http2, true)] {
            let opened = connect(&backend, &ClusterConfig::default(), Duration::from_secs(10), alpn, None).await;
            let Stream::Tcp(tcp) = opened.unwrap() else { panic!("there is no TLS") };
            assert_eq!(sockopt::socket_keepalive(&tcp).unwrap(), is_noticed);
            assert_eq!(sockopt::tcp_user_timeout(&tcp).unwrap(), if is_noticed { 20_000 } else { 0 });
        }
    }

    /// The backend of a Unix socket at which `waiting` connections may wait.
    fn unix_backend(name: &str, waiting: i32) -> (std::os::unix::net::UnixListener, Backend) {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, waiting).unwrap();
        let address = Address::from(UnixPath::new(path.to_str().unwrap()).unwrap());
        (listener.into(), Backend::new(Endpoint::new(address)))
    }

    /// The kernel refuses at once (`EAGAIN`), and a refusal would count against a busy backend.
    #[tokio::test]
    async fn full_queue_of_a_unix_socket_is_waited_for() {
        let (listener, backend) = unix_backend("full", 0);
        let config = ClusterConfig::default();
        let open = |limit| connect(&backend, &config, limit, Alpn::Http1, None);
        let waiting = open(Duration::from_secs(10)).await.unwrap();
        let full = open(Duration::from_millis(20)).await.unwrap_err();
        assert!(matches!(full, ConnectError::Timeout(_)), "{full}");
        let (accepted, opened) = tokio::join!(
            async {
                tokio::task::yield_now().await;
                listener.accept().unwrap()
            },
            open(Duration::from_secs(10))
        );
        assert!(matches!(opened.unwrap(), Stream::Unix(_)));
        drop((waiting, accepted));
    }

    #[tokio::test]
    async fn unix_socket_without_a_server_is_an_error_at_once() {
        let (listener, backend) = unix_backend("gone", 1);
        drop(listener);
        let config = ClusterConfig::default();
        let refused = connect(&backend, &config, Duration::from_secs(10), Alpn::Http2, None).await.unwrap_err();
        assert!(matches!(refused, ConnectError::Io(ref cause) if cause.kind() == io::ErrorKind::ConnectionRefused));
        std::fs::remove_file(backend.address().unix().unwrap().as_str()).unwrap();
        let missing = connect(&backend, &config, Duration::from_secs(10), Alpn::Http2, None).await.unwrap_err();
        assert!(matches!(missing, ConnectError::Io(ref cause) if cause.kind() == io::ErrorKind::NotFound));
    }
}
