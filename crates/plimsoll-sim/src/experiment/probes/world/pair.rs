//! One backend as one client knows it: its probes, its checks, and its requests.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use plimsoll_core::Timestamp;
use plimsoll_core::probe::{Authenticity, CookieSecret, Instance, Peer, Prober, Traffic};

use crate::kernel::NEVER;

/// The TCP port of every backend.
pub(super) const PORT: u16 = 80;

/// A client's view of one backend.
pub(super) struct Pair {
    pub(super) prober: Prober,
    pub(super) traffic: Traffic,
    /// The next wake-up of the prober, if it is not outdated.
    pub(super) poll_at: Timestamp,
    /// The next health check; never while probes replace checks.
    pub(super) check_at: Timestamp,
    /// The first query without an answer since the last answer.
    pub(super) unanswered: Option<Timestamp>,
    /// Whether the client knows of the lame duck.
    pub(super) knows: bool,
    /// Whether probes worked when the backends became lame ducks.
    pub(super) had_probes: bool,
    /// Notices sent, for the rule `pushed`.
    pub(super) notices: u32,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            prober: Prober::new(PORT),
            traffic: Traffic::default(),
            poll_at: NEVER,
            check_at: NEVER,
            unanswered: None,
            knows: false,
            had_probes: false,
            notices: 0,
        }
    }
}

/// MACs are assumed to be valid.
pub(super) const VALID: Authenticity = Authenticity::Keyed;

/// The process of a client, or of a backend after some restarts.
pub(super) fn instance(number: u32, restarts: u32) -> Instance {
    Instance::new(u64::from(restarts) << 33 | u64::from(number) << 1 | 1).expect("odd, so not zero")
}

/// A client, as a backend sees it.
pub(super) fn peer(client: u32) -> Peer {
    let [_, b, c, d] = client.to_be_bytes();
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, b, c, d)), 40_000);
    Peer { address, local: 0, key_id: 1, instance: instance(client, 0) }
}

/// The number of a client.
pub(super) fn client_of(peer: &Peer) -> u32 {
    (peer.instance.number() >> 1) as u32
}

/// A hash in place of a MAC: nobody in the experiment guesses cookies.
pub(super) struct Secret(pub(super) u64);

impl CookieSecret for Secret {
    fn mac(&self, message: &[u8; plimsoll_core::probe::COOKIE_MESSAGE]) -> u64 {
        // FNV-1a.
        let begin = 0xcbf2_9ce4_8422_2325 ^ self.0;
        message.iter().fold(begin, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
    }
}
