//! Takes the header of the PROXY protocol off the front of a connection.
//!
//! Exactly its bytes: they are looked at first, and then only those are read that belong to the
//! header. So what follows is where its reader expects it, in the socket, and needs no buffer that
//! would have to be carried along. Bytes that surely belong to a header which is not over yet are
//! read at once, or the next look would find them again and never wait.

use std::io;
use std::net::SocketAddr;

use plimsoll::address::Address;
use plimsoll_stream::Socket;
use plimsoll_wire::proxy_protocol::{Addresses, Malformed, Parsed, Version, parse};
use tokio::io::AsyncReadExt as _;

use crate::config::ProxyProtocol;
use crate::listener::handshakes::Failure;
use crate::peer::Peer;
use crate::sockets::Caller;

/// How far a look goes: every header of version 1, and of version 2 nearly every one.
const LOOK: usize = 256;

/// Why there is no header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// The bytes are something else.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// It is of the version that the listener does not take.
    #[error("a header of the other version of the PROXY protocol")]
    OtherVersion,
    /// The connection ended or broke before its end.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Unread {
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Malformed(_) | Self::OtherVersion => Failure::ProxyHeader,
            Self::Io(_) => Failure::Closed,
        }
    }
}

/// Reads a header. `None` when the connection is the sender's own.
pub(crate) async fn read(socket: &mut Socket, accepted: ProxyProtocol) -> Result<Option<Addresses>, Unread> {
    let mut header = Vec::new();
    loop {
        let known = header.len();
        header.resize(known + LOOK, 0);
        let seen = socket.peek(&mut header[known..]).await?;
        if seen == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let parsed = parse(&header[..known + seen])?;
        let end = match parsed {
            Parsed::Partial => known + seen,
            Parsed::Whole { length, .. } => length,
        };
        socket.read_exact(&mut header[known..end]).await?;
        header.truncate(end);
        if let Parsed::Whole { version, addresses, .. } = parsed {
            return if takes(accepted, version) { Ok(addresses) } else { Err(Unread::OtherVersion) };
        }
    }
}

fn takes(accepted: ProxyProtocol, version: Version) -> bool {
    match accepted {
        ProxyProtocol::Any => true,
        ProxyProtocol::V1 => version == Version::V1,
        ProxyProtocol::V2 => version == Version::V2,
    }
}

impl Peer {
    /// The socket's other end; its listener is at `bound`.
    pub(crate) fn of_socket(socket: &Socket, caller: Caller, bound: Address) -> Self {
        let local = match (socket, bound) {
            // Only a listener at all addresses has to ask at which of them a client came. A socket
            // that is broken already has no address, and will say so when it is read.
            (Socket::Tcp(tcp), Address::Inet(at)) if at.ip().is_unspecified() => {
                tcp.local_addr().map_or(bound, Into::into)
            }
            _ => bound,
        };
        let Caller { address, user } = caller;
        Self { address: canonical(address), local: canonical(local), user, tls: None, is_unnamed: false }
    }

    /// The connection is passed on for these.
    pub(crate) fn is_for(&mut self, addresses: Addresses) {
        self.address = canonical(addresses.source.into());
        self.local = canonical(addresses.destination.into());
    }
}

/// A client of IPv4 looks like one of IPv6 to a socket for both, and is known by its own address
/// here.
fn canonical(address: Address) -> Address {
    match address {
        Address::Inet(address) => SocketAddr::new(address.ip().to_canonical(), address.port()).into(),
        unix @ Address::Unix(_) => unix,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::proxy_protocol::encode;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream, UnixStream};

    use super::*;

    async fn pair() -> (TcpStream, Socket) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.set_nodelay(true).unwrap();
        (client, listener.accept().await.unwrap().0.into())
    }

    fn addresses() -> Addresses {
        Addresses { source: "192.0.2.7:1".parse().unwrap(), destination: "198.51.100.1:2".parse().unwrap() }
    }

    #[tokio::test]
    async fn local_address_is_asked_for_at_wildcard_listeners_only() {
        let (_client, server) = pair().await;
        let Socket::Tcp(tcp) = &server else { panic!("it is TCP") };
        let (client, local) = (Address::from(tcp.peer_addr().unwrap()), tcp.local_addr().unwrap().into());
        let elsewhere = "192.0.2.1:80".parse().unwrap();
        for (bound, expected) in
            [("0.0.0.0:80".parse().unwrap(), local), ("[::]:80".parse().unwrap(), local), (elsewhere, elsewhere)]
        {
            let peer = Peer::of_socket(&server, Caller { address: client, user: None }, bound);
            assert_eq!((peer.address, peer.local), (client, expected), "{bound}");
        }
    }

    #[tokio::test]
    async fn no_byte_behind_the_header_is_lost_in_any_pieces() {
        for version in [Version::V1, Version::V2] {
            let header = encode(version, Some(addresses()));
            for cut in [1, 5, 12, 13, 16, header.len() - 1, header.len()] {
                let (mut client, mut server) = pair().await;
                let (first, second) = header.split_at(cut);
                client.write_all(first).await.unwrap();
                let reading = tokio::spawn(async move {
                    let read = read(&mut server, ProxyProtocol::Any).await;
                    (read, server)
                });
                tokio::task::yield_now().await;
                client.write_all(&[second, b"GET / HTTP/1.1\r\n"].concat()).await.unwrap();
                let (read, mut server) = reading.await.unwrap();
                assert_eq!(read.unwrap(), Some(addresses()));
                let mut rest = [0; 16];
                server.read_exact(&mut rest).await.unwrap();
                assert_eq!(&rest, b"GET / HTTP/1.1\r\n");
            }
        }
    }

    #[tokio::test]
    async fn header_is_read_off_a_unix_socket_alike() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(&[&encode(Version::V2, Some(addresses()))[..], b"x"].concat()).await.unwrap();
        let mut server = Socket::from(server);
        assert_eq!(read(&mut server, ProxyProtocol::Any).await.unwrap(), Some(addresses()));
        assert_eq!(server.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn a_header_longer_than_a_look_is_read_whole() {
        let (mut client, mut server) = pair().await;
        let mut header = encode(Version::V2, Some(addresses()));
        // Empty fields of three bytes each.
        header.extend([0; 999]);
        (header[14], header[15]) = (0x03, 0xf3);
        client.write_all(&[&header[..], b"x"].concat()).await.unwrap();
        assert_eq!(read(&mut server, ProxyProtocol::V2).await.unwrap(), Some(addresses()));
        assert_eq!(server.read_u8().await.unwrap(), b'x');
    }

    #[tokio::test]
    async fn wrong_version_and_wrong_header_differ_from_a_close() {
        let failure = async |sent: &[u8], accepted| {
            let (mut client, mut server) = pair().await;
            client.write_all(sent).await.unwrap();
            drop(client);
            read(&mut server, accepted).await.unwrap_err().failure()
        };
        let v1 = encode(Version::V1, None);
        assert_eq!(failure(&v1, ProxyProtocol::V2).await, Failure::ProxyHeader);
        assert_eq!(failure(b"GET / HTTP/1.1\r\n\r\n", ProxyProtocol::Any).await, Failure::ProxyHeader);
        assert_eq!(failure(&v1[..9], ProxyProtocol::Any).await, Failure::Closed);
    }
}
