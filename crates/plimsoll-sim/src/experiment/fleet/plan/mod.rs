//! The plan of a fleet experiment: one world, and the arms that are compared in it.
//!
//! A world is clients that send, a network, groups of backends, and what happens to them in the course of time. An
//! arm is a way to balance: each runs in the same world, with the same arrivals, costs, speeds and neighbours, drawn
//! from the same seed. Times count from the start of the run; all shares of CPU are in cores or parts of a core.
//!
//! # What is measured
//!
//! After [`Plan::warmup`], over the whole run and over each [`Phase`] after its settling time. A request belongs to
//! the time in which it arrived, however late it ends: after [`Plan::duration`] no more arrive, and the run goes on
//! until the last has ended. Metrics are named `ARM.METRIC` for the whole run and `ARM.PHASE.METRIC` for a phase:
//!
//! | metric | what |
//! |---|---|
//! | `requests` | arrived |
//! | `error_share` | ended otherwise than with an answer, as a share of those arrived; the next four add up to it |
//! | `timeout_share` | not ended in time |
//! | `failure_share` | answered with a failure, or lost with their backend |
//! | `overloaded_share` | turned away by a full backend |
//! | `no_backend_share` | no backend was usable or accepted a connection, or they waited too long for one |
//! | `p50`, `p90`, `p99`, `p99.9` | milliseconds from arrival to answer; without one in time, the time-out |
//! | `mean_latency` | of the same, in milliseconds |
//! | `cpu` | CPU used over CPU provisioned, as reports count it: mean of the backends while they were up |
//! | `max_over_mean`, `max_over_min` | spread of the same over the backends; to nothing: a million |
//! | `waste` | what the others could still do when the fullest is full, in whole backends |
//! | `requests_max_over_mean`, `requests_max_over_min` | spread of the requests sent to each backend |
//! | `in_flight_p50`, `in_flight_p99` | requests in flight at a backend, at the moments of sampling |
//! | `share.GROUP` | share of the requests sent that this group of backends got |
//! | `cpu.GROUP` | CPU used over CPU provisioned, mean of the backends of this group |
//! | `p99.GROUP` | the same as `p99`, of requests whose last backend is of this group |
//! | `attempts_per_request`, `probes_per_request` | what one request costs the backends |
//! | `answered_per_second` | answers to those that arrived in it, over its length |
//!
//! and, for the run as a whole only, `ARM.events`: how many events were simulated.

mod discovery;
mod timeline;

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::subset::SubsetConfig;
use plimsoll_core::{BalancerConfig, Ratio, Weight};

pub use discovery::{Discovery, SourceState};
pub use timeline::{Change, Cold, ColdCourse, Happening, Restart, Selection};

pub use crate::model::antagonist::{Antagonist, Interference, Usage};
pub use crate::model::backend::{Conduct, Reports};
pub use crate::model::cost::Cost;
pub use crate::model::network::Network;
pub use crate::model::retries::Retries;
pub use crate::model::skew::Skew;

/// One world, and the arms that are compared in it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Until when requests arrive.
    pub duration: Duration,
    /// Until when nothing is measured.
    pub warmup: Duration,
    /// Between two samples of each backend's CPU and requests in flight: the resolution of figures over time.
    pub sample_every: Duration,
    /// Who sends.
    pub clients: Clients,
    /// When requests arrive.
    pub arrivals: Arrivals,
    /// CPU time of a request on a machine of speed 1.
    pub cost: Cost,
    /// CPU time of a request beside its cost, on a machine of speed 1: the same for every request that a backend works
    /// on, such as reading it and writing its answer.
    pub overhead: Duration,
    /// How requests are sent, and given up.
    pub requests: Requests,
    /// What lies between clients and backends.
    pub network: Network,
    /// Who serves; at least one backend in all.
    pub backends: Vec<BackendGroup>,
    /// Parts of the run that are measured by themselves, in the order of their beginnings; may be empty.
    pub phases: Vec<Phase>,
    /// What happens, in any order.
    pub timeline: Vec<Happening>,
    /// The ways to balance, at least one.
    pub arms: Vec<Arm>,
    /// The group of which arms [change the size](Arm::size), and the arms by the size that they give it; `None`: no
    /// sweep.
    pub sweep: Option<Sweep>,
}

