//! Policies: the choice of a usable backend for the next request.
//!
//! A policy sees only usable backends; health, flow control and slow start have decided before it.
//! All policies choose in amortised constant time with any number of backends, and allocate
//! nothing.
//!
//! | policy | rule | when |
//! |---|---|---|
//! | `random` | uniform | the baseline |
//! | `round-robin` | each in turn | equal backends, equal requests |
//! | `least-loaded` | round robin among the fewest active requests | no load reports |
//! | `weighted` | in proportion to capability, from load reports | the default: balances CPU |
//! | `p2c` | two at random, the fewer active | very many backends, bursty |
//! | `peak-ewma` | two at random, the lower latency × active | latency matters more than CPU |
//! | `prequal` | least latency of those probed and not full | tail latency on shared machines |
//! | `hash` | the same backend for the same key, up to a bound on its load | caches, sessions |
//!
//! Failures are a penalty in each. Policies read a load that includes failures, and not the bare
//! count of active requests. The balancer keeps a pick of a failing backend with a probability
//! below one. Rate-limited answers are a penalty as well, as far as a backend gives more of them
//! than the others (`rate_limits`).

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use crate::{Random, Timestamp};

mod alone;
pub(crate) mod capability;
pub(crate) mod counted;
pub(crate) mod errors;
pub(crate) mod feedback;
pub(crate) mod hash;
pub(crate) mod latency;
pub(crate) mod least_loaded;
pub(crate) mod p2c;
pub(crate) mod peak_ewma;
pub(crate) mod prequal;
pub(crate) mod random;
pub(crate) mod rate_limits;
pub(crate) mod round_robin;
pub(crate) mod stride;
pub(crate) mod weighted;

pub use alone::{InvalidWeights, ReportPicker, WeightedPicker, less_loaded_of_two};
pub use capability::WeightedConfig;
pub use hash::{HashConfig, HashKey, HashPicks, LoadBound};
pub use prequal::{PrequalConfig, ProbeAnswer, ProbeRule, ProbeSource};

/// The policies, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// At random, in proportion to the configured weights.
    Random,
    /// Each in turn, in proportion to the configured weights.
    RoundRobin,
    /// Round robin among those with the fewest active requests.
    LeastLoaded,
    /// In proportion to capability; as [`PolicyKind::LeastLoaded`] while reports are missing.
    #[default]
    Weighted,
    /// Two at random, the fewer active requests.
    P2c,
    /// Two at random, the lower latency × active requests.
    PeakEwma,
    /// The least latency of the backends that were probed lately and are not full.
    Prequal,
    /// The same backend for the same key, up to a bound on its load.
    Hash,
}

impl PolicyKind {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::Random,
        Self::RoundRobin,
        Self::LeastLoaded,
        Self::Weighted,
        Self::P2c,
        Self::PeakEwma,
        Self::Prequal,
        Self::Hash,
    ];

    /// The word for it in configuration, metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::RoundRobin => "round-robin",
            Self::LeastLoaded => "least-loaded",
            Self::Weighted => "weighted",
            Self::P2c => "p2c",
            Self::PeakEwma => "peak-ewma",
            Self::Prequal => "prequal",
            Self::Hash => "hash",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of an unknown policy name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPolicy;

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown policy, expected one of: ")?;
        for (i, kind) in PolicyKind::ALL.iter().enumerate() {
            write!(f, "{}{kind}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownPolicy)
    }
}

/// A policy's view of one backend. `slot` in every call is the backend's index, stable while it is
/// a member.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Active requests plus the penalty for recent failures.
    pub(crate) load: u32,
    /// 1 / configured weight.
    pub(crate) inverse_weight: f32,
    /// Latency from the end of the request to the head of the response.
    pub(crate) latency: latency::PeakEwma,
}

impl Candidate {
    /// Load relative to weight: a backend of twice the weight has the same relative load with twice
    /// the requests.
    fn relative_load(&self) -> f32 {
        self.load as f32 * self.inverse_weight
    }
}

/// The backends at one moment, as a policy sees them.
pub(crate) struct View<'a> {
    pub(crate) now: Timestamp,
    /// Slots of the usable backends, in no meaningful order.
    pub(crate) usable: &'a [u32],
    /// All backends by slot.
    pub(crate) candidates: &'a [Candidate],
    /// The inverse of the largest weight of any backend.
    pub(crate) least_inverse_weight: f32,
    /// The key of the request, for the policy that reads it.
    pub(crate) key: Option<HashKey>,
}

/// A policy: takes changes of load, and chooses the next backend.
pub(crate) trait Policy {
    /// The slot of the next backend, out of `view.usable`, which is not empty.
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32;

