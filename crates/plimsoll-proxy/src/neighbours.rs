//! Which sockets of other processes listen at the addresses of this one.
//!
//! Sockets of several processes may listen at one address (`SO_REUSEPORT`), and the kernel deals
//! connections out to all of them. That is how a forgotten process answers half of the requests by
//! an old configuration, and neither process notices. A start at such an address is refused unless
//! it was asked for (`sockets.rs`); a process that was there first learns of it here.
//!
//! Linux lists its listening sockets in `/proc/self/net/tcp`, before all others, each with its
//! inode. The sockets of this process are known by their inodes; those that passed to a successor,
//! or came from systemd, are the same sockets. Elsewhere nothing is found.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

/// Lists of sockets, by address family.
const LISTS: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// The state `LISTEN` in these lists.
const LISTEN: &str = "0A";

/// The addresses of `own` that sockets of other processes share.
pub(crate) fn shared<'s>(own: impl Iterator<Item = &'s TcpListener>) -> HashSet<SocketAddr> {
    let own: Vec<(SocketAddr, u64)> =
        own.filter_map(|socket| Some((socket.local_addr().ok()?, inode(socket)?))).collect();
    let foreign = listening().into_iter().filter(|(_, inode)| !own.iter().any(|(_, known)| known == inode));
    foreign.map(|(address, _)| address).filter(|address| own.iter().any(|(known, _)| known == address)).collect()
}

fn inode(socket: &TcpListener) -> Option<u64> {
    std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).ok().map(|file| file.ino())
}

/// All sockets of this network namespace that listen, with their inodes.
fn listening() -> Vec<(SocketAddr, u64)> {
    let lists = LISTS.iter().filter_map(|path| File::open(path).ok());
    // The first line is the heading.
    let lines = lists.flat_map(|list| BufReader::new(list).lines().skip(1).map_while(|line| parse(&line.ok()?)));
    lines.collect()
}

/// The address and the inode of a line; `None` if it is of a socket that does not listen.
fn parse(line: &str) -> Option<(SocketAddr, u64)> {
    let mut words = line.split_ascii_whitespace();
    let (address, state, inode) = (words.nth(1)?, words.nth(1)?, words.nth(5)?);
    if state != LISTEN {
        return None;
    }
    let (ip, port) = address.split_once(':')?;
    Some((SocketAddr::new(parse_ip(ip)?, u16::from_str_radix(port, 16).ok()?), inode.parse().ok()?))
}

/// An address as words of 32 bits in the byte order of the machine, each in hexadecimal digits.
fn parse_ip(digits: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    if digits.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let mut bytes = [0; 16];
    for (place, part) in bytes.chunks_exact_mut(4).enumerate() {
        part.copy_from_slice(&word(place * 8)?);
    }
    (digits.len() == 32).then(|| Ipv6Addr::from(bytes).into())
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn lines_of_listening_sockets_are_read() {
        let v4 =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 12345 1 0 100";
        let v6 = "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 \
                  00:00000000 00000000     0        0 77 1 0 100";
        if cfg!(target_endian = "little") {
            assert_eq!(parse(v4), Some(("127.0.0.1:8080".parse().unwrap(), 12345)));
            assert_eq!(parse(v6), Some(("[::1]:80".parse().unwrap(), 77)));
        }
        for other in ["", "0: 0100007F:1F90", &v4.replace(" 0A ", " 01 "), &v4.replace("0100007F", "0100")] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn address_is_shared_when_a_socket_listens_there_that_is_not_own() {
        let bind = |address: SocketAddr| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_reuse_port(true).unwrap();
            socket.bind(&address.into()).unwrap();
            socket.listen(1).unwrap();
            TcpListener::from(socket)
        };
        let first = bind("127.0.0.1:0".parse().unwrap());
        let address = first.local_addr().unwrap();
        let second = bind(address);
        let copy = first.try_clone().unwrap();
        assert_eq!(shared([&first, &copy, &second].into_iter()), HashSet::new(), "a copy is the same socket");
        assert_eq!(shared([&first].into_iter()), HashSet::from([address]));
        drop(second);
        assert_eq!(shared([&first].into_iter()), HashSet::new());
    }
}
