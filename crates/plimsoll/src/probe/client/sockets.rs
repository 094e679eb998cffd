//! The UDP sockets of a client: one for each address family that its backends have.
//!
//! They are bound to any port, and not connected: one socket serves thousands of backends. The
//! kernel keeps ICMP messages, so a closed port is known at once.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::probe::socket::{Buffers, Route, Socket};

/// Datagrams that are read before other work of the caller. A flood must not stop it.
const TURN: usize = 64;

/// Something from the network.
pub(crate) enum Incoming<'a> {
    /// A datagram from this address.
    Datagram(SocketAddr, &'a [u8]),
    /// This address refused a query.
    Refused(SocketAddr),
}

/// The sockets of one client.
#[derive(Default)]
pub(crate) struct QuerySockets {
    v4: Option<Socket<UdpSocket>>,
    v6: Option<Socket<UdpSocket>>,
    buffers: Option<Buffers>,
    /// The last turn did not receive all.
    has_more: bool,
}

impl QuerySockets {
    /// Sends a datagram. Needs a runtime.
    ///
    /// # Errors
    /// If the system does not take it.
    pub(crate) fn send(&mut self, to: SocketAddr, datagram: &[u8]) -> io::Result<()> {
        let to = SocketAddr::new(to.ip().to_canonical(), to.port());
        let socket = if to.is_ipv4() { &mut self.v4 } else { &mut self.v6 };
        let socket = match socket {
            Some(socket) => socket,
            None => socket.insert(bind(to)?),
        };
        let route = Route { peer: to, local: None };
        // The first call may report that an earlier datagram was refused, in place of sending.
        socket.send(route, datagram).or_else(|_| socket.send(route, datagram))
    }

    /// Waits until there is something to receive; for ever before the first datagram is sent.
    pub(crate) async fn wait(&self) {
        if self.has_more {
            return;
        }
        tokio::select! {
            () = readable(self.v4.as_ref()) => {}
            () = readable(self.v6.as_ref()) => {}
        }
    }

    /// Receives datagrams and refusals, a limited number at a time. Returns the number of reads,
    /// those that failed included.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Incoming<'_>)) -> usize {
        let buffers = self.buffers.get_or_insert_with(Buffers::new);
        let (mut reads, mut has_more) = (0, false);
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            let read = receive(socket, buffers, &mut each);
            reads += read.iter().sum::<usize>();
            has_more |= read.iter().any(|read| *read >= TURN);
        }
        self.has_more = has_more;
        reads
    }
}

fn bind(to: SocketAddr) -> io::Result<Socket<UdpSocket>> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    let socket = Socket::bound(UdpSocket::from_std(socket)?, address)?;
    socket.keep_refusals()?;
    Ok(socket)
}

async fn readable(socket: Option<&Socket<UdpSocket>>) {
    let Some(socket) = socket else { return std::future::pending().await };
    if socket.get_ref().ready(Interest::READABLE | Interest::ERROR).await.is_ok() {
        // The caller reads until nothing is left. A later datagram wakes the next wait.
        // Tokio clears no two interests at once.
        for interest in [Interest::READABLE, Interest::ERROR] {
            let _ = socket.get_ref().try_io(interest, || Err::<(), _>(io::ErrorKind::WouldBlock.into()));
        }
    }
}

/// Returns the number of datagrams and errors that it read: with [`TURN`] of either there may be more.
fn receive(socket: &Socket<UdpSocket>, buffers: &mut Buffers, each: &mut impl FnMut(Incoming<'_>)) -> [usize; 2] {
    let [mut datagrams, mut errors] = [0; 2];
    while datagrams < TURN && errors < TURN {
        match socket.receive(buffers, |route, bytes| each(Incoming::Datagram(route.peer, bytes))) {
            Ok(read) => datagrams += read.datagrams,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // A refusal, which is in the queue of errors.
            Err(_) => errors += 1,
        }
    }
    let mut refused = 0;
    while refused < TURN
        && let Some(address) = socket.refusal()
    {
        refused += 1;
        each(Incoming::Refused(address));
    }
    [datagrams, errors.max(refused)]
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::{Incoming, IpAddr, QuerySockets, SocketAddr, TURN};

    /// The content of the next datagrams, and refusals as empty ones.
    async fn receive(sockets: &mut QuerySockets, wanted: usize) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut all = Vec::new();
        while all.len() < wanted {
            tokio::time::timeout(Duration::from_secs(10), sockets.wait()).await.expect("a datagram");
            sockets.receive(|incoming| {
                all.push(match incoming {
                    Incoming::Datagram(from, bytes) => (from, bytes.to_vec()),
                    Incoming::Refused(by) => (by, Vec::new()),
                });
            });
        }
        all
    }

    #[tokio::test]
    async fn answers_and_refusals_name_the_backend() {
        for ip in ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
            let mut sockets = QuerySockets::default();
            let backend = UdpSocket::bind((ip, 0)).unwrap();
            let closed = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
            sockets.send(backend.local_addr().unwrap(), b"question").unwrap();
            sockets.send(closed, b"question").unwrap();
            let (_, client) = backend.recv_from(&mut [0; 8]).unwrap();
            assert_eq!(receive(&mut sockets, 1).await, [(closed, Vec::new())]);
            sockets.send(backend.local_addr().unwrap(), b"another").unwrap();
            backend.send_to(b"answer", client).unwrap();
            assert_eq!(receive(&mut sockets, 1).await, [(backend.local_addr().unwrap(), b"answer".to_vec())]);
        }
    }

    #[tokio::test]
    async fn flood_is_received_in_turns() {
        let mut sockets = QuerySockets::default();
        let backend = UdpSocket::bind("127.0.0.1:0").unwrap();
        sockets.send(backend.local_addr().unwrap(), b"question").unwrap();
        let (_, client) = backend.recv_from(&mut [0; 8]).unwrap();
        // The receive buffer of a kernel with default settings holds some 270.
        (0..200).for_each(|_| assert_eq!(backend.send_to(b"answer", client).unwrap(), 6));
        let mut turns = Vec::new();
        while turns.iter().sum::<usize>() < 200 {
            tokio::time::timeout(Duration::from_secs(10), sockets.wait()).await.expect("more datagrams");
            let mut turn = 0;
            sockets.receive(|_| turn += 1);
            turns.push(turn);
        }
        assert!(turns.len() >= 3 && turns.iter().all(|turn| *turn <= TURN + 8), "{turns:?}");
        // One more wake-up may come for datagrams that were read meanwhile, and no second one.
        for _ in 0..2 {
            if tokio::time::timeout(Duration::from_millis(20), sockets.wait()).await.is_err() {
                return;
            }
            sockets.receive(|_| panic!("nothing is left"));
        }
        panic!("wakes up without a datagram");
    }
}
