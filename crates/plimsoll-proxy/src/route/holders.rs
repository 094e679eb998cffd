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
use std::net::IpAddr;
use std::sync::LazyLock;

use plimsoll_core::slots::Holder;

use crate::config::client_network;
use crate::peer::Peer;

static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Kinds of holders, so that a customer is never counted with a certificate of the same name.
#[derive(Hash)]
enum Key<'a> {
    Address(IpAddr),
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
        None => of_address(peer.address.ip()),
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
    fn holders_of_different_kinds_differ_when_their_names_are_equal() {
        assert_ne!(of_customer(b"web"), holder(&Key::Certificate("web")));
    }
}
