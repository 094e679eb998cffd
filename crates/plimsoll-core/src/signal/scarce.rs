//! What runs short beside CPU, each as a load, and the highest of them.
//!
//! Not a sum or a mean: a server that has run out of memory is not helped by having CPU left. Nor is one of them taken for another:
//! which it was is what its owner has to know.

use core::time::Duration;

use super::Signal;
use super::memory::{Memory, MemoryLoad};
use super::stalls::StallLoad;
use crate::{Ratio, Timestamp};

/// Which of it is watched, and from where on there is too much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScarceConfig {
    /// The used part of memory from which on its growth counts; `None`: memory is not looked at.
    pub memory: Option<Ratio>,
    /// The part of the time for which somebody may wait for a CPU; `None`: not looked at.
    pub cpu_pressure: Option<Ratio>,
    /// The part of the time for which somebody may wait for memory; `None`: not looked at.
    pub memory_pressure: Option<Ratio>,
}

impl ScarceConfig {
    /// What kernels and allocators need to work well is left, and what requests in progress may still ask for.
    pub const DEFAULT_MEMORY: Ratio = Ratio::from_percent(90);

    /// Whether anything is watched.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.memory.is_some() || self.cpu_pressure.is_some() || self.memory_pressure.is_some()
    }
}

/// Memory is looked at. How much pressure is too much nobody can know beforehand.
impl Default for ScarceConfig {
    fn default() -> Self {
        Self { memory: Some(Self::DEFAULT_MEMORY), cpu_pressure: None, memory_pressure: None }
    }
}

/// What the system says; `None` for what it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// What is used of memory, and what may be.
    pub memory: Option<Memory>,
    /// For how long somebody waited for a CPU since some time; never falls.
    pub cpu_stalled: Option<Duration>,
    /// For how long somebody waited for memory since some time; never falls.
    pub memory_stalled: Option<Duration>,
}

/// Loads beside CPU: 1 is as much as can be borne, `None` for what is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Memory.
    pub memory: Option<f64>,
    /// Time in which somebody waited for a CPU.
    pub cpu_pressure: Option<f64>,
    /// Time in which somebody waited for memory.
    pub memory_pressure: Option<f64>,
    /// A measure of the owner's own.
    pub own: Option<f64>,
}

impl Gauges {
    /// Each with its signal.
    #[must_use]
    pub fn by_signal(&self) -> [(Signal, Option<f64>); 4] {
        [
            (Signal::Memory, self.memory),
            (Signal::CpuPressure, self.cpu_pressure),
            (Signal::MemoryPressure, self.memory_pressure),
            (Signal::Gauge, self.own),
        ]
    }

    /// The highest, and which one that is; what is no number counts as not known. `None` if none is.
    #[must_use]
    pub fn highest(&self) -> Option<(Signal, f64)> {
        let known = self.by_signal().into_iter().filter_map(|(signal, load)| Some((signal, load?)));
        known.filter(|(_, load)| !load.is_nan()).max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Watches what runs short.
#[derive(Clone, Debug)]
pub struct Scarce {
    memory: Option<MemoryLoad>,
    cpu: Option<StallLoad>,
    memory_pressure: Option<StallLoad>,
}

impl Scarce {
    /// How often to look: at 1 GB/s of new memory every 250 MB, and rarely beside what a look costs, which is some files read.
    pub const LOOK_EVERY: Duration = Duration::from_millis(250);

    /// One that has seen nothing yet.
    #[must_use]
    pub fn new(config: &ScarceConfig) -> Self {
        Self {
            memory: config.memory.map(MemoryLoad::new),
            cpu: config.cpu_pressure.map(StallLoad::new),
            memory_pressure: config.memory_pressure.map(StallLoad::new),
        }
    }

    /// The loads now; to be asked every [`LOOK_EVERY`](Self::LOOK_EVERY) or so. The owner's own is not among them.
    pub fn sample(&mut self, now: Timestamp, readings: &Readings) -> Gauges {
        let load = |watched: Option<&mut StallLoad>, total: Option<Duration>| Some(watched?.sample(now, total?));
        Gauges {
            memory: self.memory.as_mut().zip(readings.memory).map(|(watched, memory)| watched.sample(now, memory)),
            cpu_pressure: load(self.cpu.as_mut(), readings.cpu_stalled),
            memory_pressure: load(self.memory_pressure.as_mut(), readings.memory_stalled),
            own: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_off_or_not_said_is_no_load_and_the_highest_of_the_others_counts() {
        let half = Ratio::new(0.5);
        let all = ScarceConfig { memory: half, cpu_pressure: half, memory_pressure: half };
        let readings = |at: u64| Readings {
            memory: Some(Memory { used: 3, limit: 10 }),
            cpu_stalled: Some(Duration::from_millis(at)),
            memory_stalled: Some(Duration::from_millis(at / 4)),
        };
        let last = |config: &ScarceConfig, mask: fn(Readings) -> Readings| {
            let mut scarce = Scarce::new(config);
            let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
            (0..100).map(|n| scarce.sample(at(n * 100), &mask(readings(n * 100)))).last().expect("a hundred")
        };
        let found = last(&all, |readings| readings);
        assert!((found.cpu_pressure.expect("is on") - 2.0).abs() < 0.01, "{found:?}");
        assert!((found.memory_pressure.expect("is on") - 0.5).abs() < 0.01, "{found:?}");
        assert_eq!((found.memory, found.own), (Some(0.3), None));
        assert_eq!(found.highest().map(|(signal, _)| signal), Some(Signal::CpuPressure));
        assert_eq!(last(&all, |_| Readings::default()), Gauges::default());
        let found = last(&ScarceConfig::default(), |readings| readings);
        assert_eq!(found, Gauges { memory: Some(0.3), ..Gauges::default() });
    }

    #[test]
    fn what_is_no_number_is_no_load() {
        let gauges = Gauges { memory: Some(0.2), own: Some(f64::NAN), ..Gauges::default() };
        assert_eq!(gauges.highest(), Some((Signal::Memory, 0.2)));
        assert_eq!(Gauges { own: Some(f64::NAN), ..Gauges::default() }.highest(), None);
    }

    #[test]
    fn anything_is_watched_when_one_is() {
        let none = ScarceConfig { memory: None, cpu_pressure: None, memory_pressure: None };
        let half = Ratio::new(0.5);
        assert!(!none.is_any());
        for config in [
            ScarceConfig { memory: half, ..none },
            ScarceConfig { cpu_pressure: half, ..none },
            ScarceConfig { memory_pressure: half, ..none },
        ] {
            assert!(config.is_any(), "{config:?}");
        }
    }
}
