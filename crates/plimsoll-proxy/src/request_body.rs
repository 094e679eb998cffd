//! The body of a request on its way to a backend: within its limit, and whole or known not to be.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::{Request, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Handle;

/// How long the rest of a body that nobody wants is read and thrown away. A client that still sends when its
/// connection is closed gets a reset, which may overtake the answer that says why; nginx lingers likewise.
const LINGER: Duration = Duration::from_secs(1);

/// The body of a request on its way to a backend, cut off with an error where it is longer than allowed.
pub(crate) struct RequestBody {
    /// Until it has ended.
    incoming: Option<Incoming>,
    left: u64,
    overrun: Option<Arc<AtomicBool>>,
    http2: bool,
    lingers: bool,
}

/// Why the body of a request cannot be passed on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestBodyError {
    TooLong,
    CutOff,
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the body of the request is longer than this listener allows",
            Self::CutOff => "the client gave the request up in the middle of its body",
        })
    }
}

impl std::error::Error for RequestBodyError {}

impl RequestBody {
    /// The body of `request`, of `limit` bytes at most.
    pub(crate) fn of(request: Request<Incoming>, limit: Option<u64>) -> Request<Self> {
        let http2 = request.version() == Version::HTTP_2;
        // A client that waits to be told to go on has sent nothing that would have to be read.
        let lingers = !http2 && !request.headers().contains_key(EXPECT);
        request.map(|incoming| {
            let length_is_open = incoming.size_hint().exact().is_none();
            let overrun = limit.filter(|_| length_is_open).map(|_| Arc::default());
            Self { incoming: Some(incoming), left: limit.unwrap_or(u64::MAX), overrun, http2, lingers }
        })
    }

    /// Tells, also when the body is gone, whether it was too long; `None` if its length was known beforehand.
    pub(crate) fn overrun(&self) -> Option<Arc<AtomicBool>> {
        self.overrun.clone()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let Some(incoming) = &mut this.incoming else { return Poll::Ready(None) };
        let Some(frame) = ready!(Pin::new(&mut *incoming).poll_frame(cx)) else {
            // hyper takes a stream that was reset without an error for an ended one. A backend must not see a whole
            // request where the client sent half of one.
            let cut_off = this.http2 && !incoming.is_end_stream();
            this.incoming = None;
            return Poll::Ready(cut_off.then(|| Err(RequestBodyError::CutOff.into())));
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                this.incoming = None;
                return Poll::Ready(Some(Err(error.into())));
            }
        };
        if let Some(data) = frame.data_ref() {
            match this.left.checked_sub(data.len() as u64) {
                Some(left) => this.left = left,
                None => {
                    if let Some(overrun) = &this.overrun {
                        overrun.store(true, Ordering::Relaxed);
                    }
                    return Poll::Ready(Some(Err(RequestBodyError::TooLong.into())));
                }
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(incoming) = self.incoming.take()
            && self.lingers
            && !incoming.is_end_stream()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(tokio::time::timeout(LINGER, discard(incoming)));
        }
    }
}

/// Reads `incoming` to its end, for nobody.
async fn discard(mut incoming: Incoming) {
    while let Some(Ok(_)) = incoming.frame().await {}
}
