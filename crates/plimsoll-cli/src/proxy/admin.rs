//! The admin port: opened at start, moved by a reload, handed to a successor.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use anyhow::anyhow;
use plimsoll::address::Address;
use plimsoll_proxy::Sockets;
use rustix::net::sockopt::{set_socket_reuseaddr, set_socket_reuseport, socket_acceptconn, socket_reuseport};
use rustix::net::{AddressFamily, SocketFlags, SocketType, listen, socket_with};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::fleet::ProxyFleet;

/// Connections that may wait: whoever looks at metrics, and their balancers.
const BACKLOG: i32 = 128;

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
    /// Ends once the requests that came before are answered.
    serving: JoinHandle<()>,
}

/// A port that is bound and not yet served, and may not listen yet.
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
        match given.take_tcp(address).pop() {
            Some(socket) => Self::with(address, Ok(socket)),
            // The predecessor's, where it was at another address of the same port.
            None => Self::with(address, bind(address, given.tcp(), &[])),
        }
    }

    fn with(address: SocketAddr, socket: io::Result<TcpListener>) -> anyhow::Result<Self> {
        let socket = socket.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).map_err(|error| {
            anyhow!(
                "cannot listen at the admin address {address}: {error}; help: choose another with --admin or [admin] \
                 listen, or turn it off with \"off\""
            )
        })?;
        Ok(Self { address, socket })
    }

    /// Listens, if it does not yet; `own` is where the admin port was.
    fn listen(&self, own: Option<&TcpListener>) -> io::Result<()> {
        if !socket_acceptconn(&self.socket)? {
            sharing(&beside(self.address, own.into_iter()), || Ok(listen(&self.socket, BACKLOG)?))?;
            unshare(&self.socket);
        }
        Ok(())
    }
}

/// Listens at `address`, although some of `own` may listen at the same port: `0.0.0.0:9900` while `127.0.0.1:9900` is still
/// served. For that the kernel wants all of them marked as sharing the port (`SO_REUSEPORT`). They are for this moment
/// only: another process of the same user, started by mistake at the same address, would share it without a word.
///
/// `left` is where listeners are that go. Their sockets are marked for good; beside them it listens only when they have gone
/// ([`Bound::listen`]), or it would get a share of their clients.
fn bind<'s>(
    address: SocketAddr,
    own: impl Iterator<Item = &'s TcpListener>,
    left: &[Address],
) -> io::Result<TcpListener> {
    let beside = beside(address, own);
    let is_left = left.iter().any(|known| known.port() == Some(address.port()));
    if beside.is_empty() && !is_left {
        return TcpListener::bind(address);
    }
    let socket = sharing(&beside, || {
        let socket = bind_shared(address)?;
        if !is_left {
            listen(&socket, BACKLOG)?;
        }
        Ok(socket)
    })?;
    if !is_left {
        unshare(&socket);
    }
    Ok(socket)
}

/// Those of `own` at the port of `address` that are not marked as sharing it.
fn beside<'s>(address: SocketAddr, own: impl Iterator<Item = &'s TcpListener>) -> Vec<&'s TcpListener> {
    let is_there = |socket: &&TcpListener| socket.local_addr().is_ok_and(|known| known.port() == address.port());
    own.filter(is_there).filter(|socket| socket_reuseport(socket) == Ok(false)).collect()
}

/// Does something while these are marked as sharing their port.
fn sharing<T>(sockets: &[&TcpListener], act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let marked: Result<(), _> = sockets.iter().try_for_each(|socket| set_socket_reuseport(socket, true));
    let done = marked.map_err(io::Error::from).and_then(|()| act());
    sockets.iter().for_each(|socket| unshare(socket));
    done
}

fn unshare(socket: &TcpListener) {
    // Where it fails the socket is shared, as those of listeners are.
    let _ = set_socket_reuseport(socket, false);
}

/// A socket that shares its port with others that are marked so, and does not listen yet.
fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket.into())
}

impl Admin {
    /// What it takes to be at `address`: binds the new port and leaves the old one open. `left` is where listeners are that will
    /// have gone when the plan is followed.
    pub(super) fn plan(&self, address: Option<SocketAddr>, left: &[Address]) -> anyhow::Result<Move> {
        match (address, &self.0) {
            (Some(address), Some(open)) if open.address == address => Ok(Move::Stay),
            (Some(address), open) => {
                let own = open.iter().map(|open| &open.socket);
                Bound::with(address, bind(address, own, left)).map(Move::To)
            }
            (None, Some(_)) => Ok(Move::Close),
            (None, None) => Ok(Move::Stay),
        }
    }

