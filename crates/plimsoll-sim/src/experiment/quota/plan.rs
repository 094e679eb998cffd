//! The plan of a quota experiment: tasks, customers, requests, and the rules compared.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::admit::Outlook;
use plimsoll_core::quota::OwnerConfig;
use plimsoll_core::{Criticality, Ratio};

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
    /// CPUs of each task; `None`: enough for any load.
    pub cpus: Option<f64>,
    /// Time of a message between a task and the owner of the limits, one way.
    pub delay: Duration,
    /// Longest time until a task that lost the owner finds it again.
    pub reconnect: Duration,
    /// At least one.
    pub customers: Vec<Customer>,
    /// Limits of customers together.
    pub groups: Vec<Group>,
    /// Sources of requests; at least one.
    pub sources: Vec<Source>,
    /// Parts of the run, in the order of their beginnings. The load before the first is 1.
    pub phases: Vec<Phase>,
    /// Times without owner.
    pub outages: Vec<Outage>,
    /// Changes of limits.
    pub changes: Vec<Change>,
    /// Time until a task that crashed is back.
    pub restart: Duration,
    /// Accidents at random.
    pub accidents: Accidents,
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
    /// A service of some size.
    pub const DEFAULT_RESTART: Duration = Duration::from_secs(10);
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
            cpus: None,
            delay: Self::DEFAULT_DELAY,
            reconnect: Self::DEFAULT_RECONNECT,
            customers: Vec::new(),
            groups: Vec::new(),
            sources: Vec::new(),
            phases: Vec::new(),
            outages: Vec::new(),
            changes: Vec::new(),
            restart: Self::DEFAULT_RESTART,
            accidents: Accidents::default(),
            arms: Vec::new(),
        }
    }
}

/// A customer with a limit over all tasks, or some customers with the same limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Customer {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Of each of them, in CPUs; above zero.
    pub limit: f64,
    /// The share of each while tasks have not enough CPU for all, in CPUs; `None`: that of all others without.
    pub soft_limit: Option<f64>,
    /// Number of customers.
    pub count: NonZeroU32,
    /// The name of their group.
    pub group: Option<String>,
}

impl Default for Customer {
    fn default() -> Self {
        Self { name: String::new(), limit: 0.0, soft_limit: None, count: NonZeroU32::MIN, group: None }
    }
}

/// A limit of some customers together, beside those of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
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
    /// Of some customers, number k gets requests in proportion to 1 ÷ k to the power of this.
    pub skew: f64,
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
            skew: 0.0,
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
    /// Each task has a rate of its own, the same at first. It changes in steps: by a random part of itself, up or down.
    Drifting {
        /// Time between two steps.
        every: Duration,
        /// The largest part, at most 1.
        by: Ratio,
    },
}

impl Spread {
    /// The default of `Bursts`.
    pub const BURSTS: Self =
        Self::Bursts { requests: NonZeroU32::new(20).expect("not zero"), over: Duration::from_secs(2) };
    /// The default of `Moving`.
    pub const MOVING: Self =
        Self::Moving { tasks: NonZeroU32::new(10).expect("not zero"), every: Duration::from_secs(20) };
    /// The default of `Drifting`: the steps of the clients in Doorman's scenarios.
    pub const DRIFTING: Self = Self::Drifting { every: Duration::from_secs(10), by: Ratio::new(0.1).expect("a part") };
}

/// A time without owner.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outage {
    /// Its beginning.
    pub at: Duration,
    /// Its length; above zero.
    pub lasts: Duration,
}

/// A change of a limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Its time.
    pub at: Duration,
    /// The name of the customer.
    pub customer: String,
    /// In CPUs; above zero.
    pub limit: f64,
    /// Each task that gets it crashes.
    pub breaks: bool,
}

/// Accidents, one at a time. The three numbers are weights: each accident is of one of the three kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accidents {
    /// Time between two of them; `None` for no accidents.
    pub every: Option<Duration>,
    /// The demand of one task rises.
    pub spikes: u32,
    /// Requests per second that a spike adds at its task; above zero.
    pub spike: f64,
    /// The owner is lost for some time, and another one follows.
    pub losses: u32,
    /// The longest loss; shorter ones are as likely.
    pub longest: Duration,
    /// The owner is lost, and another one follows at once.
    pub elections: u32,
}

impl Accidents {
    /// As the requests of a source have no usual rate, it is 100.
    pub const DEFAULT_SPIKE: f64 = 100.0;
    /// The default lease: the owner returns before tasks fall back.
    pub const DEFAULT_LONGEST: Duration = OwnerConfig::DEFAULT_LEASE;
}

impl Default for Accidents {
    fn default() -> Self {
        Self {
            every: None,
            spikes: 0,
            spike: Self::DEFAULT_SPIKE,
            losses: 0,
            longest: Self::DEFAULT_LONGEST,
            elections: 0,
        }
    }
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
        /// One task tries a change of a limit before all get it: [`Rollout`](plimsoll_core::quota::Rollout).
        trial: bool,
        /// Limits of groups are enforced.
        groups: bool,
    },
    /// Each task has the limit divided by the number of tasks.
    Even,
    /// Each task has a part in proportion to its demand in the last interval, as limiters with weights have.
    Weights {
        /// The interval; above zero.
        every: Duration,
    },
    /// Leases that tasks renew at a tree of servers, as Doorman has (github.com/youtube/doorman).
    Doorman {
        /// Levels of servers.
        levels: NonZeroU32,
        /// Servers of the next level below each server.
        branches: NonZeroU32,
        /// Time between two requests to the root; half of it at each further level.
        refresh: Duration,
        /// Time for which capacity is given.
        lease: Duration,
    },
}

impl Rule {
    /// Whether limits of groups are enforced.
    #[must_use]
    pub const fn has_groups(self) -> bool {
        matches!(self, Self::Leases { groups: true, .. })
    }

    /// The default of `Leases`.
    pub const LEASES: Self =
        Self::Leases { outlook: Outlook::Optimistic, lease: OwnerConfig::DEFAULT_LEASE, trial: true, groups: true };
    /// The default of `Weights`: that of a limiter in wide use.
    pub const WEIGHTS: Self = Self::Weights { every: Duration::from_secs(3) };
    /// The default of `Doorman`: the tree and the times of its scenarios five and seven.
    pub const DOORMAN: Self = Self::Doorman {
        levels: NonZeroU32::new(3).expect("not zero"),
        branches: NonZeroU32::new(3).expect("not zero"),
        refresh: Duration::from_secs(8),
        lease: Duration::from_secs(60),
    };
}
