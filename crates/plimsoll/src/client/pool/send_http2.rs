//! Requests on the HTTP/2 connections of a pool.

use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use plimsoll_core::BackendId;
use tokio::sync::oneshot;

use super::Pool;
use crate::client::backend::Backend;
use crate::client::config::Version;
use crate::client::error::ConnectError;
use crate::client::form;
use crate::client::outgoing::Outgoing;
use crate::client::replay::Copy;
use crate::client::request_body::RequestBody;
use crate::client::stream_id::{ConnectionId, StreamId};

/// The result of sending an HTTP/2 request.
#[expect(clippy::large_enum_variant, reason = "the large one is nearly every one")]
pub(crate) enum Sending<F, B> {
    /// On a connection; with its body, to follow its progress, and a copy if it may be sent again.
    /// The answer is boxed, as it may hold the request once more.
    Sent(Pin<Box<F>>, StreamId, Arc<Backend>, Outgoing<B>, Option<Copy<B>>),
    /// Somebody opens a connection; wait for it, then try again.
    Wait(Arc<Backend>, oneshot::Receiver<Result<(), ConnectError>>),
    /// The backend is no member any more.
    Gone,
}

/// The output of hyper's future.
type Answer<B> = Result<Response<Incoming>, TrySendError<Request<B>>>;

impl<B: RequestBody> Pool<B> {
    /// Puts `request` on an HTTP/2 connection to `id` if one has room, and leaves an empty one in its place.
    pub(crate) fn send_http2(
        self: &Arc<Self>,
        id: BackendId,
        request: &mut Request<Outgoing<B>>,
        lent_host: &mut bool,
    ) -> Sending<impl Future<Output = Answer<Outgoing<B>>> + use<B>, B> {
        // Dropped after the lock is released.
        let outdated;
        let mut state = self.state.lock();
        outdated = state.refresh(id, &self.cluster);
        self.count_closed(id, outdated.len());
        let (max_streams, scheme) = (state.config.max_streams.get(), state.scheme.clone());
        let Some(slot) = state.slot(id, &self.cluster) else {
            return Sending::Gone;
        };
        let backend = slot.backend.clone();
        match slot.http2.with_room(max_streams) {
            Some((key, serial)) => {
                form::http2(request, &backend, &scheme, lent_host);
                let copy = Copy::of(request, slot.http2.was_idle(key));
                let body = request.body_mut().share();
                let request = std::mem::replace(request, Request::new(Outgoing::empty()));
                let heard = slot.http2.heard(key);
                let answer = Box::pin(slot.http2.send(key, request));
                let stream = StreamId { connection: ConnectionId { backend: id, key, serial }, heard };
                Sending::Sent(answer, stream, backend, body, copy)
            }
            None => {
                let (opened, receiver) = oneshot::channel();
                if slot.http2.wait_for_opening(Some(opened)) {
                    drop(state);
                    self.open_in_background(id, Version::Http2);
                }
                Sending::Wait(backend, receiver)
            }
        }
    }
}
