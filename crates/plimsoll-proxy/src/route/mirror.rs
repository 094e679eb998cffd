//! The mirror of a route, on one thread: copies requests, and sends the copies to another cluster.
//!
//! A copy is *sheddable* load: the first to be shed or throttled there. Its response is dropped. It
//! neither delays nor fails the request: the copy is sent by a task of its own, once the last byte
//! of the request's body has gone to the backend. So memory is bounded by `max_active` copies of
//! `max_body` each. Requests beyond are not copied, and counted by reason.
//!
//! A copy has the field [`X_PLIMSOLL_MIRROR`], and a request with it is not copied again: two
//! proxies that mirror to each other stop after one copy. The field is no proof: clients can send it,
//! and then are not copied. The host stays as it is; Envoy appends `-shadow`, which virtual hosts at
//! the other cluster do not know.
//!
//! A copy counts for the client of its request, has the key that its own cluster reads in the
//! request as it came, and names the client's address in the PROXY protocol. Without a key of its
//! own, such as the cookie of a sticky cluster, it has that of the request.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use plimsoll::client::{self, Client, ClientAddress, RequestOptions};
use plimsoll_core::Criticality;
use plimsoll_core::pick::HashKey;
use plimsoll_core::slots::Holder;

use crate::mirror::{Fate, LiveMirror, Slot};
use crate::request_body::RequestBody;
use crate::request_body::copy::{BodyCopy, CopyError};
use crate::route::keys::Keys;

/// Marks the copy of a request.
pub(crate) const X_PLIMSOLL_MIRROR: HeaderName = HeaderName::from_static("x-plimsoll-mirror");

/// Bytes of an unwanted response that are read so that its connection can be used again, and the
/// time for it.
const MAX_DISCARDED: usize = 64 * 1024;
const MAX_DISCARD_TIME: Duration = Duration::from_secs(1);

/// Copies the requests of a route.
pub(crate) struct Mirror {
    live: Arc<LiveMirror>,
    client: Client<RequestBody>,
    timeout: Option<Duration>,
    /// The keys of copies; `None` unless the policy of their cluster reads them.
    keys: Option<Keys>,
}

impl Mirror {
    /// `timeout` is that of the route, `keys` are those of the cluster of the copies.
    pub(crate) fn new(
        live: &Arc<LiveMirror>,
        client: Client<RequestBody>,
        timeout: Option<Duration>,
        keys: Option<Keys>,
    ) -> Self {
        Self { live: Arc::clone(live), client, timeout, keys }
    }

    /// Whether copies need the [`ClientAddress`] of their request, for the PROXY protocol.
    pub(crate) fn tells_address(&self) -> bool {
        self.client.cluster().config().proxy_protocol.is_some()
    }

    /// The key of the copy of a request as it came from this client.
    pub(crate) fn key<B>(&self, request: &Request<B>, client: impl Fn() -> Option<IpAddr>) -> Option<HashKey> {
        self.keys.as_ref()?.own(request, client)
    }

    /// Copies a request of this client that is ready for its backend, if it is one of the share.
    pub(crate) fn copy(
        &self,
        request: &mut Request<RequestBody>,
        asks_to_switch: bool,
        client: (Holder, Option<HashKey>),
    ) {
        let settings = self.live.settings();
        if !settings.methods.contains(request.method()) || !self.live.takes_next() {
            return;
        }
        let max_body = settings.max_body.bytes();
        let is_copy = request.headers().contains_key(X_PLIMSOLL_MIRROR);
        let fate = match () {
            () if is_copy => Some(Fate::Copy),
            () if asks_to_switch => Some(Fate::Upgrade),
            () if request.body().size_hint().lower() > max_body as u64 => Some(Fate::TooLong),
            () => None,
        };
        match (fate, self.live.slot()) {
            (Some(fate), _) => self.live.count(fate),
            (None, None) => self.live.count(Fate::Busy),
            (None, Some(slot)) => self.start(request, max_body, slot, client),
        }
    }

    fn start(
        &self,
        request: &mut Request<RequestBody>,
        max_body: usize,
        slot: Slot,
        client: (Holder, Option<HashKey>),
    ) {
        let mut head = Request::new(());
        (*head.method_mut(), *head.uri_mut()) = (request.method().clone(), request.uri().clone());
        (*head.version_mut(), *head.headers_mut()) = (request.version(), request.headers().clone());
        if let Some(address) = request.extensions().get::<ClientAddress>() {
            head.extensions_mut().insert(*address);
        }
        head.headers_mut().insert(X_PLIMSOLL_MIRROR, HeaderValue::from_static("1"));
        // The copy has its whole body at once.
        head.headers_mut().remove(http::header::EXPECT);
        let mut options = RequestOptions::default().with_criticality(Criticality::Sheddable);
        (options.timeout, (options.client, options.key)) = (self.timeout, client);
        let send = Send { client: self.client.clone(), head, options, slot };
        if request.body().is_end_stream() {
            send.spawn(Bytes::new());
            return;
        }
        request.body_mut().copied(BodyCopy::new(max_body, move |copy| match copy {
            Ok(body) => send.spawn(body),
            Err(CopyError::TooLong) => send.slot.end(Fate::TooLong),
            Err(CopyError::Incomplete) => send.slot.end(Fate::Incomplete),
        }));
    }
}

/// A copy that waits for its body.
struct Send {
    client: Client<RequestBody>,
    head: Request<()>,
    options: RequestOptions,
    slot: Slot,
}

impl Send {
    fn spawn(self, body: Bytes) {
        let Self { client, head, options, slot } = self;
        let body = if body.is_empty() { RequestBody::empty() } else { RequestBody::whole(body) };
        let request = head.map(|()| body);
        tokio::spawn(async move {
            match client.send_with(request, options).await {
                Ok(response) => {
                    discard(response.into_body()).await;
                    slot.end(Fate::Answered);
                }
                Err(error) => {
                    tracing::debug!(error = %error.in_full(), "copy of a request failed");
                    slot.end(Fate::Failed);
                }
            }
        });
    }
}

/// Reads a short response to its end, and drops a long one.
async fn discard(mut body: client::ResponseBody) {
    let read = async {
        let mut left = MAX_DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(MAX_DISCARD_TIME, read).await;
}