    /// Serves where the plan says. Requests at a port that is left are answered.
    pub(super) fn go(&mut self, plan: Move, fleet: &Arc<ProxyFleet>) -> io::Result<()> {
        match plan {
            Move::Stay => {}
            Move::Close => drop(self.close()),
            Move::To(bound) => {
                bound.listen(self.0.as_ref().map(|open| &open.socket))?;
                let Bound { address, socket } = bound;
                let copy = socket.try_clone()?;
                let listener = tokio::net::TcpListener::from_std(socket)?;
                tracing::info!(address = %listener.local_addr()?, "admin listening");
                let (until, closed) = oneshot::channel::<()>();
                let fleet = Arc::clone(fleet);
                let serving = tokio::spawn(async move {
                    let closed = async {
                        let _ = closed.await;
                    };
                    plimsoll_admin::serve(listener, fleet, closed).await;
                });
                self.0 = Some(Open { address, socket: copy, _until: until, serving });
            }
        }
        Ok(())
    }

    /// Listens no more. The future completes when the requests that came before are answered.
    pub(super) fn close(&mut self) -> impl Future<Output = ()> + use<> {
        let serving = self.0.take().map(|open| open.serving);
        async move {
            if let Some(serving) = serving {
                // It fails when the runtime ends, and then there is nothing to wait for.
                let _ = serving.await;
            }
        }
    }

    /// A copy of its socket, for a successor.
    pub(super) fn socket(&self) -> io::Result<Option<TcpListener>> {
        self.0.as_ref().map(|open| open.socket.try_clone()).transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::net::TcpStream;

    use super::*;

    fn at(host: &str, port: u16) -> SocketAddr {
        format!("{host}:{port}").parse().unwrap()
    }

    fn open(socket: TcpListener) -> Admin {
        let address = socket.local_addr().unwrap();
        Admin(Some(Open { address, socket, _until: oneshot::channel().0, serving: tokio::spawn(async {}) }))
    }

    #[tokio::test]
    async fn close_completes_when_the_requests_before_it_are_answered() {
        let mut admin = open(TcpListener::bind("127.0.0.1:0").unwrap());
        let (answer, answered) = oneshot::channel::<()>();
        admin.0.as_mut().unwrap().serving = tokio::spawn(async move {
            let _ = answered.await;
        });
        let mut closed = pin!(admin.close());
        tokio::select! {
            biased;
            () = &mut closed => panic!("a request is not answered yet"),
            () = tokio::task::yield_now() => {}
        }
        answer.send(()).unwrap();
        closed.await;
    }

    #[tokio::test]
    async fn beside_a_listener_that_goes_it_gets_nobody_until_that_has_gone() {
        let listener = bind_shared(at("127.0.0.1", 0)).unwrap();
        listen(&listener, BACKLOG).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let closed = Admin(None);
        assert!(closed.plan(Some(at("127.0.0.1", port)), &[]).is_err(), "one that stays");
        let Move::To(moved) = closed.plan(Some(at("127.0.0.1", port)), &[at("127.0.0.1", port).into()]).unwrap() else {
            panic!("it moves")
        };
        for _ in 0..20 {
            let _client = TcpStream::connect(at("127.0.0.1", port)).await.unwrap();
            assert!(listener.accept().is_ok());
        }
        drop(listener);
        moved.listen(None).unwrap();
        let _client = TcpStream::connect(at("127.0.0.1", port)).await.unwrap();
        assert!(moved.socket.accept().is_ok());
        assert_eq!(socket_reuseport(&moved.socket), Ok(false), "it is its own");
    }

    #[tokio::test]
    async fn it_is_widened_and_narrowed_on_its_port_and_stays_its_own() {
        for (from, to) in [("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "127.0.0.1"), ("[::1]", "[::]")] {
            let Ok(socket) = TcpListener::bind(at(from, 0)) else { continue };
            let port = socket.local_addr().unwrap().port();
            let host = if from.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            let _client = TcpStream::connect(at(host, port)).await.unwrap();
            let _accepted = socket.accept().unwrap();

            let reloaded = open(socket.try_clone().unwrap()).plan(Some(at(to, port)), &[]).unwrap();
            let Move::To(moved) = &reloaded else { panic!("{reloaded:?}") };
            assert_eq!(moved.socket.local_addr().unwrap(), at(to, port));
            assert_eq!((socket_reuseport(&socket), socket_reuseport(&moved.socket)), (Ok(false), Ok(false)));
            drop(reloaded);

            let mut given = Sockets::default();
            given.add(socket.try_clone().unwrap()).unwrap();
            let successor = Bound::new(at(to, port), &mut given).unwrap();
            drop((socket, given));
            let error = open(TcpListener::bind(at("127.0.0.1", 0)).unwrap()).plan(Some(at(to, port)), &[]).unwrap_err();
            assert!(error.to_string().starts_with("cannot listen at the admin address"), "{error}");
            let _served = TcpStream::connect(at(host, port)).await.unwrap();
            assert!(successor.socket.accept().is_ok());
        }
    }
}
