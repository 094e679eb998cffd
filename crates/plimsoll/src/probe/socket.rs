//! A UDP socket of probes: datagrams with the local address that they came to.
//!
//! A socket bound to every address of a machine sends from the address that the route prefers. A
//! client that asked another one drops such an answer, so an answer names its sender.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

/// Largest datagram, or several that the kernel joined (`UDP_GRO`).
const BUFFER: usize = 65_536;
/// Buffers that one system call fills.
const BUFFERS: usize = 8;
/// Receive buffer: some thousand datagrams. The kernel may grant less.
const RECEIVE_BUFFER: usize = 1024 * 1024;

/// The other end of a datagram, and the local address that it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) peer: SocketAddr,
    /// `None` if the system does not tell: the answer leaves from the address of the socket.
    pub(crate) local: Option<IpAddr>,
}

pub(crate) struct Socket<S = UdpSocket> {
    socket: S,
    state: UdpSocketState,
    address: SocketAddr,
}

/// The result of one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) datagrams: usize,
    /// There were no more.
    pub(crate) is_last: bool,
}

/// Memory that datagrams are received into.
pub(crate) struct Buffers(Vec<u8>);

impl Buffers {
    pub(crate) fn new() -> Self {
        Self(vec![0; BUFFER * BUFFERS])
    }
}

impl Socket {
    pub(crate) fn new(socket: UdpSocket) -> io::Result<Self> {
        let address = socket.local_addr()?;
        Self::bound(socket, address)
    }
}

impl<S: AsFd> Socket<S> {
    /// A socket with this local address.
    pub(crate) fn bound(socket: S, address: SocketAddr) -> io::Result<Self> {
        let state = UdpSocketState::new((&socket).into())?;
        state.set_recv_buffer_size((&socket).into(), RECEIVE_BUFFER)?;
        Ok(Self { socket, state, address })
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.socket
    }

    /// Has the kernel keep ICMP messages about datagrams of this socket, for [`Socket::refusal`].
    pub(crate) fn keep_refusals(&self) -> io::Result<()> {
        self.state.enable_transport_errors((&self.socket).into())
    }

    /// The destination of a datagram that was answered by an ICMP message, such as a closed port.
    pub(crate) fn refusal(&self) -> Option<SocketAddr> {
        // The datagram comes back in part, and the message is not needed: the destination is.
        let (mut bytes, mut control) = ([0; 1], RecvAncillaryBuffer::default());
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        let message = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).ok()?;
        message.address?.try_into().ok()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Receives some datagrams.
    ///
    /// # Errors
    /// `WouldBlock` if there are none.
    pub(crate) fn receive(&self, buffers: &mut Buffers, mut each: impl FnMut(Route, &[u8])) -> io::Result<Read> {
        let mut slices = buffers.0.chunks_mut(BUFFER).map(IoSliceMut::new);
        let mut slices: [IoSliceMut<'_>; BUFFERS] =
            std::array::from_fn(|_| slices.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
        let mut metas = [RecvMeta::default(); BUFFERS];
        let filled = self.state.recv((&self.socket).into(), &mut slices, &mut metas)?;
        let mut datagrams = 0;
        for (bytes, meta) in slices.iter().zip(&metas).take(filled) {
            let route = Route { peer: meta.addr, local: meta.dst_ip };
            let bytes = &bytes[..meta.len.min(BUFFER)];
            if bytes.is_empty() {
                each(route, bytes);
                datagrams += 1;
            }
            for datagram in bytes.chunks(meta.stride.max(1)) {
                each(route, datagram);
                datagrams += 1;
            }
        }
        Ok(Read { datagrams, is_last: filled < BUFFERS })
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// If the system does not take it.
    pub(crate) fn send(&self, route: Route, contents: &[u8]) -> io::Result<()> {
        // A socket for both families has IPv6 addresses alone.
        let destination = match (self.address, route.peer) {
            (SocketAddr::V6(_), SocketAddr::V4(peer)) => (peer.ip().to_ipv6_mapped(), peer.port()).into(),
            _ => route.peer,
        };
        let transmit = Transmit { destination, ecn: None, contents, segment_size: None, src_ip: route.local };
        self.state.try_send((&self.socket).into(), &transmit)
    }
}

impl<S: AsFd> AsFd for Socket<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::time::Duration;

    use super::*;

    fn receive(socket: &Socket, wanted: usize) -> Vec<(Route, Vec<u8>)> {
        let mut buffers = Buffers::new();
        let mut all = Vec::new();
        while all.len() < wanted {
            match socket.receive(&mut buffers, |route, bytes| all.push((route, bytes.to_vec()))) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(1)),
                read => assert!(read.unwrap().datagrams > 0),
            }
        }
        all
    }

    fn client(to: SocketAddr) -> UdpSocket {
        let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let client = UdpSocket::bind((any, 0)).unwrap();
        client.connect(to).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        client
    }

    #[test]
    fn answers_leave_from_the_address_that_was_asked() {
        for (bound, asked) in [("0.0.0.0:0", "127.0.0.7"), ("[::]:0", "127.0.0.7"), ("[::]:0", "::1")] {
            let socket = Socket::new(UdpSocket::bind(bound).unwrap()).unwrap();
            // A connected socket takes datagrams of that address alone.
            let client = client((asked.parse::<IpAddr>().unwrap(), socket.address().port()).into());
            client.send(b"question").unwrap();
            let (route, bytes) = receive(&socket, 1).remove(0);
            assert_eq!(bytes, b"question");
            // As after a while in a table of leases.
            let peer = SocketAddr::new(route.peer.ip().to_canonical(), route.peer.port());
            socket.send(Route { peer, ..route }, b"answer").unwrap();
            let mut answer = [0; 10];
            assert_eq!(client.recv(&mut answer).unwrap(), 6, "{bound} {asked}");
        }
    }

    #[test]
    fn refused_datagrams_name_their_destination() {
        for ip in ["127.0.0.1", "::1"].map(|ip| ip.parse::<IpAddr>().unwrap()) {
            let socket = Socket::new(UdpSocket::bind((ip, 0)).unwrap()).unwrap();
            socket.keep_refusals().unwrap();
            let open = UdpSocket::bind((ip, 0)).unwrap();
            let closed = UdpSocket::bind((ip, 0)).unwrap().local_addr().unwrap();
            for peer in [open.local_addr().unwrap(), closed] {
                socket.send(Route { peer, local: None }, b"question").unwrap();
            }
            let mut refused = Vec::new();
            for _ in 0..1_000 {
                refused.extend(socket.refusal());
                if !refused.is_empty() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(refused, [closed]);
        }
    }

    #[test]
    fn each_datagram_of_a_burst_arrives_by_itself() {
        let socket = Socket::new(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let client = client(socket.address());
        for number in 0..100_u8 {
            client.send(&vec![number; 80 + usize::from(number % 3)]).unwrap();
        }
        let received = receive(&socket, 100);
        for (number, (_, bytes)) in (0..100_u8).zip(&received) {
            assert_eq!(*bytes, vec![number; 80 + usize::from(number % 3)]);
        }
    }
}
