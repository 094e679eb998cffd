//! Subsetting: which of a cluster's backends one client connects to.
//!
//! With C clients and n backends, all to all are C·n connections, each with memory, health checks and a handshake at
//! both ends. So each client takes a **subset** of k backends. Whom it takes decides four things, which pull against each
//! other:
//!
//! - *balance*: how evenly connections lie on the backends, C·k/n each on average;
//! - *churn*: which share of the connections moves when a client or backend comes or goes; with one more backend at least
//!   1/(n+1) must, or the newcomer gets less than its share;
//! - *diversity*: how much the subsets of two clients overlap, and so, who takes over when a backend fails;
//! - what clients must know: only themselves, their number among the clients, or what everyone has (a coordinator).
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
//! # What all of them share
//!
//! An algorithm gives a client an **order of preference**; [`Subset`] takes from its head as many as it needs for k usable
//! ones. An unusable backend is thus replaced by the next in the order and given back when it returns, and nothing else
//! moves. Except for `ledger`, whose [`Ledger`](ledger::Ledger) remembers, an order depends on nothing but its arguments:
//! clients that see the same backends agree without a word.
//!
//! **Failure domains** (zones, racks) are spread: a subset has of each domain about the share that the cluster has.
//!
//! **Weights.** A machine of twice the weight does not get twice the clients: the policy of each client already sends it
//! twice the requests, and with twice the clients as well it would get four times. What a subset owes it is fair
//! company: where a client's whole subset weighs little, each backend in it gets much. So each subset has about the same
//! share of heavy and light machines, by the same rule that spreads domains.
//!
//! Sources: SRE ch. 20 (deterministic); ACM Queue 20(5), 2022 (ringsteady, rocksteadier); gRFC A68 (rendezvous).

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;

use crate::Weight;

mod deterministic;
pub mod ledger;
mod members;
mod random;
mod rendezvous;
mod ringsteady;
mod rocksteadier;
mod seeds;
mod strata;
mod van_der_corput;

pub use members::Subset;

/// The algorithms, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Each client draws its own.
    Random,
    /// Rounds of clients share one shuffle and each take a slice of it.
    Deterministic,
    /// Both sides on a ring at van der Corput positions; the next ones clockwise.
    Ringsteady,
    /// Both sides in lots; a row of each lot, lots in ring order.
    Rocksteadier,
    /// The least hashes of client and backend together.
    Rendezvous,
    /// A coordinator's assignment, which has memory.
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

/// A name that is no algorithm's.
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

/// How clients choose their subsets: the same for all clients of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubsetConfig {
    /// Which algorithm.
    pub algorithm: Algorithm,
    /// Usable backends that each client wants; all of them when there are fewer.
    pub size: NonZeroU32,
    /// Clusters that share clients and backends need different seeds, or the same backends would be doubly unlucky.
    pub seed: u64,
}

impl SubsetConfig {
    /// Of the 20 to 100 that the SRE book found right for most services, the fewest connections.
    pub const DEFAULT_SIZE: NonZeroU32 = NonZeroU32::new(20).expect("20 is not zero");
}

/// Who wants a subset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Different for each client, and the same for one client over its restarts.
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

/// A backend as subsetting sees it. Its position in the slice is its number; all clients must see the same order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backend {
    /// Different for each backend, and the same wherever it stands in the slice: a hash of its address.
    pub key: u64,
    /// What fails together with it: the number of its zone or rack. All alike when nothing is known.
    pub domain: u32,
    /// Its size relative to its fellows.
    pub weight: Weight,
}

impl Backend {
    /// The key of a backend with this address, as all clients write it.
    #[must_use]
    pub fn key_of(address: &str) -> u64 {
        seeds::hash(0, address.as_bytes())
    }
}

/// What an algorithm needs and was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The client has no number.
    ClientIndex(Algorithm),
    /// `ledger` without a coordinator.
    Ledger,
}

impl fmt::Display for Lack {
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

impl core::error::Error for Lack {}

/// Backends given per backend wanted, so that as many may be unusable at once before a subset runs short. More would only
/// cost time: when over half of a client's subset is gone, so is half of the cluster.
const SPARE: usize = 2;

/// How many backends an order for subsets of `size` out of `n` backends gives.
fn order_len(size: NonZeroU32, n: usize) -> usize {
    (size.get() as usize).saturating_mul(SPARE).min(n)
}

/// The backends that `client` prefers, by number, dearest first, none twice: twice the size of its subset, at most all.
/// For [`Subset::new`].
///
/// # Errors
///
/// When the algorithm needs what `client` does not say, or a coordinator.
pub fn order(config: &SubsetConfig, client: Client, backends: &[Backend]) -> Result<Vec<u32>, Lack> {
    let index = || client.index.ok_or(Lack::ClientIndex(config.algorithm));
    let (size, seed) = (config.size, config.seed);
    Ok(match config.algorithm {
        Algorithm::Random => random::order(size, seed, client.id, backends),
        Algorithm::Deterministic => deterministic::order(size, seed, index()?, backends),
        Algorithm::Ringsteady => ringsteady::order(size, seed, index()?, backends),
        Algorithm::Rocksteadier => rocksteadier::order(size, seed, index()?, backends),
        Algorithm::Rendezvous => rendezvous::order(size, seed, client.id, backends),
        Algorithm::Ledger => return Err(Lack::Ledger),
    })
}