impl Default for Plan {
    /// Ten clients and ten equal backends of one core at 60% load for a minute, under the default policy.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(60),
            warmup: Duration::from_secs(20),
            sample_every: Duration::from_secs(1),
            clients: Clients::default(),
            arrivals: Arrivals::default(),
            cost: Cost::Exponential { mean: Duration::from_millis(10) },
            overhead: Duration::ZERO,
            requests: Requests::default(),
            network: Network::default(),
            backends: vec![BackendGroup::default()],
            phases: Vec::new(),
            timeline: Vec::new(),
            arms: vec![Arm::default()],
            sweep: None,
        }
    }
}

/// Who sends requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// How many at the start; each has a balancer of its own.
    pub count: NonZeroU32,
    /// How unequal the rates (with a closed loop: the numbers of users) of the clients are.
    pub rates: Skew,
    /// How unequal the mean costs of the clients' requests are.
    pub costs: Skew,
}

impl Default for Clients {
    fn default() -> Self {
        Self { count: NonZeroU32::new(10).expect("not zero"), rates: Skew::Even, costs: Skew::Even }
    }
}

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At random instants (Poisson), whatever becomes of them.
    Open {
        /// All clients together.
        rate: Rate,
    },
    /// By users of whom each sends its next request a while after its last one has ended.
    Closed {
        /// All clients together; at least one for each client.
        users: NonZeroU32,
        /// Mean of the while, exponentially distributed; zero: at once.
        think: Duration,
    },
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::Open { rate: Rate::OfCapacity(0.6) }
    }
}

/// How many requests arrive; a phase's [`Phase::load`] multiplies it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// So many.
    PerSecond(f64),
    /// So many that their mean cost is this part, above zero, of what the backends of the start are provisioned with:
    /// their cores, or allocations, times their speeds, antagonists not counted. May be above 1.
    OfCapacity(f64),
}

/// How requests are sent, and given up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Requests {
    /// From arrival to answer, waiting and further attempts included.
    pub timeout: Duration,
    /// Requests of one client that may wait while no backend can take them.
    pub max_pending: u32,
    /// Longest such wait.
    pub queue_timeout: Duration,
    /// What a backend does with a request that its client has given up.
    pub abandoned: Abandoned,
    /// After this time a probe's answer is of no use any more.
    pub probe_timeout: Duration,
    /// Number of different keys; `None`: requests have no key.
    pub keys: Option<NonZeroU32>,
    /// The popularity of keys.
    pub popularity: Skew,
}

impl Requests {
    /// That of the Prequal paper's test bed (NSDI 2024).
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);
    /// As the library's clients.
    pub const DEFAULT_MAX_PENDING: u32 = 1024;
    /// As the library's clients.
    pub const DEFAULT_QUEUE_TIMEOUT: Duration = Duration::from_secs(5);
    /// Prequal's (NSDI 2024).
    pub const DEFAULT_PROBE_TIMEOUT: Duration = Duration::from_millis(3);
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            timeout: Self::DEFAULT_TIMEOUT,
            max_pending: Self::DEFAULT_MAX_PENDING,
            queue_timeout: Self::DEFAULT_QUEUE_TIMEOUT,
            abandoned: Abandoned::default(),
            probe_timeout: Self::DEFAULT_PROBE_TIMEOUT,
            keys: None,
            popularity: Skew::Even,
        }
    }
}

/// What a backend does with a request that its client has given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Abandoned {
    /// Works on it to its end: most servers do not look.
    #[default]
    Finished,
    /// Drops it as soon as it hears of it.
    Dropped,
}

/// Backends that are alike but for what is drawn for each.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendGroup {
    /// Names it in metrics and selections; one name per group.
    pub name: String,
    /// How many.
    pub count: NonZeroU32,
    /// CPU that it is provisioned with, above zero: with [`Interference::Allocation`] it has so much for certain,
    /// otherwise at most.
    pub cores: f64,
    /// How fast the cores are; 1 is ordinary.
    pub speed: Speed,
    /// What clients are configured to believe of it.
    pub weight: Weight,
    /// Number of unnamed failure domains, such as racks, to which the group's backends are dealt in turn. Has no effect
    /// where there are `zones`.
    pub domains: NonZeroU32,
    /// Names of the zones to which the group's backends are dealt in turn: the first to the first zone, and so on. A zone
    /// is a failure domain, the same one in all groups that name it. Empty: the group is in no zone.
    pub zones: Vec<String>,
    /// Who else uses its machine.
    pub antagonist: Antagonist,
    /// Requests that it works on at once; `None`: all. They share its cores evenly, none getting more than one.
    pub concurrency: Option<NonZeroU32>,
    /// Requests beyond those that wait their turn; any more are answered as overloaded, at once.
    pub queue: u32,
    /// How it behaves at the start.
    pub conduct: Conduct,
    /// What it says of its load with each answer.
    pub reports: Reports,
}

