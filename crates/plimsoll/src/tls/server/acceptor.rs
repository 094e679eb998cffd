//! The handshakes of a server: the time for each, and the number at a time.
//!
//! Anybody can open a connection and stay silent. So a handshake has a time limit, and beyond
//! [`MAX_HANDSHAKES`] the oldest one ends. A handshake takes milliseconds: strangers lose theirs
//! first, unless they open the whole number within one round trip.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use plimsoll_stream::{Socket, Stream};
use rustls::{InvalidMessage, PeerMisbehaved, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use super::{HTTP2, ServerTls};
use crate::tls::names;

/// Time for a handshake: several round trips around the world, with a lost packet.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Handshakes at a time: a fleet that returns at once, with a few file descriptors of the thousand
/// that a process has by default.
const MAX_HANDSHAKES: usize = 256;
/// Time for a client to read the answer to a failed handshake.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// The answer to HTTP/1 in plain text.
const USE_HTTPS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 43\r\n\
connection: close\r\n\r\nplain-http: this port speaks TLS; use https";
/// The answer to HTTP/2 in plain text: SETTINGS, and GOAWAY with INADEQUATE_SECURITY (RFC 9113, 7).
const GO_AWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
\0\0\x1c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0cthis port speaks TLS";

/// The reason why a connection had no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeFailure {
    /// Plain HTTP.
    #[error("plain HTTP where TLS is spoken")]
    PlainHttp,
    /// The certificate of the client is missing or invalid.
    #[error("the certificate of the client is missing or invalid")]
    ClientCertificate,
    /// The client names a server by a text that is no host name.
    #[error("the name of the server is no host name")]
    ServerName,
    /// TLS was not agreed on.
    #[error("TLS was not agreed on")]
    Tls,
    /// The time was over.
    #[error("the handshake took longer than 5 s")]
    Timeout,
    /// There were too many handshakes.
    #[error("too many handshakes at a time")]
    Crowded,
    /// The client closed the connection.
    #[error("the client closed the connection")]
    Closed,
}

impl HandshakeFailure {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PlainHttp,
        Self::ClientCertificate,
        Self::ServerName,
        Self::Tls,
        Self::Timeout,
        Self::Crowded,
        Self::Closed,
    ];

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PlainHttp => "plain-http",
            Self::ClientCertificate => "client-certificate",
            Self::ServerName => "server-name",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Crowded => "crowded",
            Self::Closed => "closed",
        }
    }

    /// The reason of a failed handshake.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => {
                Self::ClientCertificate
            }
            Some(
                rustls::Error::PeerMisbehaved(PeerMisbehaved::ServerNameMustContainOneHostName)
                | rustls::Error::InvalidMessage(InvalidMessage::InvalidServerName),
            ) => Self::ServerName,
            Some(_) => Self::Tls,
            None => Self::Closed,
        }
    }
}

/// The names in the verified certificate of a client; none without a certificate.
///
/// An extension of each request of [`serve_tls`](crate::server::serve_tls).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientNames(pub Arc<[Box<str>]>);

/// A connection after its handshake.
#[derive(Debug)]
pub struct AcceptedConnection {
    /// The connection.
    pub stream: Stream,
    /// Its client.
    pub client: ClientNames,
    /// Whether client and server agreed on HTTP/2.
    pub is_http2: bool,
}

/// Does the handshakes of one port. Its certificates can change meanwhile.
#[derive(Debug)]
pub struct Acceptor {
    tls: RwLock<Arc<ServerConfig>>,
    protocols: &'static [&'static [u8]],
    running: Mutex<Running>,
    failed: [AtomicU64; HandshakeFailure::ALL.len()],
}

/// Handshakes by their number. A sender that is dropped ends its handshake.
#[derive(Debug, Default)]
struct Running {
    begun: u64,
    by_number: BTreeMap<u64, oneshot::Sender<()>>,
}

