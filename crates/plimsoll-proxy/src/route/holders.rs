//! The holder of a request's slot at a backend, so that the core can share the slots out
//! ([`plimsoll_core::slots`]).
//!
//! The client is the customer where the listener says how that is known, by facts that no client can
//! invent; else the name in the certificate, else the address. Behind a trusted proxy the address is the one in
//! `X-Forwarded-For`. Of an IPv6 address the first 64 bits count: the rest is the client's to
//! choose (RFC 6177).
//!
//! The hash has a key of this process, so a client cannot choose an address that counts with
//! another's.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::LazyLock;

use plimsoll_core::slots::Holder;

use crate::config::client_network;
use crate::peer::Peer;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Kinds of holders, so that a customer is never counted with a certificate of the same name.
#[derive(Hash)]
enum Key<'a> {
    Address(IpAddr),
    /// The user of a client at a Unix socket.
    User(Option<u32>),
    Certificate(&'a str),
    Customer(&'a [u8]),
}

fn holder(key: &Key<'_>) -> Holder {
    Holder::new(KEY.hash_one(key))
}

/// The client of a connection.
pub(crate) fn of_peer(peer: &Peer) -> Holder {
    match peer.client_names().first() {
        Some(name) => holder(&Key::Certificate(name)),
        None => peer.address.ip().map_or_else(|| holder(&Key::User(peer.user)), of_address),
    }
}

/// An address.
pub(crate) fn of_address(address: IpAddr) -> Holder {
    holder(&Key::Address(client_network(address)))
}

/// A customer.
pub(crate) fn of_customer(name: &[u8]) -> Holder {
    holder(&Key::Customer(name))
}

/// The part of a client's address that it cannot choose, as bytes of an IPv6 address. Users of Unix
/// sockets have addresses of `100::/64`, which no packet has (RFC 6666).
pub(crate) fn octets_of_peer(peer: &Peer) -> [u8; 16] {
    let of_user = || {
        let user = peer.user.map_or(u64::MAX, u64::from);
        Ipv6Addr::from((0x0100_u128 << 112) | u128::from(user)).octets()
    };
    peer.address.ip().map_or_else(of_user, octets_of)
}

/// The part of an address that a client cannot choose, as bytes of an IPv6 address.
pub(crate) fn octets_of(address: IpAddr) -> [u8; 16] {
    match client_network(address) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> Holder {
        let peer = Peer {
            address: format!("{address}:9").parse().unwrap(),
            local: "127.0.0.1:80".parse().unwrap(),
            user: None,
            tls: None,
            is_unnamed: false,
        };
        of_peer(&peer)
    }

    #[test]
    fn client_is_its_address_whatever_its_port_and_interface() {
        assert_eq!(of("192.0.2.1"), of("[::ffff:192.0.2.1]"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("[2001:db8::1]"), of("[2001:db8::2:3:4:5]"));
        assert_ne!(of("[2001:db8::1]"), of("[2001:db8:0:1::1]"));
    }

    #[test]
    fn client_of_a_unix_socket_is_its_user() {
        let address = plimsoll::address::UnixPath::UNNAMED.into();
        let peer = |user| Peer { address, local: address, user, tls: None, is_unnamed: false };
        assert_eq!(of_peer(&peer(Some(1000))), of_peer(&peer(Some(1000))));
        assert_ne!(of_peer(&peer(Some(1000))), of_peer(&peer(Some(1001))));
        assert_ne!(of_peer(&peer(None)), of_peer(&peer(Some(0))));
        assert_ne!(octets_of_peer(&peer(Some(1000))), octets_of_peer(&peer(Some(1001))));
        assert_eq!(Ipv6Addr::from(octets_of_peer(&peer(Some(7)))).to_string(), "100::7");
    }

    #[test]
    fn holders_of_different_kinds_differ_when_their_names_are_equal() {
        assert_ne!(of_customer(b"web"), holder(&Key::Certificate("web")));
    }
}
