//! Cookies: the proof that a client receives datagrams at its address.
//!
//! The address of a UDP datagram can be spoofed. So an answer carries a number that only the
//! responder can compute, and the client repeats it in its next query. Only then may anything be
//! sent there unasked.
//!
//! ```text
//! cookie = MAC(own secret, address · port · instance of the client · hour)
//! ```
//!
//! The cookies of this hour and of the last one are valid, so the responder keeps nothing.

use core::net::IpAddr;

use super::super::message::Peer;
use crate::Timestamp;

const NANOS_PER_HOUR: u64 = 3_600_000_000_000;

/// Length of the message behind a cookie: address, port, instance, hour.
pub const COOKIE_MESSAGE: usize = 16 + 2 + 8 + 8;

/// A secret that only this process knows.
pub trait CookieSecret {
    /// The first eight bytes of the message's MAC under this secret.
    fn mac(&self, message: &[u8; COOKIE_MESSAGE]) -> u64;
}

/// The cookie of a client for this hour. Never zero, which means "none".
pub(super) fn cookie(now: Timestamp, peer: &Peer, secret: &impl CookieSecret) -> u64 {
    at_hour(now.as_nanos() / NANOS_PER_HOUR, peer, secret)
}

/// Whether the client got this cookie within this hour or the last one.
pub(super) fn is_valid(now: Timestamp, peer: &Peer, cookie: u64, secret: &impl CookieSecret) -> bool {
    let hour = now.as_nanos() / NANOS_PER_HOUR;
    let is_of = |hour| at_hour(hour, peer, secret) == cookie;
    cookie != 0 && (is_of(hour) || hour.checked_sub(1).is_some_and(is_of))
}

fn at_hour(hour: u64, peer: &Peer, secret: &impl CookieSecret) -> u64 {
    let address = match peer.address.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut message = [0; COOKIE_MESSAGE];
    message[..16].copy_from_slice(&address.octets());
    message[16..18].copy_from_slice(&peer.address.port().to_be_bytes());
    message[18..26].copy_from_slice(&peer.instance.number().to_be_bytes());
    message[26..].copy_from_slice(&hour.to_be_bytes());
    secret.mac(&message).max(1)
}
