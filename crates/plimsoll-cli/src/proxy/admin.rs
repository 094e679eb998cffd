//! The admin port: opened at start, moved by a reload, handed to a successor.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_proxy::Sockets;
use tokio::sync::oneshot;

use super::fleet::ProxyFleet;

/// The admin port, as far as there is one.
#[derive(Debug, Default)]
pub(super) struct Admin(Option<Open>);

#[derive(Debug)]
struct Open {
    /// As the config names it.
    address: SocketAddr,
    /// A copy, for a successor.
    socket: TcpListener,
    /// Ends the serving when dropped.
    _until: oneshot::Sender<()>,
}

/// A port that is bound and not yet served.
#[derive(Debug)]
pub(super) struct Bound {
    address: SocketAddr,
    socket: TcpListener,
}

/// What is to become of the admin port.
#[derive(Debug)]
pub(super) enum Move {
    Stay,
    Close,
    To(Bound),
}

impl Bound {
    /// Listens at `address`, or takes the socket for it that was handed over.
    pub(super) fn new(address: SocketAddr, given: &mut Sockets) -> anyhow::Result<Self> {
        let socket = match given.take(address).pop() {
            Some(socket) => Ok(socket),
            None => TcpListener::bind(address),
        };
        let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).with_context(|| {
            format!(
                "cannot listen at the admin address {address}: choose another with --admin or [admin] listen, or turn it \
                 off with \"off\""
            )
        })?;
        Ok(Self { address, socket })
    }
}

impl Admin {
    /// What it takes to be at `address`: binds the new port and leaves the old one open.
    pub(super) fn plan(&self, address: Option<SocketAddr>) -> anyhow::Result<Move> {
        match (address, &self.0) {
            (Some(address), Some(open)) if open.address == address => Ok(Move::Stay),
            (Some(address), _) => Bound::new(address, &mut Sockets::default()).map(Move::To),
            (None, Some(_)) => Ok(Move::Close),
            (None, None) => Ok(Move::Stay),
        }
    }

    /// Serves where the plan says. Requests at a port that is left are answered.
    pub(super) fn go(&mut self, plan: Move, fleet: &Arc<ProxyFleet>) -> io::Result<()> {
        match plan {
            Move::Stay => {}
            Move::Close => self.close(),
            Move::To(Bound { address, socket }) => {
                let copy = socket.try_clone()?;
                let listener = tokio::net::TcpListener::from_std(socket)?;
                tracing::info!(address = %listener.local_addr()?, "admin listening");
                let (until, closed) = oneshot::channel::<()>();
                let fleet = Arc::clone(fleet);
                tokio::spawn(async move {
                    let closed = async {
                        let _ = closed.await;
                    };
                    if let Err(error) = plimsoll_admin::serve(listener, fleet, closed).await {
                        tracing::error!(%error, "the admin port stopped");
                    }
                });
                self.0 = Some(Open { address, socket: copy, _until: until });
            }
        }
        Ok(())
    }

    /// Listens no more.
    pub(super) fn close(&mut self) {
        self.0 = None;
    }

    /// A copy of its socket, for a successor.
    pub(super) fn socket(&self) -> io::Result<Option<TcpListener>> {
        self.0.as_ref().map(|open| open.socket.try_clone()).transpose()
    }
}
