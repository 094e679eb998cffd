//! Scarce resources beside CPU, each as a load; the highest load counts.
//!
//! It is not a sum or a mean: spare CPU does not help a server without memory. And each keeps its
//! name, since the owner must know which resource was short.

use core::time::Duration;

use super::Signal;
use super::memory::{Memory, MemoryLoad};
use super::stalls::StallLoad;
use crate::{Ratio, Timestamp};

/// The resources that are watched, with their limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResourceConfig {
    /// The used part of memory above which growth counts; `None` ignores memory.
    pub memory: Option<Ratio>,
    /// Limit of CPU pressure: the share of time some task may wait for a CPU; `None` ignores it.
    pub cpu_pressure: Option<Ratio>,
    /// Limit of memory pressure: the share of time some task may wait for it; `None` ignores it.
    pub memory_pressure: Option<Ratio>,
}

impl ResourceConfig {
    /// The rest is for kernels and allocators to work well, and for further needs of requests in
    /// progress.
    pub const DEFAULT_MEMORY: Ratio = Ratio::from_percent(90);

    /// Whether any resource is watched.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.memory.is_some() || self.cpu_pressure.is_some() || self.memory_pressure.is_some()
    }
}

/// Memory is watched. A limit on pressure cannot be known beforehand.
impl Default for ResourceConfig {
    fn default() -> Self {
        Self { memory: Some(Self::DEFAULT_MEMORY), cpu_pressure: None, memory_pressure: None }
    }
}

/// Readings of the system; `None` if it has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readings {
    /// Memory in use and its limit.
    pub memory: Option<Memory>,
    /// Total time that some task waited for a CPU; never falls.
    pub cpu_stalled: Option<Duration>,
    /// Total time that some task waited for memory; never falls.
    pub memory_stalled: Option<Duration>,
}

/// Loads beside CPU: 1 is the most that the server can bear, `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gauges {
    /// Memory.
    pub memory: Option<f64>,
    /// CPU pressure.
    pub cpu_pressure: Option<f64>,
    /// Memory pressure.
    pub memory_pressure: Option<f64>,
    /// A measure of the owner.
    pub own: Option<f64>,
}

impl Gauges {
    /// Each load with its signal.
    #[must_use]
    pub fn by_signal(&self) -> [(Signal, Option<f64>); 4] {
        [
            (Signal::Memory, self.memory),
            (Signal::CpuPressure, self.cpu_pressure),
            (Signal::MemoryPressure, self.memory_pressure),
            (Signal::Gauge, self.own),
        ]
    }

    /// The highest load and its signal; NaN counts as unknown. `None` if no load is known.
    #[must_use]
    pub fn highest(&self) -> Option<(Signal, f64)> {
        let known = self.by_signal().into_iter().filter_map(|(signal, load)| Some((signal, load?)));
        known.filter(|(_, load)| !load.is_nan()).max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Watches the scarce resources.
#[derive(Clone, Debug)]
pub struct ResourceWatch {
    memory: Option<MemoryLoad>,
    cpu: Option<StallLoad>,
    memory_pressure: Option<StallLoad>,
}

impl ResourceWatch {
    /// The time between two samples. At 1 GB/s of new memory that is every 250 MB. It is long
    /// beside the cost of a sample, which reads some files.
    pub const LOOK_EVERY: Duration = Duration::from_millis(250);

    /// Starts without a sample.
    #[must_use]
    pub fn new(config: &ResourceConfig) -> Self {
        Self {
            memory: config.memory.map(MemoryLoad::new),
            cpu: config.cpu_pressure.map(StallLoad::new),
            memory_pressure: config.memory_pressure.map(StallLoad::new),
        }
    }

    /// Takes a sample, about every [`LOOK_EVERY`](Self::LOOK_EVERY), and returns the loads. The
    /// owner's gauge is not among them.
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
    fn highest_known_load_counts() {
        let half = Ratio::new(0.5);
        let all = ResourceConfig { memory: half, cpu_pressure: half, memory_pressure: half };
        let readings = |at: u64| Readings {
            memory: Some(Memory { used: 3, limit: 10 }),
            cpu_stalled: Some(Duration::from_millis(at)),
            memory_stalled: Some(Duration::from_millis(at / 4)),
        };
        let last = |config: &ResourceConfig, mask: fn(Readings) -> Readings| {
            let mut scarce = ResourceWatch::new(config);
            let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
            (0..100).map(|n| scarce.sample(at(n * 100), &mask(readings(n * 100)))).last().expect("a hundred")
        };
        let found = last(&all, |readings| readings);
        assert!((found.cpu_pressure.expect("is on") - 2.0).abs() < 0.01, "{found:?}");
        assert!((found.memory_pressure.expect("is on") - 0.5).abs() < 0.01, "{found:?}");
        assert_eq!((found.memory, found.own), (Some(0.3), None));
        assert_eq!(found.highest().map(|(signal, _)| signal), Some(Signal::CpuPressure));
        assert_eq!(last(&all, |_| Readings::default()), Gauges::default());
        let found = last(&ResourceConfig::default(), |readings| readings);
        assert_eq!(found, Gauges { memory: Some(0.3), ..Gauges::default() });
    }

    #[test]
    fn nan_is_no_load() {
        let gauges = Gauges { memory: Some(0.2), own: Some(f64::NAN), ..Gauges::default() };
        assert_eq!(gauges.highest(), Some((Signal::Memory, 0.2)));
        assert_eq!(Gauges { own: Some(f64::NAN), ..Gauges::default() }.highest(), None);
    }

    #[test]
    fn any_resource_is_watched_when_one_is() {
        let none = ResourceConfig { memory: None, cpu_pressure: None, memory_pressure: None };
        let half = Ratio::new(0.5);
        assert!(!none.is_any());
        for config in [
            ResourceConfig { memory: half, ..none },
            ResourceConfig { cpu_pressure: half, ..none },
            ResourceConfig { memory_pressure: half, ..none },
        ] {
            assert!(config.is_any(), "{config:?}");
        }
    }
}
