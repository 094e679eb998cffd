//! How many connections each client has open at a listener, by its address; at a Unix socket, by
//! its user.
//!
//! An IPv6 client is its /64: the owner of one address has all of them. Only addresses with open
//! connections are stored, so the listener's own limit bounds memory. A connection costs one short
//! lock when it comes and one when it goes; a request costs none.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use plimsoll::address::Address;

/// The clients of a listener that have connections open.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    open: Mutex<HashMap<Client, usize>>,
    refused: AtomicU64,
}

/// A client, as far as it cannot choose itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    V4(u32),
    /// The first half of the address.
    V6(u64),
    /// The user of a client at a Unix socket, as far as the kernel says it.
    User(Option<u32>),
}

impl Client {
    /// The client at `address`; `user` is its user at a Unix socket.
    pub(crate) fn of(address: Address, user: Option<u32>) -> Self {
        address.ip().map_or(Self::User(user), Self::from)
    }
}

impl From<IpAddr> for Client {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl Clients {
    /// Counts a connection of `client`, or refuses it when `most` are open already. Without a
    /// limit nothing is counted: a limit that is set later applies to later connections.
    pub(crate) fn admit(self: &Arc<Self>, client: Client, most: Option<NonZeroUsize>) -> Option<Admitted> {
        let Some(most) = most else { return Some(Admitted(None)) };
        {
            let mut open = self.open.lock();
            let count = open.entry(client).or_default();
            // A client that has none is never refused, so none is left at zero.
            if *count < most.get() {
                *count += 1;
                return Some(Admitted(Some((Arc::clone(self), client))));
            }
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Connections that were refused.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// A connection that counts for its client until this is dropped.
#[derive(Debug)]
pub(crate) struct Admitted(Option<(Arc<Clients>, Client)>);

impl Drop for Admitted {
    fn drop(&mut self) {
        let Some((clients, client)) = self.0.take() else { return };
        let mut open = clients.open.lock();
        if let Some(count) = open.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                open.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Option<NonZeroUsize> = NonZeroUsize::new(2);

    fn ip(text: &str) -> Client {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn a_client_has_so_many_connections_and_others_are_not_disturbed() {
        let clients = Arc::new(Clients::default());
        let held: Vec<_> = (0..2).map(|_| clients.admit(ip("10.0.0.1"), TWO).unwrap()).collect();
        assert!(clients.admit(ip("10.0.0.1"), TWO).is_none());
        let other = clients.admit(ip("10.0.0.2"), TWO).unwrap();
        drop(held);
        assert!(clients.admit(ip("10.0.0.1"), TWO).is_some());
        drop(other);
        assert_eq!((clients.refused(), clients.open.lock().len()), (1, 0), "nobody is remembered");
    }

    #[test]
    fn an_ipv6_client_is_its_network_and_a_mapped_one_its_ipv4_address() {
        let same = |a: &str, b: &str| ip(a) == ip(b);
        assert!(same("2001:db8:0:1::1", "2001:db8:0:1:ffff::2"));
        assert!(!same("2001:db8:0:1::1", "2001:db8:0:2::1"));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn client_of_a_unix_socket_is_its_user() {
        let unix = |user| Client::of("unix:/run/a.sock".parse().unwrap(), user);
        assert_eq!(unix(Some(7)), Client::of("unix:@b".parse().unwrap(), Some(7)));
        assert!(unix(Some(7)) != unix(Some(8)) && unix(None) != unix(Some(0)));
        assert_eq!(Client::of("10.0.0.1:80".parse().unwrap(), None), ip("10.0.0.1"));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let clients = Arc::new(Clients::default());
        let held: Vec<_> = (0..100).map(|_| clients.admit(ip("10.0.0.1"), None).unwrap()).collect();
        assert!(clients.open.lock().is_empty());
        drop(held);
    }
}