impl Acceptor {
    /// Offers these protocols (ALPN), the preferred one first.
    #[must_use]
    pub fn new(tls: &ServerTls, protocols: &'static [&'static [u8]]) -> Self {
        let tls = RwLock::new(config(tls, protocols));
        Self { tls, protocols, running: Mutex::default(), failed: Default::default() }
    }

    /// Other certificates and authorities, for new connections.
    pub fn set(&self, tls: &ServerTls) {
        *self.tls.write() = config(tls, self.protocols);
    }

    /// Failed handshakes since the start.
    pub fn failed(&self) -> impl Iterator<Item = (HandshakeFailure, u64)> + '_ {
        HandshakeFailure::ALL.into_iter().zip(self.failed.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// The connection after its handshake.
    ///
    /// # Errors
    /// The handshake failed. It is counted.
    pub async fn accept(&self, socket: impl Into<Socket>) -> Result<AcceptedConnection, HandshakeFailure> {
        let socket = socket.into();
        let peer = match &socket {
            Socket::Tcp(tcp) => tcp.peer_addr().ok(),
            Socket::Unix(_) => None,
        };
        let (number, ended) = self.begin();
        let _running = Ends { acceptor: self, number };
        let (failure, cause) = tokio::select! {
            _ = ended => (HandshakeFailure::Crowded, None),
            shaken = timeout(HANDSHAKE_TIMEOUT, self.shake(socket)) => match shaken {
                Ok(Ok(accepted)) => return Ok(accepted),
                Ok(Err(failed)) => failed,
                Err(_) => (HandshakeFailure::Timeout, None),
            },
        };
        self.failed[failure as usize].fetch_add(1, Ordering::Relaxed);
        // Port scanners come by here, so it is no warning.
        let cause = cause.map(tracing::field::display);
        tracing::debug!(peer = peer.map(tracing::field::display), reason = failure.name(), cause, "handshake failed");
        Err(failure)
    }

    fn begin(&self) -> (u64, oneshot::Receiver<()>) {
        let (end, ended) = oneshot::channel();
        let mut running = self.running.lock();
        running.begun += 1;
        let number = running.begun;
        running.by_number.insert(number, end);
        if running.by_number.len() > MAX_HANDSHAKES {
            running.by_number.pop_first();
        }
        (number, ended)
    }

    async fn shake(&self, mut socket: Socket) -> Result<AcceptedConnection, (HandshakeFailure, Option<io::Error>)> {
        let closed = |error| (HandshakeFailure::Closed, Some(error));
        let mut first = [0; 3];
        let seen = socket.peek(&mut first).await.map_err(closed)?;
        // All methods of HTTP begin with a capital letter, no record of TLS does.
        if first[..seen].first().is_some_and(u8::is_ascii_uppercase) {
            let answer = if b"PRI".starts_with(&first[..seen]) { GO_AWAY } else { USE_HTTPS };
            let _ = timeout(ANSWER_TIMEOUT, refuse(&mut socket, answer)).await;
            return Err((HandshakeFailure::PlainHttp, None));
        }
        let tls = Arc::clone(&self.tls.read());
        let stream = match tokio_rustls::TlsAcceptor::from(tls).accept(socket).into_fallible().await {
            Ok(stream) => stream,
            Err((error, mut socket)) => {
                // The client learns the reason from the alert, which TLS has written.
                let _ = timeout(ANSWER_TIMEOUT, finish(&mut socket)).await;
                return Err((HandshakeFailure::of(&error), Some(error)));
            }
        };
        let connection = stream.get_ref().1;
        let client = connection.peer_certificates().and_then(<[_]>::first).map(names).unwrap_or_default();
        let (client, is_http2) = (ClientNames(client.into_vec().into()), connection.alpn_protocol() == Some(HTTP2));
        Ok(AcceptedConnection { stream: Stream::Tls(Box::new(TlsStream::Server(stream))), client, is_http2 })
    }
}

fn config(tls: &ServerTls, protocols: &[&[u8]]) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(tls.rustls());
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

async fn refuse(socket: &mut Socket, answer: &[u8]) -> io::Result<()> {
    socket.write_all(answer).await?;
    finish(socket).await
}

/// Ends a connection after the last answer, and reads to its end: a close with bytes unread resets the
/// connection, and the answer is lost.
async fn finish(socket: &mut Socket) -> io::Result<()> {
    socket.shutdown().await?;
    let mut rest = [0; 1024];
    while socket.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Ends the handshake of a number when it is dropped.
struct Ends<'a> {
    acceptor: &'a Acceptor,
    number: u64,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.acceptor.running.lock().by_number.remove(&self.number);
    }
}

