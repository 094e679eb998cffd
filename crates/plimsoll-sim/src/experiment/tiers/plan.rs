//! The plan of an experiment with tiers: who asks, who serves, and how each client of each tier holds back and tries again.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::throttle::{Multiple, adaptive};
use plimsoll_core::{Criticality, Ratio};

pub use crate::experiment::fleet::plan::{Phase, Retries};

/// Clients, the services behind them, and the ways to hold back and try again that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Until when requests arrive. What is under way then is not waited for.
    pub duration: Duration,
    /// Until when nothing is measured; shorter than the run.
    pub warmup: Duration,
    /// Between two points of figures over time, and of what is looked at for recovery.
    pub sample_every: Duration,
    /// Clients of the first tier; each request is of one of them at random.
    pub clients: NonZeroU32,
    /// How long a client waits for an attempt.
    pub timeout: Duration,
    /// After this time nobody wants the answer any more: the deadline of a request.
    pub patience: Duration,
    /// What is asked for; at least one.
    pub sources: Vec<Source>,
    /// Who serves, the one that is asked first; each asks the next once for each request. At least one.
    pub tiers: Vec<Tier>,
    /// Parts of the run, in the order of their beginnings. Before the first the load is 1.
    pub phases: Vec<Phase>,
    /// Ways to hold back; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Enough for a throttle to settle, several times.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(300);
    /// By then a window of two minutes is full.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(120);
    /// As the fleets'.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A small fleet.
    pub const DEFAULT_CLIENTS: NonZeroU32 = NonZeroU32::new(20).expect("not zero");
    /// As long as users look at nothing.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1);
    /// Three attempts' worth.
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
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// How bad it is to lose them; each tier passes it on.
    pub criticality: Criticality,
    /// Requests a second of all clients together, at a load of 1, at random instants (Poisson); above zero.
    pub rate: f64,
}

/// A service.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// Its tasks. Each is a client of the next tier, with a throttle and a budget of its own.
    pub tasks: NonZeroU32,
    /// Requests a second that all of them together can serve; above zero.
    pub capacity: f64,
    /// What that is multiplied with in each phase; empty for 1. At 0 nothing is served.
    pub strength: Vec<f64>,
    /// What they do with more than they can serve.
    pub server: Server,
    /// Of what they take on, this share fails at random.
    pub errors: Ratio,
    /// From the end of the work on a request, or its rejection, to its client.
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

/// What a service does with more than it can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Server {
    /// Turns it away, at no cost: what comes within a tenth of a second of the capacity is taken on.
    #[default]
    Limited,
    /// Has it wait, first come, first served, and works on all of it in the end, whoever still waits.
    Queue,
    /// Turns the least critical away by a [`Gate`](plimsoll_core::admit::Gate) for each task, says whether to try elsewhere, and drops
    /// what nobody waits for.
    Ranked,
}

/// How clients hold back and try again, in all tiers.
#[derive(Clone, Debug, PartialEq)]
pub struct Arm {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// Whether they send.
    pub throttle: Holding,
    /// Whether they send again.
    pub retries: Retries,
    /// Clients of the first tier; `None`: the plan's.
    pub clients: Option<NonZeroU32>,
    /// What all rates are multiplied with; above zero.
    pub load: f64,
    /// What all services do with more than they can serve; `None`: as the plan says.
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

/// Whether clients send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Holding {
    /// All.
    Off,
    /// [`ThrottlePolicy::Adaptive`](plimsoll_core::throttle::ThrottlePolicy::Adaptive)
    Adaptive {
        /// Its K; within [`Multiple::RANGE`].
        k: f64,
        /// Its window.
        window: Duration,
    },
    /// [`ThrottlePolicy::Paced`](plimsoll_core::throttle::ThrottlePolicy::Paced)
    Paced {
        /// Its K; within [`Multiple::RANGE`].
        k: f64,
    },
    /// Envoy's `admission_control` with its defaults.
    AdmissionControl,
}

impl Holding {
    /// As the book has it.
    pub const ADAPTIVE: Self = Self::Adaptive { k: Multiple::DEFAULT.as_f64(), window: adaptive::DEFAULT_WINDOW };
    /// As it is unless told otherwise.
    pub const PACED: Self = Self::Paced { k: Multiple::DEFAULT.as_f64() };
}
