//! The plan of an experiment with tiers: requests, servers, and the throttles and retries of each
//! client.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::throttle::{Multiple, adaptive};
use plimsoll_core::{Criticality, Ratio};

pub use crate::experiment::fleet::plan::{Phase, Retries};

/// Clients, the services behind them, and the throttles and retries compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// End of arrivals. Requests in progress at that time are not awaited.
    pub duration: Duration,
    /// Beginning of the measurements; shorter than the run.
    pub warmup: Duration,
    /// Time between two points of figures over time, and between two measurements of recovery.
    pub sample_every: Duration,
    /// Number of clients of the first tier. Each request is of a random one.
    pub clients: NonZeroU32,
    /// Longest wait of a client for an attempt.
    pub timeout: Duration,
    /// Time until the deadline of a request, when its user leaves.
    pub patience: Duration,
    /// Sources of requests; at least one.
    pub sources: Vec<Source>,
    /// Services, the first one first. Each sends one request to the next for each of its own. At
    /// least one.
    pub tiers: Vec<Tier>,
    /// Parts of the run, in the order of their beginnings. The load before the first is 1.
    pub phases: Vec<Phase>,
    /// Throttles and retries compared; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Time for a throttle to settle several times.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(300);
    /// A window of two minutes is full by then.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(120);
    /// The default of fleets.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A small fleet.
    pub const DEFAULT_CLIENTS: NonZeroU32 = NonZeroU32::new(20).expect("not zero");
    /// A user's patience with an empty page.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
    /// Time for three attempts.
    pub const DEFAULT_PATIENCE: Duration = Duration::from_secs(3);
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Self::DEFAULT_DURATION,
            warmup: Self::DEFAULT_WARMUP,
            sample_every: Self::DEFAULT_SAMPLE_EVERY,
            clients: Self::DEFAULT_CLIENTS,
            timeout: Self::DEFAULT_TIMEOUT,
            patience: Self::DEFAULT_PATIENCE,
            sources: Vec::new(),
            tiers: Vec::new(),
            phases: Vec::new(),
            arms: Vec::new(),
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Source {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Criticality of the requests. Each tier passes it on.
    pub criticality: Criticality,
    /// Requests per second of all clients together, at a load of 1, at random instants (Poisson);
    /// above zero.
    pub rate: f64,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Number of its tasks. Each is a client of the next tier, with a throttle and a budget of its
    /// own.
    pub tasks: NonZeroU32,
    /// Capacity of all tasks together, in requests per second; above zero.
    pub capacity: f64,
    /// Factor of the capacity in each phase; empty for 1. Nothing is served at 0.
    pub strength: Vec<f64>,
    /// Its behaviour under overload.
    pub server: Server,
    /// Share of admitted requests that fail at random.
    pub errors: Ratio,
    /// Time from the end of the work on a request, or from its rejection, to its client.
    pub latency: Duration,
}

impl Tier {
    /// A network and a quick answer.
    pub const DEFAULT_LATENCY: Duration = Duration::from_millis(5);
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            name: String::new(),
            tasks: NonZeroU32::MIN,
            capacity: 0.0,
            strength: Vec::new(),
            server: Server::Limited,
            errors: Ratio::ZERO,
            latency: Self::DEFAULT_LATENCY,
        }
    }
}

/// The behaviour of a service under overload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// Sheds requests beyond its capacity, at no cost. A burst of a tenth of a second is admitted.
    #[default]
    Limited,
    /// Queues all requests, first come, first served, and serves all of them, abandoned ones
    /// included.
    Queue,
    /// Sheds the least critical requests by a [`Gate`](plimsoll_core::admit::Gate) for each task,
    /// advises on retries, and drops abandoned requests.
    Ranked,
}

/// The throttle and the retries of clients, in all tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// Throttle of each client.
    pub throttle: Holding,
    /// Retries of each client.
    pub retries: Retries,
    /// Clients of the first tier; `None`: the plan's.
    pub clients: Option<NonZeroU32>,
    /// Factor of all rates; above zero.
    pub load: f64,
    /// Behaviour of all services under overload; `None`: the plan's.
    pub server: Option<Server>,
}

impl Default for Arm {
    fn default() -> Self {
        Self {
            name: String::new(),
            throttle: Holding::Off,
            retries: Retries::None,
            clients: None,
            load: 1.0,
            server: None,
        }
    }
}

/// A client throttle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Holding {
    /// Sends all requests.
    Off,
    /// [`ThrottlePolicy::Adaptive`](plimsoll_core::throttle::ThrottlePolicy::Adaptive)
    Adaptive {
        /// K, within [`Multiple::RANGE`].
        k: f64,
        /// Length of the window.
        window: Duration,
    },
    /// [`ThrottlePolicy::Paced`](plimsoll_core::throttle::ThrottlePolicy::Paced)
    Paced {
        /// K, within [`Multiple::RANGE`].
        k: f64,
    },
    /// Envoy's `admission_control` with its defaults.
    AdmissionControl,
}

impl Holding {
    /// The book's settings.
    pub const ADAPTIVE: Self = Self::Adaptive { k: Multiple::DEFAULT.as_f64(), window: adaptive::DEFAULT_WINDOW };
    /// The default settings.
    pub const PACED: Self = Self::Paced { k: Multiple::DEFAULT.as_f64() };
}
