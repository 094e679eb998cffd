//! Listening sockets: bound here, or taken over from the process that started this one.
//!
//! Each thread has sockets of its own at the same address (`SO_REUSEPORT`), and each socket a queue
//! of connections that were not accepted yet. Closing a socket loses its queue, so a successor
//! takes over every one of its predecessor's sockets, however many threads either has: a thread may
//! accept from several. A
//! process that was handed nothing is refused an address in use by another, unless the file asks
//! for it. systemd passes one socket for an address, as a rule without `SO_REUSEPORT`; then the
//! threads share its one queue. So they do at a Unix socket, of which there is one for each path.

mod listening;
mod unix;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use plimsoll::address::{Address, UnixPath};

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

pub(crate) use self::listening::{Accepting, Caller, Listening};
pub(crate) use self::unix::SocketFile;
use crate::config::SocketMode;

/// Connections that the kernel may hold before they are accepted: enough for a burst during a
/// reload.
pub(crate) const BACKLOG: i32 = 4096;

/// Sockets that were handed over, by their address: those that listen, and those of UDP for probes.
#[derive(Debug, Default)]
pub struct Sockets {
    listening: HashMap<Address, Vec<Listening>>,
    udp: HashMap<SocketAddr, UdpSocket>,
    /// The files of Unix sockets that this process removes in the end, by path.
    files: HashMap<String, SocketFile>,
}

impl Sockets {
    /// Adds a socket.
    ///
    /// # Errors
    /// When it is no socket that listens at an address of IP or a Unix socket.
    pub fn add(&mut self, socket: impl Into<OwnedFd>) -> io::Result<()> {
        let socket = Listening::of(socket.into())?;
        let address = socket.address()?;
        if !SockRef::from(&socket).is_listener()? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
        }
        SockRef::from(&socket).set_nonblocking(true)?;
        self.listening.entry(address).or_default().push(socket);
        Ok(())
    }

    /// Adds a socket of UDP. Of several at one address the first is kept: the kernel would give each
    /// its own part of the clients.
    ///
    /// # Errors
    /// When it is no socket of UDP at an address of IP.
    pub fn add_udp(&mut self, socket: UdpSocket) -> io::Result<()> {
        let address = socket.local_addr()?;
        if SockRef::from(&socket).r#type()? != Type::DGRAM {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket is not one of UDP"));
        }
        self.udp.entry(address).or_insert(socket);
        Ok(())
    }

    /// Says that this process removes the file at `path` in the end, once it serves: the predecessor
    /// had made it.
    pub fn add_file(&mut self, path: &str) {
        let file = UnixPath::new(path).ok().and_then(|path| SocketFile::at(path, false));
        self.files.extend(file.map(|file| (path.to_owned(), file)));
    }

    /// Takes out the files of sockets that were not taken.
    pub fn take_files(&mut self) -> LeftFiles {
        LeftFiles(self.files.drain().map(|(_, file)| file).collect())
    }

    /// Takes out the sockets at `address`; none when there are none.
    pub(crate) fn take(&mut self, address: Address) -> Given {
        let sockets = self.listening.remove(&address).unwrap_or_default();
        let file = address.unix().and_then(|path| self.files.remove(path.as_str()));
        Given { sockets, file }
    }

    /// Takes out the TCP sockets at `address`; none when there are none.
    pub fn take_tcp(&mut self, address: SocketAddr) -> Vec<TcpListener> {
        let tcp = |socket| match socket {
            Listening::Tcp(tcp) => Some(tcp),
            Listening::Unix(_) => None,
        };
        self.take(address.into()).sockets.into_iter().filter_map(tcp).collect()
    }

    /// Takes out the socket of UDP at `address`.
    pub fn take_udp(&mut self, address: SocketAddr) -> Option<UdpSocket> {
        self.udp.remove(&address)
    }

    /// The listening TCP sockets that were not taken.
    pub fn tcp(&self) -> impl Iterator<Item = &TcpListener> {
        self.listening.values().flatten().filter_map(Listening::tcp)
    }

    /// The addresses of the listening sockets that were not taken.
    pub fn addresses(&self) -> impl Iterator<Item = Address> {
        self.listening.keys().copied()
    }

    /// The addresses of the sockets of UDP that were not taken.
    pub fn udp_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.udp.keys().copied()
    }
}

/// The sockets that were handed over for one listener.
#[derive(Debug, Default)]
pub(crate) struct Given {
    sockets: Vec<Listening>,
    /// Their file, if it is this process's to remove.
    file: Option<SocketFile>,
}

/// The files of Unix sockets of the predecessor at which this process does not listen.
#[derive(Debug)]
pub struct LeftFiles(Vec<SocketFile>);

impl LeftFiles {
    /// Removes them, when the predecessor listens no more.
    pub fn remove(self) {
        self.0.iter().for_each(|file| file.set_own(true));
    }
}

/// The sockets of one listener.
pub(crate) struct Bound {
    /// At least one for each thread.
    pub(crate) sockets: Vec<Listening>,
    /// The same ones again, for the threads.
    pub(crate) copies: Vec<Listening>,
    /// The file of a Unix socket, unless the system manager made it.
    pub(crate) file: Option<SocketFile>,
}

