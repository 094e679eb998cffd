//! Output of a connection: bytes to write that are not written yet.
//!
//! A head, framing and short data are put into one buffer. Long data is not copied; it leaves
//! together with the buffer before it in one vectored write. Between messages a connection holds no
//! buffer: those of a thread share its spare one.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::AsyncWrite as _;

use super::Stream;

/// Data up to this long is copied into the buffer. Copying costs less than a further part of a
/// vectored write up to about here.
const SHORT: usize = 4 * 1024;

/// The largest buffer that a thread keeps for its next message.
const MAX_KEPT: usize = 16 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Bytes to be written.
#[derive(Debug, Default)]
pub struct Output {
    buffer: Vec<u8>,
    /// How much of the buffer is written.
    written: usize,
    /// Data that follows the buffer.
    long: Bytes,
    /// Bytes that follow the data.
    tail: &'static [u8],
}

impl Output {
    /// The buffer, to append to.
    ///
    /// # Panics
    /// When long data is waiting, behind which nothing can be put.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        assert!(self.has_room(), "long data is written before anything is put behind it");
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.take();
        }
        &mut self.buffer
    }

    /// Whether something can be added before the next write.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.long.is_empty() && self.tail.is_empty()
    }

    /// Appends data, and `tail` behind it.
    pub fn data(&mut self, data: Bytes, tail: &'static [u8]) {
        if data.len() <= SHORT {
            let buffer = self.buffer();
            buffer.extend_from_slice(&data);
            buffer.extend_from_slice(tail);
        } else {
            assert!(self.has_room(), "long data is written before anything is put behind it");
            (self.long, self.tail) = (data, tail);
        }
    }

    /// How many bytes are to be written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len() - self.written + self.long.len() + self.tail.len()
    }

    /// Whether all is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes; ready when all is written. `progress` is told how much each write got out.
    ///
    /// # Errors
    /// The stream's.
    pub fn poll_write(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        mut progress: impl FnMut(usize),
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let before = &self.buffer[self.written..];
            let written = match (before, &self.long[..], self.tail) {
                (only, [], b"") | ([], only, b"") => ready!(Pin::new(&mut *stream).poll_write(cx, only))?,
                parts => {
                    let parts = [parts.0, parts.1, parts.2].map(IoSlice::new);
                    let parts = if self.tail.is_empty() { &parts[..2] } else { &parts[..] };
                    ready!(Pin::new(&mut *stream).poll_write_vectored(cx, parts))?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            progress(written);
            self.advance(written);
        }
        if stream.is_tls() {
            ready!(Pin::new(stream).poll_flush(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, written: usize) {
        let of_buffer = written.min(self.buffer.len() - self.written);
        self.written += of_buffer;
        let of_long = (written - of_buffer).min(self.long.len());
        self.long.advance(of_long);
        self.tail = &self.tail[written - of_buffer - of_long..];
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
        }
    }

    /// Gives memory back that an idle connection does not need.
    pub fn end_message(&mut self) {
        self.long = Bytes::new();
        if self.buffer.is_empty() {
            let buffer = std::mem::take(&mut self.buffer);
            if buffer.capacity() <= MAX_KEPT {
                SPARE.set(buffer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn connections_hold_no_buffer_between_messages() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut stream = Stream::Tcp(TcpStream::connect(listener.local_addr().unwrap()).await.unwrap());
        let mut other_end = listener.accept().await.unwrap().0;
        let mut outputs = [Output::default(), Output::default()];
        let mut used = Vec::new();
        for output in &mut outputs {
            output.buffer().extend_from_slice(b"ping");
            std::future::poll_fn(|cx| output.poll_write(&mut stream, cx, |_| {})).await.unwrap();
            used.push(output.buffer().as_ptr());
            output.end_message();
            assert_eq!(output.buffer.capacity(), 0);
        }
        assert_eq!(used[0], used[1], "the thread's one buffer");
        let mut got = [0; 8];
        other_end.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"pingping");
        outputs[0].buffer().resize(MAX_KEPT + 1, 0);
        outputs[0].buffer().clear();
        outputs[0].end_message();
        assert_eq!(outputs[1].buffer().capacity(), 0, "a large one is given back");
    }
}
