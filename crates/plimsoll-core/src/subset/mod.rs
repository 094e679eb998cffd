//! Subsetting: the choice of the backends that one client connects to.
//!
//! With C clients and n backends, all to all makes C·n connections, each with memory, health checks
//! and a handshake at both ends. So each client connects to a **subset** of k backends. The choice
//! decides four things, which pull against each other:
//!
//! - *balance*: the evenness of connections over backends, C·k/n each on average;
//! - *churn*: the share of connections that move when a client or backend comes or goes. With one
//!   more backend at least 1/(n+1) must move, or the new one gets less than its share;
//! - *diversity*: the overlap of two clients' subsets, and thus the backends that take over after a
//!   failure;
//! - *knowledge*: a client needs only itself, its number among the clients, or the knowledge of all
//!   (a coordinator).
//!
//! | algorithm | balance | churn | needs |
//! |---|---|---|---|
//! | `random` | poor | high | nothing |
//! | `deterministic` | within 1, always | nearly everything moves | client index |
//! | `ringsteady` | within about 10% | least | client index |
//! | `rocksteadier` | within about 5% | near the least | client index |
//! | `rendezvous` | poor | least | nothing |
//! | `ledger` | within 1, always | least | a coordinator |
//!
//! # Common to all
//!
//! An algorithm gives a client an **order of preference**; [`Subset`] takes as many from its head
//! as it needs for k usable backends. So the next in the order replaces an unusable backend until
//! it returns, and nothing else moves. An order depends on nothing but its arguments, except that
//! of `ledger`, whose [`Ledger`](ledger::Ledger) has memory. Clients that see the same backends
//! agree without communication.
//!
//! **Failure domains** (zones, racks) are spread: a subset has about the cluster's share of each
//! domain.
//!
//! **Weights.** A machine of twice the weight does not get twice the clients. The policy of each
//! client already sends it twice the requests; with twice the clients as well it would get four
//! times. A subset of low total weight would give each of its backends much load. So each subset
//! has about the same share of heavy and light machines, by the same rule that spreads domains.
//!
//! Sources: SRE ch. 20 (deterministic); ACM Queue 20(5), 2022 (ringsteady, rocksteadier); gRFC A68
//! (rendezvous).

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use crate::Weight;

mod coordinated;
mod deterministic;
pub mod ledger;
mod members;
mod ordinals;
mod random;
mod rendezvous;
mod ringsteady;
mod rocksteadier;
mod seeds;
mod strata;
mod van_der_corput;

pub use coordinated::order_coordinated;
pub use members::Subset;
pub use ordinals::{Numbering, OrdinalError, check_ordinals};

/// The algorithms, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Each client draws its own subset.
    Random,
    /// Rounds of clients share one shuffle and each take a slice of it.
    Deterministic,
    /// Both sides on a ring at van der Corput positions; the next backends clockwise.
    Ringsteady,
    /// Both sides in lots; a row of each lot, lots in ring order.
    Rocksteadier,
    /// The least hashes of client and backend together.
    Rendezvous,
    /// A coordinator's assignment, with memory.
    Ledger,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 6] =
        [Self::Random, Self::Deterministic, Self::Ringsteady, Self::Rocksteadier, Self::Rendezvous, Self::Ledger];

    /// The word for it in configuration, metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Deterministic => "deterministic",
            Self::Ringsteady => "ringsteady",
            Self::Rocksteadier => "rocksteadier",
            Self::Rendezvous => "rendezvous",
            Self::Ledger => "ledger",
        }
    }

    /// Whether clients must be numbered.
    #[must_use]
    pub const fn needs_client_index(self) -> bool {
        matches!(self, Self::Deterministic | Self::Ringsteady | Self::Rocksteadier)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of an unknown algorithm name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAlgorithm;

impl fmt::Display for UnknownAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown subset algorithm, expected one of: ")?;
        for (i, algorithm) in Algorithm::ALL.iter().enumerate() {
            write!(f, "{}{algorithm}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownAlgorithm {}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or(UnknownAlgorithm)
    }
}

/// The settings of subsetting: the same for all clients of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubsetConfig {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Usable backends in each subset; all of them if there are fewer.
    pub size: NonZeroU32,
    /// Seed of all draws. Clusters that share clients and backends need different seeds, or the
    /// same backends would be unlucky twice.
    pub seed: u64,
}

