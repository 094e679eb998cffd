//! The client of a connection to the admin port: whether it may command the process.
//!
//! A signal is for the user of the process and for root, and a command does the same as a signal. So the client has to
//! be on this machine, and its socket has to belong to one of the two. Linux lists the owner of each socket in
//! `/proc/self/net/tcp`. A password would be a secret to distribute, and a Unix socket a second address.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Lists of sockets, by address family. A client may be in one and its server in the other.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// Root.
const ROOT: u32 = 0;

/// The two ends of a connection, as this process sees them.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    client: SocketAddr,
    server: Option<SocketAddr>,
}

/// Why a client may not command the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// It is on another machine.
    Remote,
    /// It belongs to another user.
    OtherUser,
}

impl Caller {
    pub(crate) fn new(client: SocketAddr, server: io::Result<SocketAddr>) -> Self {
        Self { client, server: server.ok() }
    }

    /// The address of the client.
    pub(crate) fn address(self) -> SocketAddr {
        self.client
    }

    /// Whether the client may command the process. Reads a list of all connections, so it is to be called where that
    /// may take a while.
    pub(crate) fn check(self) -> Result<(), Stranger> {
        let Some(server) = self.server.filter(|_| self.is_local()) else { return Err(Stranger::Remote) };
        let own = rustix::process::geteuid().as_raw();
        match owner(self.client, server) {
            Some(uid) if uid == own || uid == ROOT => Ok(()),
            _ => Err(Stranger::OtherUser),
        }
    }

    /// Whether the client is on this machine: at a loopback address, or at the address that it connected to.
    fn is_local(self) -> bool {
        let client = self.client.ip().to_canonical();
        client.is_loopback() || self.server.is_some_and(|server| server.ip().to_canonical() == client)
    }
}

/// The user of the socket at `client` that is connected to `server`.
fn owner(client: SocketAddr, server: SocketAddr) -> Option<u32> {
    let ends = (canonical(client), canonical(server));
    let lists = LISTS.iter().filter_map(|path| File::open(path).ok());
    let mut lines = lists.flat_map(|list| BufReader::new(list).lines().skip(1).map_while(Result::ok));
    lines.find_map(|line| parse(&line).filter(|(found, _)| *found == ends)).map(|(_, uid)| uid)
}

/// The two ends and the user of a line.
///
/// `None` for a socket without an inode: its process has closed it, and the kernel then names root as its user.
fn parse(line: &str) -> Option<((SocketAddr, SocketAddr), u32)> {
    let mut words = line.split_ascii_whitespace();
    let (own, other) = (address(words.nth(1)?)?, address(words.next()?)?);
    let (uid, inode) = (words.nth(4)?.parse().ok()?, words.nth(1)?);
    (inode != "0").then_some(((own, other), uid))
}

/// An address as words of 32 bits in the byte order of the machine, each in hexadecimal digits, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (digits, port) = text.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = if digits.len() == 8 {
        Ipv4Addr::from(word(0)?).into()
    } else {
        let mut bytes = [0; 16];
        for (place, part) in bytes.chunks_exact_mut(4).enumerate() {
            part.copy_from_slice(&word(place * 8)?);
        }
        Ipv6Addr::from(bytes).into()
    };
    Some(canonical(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?)))
}

/// Without scope, and with an IPv4 address in its own form.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn at(address: &str) -> SocketAddr {
        address.parse().unwrap()
    }

    #[test]
    fn client_is_local_at_loopback_and_at_the_address_it_connected_to() {
        let is_local = |client, server| Caller::new(at(client), Ok(at(server))).is_local();
        for (client, server) in [
            ("127.0.0.1:5", "127.0.0.1:9900"),
            ("127.9.9.9:5", "127.0.0.1:9900"),
            ("[::1]:5", "[::1]:9900"),
            ("[::ffff:127.0.0.1]:5", "[::ffff:127.0.0.1]:9900"),
            ("10.0.0.5:5", "10.0.0.5:9900"),
            ("[::ffff:10.0.0.5]:5", "10.0.0.5:9900"),
        ] {
            assert!(is_local(client, server), "{client} to {server}");
        }
        for (client, server) in
            [("10.0.0.6:5", "10.0.0.5:9900"), ("172.17.0.1:5", "172.17.0.2:9900"), ("[fe80::1]:5", "[fe80::2]:1")]
        {
            assert!(!is_local(client, server), "{client} to {server}");
        }
        let lost = Caller::new(at("127.0.0.1:6"), Err(io::ErrorKind::NotConnected.into()));
        assert_eq!(lost.check(), Err(Stranger::Remote));
    }

    #[test]
    fn owner_is_read_and_a_closed_socket_has_none() {
        let open =
            "   1: 0100007F:8B0B 0100007F:26AC 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0";
        if cfg!(target_endian = "little") {
            assert_eq!(parse(open), Some(((at("127.0.0.1:35595"), at("127.0.0.1:9900")), 1000)));
        }
        // The kernel says 0, which is root, for both.
        for closed in
            ["04 00000000:00000000 01:00000009 00000000     0        0 0 2", "06 0:0 03:0 0     0        0 0 3"]
        {
            assert_eq!(parse(&format!("   1: 0100007F:8B0B 0100007F:26AC {closed}")), None, "{closed}");
        }
        assert_eq!(parse(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn socket_of_this_process_belongs_to_its_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, peer) = listener.accept().unwrap();
        assert_eq!(owner(peer, server.local_addr().unwrap()), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(Caller::new(peer, server.local_addr()).check(), Ok(()));
        drop(client);
        assert_eq!(Caller::new(peer, server.local_addr()).check(), Err(Stranger::OtherUser));
    }
}