impl BackendGroup {
    /// The zone of the backend at a place of the group, the first at 0; `None` where the group is in no zone.
    #[must_use]
    pub fn zone(&self, place: u32) -> Option<&str> {
        let i = (place as usize).checked_rem(self.zones.len())?;
        Some(&self.zones[i])
    }
}

impl Default for BackendGroup {
    fn default() -> Self {
        Self {
            name: "backend".to_owned(),
            count: NonZeroU32::new(10).expect("not zero"),
            cores: 1.0,
            speed: Speed::Fixed(1.0),
            weight: Weight::ONE,
            domains: NonZeroU32::MIN,
            zones: Vec::new(),
            antagonist: Antagonist::None,
            concurrency: None,
            queue: u32::MAX,
            conduct: Conduct::default(),
            reports: Reports::default(),
        }
    }
}

/// How fast a machine is; 1 is ordinary, and all are above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// All alike.
    Fixed(f64),
    /// Drawn for each machine, all values from `low` to `high` equally likely.
    Uniform {
        /// The least.
        low: f64,
        /// The greatest.
        high: f64,
    },
}

/// A part of the run that is measured by itself. It lasts until the next begins, the last until the end.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Names it in metrics: short, such as `90%`; no dots.
    pub name: String,
    /// When it begins.
    pub at: Duration,
    /// At its beginning so much is not measured. Shorter than the phase.
    pub settle: Duration,
    /// What the rate of arrivals is multiplied with meanwhile; 1 before the first phase. Without effect on a closed
    /// loop.
    pub load: f64,
}

impl Default for Phase {
    fn default() -> Self {
        Self { name: "all".to_owned(), at: Duration::ZERO, settle: Duration::ZERO, load: 1.0 }
    }
}

/// One way to balance.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// Policy and all else.
    pub balancer: BalancerConfig,
    /// The backends that each client knows; `None`: all. The seed of the run is mixed into its seed.
    pub subset: Option<SubsetConfig>,
    /// How clients learn of added and removed backends; `None`: at once.
    pub discovery: Option<Discovery>,
    /// How failures are seen by the balancer.
    pub failures: Failures,
    /// Whether clients send again what has failed or was turned away as too much. Of more than four attempts there are four. One
    /// that meets with a refused connection is none, for nothing was sent: as in the library, the request then goes elsewhere, to
    /// four backends in all.
    pub retries: Retries,
    /// Share of probes that are lost, beside the network's losses; 1 where a firewall drops them.
    pub probe_loss: Ratio,
    /// Further configurations, each in force from its time on.
    pub switches: Vec<Switch>,
    /// The size of the plan's [swept](Plan::sweep) group in this arm.
    pub size: Option<NonZeroU32>,
}

impl Default for Arm {
    fn default() -> Self {
        let balancer = BalancerConfig::default();
        Self {
            name: balancer.policy.name().to_owned(),
            balancer,
            subset: None,
            discovery: None,
            failures: Failures::default(),
            retries: Retries::None,
            probe_loss: Ratio::ZERO,
            switches: Vec::new(),
            size: None,
        }
    }
}

/// A sweep over the size of a group: each way to balance is tried with each size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// The group, by its place in [`Plan::backends`].
    pub group: usize,
    /// The sizes, rising.
    pub sizes: Vec<NonZeroU32>,
    /// The names of the ways to balance. The plan's arms are these in this order, the first with each size, then the
    /// second with each size, and so on.
    pub arms: Vec<String>,
}

impl Plan {
    /// The plan as one of its arms sees it: with the size that the arm gives to the swept group.
    #[must_use]
    pub fn of_arm(&self, arm: &Arm) -> Cow<'_, Self> {
        match (&self.sweep, arm.size) {
            (Some(sweep), Some(size)) => {
                let mut plan = self.clone();
                plan.backends[sweep.group].count = size;
                Cow::Owned(plan)
            }
            _ => Cow::Borrowed(self),
        }
    }
}

/// How failures are seen by the balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Failures {
    /// As what they are.
    #[default]
    Counted,
    /// As successes: a client that cannot tell, or does not look. The measurement is not deceived.
    Unseen,
}

/// A change of configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switch {
    /// When.
    pub at: Duration,
    /// To what.
    pub balancer: BalancerConfig,
}
