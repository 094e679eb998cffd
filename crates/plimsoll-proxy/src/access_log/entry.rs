//! The facts of one request, for its line in the log and its span.
//!
//! The client's texts are kept as they came, up to a length (`texts`), and escaped when the line is
//! made.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::header::{HOST, REFERER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use plimsoll::address::Address;
use plimsoll_core::Criticality;
use plimsoll_core::shedding::Label;
use plimsoll_wire::headers::TRACEPARENT;
use plimsoll_wire::orca;

use super::line::MAX_TEXT;
use super::texts::{Text, Texts};
use crate::explain::X_REQUEST_ID;
use crate::peer::Peer;

/// A request in the log, or one whose span is recorded. The public fields are filled in on its way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: SystemTime,
    pub(crate) begun: Instant,
    pub(crate) client: Address,
    pub(crate) listener: Arc<str>,
    pub(crate) scheme: &'static str,
    pub(super) tls_version: Option<&'static str>,
    pub(super) server_name: Option<Box<str>>,
    pub(crate) method: Method,
    pub(crate) protocol: Version,
    pub(super) texts: Texts,
    /// Cut as the line cuts it.
    customer: Option<Box<[u8]>>,
    /// Where its route leads.
    pub(crate) cluster: Option<Arc<str>>,
    /// Of the answer; `None` when the client left before there was one.
    pub(crate) status: Option<StatusCode>,
    /// Of the request's body, as far as it was read.
    pub(crate) bytes_in: u64,
    /// Of the answer's body, as far as it was handed to the connection.
    pub(crate) bytes_out: u64,
    /// From the begin of the request to the head of the backend's answer.
    pub(crate) head_after: Option<Duration>,
    /// The backend that responded, or was asked last.
    pub(crate) backend: Option<Address>,
    /// Attempts at backends.
    pub(crate) attempts: u32,
    /// How critical it is; `None` where no cluster was chosen.
    pub(crate) criticality: Option<Criticality>,
    /// Cost that the gate expected, in CPU-seconds; `None` if no gate was asked.
    pub(crate) expected: Option<f64>,
    /// Cost that the backend reported, in CPU-seconds.
    pub(crate) used: Option<f64>,
    /// The id that the proxy made for it.
    own_id: Option<Box<Label>>,
    /// The id in the response, where it is another than the request's.
    response_id: Option<Box<[u8]>>,
    /// Why the proxy answered itself: the word in the response.
    pub(crate) reason: Option<&'static str>,
    /// A narrower word for that.
    pub(crate) cause: Option<&'static str>,
    /// The kind of answer in place of an error.
    pub(crate) degraded: Option<&'static str>,
    /// The answer came to its end.
    pub(crate) complete: bool,
    /// It has a line in the log.
    pub(crate) is_logged: bool,
}

impl Entry {
    /// Of a request whose head has just been read, before anything in it is changed.
    pub(crate) fn new<B>(peer: &Peer, listener: &Arc<str>, request: &Request<B>) -> Self {
        let uri = request.uri();
        let field = |name| request.headers().get(name).map(HeaderValue::as_bytes);
        // The host that the request was for, as the client wrote it.
        let authority = uri.authority().map(|authority| authority.as_str().as_bytes()).or_else(|| field(HOST));
        // Path and query. `CONNECT` has none, and `OPTIONS *` no slash.
        let path = uri.path_and_query().map(|path| path.as_str().as_bytes());
        // In the order of `Text`.
        let [agent, id, trace_parent, referer] = [USER_AGENT, X_REQUEST_ID, TRACEPARENT, REFERER].map(field);
        let texts = [authority, path, agent, id, trace_parent, referer];
        let tls = peer.tls.as_ref();
        Self {
            at: SystemTime::now(),
            begun: Instant::now(),
            client: peer.address,
            listener: Arc::clone(listener),
            scheme: if tls.is_some() { "https" } else { "http" },
            tls_version: tls.map(|tls| tls.version),
            server_name: tls.and_then(|tls| tls.server_name.clone()),
            method: request.method().clone(),
            protocol: request.version(),
            texts: Texts::copy(texts),
            customer: None,
            cluster: None,
            status: None,
            bytes_in: 0,
            bytes_out: 0,
            head_after: None,
            backend: None,
            attempts: 0,
            criticality: None,
            expected: None,
            used: None,
            own_id: None,
            response_id: None,
            reason: None,
            cause: None,
            degraded: None,
            complete: false,
            is_logged: true,
        }
    }

    /// The head of a backend's answer is here.
    pub(crate) fn on_head(&mut self, status: StatusCode) {
        self.status = Some(status);
        self.head_after = Some(self.begun.elapsed());
    }

    /// The head or the trailers of a backend's answer are here, which may report the cost.
    pub(crate) fn hear(&mut self, fields: &HeaderMap) {
        self.used = orca::request_cpu(fields).or(self.used);
    }

    /// The answer has this head, and the proxy made this id for the request.
    pub(crate) fn on_answer(&mut self, status: StatusCode, fields: &HeaderMap, own_id: Option<Label>) {
        self.status = Some(status);
        self.own_id = own_id.map(Box::new);
        let id = fields.get(X_REQUEST_ID).map(HeaderValue::as_bytes).filter(|id| self.request_id() != Some(*id));
        self.response_id = id.map(|id| id[..id.len().min(MAX_TEXT + 1)].into());
    }

    /// The sender's id, else the one that the proxy made.
    pub(crate) fn request_id(&self) -> Option<&[u8]> {
        self.text(Text::RequestId).or_else(|| Some(self.own_id.as_ref()?.as_str().as_bytes()))
    }

    /// The id in the response, where it is another one.
    pub(super) fn response_id(&self) -> Option<&[u8]> {
        self.response_id.as_deref()
    }

    /// The customer of the request, once it is known.
    pub(crate) fn set_customer(&mut self, name: Option<&[u8]>) {
        self.customer = name.map(|name| name[..name.len().min(MAX_TEXT + 1)].into());
    }

    /// Its customer.
    pub(crate) fn customer(&self) -> Option<&[u8]> {
        self.customer.as_deref()
    }

    /// A text of the client.
    pub(crate) fn text(&self, text: Text) -> Option<&[u8]> {
        self.texts.get(text)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn an_entry_does_not_hold_the_buffer_of_the_head() {
        let head = Bytes::from(b"/path a.example agent id".repeat(100));
        let part = |range| HeaderValue::from_maybe_shared(head.slice(range)).unwrap();
        let mut request = Request::new(());
        *request.uri_mut() = http::Uri::from_maybe_shared(head.slice(..5)).unwrap();
        for (name, range) in [(HOST, 6..15), (USER_AGENT, 16..21), (X_REQUEST_ID, 22..24), (TRACEPARENT, 22..24)] {
            request.headers_mut().insert(name, part(range));
        }
        let peer = Peer {
            address: ([10, 0, 0, 9], 51312).into(),
            local: ([10, 0, 0, 1], 80).into(),
            user: None,
            tls: None,
            is_unnamed: false,
        };
        let entry = Entry::new(&peer, &Arc::from("public"), &request);
        drop(request);
        assert!(head.is_unique());
        assert_eq!(entry.text(Text::Authority), Some(&b"a.example"[..]));
        assert_eq!(entry.text(Text::Path), Some(&b"/path"[..]));
    }
}
