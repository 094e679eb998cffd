//! The UDP sockets of a client: one for each address family that its backends have.
//!
//! They are bound to any port, and not connected: one socket serves thousands of backends. The
//! kernel keeps ICMP messages, so a closed port is known at once.
//!
//! They are registered for reading alone. Tokio's own socket is registered for writing too, and then
//! each query wakes the thread once more, when the backend's kernel has taken it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

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

/// A socket that wakes its reader.
type Registered = Socket<AsyncFd<UdpSocket>>;

/// The sockets of one client.
#[derive(Default)]
pub(crate) struct QuerySockets {
    v4: Option<Registered>,
    v6: Option<Registered>,
    buffers: Option<Buffers>,
    /// The last wait ended with an error of a socket.
    has_refusals: AtomicBool,
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
            () = self.readable(self.v4.as_ref()) => {}
            () = self.readable(self.v6.as_ref()) => {}
        }
    }

    /// Receives datagrams and refusals, a limited number at a time. Returns the number of reads,
    /// those that failed included.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(Incoming<'_>)) -> usize {
        let buffers = self.buffers.get_or_insert_with(Buffers::new);
        let has_refusals = std::mem::take(self.has_refusals.get_mut());
        let (mut reads, mut has_more) = (0, false);
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            let read = receive(socket, buffers, has_refusals, &mut each);
            reads += read.iter().sum::<usize>();
            // Those that were left of the refusals are found by the flag.
            *self.has_refusals.get_mut() |= read[1] >= TURN;
            has_more |= read.iter().any(|read| *read >= TURN);
        }
        self.has_more = has_more;
        reads
    }

    async fn readable(&self, socket: Option<&Registered>) {
        let Some(socket) = socket else { return std::future::pending().await };
        if let Ok(mut ready) = socket.get_ref().ready(INTEREST).await {
            self.has_refusals.fetch_or(ready.ready().is_error(), Ordering::Relaxed);
            // The caller reads until nothing is left. A later datagram wakes the next wait.
            ready.clear_ready();
        }
    }
}

const INTEREST: Interest = Interest::READABLE.add(Interest::ERROR);

fn bind(to: SocketAddr) -> io::Result<Registered> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    #[expect(deprecated, reason = "its successor is unsafe code; this socket keeps its descriptor")]
    let socket = Socket::bound(AsyncFd::with_interest(socket, INTEREST)?, address)?;
    socket.keep_refusals()?;
    Ok(socket)
}

/// Returns the number of datagrams and errors that it read: with [`TURN`] of either there may be more.
fn receive(
    socket: &Registered,
    buffers: &mut Buffers,
    mut has_refusals: bool,
    each: &mut impl FnMut(Incoming<'_>),
) -> [usize; 2] {
    let [mut datagrams, mut errors] = [0; 2];
    while datagrams < TURN && errors < TURN {
        match socket.receive(buffers, |route, bytes| each(Incoming::Datagram(route.peer, bytes))) {
            Ok(read) => {
                datagrams += read.datagrams;
                if read.is_last {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // A refusal, which is in the queue of errors.
            Err(_) => (errors, has_refusals) = (errors + 1, true),
        }
    }
    let mut refused = 0;
    while has_refusals
        && refused < TURN
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
    use std::os::fd::AsRawFd as _;
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

    /// The events for which this process has registered a descriptor anywhere.
    fn registered(descriptor: i32) -> Vec<u32> {
        let lines = std::fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(|entry| {
            // Other tests close descriptors meanwhile.
            std::fs::read_to_string(entry.unwrap().path()).ok()
        });
        let events = |line: &str| {
            let mut words = line.strip_prefix("tfd:")?.split_whitespace();
            let is_meant = words.next()?.parse() == Ok(descriptor);
            is_meant.then(|| u32::from_str_radix(words.nth(1)?, 16).ok()).flatten()
        };
        lines.flat_map(|text| text.lines().filter_map(events).collect::<Vec<_>>()).collect()
    }

    #[tokio::test]
    async fn sent_query_wakes_no_thread() {
        const EPOLLIN: u32 = 1;
        const EPOLLOUT: u32 = 4;
        let mut sockets = QuerySockets::default();
        let backend = UdpSocket::bind("127.0.0.1:0").unwrap();
        sockets.send(backend.local_addr().unwrap(), b"question").unwrap();
        let descriptor = sockets.v4.as_ref().unwrap().get_ref().as_raw_fd();
        // Once for each descriptor of the same epoll.
        let registered = registered(descriptor);
        let reads_only = |events: &u32| events & (EPOLLIN | EPOLLOUT) == EPOLLIN;
        assert!(!registered.is_empty() && registered.iter().all(reads_only), "{registered:x?}");
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
