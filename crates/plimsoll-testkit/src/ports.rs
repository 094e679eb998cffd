//! Ports for tests, which run in many processes at once.
//!
//! A test could ask the kernel for port 0 and close the socket. The kernel may give that port again
//! at once: to another test, or to an outgoing connection. So ports come from a range below the
//! kernel's own. The process that took a port holds its lock to the end: a Unix socket with an
//! abstract name. The end-to-end tests take the same locks.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;

/// Linux gives out 32768 and above for outgoing connections.
const PORTS: Range<u16> = 20_000..32_000;

/// The locks of this process. They end with it.
static LOCKS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// A loopback port without a listener. No other call returns it, in any process, while this process
/// lives.
///
/// # Panics
/// If no port of the range is free.
#[must_use]
pub fn free_port() -> u16 {
    // Processes start at different offsets, so that few of them ask for the same lock.
    let offset = std::process::id().wrapping_mul(7919) % u32::from(PORTS.end - PORTS.start);
    let offset = u16::try_from(offset).expect("is below the length of the range");
    let (before, after) = (PORTS.start..PORTS.start + offset, PORTS.start + offset..PORTS.end);
    after.chain(before).find(|&port| take(port)).expect("a port between 20000 and 32000 is free")
}

fn take(port: u16) -> bool {
    let name = SocketAddr::from_abstract_name(format!("plimsoll-test-port-{port}"));
    let Ok(lock) = name.and_then(|name| UnixListener::bind_addr(&name)) else {
        return false;
    };
    if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
        return false;
    }
    LOCKS.lock().expect("no holder panics").push(lock);
    true
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn free_port_returns_no_port_twice() {
        let ports: HashSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
    }

    #[test]
    fn free_port_skips_a_port_that_another_holds() {
        let next = free_port() + 1;
        let name = SocketAddr::from_abstract_name(format!("plimsoll-test-port-{next}")).expect("is short");
        // Another test may hold it already; either way it is taken.
        let _held = UnixListener::bind_addr(&name);
        assert!(!take(next));
    }
}
