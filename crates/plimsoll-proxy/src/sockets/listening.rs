//! A socket that listens, of either kind.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::task::{Context, Poll};

use plimsoll::address::{Address, UnixPath};
use plimsoll_stream::Socket;
use socket2::{Domain, SockRef};
use tokio::net::{TcpStream, UnixStream};

/// A socket that is bound to the address of a listener.
#[derive(Debug)]
pub(crate) enum Listening {
    /// At a port of TCP.
    Tcp(TcpListener),
    /// At a Unix socket.
    Unix(UnixListener),
}

/// The other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Its address; a Unix client has none.
    pub(crate) address: Address,
    /// The user of a Unix client, as the kernel knows it.
    pub(crate) user: Option<u32>,
}

impl Listening {
    /// The socket behind `descriptor`.
    ///
    /// # Errors
    /// It is no socket of IP or Unix.
    pub(crate) fn of(descriptor: OwnedFd) -> io::Result<Self> {
        let domain = SockRef::from(&descriptor).domain()?;
        match domain {
            Domain::UNIX => Ok(Self::Unix(descriptor.into())),
            Domain::IPV4 | Domain::IPV6 => Ok(Self::Tcp(descriptor.into())),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket is neither one of TCP nor a Unix socket")),
        }
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map(Address::Inet),
            Self::Unix(unix) => Ok(UnixPath::of_std(&unix.local_addr()?).into()),
        }
    }

    /// The port of TCP; `None` for a Unix socket.
    pub(crate) fn tcp(&self) -> Option<&TcpListener> {
        match self {
            Self::Tcp(tcp) => Some(tcp),
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(tcp) => tcp.try_clone().map(Self::Tcp),
            Self::Unix(unix) => unix.try_clone().map(Self::Unix),
        }
    }

    /// A connection that waits in the queue.
    pub(crate) fn accept(&self) -> io::Result<(Socket, Caller)> {
        match self {
            Self::Tcp(tcp) => {
                let (stream, address) = tcp.accept()?;
                stream.set_nonblocking(true)?;
                Ok((TcpStream::from_std(stream)?.into(), Caller::at(address)))
            }
            Self::Unix(unix) => {
                let (stream, _) = unix.accept()?;
                stream.set_nonblocking(true)?;
                let stream = UnixStream::from_std(stream)?;
                let caller = Caller::of(&stream);
                Ok((stream.into(), caller))
            }
        }
    }
}

impl From<Listening> for OwnedFd {
    fn from(listening: Listening) -> Self {
        match listening {
            Listening::Tcp(tcp) => tcp.into(),
            Listening::Unix(unix) => unix.into(),
        }
    }
}

impl AsFd for Listening {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

impl Caller {
    fn at(address: std::net::SocketAddr) -> Self {
        Self { address: address.into(), user: None }
    }

    fn of(stream: &UnixStream) -> Self {
        Self { address: UnixPath::UNNAMED.into(), user: stream.peer_cred().ok().map(|client| client.uid()) }
    }
}

/// The same, registered with a thread's runtime.
#[derive(Debug)]
pub(crate) enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    pub(crate) fn new(listening: Listening) -> io::Result<Self> {
        match listening {
            Listening::Tcp(tcp) => tokio::net::TcpListener::from_std(tcp).map(Self::Tcp),
            Listening::Unix(unix) => tokio::net::UnixListener::from_std(unix).map(Self::Unix),
        }
    }

    /// The next connection.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Caller)> {
        match self {
            Self::Tcp(tcp) => {
                let (stream, address) = tcp.accept().await?;
                Ok((stream.into(), Caller::at(address)))
            }
            Self::Unix(unix) => {
                let (stream, _) = unix.accept().await?;
                let caller = Caller::of(&stream);
                Ok((stream.into(), caller))
            }
        }
    }

    /// Accepts a connection only to close it.
    pub(crate) fn poll_reject(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_accept(cx).map_ok(drop),
            Self::Unix(unix) => unix.poll_accept(cx).map_ok(drop),
        }
    }

    /// Leaves the runtime.
    pub(crate) fn into_listening(self) -> io::Result<Listening> {
        match self {
            Self::Tcp(tcp) => tcp.into_std().map(Listening::Tcp),
            Self::Unix(unix) => unix.into_std().map(Listening::Unix),
        }
    }

    /// The address of the socket.
    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(tcp) => tcp.local_addr().map(Address::Inet),
            Self::Unix(unix) => Ok(UnixPath::of_std(&unix.local_addr()?.into()).into()),
        }
    }
}