/// Treatment of an address that a socket of another process listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// It is refused.
    Refused,
    /// The processes share its connections: the file asks for it.
    Wanted,
    /// It is not checked: this process has sockets at the same port itself.
    Own,
}

/// The refusal of an address that another process listens at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken;

impl std::fmt::Display for Taken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another process listens there, and would share the connections")
    }
}

impl std::error::Error for Taken {}

/// Listens at those of `sockets` that do not yet: the kernel then gives each its share of
/// connections.
pub(crate) fn listen(sockets: &[Listening]) -> io::Result<()> {
    for socket in sockets.iter().map(SockRef::from) {
        if !socket.is_listener()? {
            socket.listen(BACKLOG)?;
        }
    }
    Ok(())
}

/// Sockets for `threads` threads at `address`: those `given`, and as many more as it takes. New ones
/// of TCP do not listen yet.
pub(crate) fn open(
    address: Address,
    given: Given,
    threads: usize,
    sharing: Sharing,
    mode: SocketMode,
) -> io::Result<Bound> {
    match address {
        Address::Inet(address) => {
            let tcp = given.sockets.into_iter().filter_map(|socket| match socket {
                Listening::Tcp(tcp) => Some(tcp),
                Listening::Unix(_) => None,
            });
            let sockets = open_tcp(address, tcp.collect(), threads, sharing)?;
            bound(sockets.into_iter().map(Listening::Tcp).collect(), None)
        }
        Address::Unix(path) => open_unix(path, given, threads, mode),
    }
}

fn bound(sockets: Vec<Listening>, file: Option<SocketFile>) -> io::Result<Bound> {
    let copies = sockets.iter().map(Listening::try_clone).collect::<io::Result<_>>()?;
    Ok(Bound { sockets, copies, file })
}

/// All threads accept from one queue. It listens at once: at a new path nobody else serves, so no
/// client is worse off for waiting.
fn open_unix(path: UnixPath, given: Given, threads: usize, mode: SocketMode) -> io::Result<Bound> {
    let Given { mut sockets, mut file } = given;
    if sockets.is_empty() {
        let (socket, made) = unix::listen(path, mode)?;
        sockets.push(socket);
        file = made;
    }
    let had = sockets.len();
    while sockets.len() < threads {
        let copy = sockets[sockets.len() % had].try_clone()?;
        sockets.push(copy);
    }
    bound(sockets, file)
}

fn open_tcp(
    address: SocketAddr,
    mut given: Vec<TcpListener>,
    threads: usize,
    sharing: Sharing,
) -> io::Result<Vec<TcpListener>> {
    if given.is_empty() {
        if sharing == Sharing::Refused && is_taken(address)? {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, Taken));
        }
        given.push(bind(address)?);
    }
    // The first decides the port where the config leaves it open.
    let address = given[0].local_addr()?;
    let had = given.len();
    while given.len() < threads {
        let next = match bind(address) {
            Ok(socket) => socket,
            // The owner of the first one keeps the address to itself: its queue is shared.
            Err(_) if had > 0 => given[given.len() % had].try_clone()?,
            Err(error) => return Err(error),
        };
        given.push(next);
    }
    for socket in &given {
        // Accepted sockets inherit it, which saves system calls for each.
        let socket = SockRef::from(socket);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_keepalive(
            &TcpKeepalive::new().with_time(SILENCE).with_interval(PROBES).with_retries(MAX_PROBES),
        )?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_notsent_lowat(MAX_UNSENT)?;
    }
    Ok(given)
}

/// How long nothing comes from a client before the system asks whether it is still there, and how
/// often it asks then. A tunnel, or a client that waits for a slow answer, may be silent for long;
/// one whose machine is gone would be so for ever.
const SILENCE: Duration = Duration::from_secs(60);
const PROBES: Duration = Duration::from_secs(10);
const MAX_PROBES: u32 = 5;

/// Bytes that the kernel stores for a client beside those in flight. Without a bound it stores
/// megabytes for each slow reader, and some thousands of these take all of its memory for TCP.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 128 * 1024;

/// Whether a socket listens at `address`: then one that does not share its port cannot be bound
/// there. Connections that an ended process left behind do not count.
fn is_taken(address: SocketAddr) -> io::Result<bool> {
    if address.port() == 0 {
        return Ok(false);
    }
    let probe = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    probe.set_reuse_address(true)?;
    // Other errors of the address appear when it is bound.
    Ok(probe.bind(&address.into()).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse))
}

