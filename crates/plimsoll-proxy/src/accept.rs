//! The socket of a listener, and the loop that accepts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::connection;
use crate::listener::{ListenerState, Seat};
use crate::phase::Phase;

/// Connections that the kernel may hold before they are accepted: enough for a burst during a reload.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept, such as for want of descriptors: nothing gets better by trying at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

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
