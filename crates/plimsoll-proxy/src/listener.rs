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
pub(crate) struct Refusals([AtomicU64; 3]);

impl Refusals {
    pub(crate) fn count(&self, refusal: Refusal) {
        self.0[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = [Refusal::NoRoute, Refusal::Connect, Refusal::BodyTooLarge];
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
            if shared.connections.fetch_add(1, Ordering::Relaxed) < listener.limits.load().max_connections {
                return Self(Arc::clone(shared));
            }
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            room.await;
        }
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

/// Accepts connections until the listener closes.
pub(crate) async fn accept(listener: TcpListener, state: Arc<ListenerState>) {
    let mut phases = state.life.watch();
    loop {
        let next = async {
            let seat = Seat::take(&state).await;
            (seat, listener.accept().await)
        };
        tokio::select! {
            biased;
            () = closing(&mut phases) => return,
            (seat, accepted) = next => match accepted {
                Ok((stream, _)) => begin(stream, seat, &state),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
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
