//! One body type for requests of all kinds.
//!
//! A [`Client`](crate::client::Client) sends any `http_body::Body`, and each of its types is a client
//! of its own. A program with bodies from several places would box them. This type does so once: a
//! body that is whole is kept as bytes, without a box, and any other one is boxed. A body within a
//! body is not boxed again.
//!
//! Sizes stay known. They decide whether a request can be retried, and whether HTTP/1.1 sends a
//! length or chunks.

use std::any::Any;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Stream, StreamExt as _};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::StreamBody;
use pin_project_lite::pin_project;

/// An error of any type.
type BoxError = Box<dyn Error + Send + Sync>;

/// A body of any origin: bytes, text, or another `http_body::Body`.
///
/// ```
/// use plimsoll::Body;
///
/// let bodies = [
///     Body::empty(),
///     Body::from("some text"),
///     Body::from(vec![1, 2, 3]),
///     Body::new(axum::body::Body::from("from a handler of axum")),
///     Body::new(tonic::body::Body::empty()),
/// ];
/// # assert_eq!(bodies.map(|body| http_body::Body::size_hint(&body).exact()), [0, 9, 3, 22, 0].map(Some));
/// ```
///
/// A request that a handler passes on needs one call, with its body of hyper, axum, tonic or reqwest:
///
/// ```
/// use plimsoll::Body;
/// use plimsoll::client::{Client, Error, ResponseBody};
///
/// async fn pass_on(
///     client: &Client,
///     request: http::Request<axum::body::Body>,
/// ) -> Result<http::Response<ResponseBody>, Error> {
///     client.send(request.map(Body::new)).await
/// }
/// ```
pub struct Body(Kind);

enum Kind {
    /// The rest of a body without trailers that is whole.
    Whole(Bytes),
    Other(Pin<Box<dyn HttpBody<Data = Bytes, Error = BoxError> + Send>>),
}

impl Body {
    /// No body.
    #[must_use]
    pub const fn empty() -> Self {
        Self(Kind::Whole(Bytes::new()))
    }

    /// Any other body. It costs one allocation, or none if it is a `Body` or has ended.
    #[must_use]
    pub fn new<B>(body: B) -> Self
    where
        B: HttpBody<Error: Into<BoxError>> + Send + 'static,
    {
        let mut body = Some(body);
        if let Some(same) = (&mut body as &mut dyn Any).downcast_mut::<Option<Self>>().and_then(Option::take) {
            return same;
        }
        match body {
            Some(body) if !body.is_end_stream() => Self(Kind::Other(Box::pin(Plain { body }))),
            _ => Self::empty(),
        }
    }

    /// A body of unknown length from a stream of its pieces.
    ///
    /// ```
    /// use futures_util::stream;
    /// use plimsoll::Body;
    ///
    /// let pieces = ["one", "two"].map(Ok::<_, std::io::Error>);
    /// let body = Body::from_stream(stream::iter(pieces));
    /// # assert_eq!(http_body::Body::size_hint(&body).exact(), None);
    /// ```
    #[must_use]
    pub fn from_stream<S, D, E>(pieces: S) -> Self
    where
        S: Stream<Item = Result<D, E>> + Send + 'static,
        D: Into<Bytes>,
        E: Into<BoxError>,
    {
        Self(Kind::Other(Box::pin(Plain {
            body: StreamBody::new(pieces.map(|piece| piece.map(|piece| Frame::data(piece.into())))),
        })))
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("size_hint", &self.size_hint()).finish_non_exhaustive()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

impl From<Cow<'static, str>> for Body {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => text.into(),
            Cow::Owned(text) => text.into(),
        }
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.0 {
            Kind::Whole(rest) if rest.is_empty() => Poll::Ready(None),
            Kind::Whole(rest) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(rest))))),
            Kind::Other(body) => body.as_mut().poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(rest) => rest.is_empty(),
            Kind::Other(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Kind::Other(body) => body.size_hint(),
        }
    }
}

