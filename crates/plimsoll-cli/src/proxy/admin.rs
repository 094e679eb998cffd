//! The admin port: opened at start, moved by a reload, handed to a successor.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_proxy::Sockets;
use rustix::net::sockopt::{set_socket_reuseport, socket_reuseport};
use tokio::net::TcpSocket;
use tokio::sync::oneshot;

use super::fleet::ProxyFleet;

/// Connections that may wait: whoever looks at metrics, and their balancers.
const BACKLOG: u32 = 128;

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
    /// Listens at `address`, or takes the socket for it that was handed over. To be called within a tokio runtime.
    pub(super) fn new(address: SocketAddr, given: &mut Sockets) -> anyhow::Result<Self> {
        match given.take(address).pop() {
            Some(socket) => Self::with(address, Ok(socket)),
            // The predecessor's, where it was at another address of the same port.
            None => Self::with(address, bind(address, given.iter())),
        }
    }

    fn with(address: SocketAddr, socket: io::Result<TcpListener>) -> anyhow::Result<Self> {
        let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).with_context(|| {
            format!(
                "cannot listen at the admin address {address}: choose another with --admin or [admin] listen, or turn it \
                 off with \"off\""
            )
        })?;
        Ok(Self { address, socket })
    }
}

/// Listens at `address`, although some of `own` may listen at the same port: `0.0.0.0:9900` while `127.0.0.1:9900` is still
/// served. For that the kernel wants all of them marked as sharing the port (`SO_REUSEPORT`). They are for this moment
/// only: another process of the same user, started by mistake at the same address, would share it without a word.
fn bind<'s>(address: SocketAddr, own: impl Iterator<Item = &'s TcpListener>) -> io::Result<TcpListener> {
    let is_there = |socket: &&TcpListener| socket.local_addr().is_ok_and(|known| known.port() == address.port());
    // A listener's sockets are marked for good.
    let beside: Vec<_> = own.filter(is_there).filter(|socket| socket_reuseport(socket) == Ok(false)).collect();
    if beside.is_empty() {
        return TcpListener::bind(address);
    }
    let mark = |socket: &TcpListener, shared| set_socket_reuseport(socket, shared);
    let marked: Result<(), _> = beside.iter().try_for_each(|socket| mark(socket, true));
    let bound = marked.map_err(io::Error::from).and_then(|()| bind_shared(address));
    for socket in beside.into_iter().chain(&bound) {
        // Where it fails the socket is shared, as those of listeners are.
        let _ = mark(socket, false);
    }
    bound
}

fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

impl Admin {
    /// What it takes to be at `address`: binds the new port and leaves the old one open.
    pub(super) fn plan(&self, address: Option<SocketAddr>) -> anyhow::Result<Move> {
        match (address, &self.0) {
            (Some(address), Some(open)) if open.address == address => Ok(Move::Stay),
            (Some(address), open) => {
                let own = open.iter().map(|open| &open.socket);
                Bound::with(address, bind(address, own)).map(Move::To)
            }
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
                    plimsoll_admin::serve(listener, fleet, closed).await;
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    fn at(host: &str, port: u16) -> SocketAddr {
        format!("{host}:{port}").parse().unwrap()
    }

    fn open(socket: TcpListener) -> Admin {
        let address = socket.local_addr().unwrap();
        Admin(Some(Open { address, socket, _until: oneshot::channel().0 }))
    }

    #[tokio::test]
    async fn it_is_widened_and_narrowed_on_its_port_and_stays_its_own() {
        for (from, to) in [("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1"), ("[::1]", "[::]")] {
            let Ok(socket) = TcpListener::bind(at(from, 0)) else { continue };
            let port = socket.local_addr().unwrap().port();
            let host = if from.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            let _client = TcpStream::connect(at(host, port)).await.unwrap();
            let _accepted = socket.accept().unwrap();

            let reloaded = open(socket.try_clone().unwrap()).plan(Some(at(to, port))).unwrap();
            let Move::To(moved) = &reloaded else { panic!("{reloaded:?}") };
            assert_eq!(moved.socket.local_addr().unwrap(), at(to, port));
            assert_eq!((socket_reuseport(&socket), socket_reuseport(&moved.socket)), (Ok(false), Ok(false)));
            drop(reloaded);

            let mut given = Sockets::default();
            given.add(socket.try_clone().unwrap()).unwrap();
            let successor = Bound::new(at(to, port), &mut given).unwrap();
            drop((socket, given));
            let error = open(TcpListener::bind(at("127.0.0.1", 0)).unwrap()).plan(Some(at(to, port))).unwrap_err();
            assert!(error.to_string().starts_with("cannot listen at the admin address"), "{error}");
            let _served = TcpStream::connect(at(host, port)).await.unwrap();
            assert!(successor.socket.accept().is_ok());
        }
    }
}