impl SubsetConfig {
    /// The fewest connections in the SRE book's range of 20 to 100, right for most services.
    pub const DEFAULT_SIZE: NonZeroU32 = NonZeroU32::new(20).expect("20 is not zero");
}

/// A client that needs a subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Unique among clients, and the same over a client's restarts.
    pub id: u64,
    /// Its number among the clients: 0, 1, 2 ... without gaps.
    pub index: Option<u32>,
}

impl Client {
    /// The client numbered `index`, which is its id too.
    #[must_use]
    pub const fn numbered(index: u32) -> Self {
        Self { id: index as u64, index: Some(index) }
    }
}

/// A backend as subsetting sees it. Its position in the slice is its number; all clients must see
/// the same order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// Unique among backends, and independent of the position in the slice: a hash of the address.
    pub key: u64,
    /// Failure domain: the number of its zone or rack. The same for all if unknown.
    pub domain: u32,
    /// Its size relative to the other backends.
    pub weight: Weight,
}

impl Backend {
    /// The key of a backend with this address, as all clients write it.
    #[must_use]
    pub fn key_of(address: &str) -> u64 {
        seeds::hash(0, address.as_bytes())
    }
}

/// An input that an algorithm needs and did not get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingInput {
    /// The client has no number.
    ClientIndex(Algorithm),
    /// `ledger` without a coordinator.
    Ledger,
}

impl fmt::Display for MissingInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIndex(algorithm) => write!(
                f,
                "subset algorithm {algorithm} needs each client's number: number the clients from 0 up, or use {} instead",
                Algorithm::Rendezvous
            ),
            Self::Ledger => write!(
                f,
                "subset algorithm {} needs a coordinator that assigns backends: name one, or use {} instead",
                Algorithm::Ledger,
                Algorithm::Rocksteadier
            ),
        }
    }
}

impl core::error::Error for MissingInput {}

/// Backends in an order per backend in the subset, so that as many may be unusable before a subset
/// runs short. More would only cost time: if over half of a client's order is unusable, so is about
/// half of the cluster.
const ORDERED_PER_MEMBER: usize = 2;

/// The sizes of a subset, and of the order that it is taken from.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    subset: NonZeroU32,
    /// At most all backends.
    order: usize,
}

impl Sizes {
    /// For subsets of `subset` out of `n` numbers, of which `vacant` are skipped later.
    fn new(subset: NonZeroU32, n: usize, vacant: usize) -> Self {
        let order = (subset.get() as usize).saturating_mul(ORDERED_PER_MEMBER).saturating_add(vacant).min(n);
        Self { subset, order }
    }
}

/// The backends that `client` prefers, by number, the most preferred first, none twice. The order
/// has twice the size of the subset, at most all backends. Input of [`Subset::new`].
///
/// # Errors
///
/// If the algorithm needs a number that `client` lacks, or a coordinator.
pub fn order(config: &SubsetConfig, client: Client, backends: &[Backend]) -> Result<Vec<u32>, MissingInput> {
    order_of(config, client, backends, 0)
}

/// As [`order`], over numbers of which some are vacant. These are skipped, and no other backend moves.
///
/// # Errors
///
/// As [`order`].
pub fn order_numbered(config: &SubsetConfig, client: Client, numbering: &Numbering) -> Result<Vec<u32>, MissingInput> {
    let vacant = numbering.vacant();
    let mut order = order_of(config, client, numbering.backends(), vacant)?;
    order.retain(|number| numbering.place_of(*number).is_some());
    order.truncate(Sizes::new(config.size, order.len(), 0).order);
    Ok(order)
}

fn order_of(
    config: &SubsetConfig,
    client: Client,
    backends: &[Backend],
    vacant: usize,
) -> Result<Vec<u32>, MissingInput> {
    let index = || client.index.ok_or(MissingInput::ClientIndex(config.algorithm));
    let (sizes, seed) = (Sizes::new(config.size, backends.len(), vacant), config.seed);
    Ok(match config.algorithm {
        Algorithm::Random => random::order(sizes, seed, client.id, backends),
        Algorithm::Deterministic => deterministic::order(sizes, seed, index()?, backends),
        Algorithm::Ringsteady => ringsteady::order(sizes, seed, index()?, backends),
        Algorithm::Rocksteadier => rocksteadier::order(sizes, seed, index()?, backends),
        Algorithm::Rendezvous => rendezvous::order(sizes, seed, client.id, backends),
        Algorithm::Ledger => return Err(MissingInput::Ledger),
    })
}