pin_project! {
    /// A body with plain bytes and a boxed error.
    struct Plain<B> {
        #[pin]
        body: B,
    }
}

impl<B: HttpBody<Error: Into<BoxError>>> HttpBody for Plain<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(self.project().body.poll_frame(cx));
        // Of `Bytes` this is no copy.
        let plain = |frame: Frame<B::Data>| frame.map_data(|mut data| data.copy_to_bytes(data.remaining()));
        Poll::Ready(frame.map(|frame| frame.map(plain).map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::marker::PhantomPinned;

    use http::HeaderMap;
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    pin_project! {
        /// A piece that is no `Bytes`, trailers and an error; not `Unpin`.
        struct Chained {
            left: u8,
            #[pin]
            pinned: PhantomPinned,
        }
    }

    impl HttpBody for Chained {
        type Data = bytes::buf::Chain<&'static [u8], &'static [u8]>;
        type Error = &'static str;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Self::Data>, &'static str>>> {
            let left = self.project().left;
            *left -= 1;
            Poll::Ready(Some(match *left {
                3 => Ok(Frame::data(b"one, ".chain(&b"two"[..]))),
                2 => Ok(Frame::trailers(HeaderMap::from_iter([(http::header::ETAG, "a".parse().unwrap())]))),
                1 => Err("broken"),
                _ => return Poll::Ready(None),
            }))
        }
    }

    #[tokio::test]
    async fn pieces_trailers_and_errors_of_any_body_pass() {
        let mut body = Body::new(Chained { left: 4, pinned: PhantomPinned });
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one, two");
        assert_eq!(body.frame().await.unwrap().unwrap().into_trailers().unwrap()[http::header::ETAG], "a");
        assert_eq!(body.frame().await.unwrap().unwrap_err().to_string(), "broken");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn whole_body_has_its_length_and_ends_with_its_bytes() {
        for (body, text) in [
            (Body::from("text"), "text"),
            (Body::from("text".to_owned()), "text"),
            (Body::from(b"text".to_vec()), "text"),
            (Body::from(&b"text"[..]), "text"),
            (Body::from(Cow::Borrowed("text")), "text"),
            (Body::from(Cow::from("text".to_owned())), "text"),
            (Body::from(()), ""),
            (Body::default(), ""),
        ] {
            let mut body = body;
            assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(text.len() as u64), text.is_empty()));
            if !text.is_empty() {
                assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), text);
            }
            assert!(body.is_end_stream() && body.frame().await.is_none());
            assert_eq!(body.size_hint().exact(), Some(0));
        }
    }

    #[tokio::test]
    async fn body_within_a_body_is_not_boxed_again() {
        let whole = Body::new(Body::new(Body::from("text")));
        assert!(matches!(&whole.0, Kind::Whole(text) if text == "text"));
        let boxed = Body::new(Full::new(Bytes::from_static(b"text")));
        let Kind::Other(inner) = &boxed.0 else { panic!("it is boxed") };
        let address = std::ptr::from_ref(&**inner).cast::<()>();
        let again = Body::new(boxed);
        let Kind::Other(inner) = &again.0 else { panic!("it is boxed") };
        assert_eq!(std::ptr::from_ref(&**inner).cast::<()>(), address);
        assert_eq!(again.collect().await.unwrap().to_bytes(), "text");
    }

    #[tokio::test]
    async fn size_of_another_body_stays_known() {
        let of = |body: Body| (body.size_hint().exact(), body.is_end_stream());
        assert_eq!(of(Body::new(Full::new(Bytes::from_static(b"text")))), (Some(4), false));
        assert_eq!(of(Body::new(Full::new(Bytes::new()))), (Some(0), true));
        assert_eq!(of(Body::new(axum::body::Body::from("text"))), (Some(4), false));
        assert_eq!(of(Body::new(tonic::body::Body::empty())), (Some(0), true));
        let stream = futures_util::stream::iter([Ok::<_, Infallible>("text")]);
        assert_eq!(of(Body::from_stream(stream)), (None, false));
    }
}