/// The chain of causes of an error, in one line.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(of) = cause {
        let of_text = of.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&of_text) {
            text = format!("{text}: {of_text}");
        }
        cause = of.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::tls::testing::Authority;
    use crate::tls::{ClientAuth, Identity, TlsConfig, TlsMaterial, TlsTrust, TlsVersion};

    fn identity(authority: &Authority, names: &[&str]) -> Identity {
        let (certificate, key) = authority.sign(names);
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        Identity::new(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
    }

    fn acceptor(authority: &Authority) -> Acceptor {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
        let material = TlsMaterial {
            identities: vec![identity(authority, &["a.example"])],
            client_auth: ClientAuth::Required(Arc::new(roots)),
            min_version: TlsVersion::V1_2,
        };
        Acceptor::new(&ServerTls::new(&material), &[HTTP2])
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (client, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn client_has_the_names_of_its_certificate() {
        let authority = Authority::new();
        let acceptor = acceptor(&authority);
        let (client, server) = pair().await;
        let tls = TlsConfig::new(TlsTrust::Anybody, Some(identity(&authority, &["spiffe://td/shop"])), None);
        let (client, server) = tokio::join!(tls.connect_http2(client, "a.example"), acceptor.accept(server));
        let (_client, accepted) = (client.unwrap(), server.unwrap());
        assert!(accepted.is_http2 && *accepted.client.0 == ["spiffe://td/shop".into()], "{:?}", accepted.client);
        assert!(acceptor.failed().all(|(_, count)| count == 0));
        assert!(acceptor.running.lock().by_number.is_empty());
    }

    #[tokio::test]
    async fn client_without_a_good_certificate_is_refused_and_counted() {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let acceptor = acceptor(&authority);
        for shown in [None, Some(identity(&stranger, &["spiffe://td/shop"]))] {
            let (client, server) = pair().await;
            let tls = TlsConfig::new(TlsTrust::Anybody, shown, None);
            let (_client, server) = tokio::join!(tls.connect_http2(client, "a.example"), acceptor.accept(server));
            assert_eq!(server.err(), Some(HandshakeFailure::ClientCertificate));
        }
        assert!(acceptor.failed().any(|of| of == (HandshakeFailure::ClientCertificate, 2)));
    }

    #[tokio::test]
    async fn plain_text_gets_an_answer_in_its_protocol() {
        let acceptor = acceptor(&Authority::new());
        for (sent, answer) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], &b"use https"[..]),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0", b"this port speaks TLS"),
        ] {
            let (mut client, server) = pair().await;
            let client = async {
                client.write_all(sent).await.unwrap();
                let mut got = Vec::new();
                client.read_to_end(&mut got).await.unwrap();
                drop(client);
                got
            };
            let (got, accepted) = tokio::join!(client, acceptor.accept(server));
            assert_eq!(accepted.err(), Some(HandshakeFailure::PlainHttp));
            assert!(got.ends_with(answer), "{}", got.escape_ascii());
        }
        let (_, goaway) = GO_AWAY.split_at(9);
        assert_eq!(goaway.len(), 9 + usize::from(goaway[2]), "the frame has the length that it states");
    }

    #[tokio::test(start_paused = true)]
    async fn silent_client_is_dropped_in_time() {
        let acceptor = acceptor(&Authority::new());
        let (_client, server) = pair().await;
        assert_eq!(acceptor.accept(server).await.err(), Some(HandshakeFailure::Timeout));
    }

    #[tokio::test]
    async fn oldest_handshake_ends_when_there_are_too_many() {
        let acceptor = acceptor(&Authority::new());
        let (_client, server) = pair().await;
        let mut oldest = Box::pin(acceptor.accept(server));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(oldest.as_mut().poll(cx).is_pending())).await;
        assert!(polled);
        let crowd: Vec<_> = (0..MAX_HANDSHAKES).map(|_| acceptor.begin()).collect();
        assert_eq!(oldest.await.err(), Some(HandshakeFailure::Crowded));
        assert_eq!(acceptor.running.lock().by_number.len(), MAX_HANDSHAKES);
        drop(crowd);
    }
}
