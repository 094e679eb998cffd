//! The plan of a quota experiment: tasks, customers, requests, and the rules compared.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Criticality;
use plimsoll_core::admit::Outlook;
use plimsoll_core::quota::OwnerConfig;

pub use crate::experiment::fleet::plan::Phase;

/// Tasks, the customers whose requests they get, and the rules that share the limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// End of arrivals.
    pub duration: Duration,
    /// Beginning of the measurements; shorter than the run.
    pub warmup: Duration,
    /// Time between two points of figures over time.
    pub sample_every: Duration,
    /// The span of the highest use, a multiple of `sample_every`.
    pub span: Duration,
    /// Number of tasks.
    pub tasks: NonZeroU32,
    /// Time of a message between a task and the owner of the limits, one way.
    pub delay: Duration,
    /// Longest time until a task that lost the owner finds it again.
    pub reconnect: Duration,
    /// At least one.
    pub customers: Vec<Customer>,
    /// Sources of requests; at least one.
    pub sources: Vec<Source>,
    /// Parts of the run, in the order of their beginnings. The load before the first is 1.
    pub phases: Vec<Phase>,
    /// Times without owner.
    pub outages: Vec<Outage>,
    /// Rules compared; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Time for some changes, and for several minutes of a lease.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(120);
    /// The time until a first start is known as one, and twice that to settle.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(15);
    /// The default of fleets.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A limit is for minutes: what is used in a second does no harm.
    pub const DEFAULT_SPAN: Duration = Duration::from_secs(10);
    /// A fleet in which the even part of a limit is small.
    pub const DEFAULT_TASKS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
    /// Half of a round trip between continents.
    pub const DEFAULT_DELAY: Duration = Duration::from_millis(50);
    /// Back-off with jitter.
    pub const DEFAULT_RECONNECT: Duration = Duration::from_secs(2);
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Self::DEFAULT_DURATION,
            warmup: Self::DEFAULT_WARMUP,
            sample_every: Self::DEFAULT_SAMPLE_EVERY,
            span: Self::DEFAULT_SPAN,
            tasks: Self::DEFAULT_TASKS,
            delay: Self::DEFAULT_DELAY,
            reconnect: Self::DEFAULT_RECONNECT,
            customers: Vec::new(),
            sources: Vec::new(),
            phases: Vec::new(),
            outages: Vec::new(),
            arms: Vec::new(),
        }
    }
}

/// A customer with a limit over all tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Customer {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// In CPUs; above zero.
    pub limit: f64,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// The name of its customer.
    pub customer: String,
    /// Criticality of the requests.
    pub criticality: Criticality,
    /// Requests per second at a load of 1; above zero.
    pub rate: f64,
    /// CPU time of a request.
    pub cost: Duration,
    /// Load in each phase, beside that of the phase; empty for 1.
    pub loads: Vec<f64>,
    /// The choice of tasks.
    pub spread: Spread,
}

impl Source {
    /// An expensive request.
    pub const DEFAULT_COST: Duration = Duration::from_millis(10);
}

impl Default for Source {
    fn default() -> Self {
        Self {
            name: String::new(),
            customer: String::new(),
            criticality: Criticality::default(),
            rate: 0.0,
            cost: Self::DEFAULT_COST,
            loads: Vec::new(),
            spread: Spread::Even,
        }
    }
}

/// The choice of the task that gets a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// Any task.
    Even,
    /// Requests come in bursts, each to one random task.
    Bursts {
        /// Requests of a burst.
        requests: NonZeroU32,
        /// Its length.
        over: Duration,
    },
    /// Some tasks get all requests, and later others.
    Moving {
        /// Tasks that get requests.
        tasks: NonZeroU32,
        /// Time until others do.
        every: Duration,
    },
    /// Task i of n gets a part in proportion to 1 ÷ i.
    Uneven,
}

impl Spread {
    /// The default of `Bursts`.
    pub const BURSTS: Self =
        Self::Bursts { requests: NonZeroU32::new(20).expect("not zero"), over: Duration::from_secs(2) };
    /// The default of `Moving`.
    pub const MOVING: Self =
        Self::Moving { tasks: NonZeroU32::new(10).expect("not zero"), every: Duration::from_secs(20) };
}

/// A time without owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outage {
    /// Its beginning.
    pub at: Duration,
    /// Its length; above zero.
    pub lasts: Duration,
}

/// One rule compared with others.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// The rule.
    pub rule: Rule,
}

impl Default for Arm {
    fn default() -> Self {
        Self { name: String::new(), rule: Rule::LEASES }
    }
}

/// A rule that shares a limit among tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rule {
    /// Leases and credits: [`Owner`](plimsoll_core::quota::Owner) and [`Holder`](plimsoll_core::quota::Holder).
    Leases {
        /// [`OwnerConfig::outlook`]
        outlook: Outlook,
        /// [`OwnerConfig::lease`]; above zero.
        lease: Duration,
    },
    /// Each task has the limit divided by the number of tasks.
    Even,
    /// Each task has a part in proportion to its demand in the last interval, as limiters with weights have.
    Weights {
        /// The interval; above zero.
        every: Duration,
    },
}

impl Rule {
    /// The default of `Leases`.
    pub const LEASES: Self = Self::Leases { outlook: Outlook::Optimistic, lease: OwnerConfig::DEFAULT_LEASE };
    /// The default of `Weights`: that of a limiter in wide use.
    pub const WEIGHTS: Self = Self::Weights { every: Duration::from_secs(3) };
}
