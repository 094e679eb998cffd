//! Whether a request may be sent a second time over a new connection to the same backend.
//!
//! A server may close an idle connection just as a request is on its way to it. The client cannot
//! tell this from a server that died while serving. RFC 9110 (9.2.2) lets a client send such a
//! request again if its method is idempotent. Here its body must also be whole
//! ([`Outgoing::is_whole`]), and the connection must have been idle before: one that was opened for
//! the request has no idle time to end. There is one exception: a request that the server did not
//! look at, by its own word, may be sent again with any method. [`again`](super::send) decides on
//! attempts at other backends.
//!
//! On HTTP/1 the request is still there when it fails, so the decision falls then
//! (`Exchange::fate`). For HTTP/2 a copy is made before sending, since hyper keeps the request. The
//! copy shares the bytes of all header values, and lends the body.

use http::{Extensions, HeaderMap, Method, Request, Uri};

use super::outgoing::Outgoing;
use super::request_body::RequestBody;
use super::request_options::Idempotent;

/// Whether a second execution has no further effect, by the method or by the caller's word.
pub(crate) fn is_idempotent(method: &Method, extensions: &Extensions) -> bool {
    method.is_idempotent() || extensions.get::<Idempotent>().is_some()
}

/// The parts of an HTTP/2 request.
pub(crate) struct Copy<B> {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    extensions: Extensions,
    body: Outgoing<B>,
    /// Whether it may be sent again at this backend only if the server says that it did not look.
    only_if_refused: bool,
}

impl<B: RequestBody> Copy<B> {
    /// A copy of `request`, if its body can be sent again at all. `may_end`: an idle time of its
    /// connection may just be ending.
    pub(super) fn of(request: &mut Request<Outgoing<B>>, may_end: bool) -> Option<Self> {
        let lent = request.body_mut().lend()?;
        let body = std::mem::replace(request.body_mut(), lent);
        Some(Self {
            only_if_refused: !may_end || !is_idempotent(request.method(), request.extensions()),
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            extensions: request.extensions().clone(),
            body,
        })
    }

    /// Whether carrying it out twice is the same as once.
    pub(super) fn is_idempotent(&self) -> bool {
        is_idempotent(&self.method, &self.extensions)
    }

    /// Whether all that was sent of its body is kept.
    pub(super) fn is_whole(&self) -> bool {
        self.body.is_whole()
    }

    /// Bytes that are kept of its body.
    pub(super) fn kept_bytes(&self) -> usize {
        self.body.kept_bytes()
    }

    /// Whether it must not be sent again unless the server says that it did not look.
    pub(super) fn only_if_refused(&self) -> bool {
        self.only_if_refused
    }

    /// It will not be sent again.
    pub(super) fn forget(mut self) {
        self.body.forget();
    }

    /// The request again, if its body is whole.
    pub(super) fn into_request(self) -> Option<Request<Outgoing<B>>> {
        let mut request = Request::new(self.body.take_back()?);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        *request.extensions_mut() = self.extensions;
        Some(request)
    }
}
