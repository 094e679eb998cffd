//! Input of a connection: bytes read and not yet consumed.
//!
//! A connection that waits for a message holds no memory for it. Heads are read into a buffer that
//! the thread's connections share, and the bytes that came, a few hundred, are copied out. Bodies
//! that arrive in small pieces are read the same way. When a sender fills that buffer, the body is
//! read in place, into a buffer that is handed on as it is. This buffer grows while it is filled,
//! so a long body takes few system calls. However small the pieces, a connection holds no more
//! memory than it has bytes.

use std::cell::RefCell;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, ReadBuf};

use super::Stream;

/// The shared buffer, for each thread: more than nearly all heads, and short bodies with them.
const SCRATCH: usize = 16 * 1024;
/// The largest buffer for a body: as much as the kernel takes at once for a client that is slower
/// than its backend. A larger one saves no measurable time, and holds the thread for longer.
const LARGEST_BODY: usize = 128 * 1024;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH].into());
}

/// Bytes that were read and not yet taken.
#[derive(Debug)]
pub struct Input {
    bytes: BytesMut,
    /// How much the next read of a body may bring.
    room: usize,
}

impl Default for Input {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), room: SCRATCH }
    }
}

impl Input {
    /// The bytes, to be taken from the front.
    pub fn bytes(&mut self) -> &mut BytesMut {
        &mut self.bytes
    }

    /// Whether all that was read is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reads where a head may be next. Returns how much came; zero at the end of the stream.
    ///
    /// # Errors
    /// The stream's.
    pub fn poll_head(&mut self, stream: &mut Stream, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        SHARED.with_borrow_mut(|shared| {
            let mut buf = ReadBuf::new(shared);
            ready!(Pin::new(stream).poll_read(cx, &mut buf))?;
            let read = buf.filled();
            if self.bytes.is_empty() {
                self.bytes = BytesMut::from(read);
            } else {
                self.bytes.extend_from_slice(read);
            }
            Poll::Ready(Ok(read.len()))
        })
    }

    /// Reads body data into the input, with `left` bytes known to be outstanding. Returns the
    /// number of bytes read; zero at the end of the stream.
    ///
    /// # Errors
    /// The stream's.
    pub fn poll_body(
        &mut self,
        stream: &mut Stream,
        cx: &mut Context<'_>,
        left: Option<u64>,
    ) -> Poll<io::Result<usize>> {
        let known = left.and_then(|left| usize::try_from(left).ok()).unwrap_or(usize::MAX);
        let polled = if self.room <= SCRATCH || known < SCRATCH {
            self.poll_head(stream, cx)
        } else {
            self.poll_in_place(stream, cx, known)
        };
        if let Poll::Ready(Ok(read)) = polled {
            if read >= self.room {
                self.room = (self.room * 2).min(LARGEST_BODY);
            } else if read < SCRATCH {
                self.room = SCRATCH;
            }
        }
        polled
    }

    fn poll_in_place(&mut self, stream: &mut Stream, cx: &mut Context<'_>, known: usize) -> Poll<io::Result<usize>> {
        // One byte more than is known to come: a read that fills its buffer has to be followed by
        // another, to learn that there is no more.
        let room = self.room.min(known.saturating_add(1));
        if self.bytes.is_empty() {
            self.bytes = BytesMut::with_capacity(room);
        } else {
            self.bytes.reserve(room);
        }
        let read = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
        if self.bytes.len() < SCRATCH {
            self.bytes = BytesMut::from(&self.bytes[..]);
        }
        read
    }

    /// The message is over: the next one begins with small buffers again.
    pub fn end_message(&mut self) {
        self.room = SCRATCH;
        if self.bytes.is_empty() {
            self.bytes = BytesMut::new();
        }
    }
}
