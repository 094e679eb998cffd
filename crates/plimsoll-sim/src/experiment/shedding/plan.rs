//! The plan of a shedding experiment: one server, and more than it can do.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::admit::{AdmissionConfig, Outlook, Quota};
use plimsoll_core::{Criticality, Ratio, Weight};

pub use crate::experiment::fleet::plan::{Abandoned, Phase};
pub use crate::model::cost::Cost;
use crate::reference::schedule::Schedule;

/// One server, what is asked of it, and the ways to protect it that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Until when tasks arrive. What is under way then is not waited for.
    pub duration: Duration,
    /// Until when nothing is measured; shorter than the run.
    pub warmup: Duration,
    /// Between two readings of the server: what requests in progress have used, of which a shedder is told if that is more than it
    /// expected, and how long the work is that it has.
    pub tick: Duration,
    /// Between two points of figures over time.
    pub sample_every: Duration,
    /// CPU that the server has, in cores; above zero.
    pub cores: f64,
    /// Requests that run at a time; the others wait, first come, first served. `None`: all run. Those that run share
    /// the cores evenly, none getting more than one.
    pub concurrency: Option<NonZeroU32>,
    /// CPU time of a request; what the server expects it has learned from those that ended.
    pub cost: Cost,
    /// CPU time of an admitted request beside its cost, such as reading it and writing its answer. The server cannot
    /// charge it to the request.
    pub overhead: Duration,
    /// CPU time of turning one away.
    pub rejection: Duration,
    /// After this time from the beginning of its user nobody wants an answer any more, and nobody asks again.
    pub patience: Duration,
    /// What the server does with a request of which nobody wants the answer any more.
    pub abandoned: Abandoned,
    /// Whether requests say when that will be, as their deadline.
    pub tells_deadline: bool,
    /// The delay that the server is meant to keep to, by which is judged when it has settled.
    pub target_delay: Duration,
    /// Who asks; at least one.
    pub sources: Vec<Source>,
    /// Parts of the run, in the order of their beginnings. Before the first the load is 1.
    pub phases: Vec<Phase>,
    /// Ways to protect the server; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Long enough for hundreds of thousands of requests, short enough to wait for.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(60);
    /// By then all averages of a shedder, which are of some seconds, are of the load that is there.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(20);
    /// As often as an executor can be bothered; a fifth of the delay that [`AdmissionConfig`] tolerates.
    pub const DEFAULT_TICK: Duration = Duration::from_millis(1);
    /// As the fleets'.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// Reading a head and writing a short answer.
    pub const DEFAULT_REJECTION: Duration = Duration::from_micros(5);
    /// What users put up with who look at a page.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(1);
    /// Twice what `ranked` aims at: what requests have left beyond what they are expected to cost is not known, and is as much again.
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

/// Tasks of one kind. A task is what a user wants, and takes one request or several, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// How bad it is to lose them.
    pub criticality: Criticality,
    /// Whose they are. Sources with the same number are of the same customer.
    pub customer: u64,
    /// So many customers, numbered on from that; each task is of one of them at random.
    pub customers: NonZeroU32,
    /// What each customer is entitled to, beside others: [`Quota::share`].
    pub share: Weight,
    /// What each customer may use at most, in CPU-seconds a second: [`Quota::most`]; at least 0.
    pub most: Option<f64>,
    /// Tasks a second at a load of 1, at random instants (Poisson); above zero.
    pub rate: f64,
    /// What the rate is multiplied with in each phase, beside the load of the phase; empty for 1.
    pub load: Vec<f64>,
    /// CPU time of a request; `None`: the plan's.
    pub cost: Option<Cost>,
    /// `None`: the plan's.
    pub patience: Option<Duration>,
    /// For how long, on average, the user of a task has waited when it arrives, by what happened elsewhere; exponentially distributed.
    pub age: Duration,
    /// Requests of a task, each after the answer to the one before.
    pub calls: NonZeroU32,
    /// How often a request that is turned away is sent again.
    pub retries: u32,
    /// After which time: half to one and a half of this at random. Zero for at once.
    pub wait: Duration,
}

impl Source {
    /// What each of its customers may use.
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

/// A way to protect the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// How requests are turned away.
    pub shedder: Shedder,
    /// CPU that the server has, in cores; `None`: the plan's.
    pub cores: Option<f64>,
    /// Requests that run at a time; `None`: the plan's.
    pub concurrency: Option<NonZeroU32>,
    /// Whether the shedder knows which requests belong together.
    pub cohorts: Cohorts,
    /// What criticality becomes with age; `None`: it stays.
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

/// How requests are turned away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shedder {
    /// Not at all.
    None,
    /// [`Procrustean`](crate::reference::procrustean::Procrustean), by the requests in progress.
    Procrustean {
        /// Up to so many nothing is turned away; at least 0.
        soft: f64,
        /// From so many on everything is; above `soft`.
        hard: f64,
    },
    /// The [`Gate`](plimsoll_core::admit::Gate) that servers have, for the cores that there are.
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
    /// `Ranked` as it is unless it is told otherwise.
    pub const RANKED: Self = Self::Ranked {
        load_line: AdmissionConfig::DEFAULT_LOAD_LINE,
        target_delay: AdmissionConfig::DEFAULT_TARGET_DELAY,
        outlook: Outlook::Optimistic,
    };
}

/// Whether a shedder knows which requests belong together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cohorts {
    /// All requests of a task are one cohort, those that are sent again among them.
    #[default]
    Told,
    /// Each request stands for itself.
    Unseen,
}
