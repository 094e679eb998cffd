//! The plan of an experiment with probes: clients, backends, their network, and what happens.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;

/// Clients that probe backends.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Length of the run.
    pub duration: Duration,
    /// Beginning of the measurements of rates; shorter than the run.
    pub warmup: Duration,
    /// Time between two points of figures over time.
    pub sample_every: Duration,
    /// Number of clients.
    pub clients: NonZeroU32,
    /// Number of backends; each client knows all.
    pub backends: NonZeroU32,
    /// Time without a request after which a backend is inactive at a client.
    pub inactive_after: Duration,
    /// Mean time between two requests of a client to a backend; `None` for no requests.
    pub request_every: Option<Duration>,
    /// Time between two health checks of a client at a backend, where they run. A check sees the
    /// state of the server.
    pub check_every: Duration,
    /// The network.
    pub link: Link,
    /// What happens, in order of time.
    pub changes: Vec<Change>,
    /// Ways to learn a backend's state; at least one.
    pub arms: Vec<Arm>,
}

impl Plan {
    /// Time for some rounds of queries.
    pub const DEFAULT_DURATION: Duration = Duration::from_secs(300);
    /// Time for all backends to become inactive.
    pub const DEFAULT_WARMUP: Duration = Duration::from_secs(60);
    /// The default of fleets.
    pub const DEFAULT_SAMPLE_EVERY: Duration = Duration::from_secs(1);
    /// A small fleet.
    pub const DEFAULT_CLIENTS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");
    /// A small cluster.
    pub const DEFAULT_BACKENDS: NonZeroU32 = NonZeroU32::new(10).expect("not zero");
    /// Short, so that runs can be short.
    pub const DEFAULT_INACTIVE_AFTER: Duration = Duration::from_secs(30);
    /// The default of health checks.
    pub const DEFAULT_CHECK_EVERY: Duration = Duration::from_secs(10);

    /// Whether backends become lame ducks.
    #[must_use]
    pub fn has_lame_duck(&self) -> bool {
        self.changes.iter().any(|change| change.event == Occurrence::LameDuck)
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            duration: Self::DEFAULT_DURATION,
            warmup: Self::DEFAULT_WARMUP,
            sample_every: Self::DEFAULT_SAMPLE_EVERY,
            clients: Self::DEFAULT_CLIENTS,
            backends: Self::DEFAULT_BACKENDS,
            inactive_after: Self::DEFAULT_INACTIVE_AFTER,
            request_every: None,
            check_every: Self::DEFAULT_CHECK_EVERY,
            link: Link::default(),
            changes: Vec::new(),
            arms: Vec::new(),
        }
    }
}

/// The network, for each datagram in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Delay of every datagram.
    pub delay: Duration,
    /// Mean of the random addition to it, exponentially distributed. Datagrams overtake each other
    /// by it.
    pub jitter: Duration,
    /// Share of lost datagrams.
    pub loss: Ratio,
    /// Share of datagrams that arrive twice.
    pub duplicates: Ratio,
}

impl Link {
    /// A round trip of 2 ms: two datacenters of a region.
    pub const DEFAULT_DELAY: Duration = Duration::from_millis(1);
}

impl Default for Link {
    fn default() -> Self {
        Self { delay: Self::DEFAULT_DELAY, jitter: Duration::ZERO, loss: Ratio::ZERO, duplicates: Ratio::ZERO }
    }
}

/// An event of all backends, or of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Change {
    /// Its time.
    pub at: Duration,
    /// The event.
    pub event: Occurrence,
}

/// The kinds of events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Occurrence {
    /// All backends become lame ducks.
    #[default]
    LameDuck,
    /// All backends are replaced by new processes after some time.
    Restart {
        /// Time without a process.
        down: Duration,
    },
    /// The network drops all datagrams.
    Block,
    /// The network carries datagrams again.
    Open,
}

impl Occurrence {
    /// A quick restart.
    pub const RESTART: Self = Self::Restart { down: Duration::from_secs(2) };
}

/// One way to learn a backend's state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arm {
    /// Its name in metrics and legends; no dots.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// Share of lost datagrams, in place of that of the link.
    pub loss: Option<Ratio>,
}

/// The rules compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Notices until they are acknowledged ([`plimsoll_core::probe`]).
    #[default]
    Notices,
    /// Notices sent a number of times, without acknowledgement.
    Pushed {
        /// The number.
        times: NonZeroU32,
    },
    /// Queries alone.
    Polled,
    /// Health checks alone, and no probes.
    Checks,
}

impl Rule {
    /// The usual way to push news over a lossy network.
    pub const PUSHED: Self = Self::Pushed { times: NonZeroU32::new(2).expect("not zero") };
}