    /// Another backend for the same request than those in `passed`, the first of which was chosen.
    /// The chosen one if there is no other.
    fn alternative(&mut self, view: &View<'_>, passed: &[u32], rng: &mut impl Random) -> u32 {
        p2c::other_than(passed[0], view, rng)
    }

    /// The request went to an alternative.
    fn on_replaced(&mut self) {}

    /// A backend became usable.
    fn on_usable(&mut self, _slot: u32, _candidate: &Candidate) {}

    /// A backend is no longer usable.
    fn on_unusable(&mut self, _slot: u32) {}

    /// The load of a usable backend changed.
    fn on_load(&mut self, _slot: u32, _candidate: &Candidate) {}

    /// Active requests per unit of the penalty for recent failures. More than one if a policy
    /// compares loads that are larger than this client's alone.
    fn penalty_unit(&self) -> u32 {
        1
    }
}

/// One of the policies.
#[derive(Clone, Debug)]
pub(crate) enum AnyPolicy {
    Random(random::Random),
    RoundRobin(round_robin::RoundRobin),
    LeastLoaded(least_loaded::LeastLoaded),
    Weighted(weighted::Weighted),
    P2c(p2c::P2c),
    PeakEwma(peak_ewma::PeakEwmaPolicy),
    Prequal(prequal::Prequal),
    // Boxed, because it would make the others larger.
    Hash(Box<hash::Hash>),
}

macro_rules! each {
    ($self:ident, $policy:ident => $call:expr) => {
        match $self {
            AnyPolicy::Random($policy) => $call,
            AnyPolicy::RoundRobin($policy) => $call,
            AnyPolicy::LeastLoaded($policy) => $call,
            AnyPolicy::Weighted($policy) => $call,
            AnyPolicy::P2c($policy) => $call,
            AnyPolicy::PeakEwma($policy) => $call,
            AnyPolicy::Prequal($policy) => $call,
            AnyPolicy::Hash($policy) => $call,
        }
    };
}

impl AnyPolicy {
    /// The policy of this kind, without usable backends yet.
    pub(crate) fn new(kind: PolicyKind, prequal: PrequalConfig, hash: HashConfig) -> Self {
        match kind {
            PolicyKind::Random => Self::Random(random::Random),
            PolicyKind::RoundRobin => Self::RoundRobin(round_robin::RoundRobin::default()),
            PolicyKind::LeastLoaded => Self::LeastLoaded(least_loaded::LeastLoaded::default()),
            PolicyKind::Weighted => Self::Weighted(weighted::Weighted::default()),
            PolicyKind::P2c => Self::P2c(p2c::P2c),
            PolicyKind::PeakEwma => Self::PeakEwma(peak_ewma::PeakEwmaPolicy),
            PolicyKind::Prequal => Self::Prequal(prequal::Prequal::new(prequal)),
            PolicyKind::Hash => Self::Hash(Box::new(hash::Hash::new(hash))),
        }
    }
}

impl Policy for AnyPolicy {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        each!(self, policy => policy.choose(view, rng))
    }

    fn alternative(&mut self, view: &View<'_>, passed: &[u32], rng: &mut impl Random) -> u32 {
        each!(self, policy => policy.alternative(view, passed, rng))
    }

    fn on_replaced(&mut self) {
        each!(self, policy => policy.on_replaced());
    }

    fn on_usable(&mut self, slot: u32, candidate: &Candidate) {
        each!(self, policy => policy.on_usable(slot, candidate));
    }

    fn on_unusable(&mut self, slot: u32) {
        each!(self, policy => policy.on_unusable(slot));
    }

    fn on_load(&mut self, slot: u32, candidate: &Candidate) {
        each!(self, policy => policy.on_load(slot, candidate));
    }

    fn penalty_unit(&self) -> u32 {
        each!(self, policy => policy.penalty_unit())
    }
}

/// Two distinct usable slots, uniformly; the same one twice if there is only one.
fn two_distinct(usable: &[u32], rng: &mut impl Random) -> (u32, u32) {
    let (first, second) = two_below(usable.len(), rng);
    (usable[first], usable[second])
}

/// Two distinct indexes below `n`, uniformly; the same one twice if there is only one.
fn two_below(n: usize, rng: &mut impl Random) -> (usize, usize) {
    let first = crate::rng::below(rng, n);
    if n == 1 {
        return (first, first);
    }
    // One of the n − 1 others, counted from the one after the first.
    (first, (first + 1 + crate::rng::below(rng, n - 1)) % n)
}
