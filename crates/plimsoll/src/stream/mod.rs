//! The bytes of a connection: TCP, with TLS around it or not.
//!
//! One enum instead of a boxed trait object or a type parameter. A read costs a branch, and the
//! owners of a connection (pools, bodies, upgrades) have one type.

mod input;
mod output;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;

pub use self::input::Input;
pub use self::output::Output;

/// A connection: TCP, with or without TLS.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// TLS over TCP, of either side.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The socket.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Tcp(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Ready when a read may return bytes, the end, or an error. It costs no system call.
    ///
    /// Under TLS a read may still return nothing, because the bytes were a message of the protocol
    /// itself.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Data from the end of a handshake may be decrypted already while the socket is empty.
        if let Self::Tls(tls) = self
            && !tls.get_ref().1.wants_read()
        {
            return Poll::Ready(Ok(()));
        }
        self.tcp().poll_read_ready(cx)
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
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
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
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }
}
