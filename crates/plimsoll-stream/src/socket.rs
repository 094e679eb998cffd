//! The socket of a connection: TCP, or Unix.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connected socket.
#[derive(Debug)]
pub enum Socket {
    /// TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
}

impl Socket {
    /// Ready when a read may return bytes, the end, or an error. It costs no system call.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(tcp) => tcp.poll_read_ready(cx),
            Self::Unix(unix) => unix.poll_read_ready(cx),
        }
    }

    /// Waits for bytes and copies them into `buffer`; they stay in the socket. Zero: its end.
    ///
    /// # Errors
    /// The socket's.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.peek(buffer).await,
            Self::Unix(unix) => {
                let look = || Ok(recv(unix, &mut *buffer, RecvFlags::PEEK)?.0);
                unix.async_io(Interest::READABLE, look).await
            }
        }
    }

    /// Reads without waiting. An error of the kind `WouldBlock`: nothing has come.
    ///
    /// # Errors
    /// The socket's.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.try_read(buffer),
            Self::Unix(unix) => unix.try_read(buffer),
        }
    }
}

impl From<TcpStream> for Socket {
    fn from(tcp: TcpStream) -> Self {
        Self::Tcp(tcp)
    }
}

impl From<UnixStream> for Socket {
    fn from(unix: UnixStream) -> Self {
        Self::Unix(unix)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Self::Unix(unix) => Pin::new(unix).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Unix(unix) => Pin::new(unix).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Unix(unix) => Pin::new(unix).poll_shutdown(cx),
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
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_write_vectored(),
            Self::Unix(unix) => unix.is_write_vectored(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn peeked_bytes_stay_in_a_unix_socket() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let mut server = Socket::from(server);
        let mut seen = [0; 8];
        assert_eq!(server.try_read(&mut seen).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.write_all(b"PRI").await.unwrap();
        for _ in 0..2 {
            assert_eq!(server.peek(&mut seen).await.unwrap(), 3);
        }
        assert_eq!(server.read(&mut seen).await.unwrap(), 3);
        drop(client);
        assert_eq!(server.peek(&mut seen).await.unwrap(), 0);
    }
}
