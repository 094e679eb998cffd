//! The loop that accepts connections at one socket.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plimsoll::address::UnixPath;
use plimsoll_stream::{Socket, Stream};
use tokio::sync::watch;

use crate::connection::permits::Permit;
use crate::listener::ListenerState;
use crate::listener::clients::{Admitted, Client};
use crate::listener::handshake;
use crate::listener::rejections::RejectReason;
use crate::listener::serve;
use crate::peer::Peer;
use crate::phase::{self, Phase};
use crate::pressure::descriptors::{self, Reserve};
use crate::sockets::{Accepting, BACKLOG, Caller, Listening};

/// Pause after a failed accept, such as for want of descriptors: nothing gets better by trying at
/// once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Largest number of connections taken from the queue of a socket that is about to close. The queue
/// cannot hold more. Later connections reach a successor with the same socket.
const MAX_QUEUED: i32 = BACKLOG;

/// Until it is opened nothing is accepted, and new connections wait in the socket's queue. When it
/// is dropped, the loops of its listener accept the connections made so far, and end. If it was
/// never opened, they are left to the other holder of the socket.
#[derive(Debug)]
pub(crate) struct Door(watch::Sender<bool>);

impl Door {
    pub(crate) fn new(is_open: bool) -> Self {
        Self(watch::Sender::new(is_open))
    }

    pub(crate) fn open(&self) {
        self.0.send_replace(true);
    }

    /// For one loop.
    pub(crate) fn watch(&self) -> Doorway {
        Doorway(self.0.subscribe())
    }
}

/// A loop's end of a [`Door`].
#[derive(Debug)]
pub(crate) struct Doorway(watch::Receiver<bool>);

impl Doorway {
    /// Waits for the door to be opened; says whether it was.
    async fn opened(&mut self) -> bool {
        self.0.wait_for(|is_open| *is_open).await.is_ok()
    }

    async fn closed(&mut self) {
        // Once it is open an error is all that can come.
        while self.0.changed().await.is_ok() {}
    }
}

/// Accepts connections until the listener closes, and then those that had connected before.
///
/// A permit is taken for a connection that is there, not for one that may come: a thread that waits
/// for one must not keep the last permit from another thread that has one. So each thread may hold
/// one connection that waits for a permit.
pub(crate) async fn accept(socket: Listening, state: Arc<ListenerState>, mut door: Doorway) {
    if !door.opened().await {
        return;
    }
    let listener = match Accepting::new(socket) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot accept connections"),
    };
    let local = listener.address().unwrap_or(UnixPath::UNNAMED.into());
    let mut phases = state.context.life.watch();
    let mut reserve = Reserve::hold();
    loop {
        // An accept takes as long as a request, so a crowd would hold up all open connections.
        // Between two accepts the runtime polls all sockets. nginx does likewise, HAProxy after
        // four.
        tokio::task::yield_now().await;
        let accepted = tokio::select! {
            biased;
            () = closing(&mut phases, &mut door) => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, caller) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if descriptors::is_shortage(&error) => {
                if turn_away(&listener, &mut reserve, &state).await == 0 {
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                continue;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(admitted) = admit(&state, caller) else { continue };
        let permit = tokio::select! {
            biased;
            permit = Permit::take(&state.shared.permits, &state.context.limits) => permit,
            () = closing(&mut phases, &mut door) => Permit::take_anyway(&state.shared.permits),
        };
        let peer = Peer::of_socket(&stream, caller, local);
        begin(stream, peer, (permit, admitted), &state);
    }
    // Connections in the kernel's queue are established, as far as their clients know.
    let Ok(listener) = listener.into_listening() else { return };
    for _ in 0..MAX_QUEUED {
        let Ok((stream, caller)) = listener.accept() else { return };
        if let Some(admitted) = admit(&state, caller) {
            let peer = Peer::of_socket(&stream, caller, local);
            begin(stream, peer, (Permit::take_anyway(&state.shared.permits), admitted), &state);
        }
    }
}

async fn closing(phases: &mut watch::Receiver<Phase>, door: &mut Doorway) {
    tokio::select! {
        () = phase::reached(phases, Phase::Closing) => {}
        () = door.closed() => {}
    }
}

/// Closes those that wait in the queue when there is no descriptor for them; says how many.
async fn turn_away(listener: &Accepting, reserve: &mut Reserve, state: &ListenerState) -> u64 {
    let count = reserve.turn_away(listener).await;
    state.shared.rejections.add(RejectReason::Descriptors, count);
    state.shared.pressure.on_shortage(count);
    count
}

/// Counts a connection for its client; `None` when it is to be closed, as the client has too many
/// or memory is nearly used up.
fn admit(state: &ListenerState, caller: Caller) -> Option<Admitted> {
    if state.shared.pressure.refuses() {
        state.shared.rejections.add(RejectReason::Memory, 1);
        return None;
    }
    let limits = state.context.limits.load();
    // Behind a proxy whose connections begin with the client's address, that is counted, once it is
    // known.
    let most = if limits.proxy_protocol.is_none() { limits.max_connections_per_client } else { None };
    state.shared.clients.admit(Client::of(caller.address, caller.user), most)
}

/// Spawns the task of a connection.
fn begin(stream: Socket, peer: Peer, held: (Permit, Admitted), state: &Arc<ListenerState>) {
    state.shared.accepted.fetch_add(1, Ordering::Relaxed);
    let tls = state.shared.tls.load_full();
    if tls.is_none() && state.context.limits.load().proxy_protocol.is_none() {
        tokio::spawn(serve::serve(stream.into(), peer, &state.context, held));
        return;
    }
    let state = Arc::clone(state);
    // In boxes, so that a connection past the handshake does not reserve memory for it.
    let opened = Box::pin(handshake::open(stream, peer, tls, Arc::clone(&state)));
    tokio::spawn(async move {
        if let Some(served) = opened.await.and_then(|opened| opened_one(opened, held, &state)) {
            served.await;
        }
    });
}

/// The rest of a connection past its handshake; `None` if its client has too many. Behind a proxy
/// the client was unknown before.
fn opened_one(
    (stream, peer): (Stream, Peer),
    held: (Permit, Admitted),
    state: &ListenerState,
) -> Option<Pin<Box<impl Future<Output = ()> + Send + use<>>>> {
    let limits = state.context.limits.load();
    let most = if limits.proxy_protocol.is_some() { limits.max_connections_per_client } else { None };
    let admitted = state.shared.clients.admit(Client::of(peer.address, peer.user), most)?;
    Some(Box::pin(serve::serve(stream, peer, &state.context, (held, admitted))))
}
