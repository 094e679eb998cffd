//! When a request may be sent a second time after it was sent once.
//!
//! A server may close an idle connection at the very moment at which a request is on its way to it. The
//! client cannot tell this from a server that died while serving. RFC 9110 (9.2.2) lets a client send
//! such a request again if its method is idempotent; here it must also have had no body, and the
//! connection must have been idle before (on one opened for the request there is no idle time to end). Any other request is
//! never sent again, with one exception: a server may say that it did not look at a request, which then
//! may be sent again whatever its method, if its body is still whole because there was none.
//!
//! On HTTP/1 the request is still there when it fails, so this is decided then, by what has happened to it
//! (`Exchange::fate`). For HTTP/2 a copy is made before sending, since hyper keeps what it was given; it shares the bytes of all
//! header values.

use http::{Extensions, HeaderMap, Method, Request, Uri};
use http_body::Body;

use super::outgoing::Outgoing;

/// What an HTTP/2 request without a body consists of.
pub(super) struct Copy {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    extensions: Extensions,
    /// Whether it may be sent again only if the server says that it did not look.
    only_if_refused: bool,
}

impl Copy {
    /// A copy of `request`, if it may be sent again at all. `may_end`: whether an idle time of its connection
    /// may just be ending.
    pub(super) fn of<B: Body>(request: &Request<B>, may_end: bool) -> Option<Self> {
        let only_if_refused = !may_end || !request.method().is_idempotent();
        if !request.body().is_end_stream() {
            return None;
        }
        Some(Self {
            only_if_refused,
            method: request.method().clone(),
            uri: request.uri().clone(),
            headers: request.headers().clone(),
            extensions: request.extensions().clone(),
        })
    }

    /// Whether it must not be sent again unless the server says that it did not look.
    pub(super) fn only_if_refused(&self) -> bool {
        self.only_if_refused
    }

    /// The request again.
    pub(super) fn into_request<B>(self) -> Request<Outgoing<B>> {
        let mut request = Request::new(Outgoing::empty());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.headers_mut() = self.headers;
        *request.extensions_mut() = self.extensions;
        request
    }
}
