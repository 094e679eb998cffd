//! What happens to a world in the course of a run.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Antagonist, BackendGroup, Conduct, SourceState};

/// Something that happens in the course of the run.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening {
    /// When.
    pub at: Duration,
    /// What.
    pub change: Change,
}

/// What may happen to a world.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Backends behave differently from now on.
    Conduct {
        /// Which.
        backends: Selection,
        /// How.
        conduct: Conduct,
    },
    /// Backends restart, one after the other.
    Restart {
        /// Which.
        backends: Selection,
        /// How.
        restart: Restart,
    },
    /// Other neighbours.
    Antagonist {
        /// Of which backends.
        backends: Selection,
        /// Which neighbours.
        antagonist: Antagonist,
    },
    /// The speed of machines is multiplied.
    Speed {
        /// Which.
        backends: Selection,
        /// With this, above zero.
        factor: f64,
    },
    /// Further backends: a group of its own.
    AddBackends {
        /// Which.
        group: BackendGroup,
    },
    /// Backends are taken out of service for good: their clients are told, and they finish what they have.
    RemoveBackends {
        /// Which.
        backends: Selection,
    },
    /// The source of the backends answers otherwise for a time, then completely again.
    Source {
        /// Its answers.
        state: SourceState,
        /// The time.
        lasts: Duration,
    },
    /// Further clients, each with the mean rate (or number of users) of those of the start.
    AddClients {
        /// How many.
        count: NonZeroU32,
    },
    /// The last clients stop sending.
    RemoveClients {
        /// How many; fewer than there are.
        count: NonZeroU32,
    },
}

/// How a backend restarts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Restart {
    /// So long it is a lame duck.
    pub lame_duck: Duration,
    /// So long it is down; what it still had is lost.
    pub down: Duration,
    /// How slow it is after that.
    pub cold: Cold,
    /// From the beginning of one restart to that of the next of the selection; zero: all at once.
    pub stagger: Duration,
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            lame_duck: Duration::from_secs(10),
            down: Duration::from_secs(5),
            cold: Cold::default(),
            stagger: Duration::ZERO,
        }
    }
}

/// How slow a backend is that has just started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cold {
    /// Its speed is multiplied with this to begin with, in (0, 1]; 1: it is not slow.
    pub factor: f64,
    /// How long that lasts.
    pub lasts: Duration,
    /// What happens meanwhile.
    pub course: ColdCourse,
}

impl Default for Cold {
    /// Slow for a minute (SRE ch. 20), at half its speed.
    fn default() -> Self {
        Self { factor: 0.5, lasts: Duration::from_secs(60), course: ColdCourse::Fixed }
    }
}

/// What happens while a backend is cold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColdCourse {
    /// The same factor until the end.
    #[default]
    Fixed,
    /// The factor rises evenly to 1.
    Rising,
}

/// Some of the backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this group; `None`: of all, in the order of the groups.
    pub group: Option<String>,
    /// Of those, the ones in this zone; `None`: in any zone, or in none.
    pub zone: Option<String>,
    /// Without so many of the first.
    pub first: u32,
    /// So many of those; `None`: all.
    pub count: Option<NonZeroU32>,
}
