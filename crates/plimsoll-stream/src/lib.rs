//! The bytes of a connection: TCP or a Unix socket, with TLS around it or not.
//!
//! One enum instead of a boxed trait object or a type parameter. A read costs a branch, and the
//! owners of a connection (pools, bodies, upgrades) have one type.

mod input;
mod output;
mod socket;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
#[cfg(feature = "tls")]
use tokio_rustls::TlsStream;

pub use self::input::Input;
pub use self::output::Output;
pub use self::socket::Socket;

/// A connection: a socket, with or without TLS.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A plain Unix socket.
    Unix(UnixStream),
    /// TLS over a socket, of either side.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream<Socket>>),
}

impl Stream {
    /// Whether TLS is around it.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        match self {
            #[cfg(feature = "tls")]
            Self::Tls(_) => true,
            Self::Tcp(_) | Self::Unix(_) => false,
        }
    }

    /// Ready when a read may return bytes, the end, or an error. It costs no system call.
    ///
    /// Under TLS a read may still return nothing, because the bytes were a message of the protocol
    /// itself.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx),
            Self::Unix(unix) => unix.poll_read_ready(cx),
            // Data from the end of a handshake may be decrypted already while the socket is empty.
            #[cfg(feature = "tls")]
            Self::Tls(tls) if !tls.get_ref().1.wants_read() => Poll::Ready(Ok(())),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.get_ref().0.poll_read_ready(cx),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.get_ref().0.as_fd(),
        }
    }
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        match socket {
            Socket::Tcp(tcp) => Self::Tcp(tcp),
            Socket::Unix(unix) => Self::Unix(unix),
        }
    }
}

impl From<TcpStream> for Stream {
    fn from(tcp: TcpStream) -> Self {
        Self::Tcp(tcp)
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, buf),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Self::Unix(unix) => Pin::new(unix).poll_write_vectored(cx, bufs),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Unix(unix) => unix.is_write_vectored(),
            #[cfg(feature = "tls")]
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }
}

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(not(target_os = "linux"))]
compile_error!(
    "plimsoll-stream needs Linux; help: use plimsoll-core or plimsoll-tower, or one of the other portable crates (docs/crates.md)"
);