/// A socket for `address`, at which several threads, and a successor of this process, may listen as
/// well: the kernel spreads connections over them.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    /// The sockets of TCP at `address`.
    fn open(address: SocketAddr, given: Vec<TcpListener>, threads: usize, sharing: Sharing) -> io::Result<BoundTcp> {
        let given = Given { sockets: given.into_iter().map(Listening::Tcp).collect(), file: None };
        let Bound { sockets, copies, .. } = super::open(address.into(), given, threads, sharing, SocketMode::DEFAULT)?;
        let tcp = |sockets: Vec<Listening>| {
            sockets.into_iter().map(|socket| TcpListener::from(OwnedFd::from(socket))).collect()
        };
        Ok(BoundTcp { sockets: tcp(sockets), copies: tcp(copies) })
    }

    struct BoundTcp {
        sockets: Vec<TcpListener>,
        copies: Vec<TcpListener>,
    }

    fn listen(sockets: &[TcpListener]) -> io::Result<()> {
        let copies: Vec<_> = sockets.iter().map(|socket| Listening::Tcp(socket.try_clone().unwrap())).collect();
        super::listen(&copies)
    }

    #[test]
    fn each_thread_has_a_socket_at_the_one_port_that_was_free() {
        let bound = open(ANY, Vec::new(), 3, Sharing::Refused).unwrap();
        let ports: Vec<_> = bound.sockets.iter().map(|socket| socket.local_addr().unwrap().port()).collect();
        assert_eq!((ports.len(), bound.copies.len()), (3, 3));
        assert!(ports.iter().all(|port| *port == ports[0] && *port != 0), "{ports:?}");
    }

    #[test]
    fn a_socket_that_keeps_its_address_to_itself_is_shared_by_the_threads() {
        let alone = TcpListener::bind(ANY).unwrap();
        let address = alone.local_addr().unwrap();
        let mut sockets = Sockets::default();
        sockets.add(alone).unwrap();
        let bound = open(address, sockets.take_tcp(address), 2, Sharing::Refused).unwrap();
        assert_eq!(bound.sockets.len(), 2);
        let _client = TcpStream::connect(address).unwrap();
        let accepted = || bound.sockets.iter().rev().find_map(|socket| socket.accept().ok());
        assert!(accepted().is_some() && accepted().is_none(), "one queue");
        assert_eq!(sockets.take_tcp(address).len(), 0);
    }

    #[test]
    fn sockets_of_another_kind_are_refused() {
        let (tcp, udp) = (TcpListener::bind(ANY).unwrap(), UdpSocket::bind(ANY).unwrap());
        let mut sockets = Sockets::default();
        assert_eq!(sockets.add(udp.try_clone().unwrap()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let as_udp = UdpSocket::from(std::os::fd::OwnedFd::from(tcp));
        assert_eq!(sockets.add_udp(as_udp).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let address = udp.local_addr().unwrap();
        sockets.add_udp(udp).unwrap();
        assert!(sockets.take_tcp(address).is_empty() && sockets.take_udp(address).is_some());
    }

    #[test]
    fn accepted_socket_sends_at_once_and_notices_a_lost_peer() {
        let bound = open(ANY, vec![TcpListener::bind(ANY).unwrap()], 1, Sharing::Refused).unwrap();
        let _client = TcpStream::connect(bound.sockets[0].local_addr().unwrap()).unwrap();
        let accepted = bound.sockets[0].accept().unwrap().0;
        assert!(accepted.nodelay().unwrap());
        assert!(SockRef::from(&accepted).keepalive().unwrap());
    }

    /// Else it would get a share of the connections before anything accepts from it.
    #[test]
    fn a_socket_that_is_bound_beside_others_gets_nobody_until_it_listens() {
        let before = open(ANY, Vec::new(), 1, Sharing::Refused).unwrap();
        listen(&before.sockets).unwrap();
        let address = before.sockets[0].local_addr().unwrap();
        let after = open(address, before.copies, 3, Sharing::Refused).unwrap();
        let _clients: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
        let accepted = |socket: &TcpListener| std::iter::from_fn(|| socket.accept().ok()).count();
        assert_eq!(after.sockets.iter().map(accepted).sum::<usize>(), 20, "with the one that listened");
        assert_eq!(after.sockets[1..].iter().map(accepted).sum::<usize>(), 0);
        listen(&after.sockets).unwrap();
        assert!(after.sockets.iter().all(|socket| SockRef::from(socket).is_listener().unwrap()));
    }

    #[test]
    fn address_is_refused_when_another_socket_listens_there() {
        let first = open(ANY, Vec::new(), 2, Sharing::Refused).unwrap();
        let address = first.sockets[0].local_addr().unwrap();
        listen(&first.sockets).unwrap();
        let refused = open(address, Vec::new(), 1, Sharing::Refused).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.get_ref().unwrap().is::<Taken>());
        for sharing in [Sharing::Wanted, Sharing::Own] {
            assert!(open(address, Vec::new(), 1, sharing).is_ok(), "{sharing:?}");
        }
        let _client = TcpStream::connect(address).unwrap();
        let _served: Vec<_> = first.sockets.iter().filter_map(|socket| socket.accept().ok()).collect();
        drop(first);
        assert!(open(address, Vec::new(), 1, Sharing::Refused).is_ok(), "open connections do not count");
    }

    #[test]
    fn more_sockets_than_threads_are_all_kept() {
        let first = open(ANY, Vec::new(), 4, Sharing::Refused).unwrap();
        listen(&first.sockets).unwrap();
        let address = first.sockets[0].local_addr().unwrap();
        assert_eq!(open(address, first.copies, 2, Sharing::Refused).unwrap().sockets.len(), 4);
    }
}
