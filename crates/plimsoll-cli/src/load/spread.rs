//! Which of several servers gets the next request, by fixed parts.
//!
//! A load that is uneven over servers in a known way. Each request is drawn by itself, like its kind.

use std::net::SocketAddr;

use rand_core::Rng;

use super::mix::draw;

/// Servers, each with its part of the requests.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    addresses: Vec<SocketAddr>,
    /// The sum of the parts up to and including each.
    until: Vec<f64>,
}

impl Spread {
    /// Parts are relative to each other, and greater than zero. `None` without a server.
    pub(crate) fn new(parts: impl IntoIterator<Item = (SocketAddr, f64)>) -> Option<Self> {
        let (mut addresses, mut until, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (address, part) in parts {
            sum += part;
            addresses.push(address);
            until.push(sum);
        }
        (!addresses.is_empty()).then_some(Self { addresses, until })
    }

    /// The servers, in their order.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The place of the server that gets the next request.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> usize {
        draw(&self.until, rng)
    }
}
