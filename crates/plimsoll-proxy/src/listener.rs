//! One listening address on one thread: its limits, its routes, and the loop that accepts.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response};
use plimsoll::client::{self, Client};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

use crate::answer::Refusal;
use crate::body::RequestBody;
use crate::config;
use crate::connection;
use crate::phase::{Life, Phase};
use crate::route::RouteTable;

/// Connections that the kernel may hold before they are accepted: enough for a burst during a reload.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept, such as for want of descriptors: nothing gets better by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What a client may take of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    pub(crate) header_read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_headers: usize,
    pub(crate) max_header_size: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_body: Option<u64>,
}

impl From<&config::Listener> for Limits {
    fn from(listener: &config::Listener) -> Self {
        Self {
            header_read_timeout: listener.header_read_timeout,
            idle_timeout: listener.idle_timeout,
            max_headers: listener.max_headers.get() as usize,
            max_header_size: listener.max_header_size.bytes(),
            max_connections: listener.max_connections.get(),
            max_body: listener.max_body.map(|size| size.bytes() as u64),
        }
    }
}

/// Where a route leads, on one thread.
pub(crate) struct Target {
    client: Client<RequestBody>,
    request_timeout: Option<Duration>,
}

impl Target {
    pub(crate) fn new(client: Client<RequestBody>, request_timeout: Option<Duration>) -> Self {
        Self { client, request_timeout }
    }

    pub(crate) fn cluster_name(&self) -> &str {
        self.client.cluster().name()
    }

    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<client::ResponseBody>, client::Error> {
        match self.request_timeout {
            None => self.client.send(request).await,
            Some(timeout) => self.client.send_within(request, timeout).await,
        }
    }
}

/// Requests that the proxy answered itself, by reason.
#[derive(Debug, Default)]
pub(crate) struct Refusals([AtomicU64; 4]);

impl Refusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [Refusal::NoRoute, Refusal::Connect, Refusal::BodyTooLarge, Refusal::BadHost];
        all.into_iter().map(|refusal| (refusal.name(), self.0[refusal as usize].load(Ordering::Relaxed)))
    }
}

/// What the threads of one listener share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) refusals: Refusals,
    connections: AtomicUsize,
    pub(crate) accepted: AtomicU64,
    room: Notify,
}

impl Shared {
    /// Connections that are open now.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The limit may be another now: those who wait for room look again.
    pub(crate) fn limits_changed(&self) {
        self.room.notify_waiters();
    }
}

/// A connection that counts against the listener's limit until this is dropped.
struct Seat(Arc<Shared>);

impl Seat {
    /// Waits until there is room for one more.
    async fn take(listener: &ListenerState) -> Self {
        let shared = &listener.shared;
        loop {
            // Registered before the look, so that a seat freed in between wakes this one.
            let mut room = pin!(shared.room.notified());
            room.as_mut().enable();
            let most = listener.limits.load().max_connections;
            let one_more = |open: usize| (open < most).then_some(open + 1);
            if shared.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok() {
                return Self(Arc::clone(shared));
            }
            room.await;
        }
    }

    /// One whether there is room or not.
    fn take_anyway(shared: &Arc<Shared>) -> Self {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

/// A listener on one thread.
pub(crate) struct ListenerState {
    /// For connections that come from now on.
    pub(crate) limits: ArcSwap<Limits>,
    pub(crate) routes: ArcSwap<RouteTable<Arc<Target>>>,
    pub(crate) life: Life,
    pub(crate) shared: Arc<Shared>,
}

/// A socket that listens at `address`, on which several threads, and a successor of this process, may listen as
/// well: the kernel spreads connections over them.
pub(crate) fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Accepts connections until the listener closes, and then those that had connected before.
///
/// A seat is taken for a connection that is there, not for one that may come: a thread that waits for one must not
/// keep the last seat from another thread that has one. So each thread may hold one connection that waits for a seat.
pub(crate) async fn accept(listener: TcpListener, state: Arc<ListenerState>) {
    let mut phases = state.life.watch();
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing(&mut phases) => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let seat = tokio::select! {
            biased;
            seat = Seat::take(&state) => seat,
            () = closing(&mut phases) => Seat::take_anyway(&state.shared),
        };
        begin(stream, seat, &state);
    }
    // Those who wait in the kernel's queue have connected already, as far as they know.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, _)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(stream, Seat::take_anyway(&state.shared), &state);
        }
    }
}

async fn closing(phases: &mut watch::Receiver<Phase>) {
    // An error means that the listener is gone altogether.
    let _ = phases.wait_for(|phase| *phase == Phase::Closing).await;
}

fn begin(stream: TcpStream, seat: Seat, state: &Arc<ListenerState>) {
    state.shared.accepted.fetch_add(1, Ordering::Relaxed);
    let state = Arc::clone(state);
    tokio::spawn(async move {
        connection::serve(stream, state).await;
        drop(seat);
    });
}
