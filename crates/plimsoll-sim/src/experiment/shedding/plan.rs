//! The plan of a shedding experiment: one server under overload.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::admit::{AdmissionConfig, Outlook, Quota};
use plimsoll_core::{Criticality, Ratio, Weight};

pub use crate::experiment::fleet::plan::{Abandoned, Phase};
pub use crate::model::cost::Cost;
use crate::reference::schedule::Schedule;

/// One server, its load, and the protections compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// End of arrivals. Tasks in progress at that time are not awaited.
    pub duration: Duration,
    /// Beginning of the measurements; shorter than the run.
    pub warmup: Duration,
    /// Time between two readings of the server. A reading measures its delay, and reports the usage
    /// of requests in progress to a shedder that expected less.
    pub tick: Duration,
    /// Time between two points of figures over time.
    pub sample_every: Duration,
    /// CPU of the server, in cores; above zero.
    pub cores: f64,
    /// Most running requests; the others wait, first come, first served. `None`: no limit. Running
    /// requests share the cores evenly, at most one core each.
    pub concurrency: Option<NonZeroU32>,
    /// CPU time of a request. The server learns its expectation from ended requests.
    pub cost: Cost,
    /// CPU time of an admitted request beside its cost, such as reading it and writing its answer.
    /// The server cannot charge it to the request.
    pub overhead: Duration,
    /// CPU time of a rejection.
    pub rejection: Duration,
    /// A user's patience: time until the answer is useless, and until retries end.
    pub patience: Duration,
    /// The server's treatment of an abandoned request.
    pub abandoned: Abandoned,
    /// Whether requests carry the end of the patience as their deadline.
    pub tells_deadline: bool,
    /// The delay that the server aims for. It has settled when it is below.
    pub target_delay: Duration,
    /// Sources of tasks; at least one.
    pub sources: Vec<Source>,
    /// Parts of the run, in the order of their beginnings. The load before the first is 1.
    pub phases: Vec<Phase>,
    /// Protections compared; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Time for hundreds of thousands of requests, and short enough to wait for.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(60);
    /// All averages of a shedder, of some seconds, then measure the present load.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(20);
    /// A bearable interval for an executor; a fifth of the delay that [`AdmissionConfig`]
    /// tolerates.
    pub const DEFAULT_TICK: Duration = Duration::from_millis(1);
    /// The default of fleets.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// Reading a head and writing a short answer.
    pub const DEFAULT_REJECTION: Duration = Duration::from_micros(5);
    /// The patience of users that look at a page.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(1);
    /// Twice the target of `ranked`. The excess of requests over their expected cost is unknown,
    /// and about as large.
    pub const DEFAULT_TARGET_DELAY: Duration = Duration::from_millis(10);
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Self::DEFAULT_DURATION,
            warmup: Self::DEFAULT_WARMUP,
            tick: Self::DEFAULT_TICK,
            sample_every: Self::DEFAULT_SAMPLE_EVERY,
            cores: 1.0,
            concurrency: None,
            cost: Cost::Exponential { mean: Duration::from_millis(10) },
            overhead: Duration::ZERO,
            rejection: Self::DEFAULT_REJECTION,
            patience: Self::DEFAULT_PATIENCE,
            abandoned: Abandoned::default(),
            tells_deadline: false,
            target_delay: Self::DEFAULT_TARGET_DELAY,
            sources: Vec::new(),
            phases: Vec::new(),
            arms: Vec::new(),
        }
    }
}

/// Tasks of one kind. A task is a user's wish, of one request or of several in turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Criticality of the requests.
    pub criticality: Criticality,
    /// Number of the customer. Sources with the same number belong to the same customer.
    pub customer: u64,
    /// Number of customers, counted from that number. Each task belongs to a random one.
    pub customers: NonZeroU32,
    /// Entitlement of each customer beside others: [`Quota::share`].
    pub share: Weight,
    /// Limit of each customer, in CPU-seconds per second: [`Quota::most`]; at least 0.
    pub most: Option<f64>,
    /// Tasks per second at a load of 1, at random instants (Poisson); above zero.
    pub rate: f64,
    /// Factor of the rate in each phase, beside the load of the phase; empty for 1.
    pub load: Vec<f64>,
    /// CPU time of a request; `None`: the plan's.
    pub cost: Option<Cost>,
    /// `None`: the plan's.
    pub patience: Option<Duration>,
    /// Mean time that the user of a task has waited elsewhere before it arrives, exponentially
    /// distributed.
    pub age: Duration,
    /// Requests of a task, in turn.
    pub calls: NonZeroU32,
    /// Most retries of a shed request.
    pub retries: u32,
    /// Mean wait before a retry: at random half to one and a half of this. Zero for none.
    pub wait: Duration,
}

impl Source {
    /// The quota of each of its customers.
    #[must_use]
    pub fn quota(&self) -> Quota {
        Quota { share: self.share, most: self.most }
    }

    /// Whether a task may take more than one request.
    #[must_use]
    pub fn takes_several(&self) -> bool {
        self.calls > NonZeroU32::MIN || self.retries > 0
    }
}

impl Default for Source {
    fn default() -> Self {
        Self {
            name: String::new(),
            criticality: Criticality::default(),
            customer: 0,
            customers: NonZeroU32::MIN,
            share: Weight::ONE,
            most: None,
            rate: 0.0,
            load: Vec::new(),
            cost: None,
            patience: None,
            age: Duration::ZERO,
            calls: NonZeroU32::MIN,
            retries: 0,
            wait: Duration::ZERO,
        }
    }
}

/// A protection of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// The rule that sheds requests.
    pub shedder: Shedder,
    /// CPU of the server, in cores; `None`: the plan's.
    pub cores: Option<f64>,
    /// Most running requests; `None`: the plan's.
    pub concurrency: Option<NonZeroU32>,
    /// Whether the shedder knows the cohorts of requests.
    pub cohorts: Cohorts,
    /// Change of criticality with age; `None`: no change.
    pub schedule: Option<Schedule>,
}

impl Default for Arm {
    fn default() -> Self {
        Self {
            name: String::new(),
            shedder: Shedder::None,
            cores: None,
            concurrency: None,
            cohorts: Cohorts::default(),
            schedule: None,
        }
    }
}

/// A rule that sheds requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shedder {
    /// Sheds nothing.
    None,
    /// [`Procrustean`](crate::reference::procrustean::Procrustean), by the requests in progress.
    Procrustean {
        /// Number in progress up to which nothing is shed; at least 0.
        soft: f64,
        /// Number in progress from which everything is shed; above `soft`.
        hard: f64,
    },
    /// The [`Gate`](plimsoll_core::admit::Gate) of servers, for the server's cores.
    Ranked {
        /// [`AdmissionConfig::load_line`]; above zero.
        load_line: Ratio,
        /// [`AdmissionConfig::target_delay`]
        target_delay: Duration,
        /// [`AdmissionConfig::outlook`]
        outlook: Outlook,
    },
}

impl Shedder {
    /// The default of `Ranked`.
    pub const RANKED: Self = Self::Ranked {
        load_line: AdmissionConfig::DEFAULT_LOAD_LINE,
        target_delay: AdmissionConfig::DEFAULT_TARGET_DELAY,
        outlook: Outlook::Optimistic,
    };
}

/// Whether a shedder knows the cohorts of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cohorts {
    /// All requests of a task are one cohort, retries included.
    #[default]
    Told,
    /// Each request is a cohort of its own.
    Unseen,
}
