//! The load of a server, from signals that it can measure itself.
//!
//! There are two measures, since they fail in different ways:
//!
//! - *CPUs*: CPU-seconds used per second. It says how much is left below the load line, and nothing
//!   above it: a server with twice the load that it can serve uses all of its CPU, as does one that
//!   is just full. Nor does it show a neighbour that takes half of the machine.
//! - *Executor load average*: requests that run or could run, on average (SRE ch. 21, "Utilization
//!   signals"). It says how far above the limit the load is. Requests that wait for something other
//!   than CPU do not count. A request with many runnable tasks counts once, or a burst of small
//!   tasks would look like overload.
//!
//! Both are smoothed over a fraction of a second, so that a burst which is over by then hardly
//! shows:
//!
//! ```text
//! x = x · 2^(−Δt ÷ half-life) + now · (1 − 2^(−Δt ÷ half-life))
//! ```
//!
//! Runnable requests are counted at each sample, and not summed over the time between. A sum would
//! know of a waiting request only after its wait. It would see a long queue late, by just the
//! length of the queue.
//!
//! Other scarce resources are *gauges* ([`Gauges`]): memory, pressure stalls, and a measure of the
//! owner. Each is a load of its own, where 1 is the most that the server can bear. The highest
//! counts (`resources`).

mod memory;
mod resources;
mod stalls;

use core::time::Duration;

use crate::{Timestamp, decay};

pub use memory::Memory;
pub use resources::{Gauges, Readings, ResourceConfig, ResourceWatch};

/// Ten times as long as chance takes to pass on a busy server, and short beside the patience of a
/// user.
const HALF_LIFE: Duration = Duration::from_millis(100);

/// A measure of load that a gate obeys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// CPU: the costs of requests against the capacity.
    Cpu,
    /// Requests that run or could run. Above the limit, there is less CPU than estimated.
    LoadAverage,
    /// Memory that is about to be exhausted.
    Memory,
    /// CPU pressure: the time some task waited for a CPU.
    CpuPressure,
    /// Memory pressure: the time some task waited for memory.
    MemoryPressure,
    /// A measure of the owner.
    Gauge,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::LoadAverage, Self::Memory, Self::CpuPressure, Self::MemoryPressure, Self::Gauge];

    /// The name in metrics and in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::LoadAverage => "load-average",
            Self::Memory => "memory",
            Self::CpuPressure => "cpu-pressure",
            Self::MemoryPressure => "memory-pressure",
            Self::Gauge => "gauge",
        }
    }
}

/// The load of a server by each signal, and the signal that causes shedding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loads {
    /// In the order of [`Signal::ALL`]. 1 is the most that the server can bear; `None` if the
    /// signal is off or unknown.
    pub by_signal: [Option<f64>; Signal::ALL.len()],
    /// The signal that caused shedding in the last second; `None` without shedding.
    pub binding: Option<Signal>,
}

impl Loads {
    /// The known loads.
    pub fn known(&self) -> impl Iterator<Item = (Signal, f64)> + '_ {
        Signal::ALL.into_iter().zip(self.by_signal).filter_map(|(signal, load)| Some((signal, load?)))
    }
}

/// The smoothed signals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// CPUs in use.
    pub cpus: f64,
    /// Requests that run or could run.
    pub load_average: f64,
}

/// Smooths the signals.
#[derive(Clone, Debug)]
pub struct SignalSmoother {
    /// CPU-seconds that the process had used at the last sample.
    cpu: f64,
    at: Timestamp,
    signals: Signals,
}

impl SignalSmoother {
    /// Begins with a process that has already used this many CPU-seconds.
    #[must_use]
    pub fn new(now: Timestamp, cpu: f64) -> Self {
        Self { cpu, at: now, signals: Signals::default() }
    }

    /// The signals of the last sample.
    #[must_use]
    pub fn last(&self) -> Signals {
        self.signals
    }

    /// Takes a sample, every few milliseconds, and returns the signals. `cpu` is the process's
    /// CPU-seconds since its start; `runnable` is the number of requests that run or could run now.
    pub fn sample(&mut self, now: Timestamp, cpu: f64, runnable: f64) -> Signals {
        let gone = now.nanos_since(self.at) as f64 * 1e-9;
        if gone > 0.0 {
            let left = decay::remaining(now, self.at, HALF_LIFE);
            let cpus = (cpu - core::mem::replace(&mut self.cpu, cpu)).max(0.0) / gone;
            self.signals.cpus = self.signals.cpus * left + cpus * (1.0 - left);
            self.signals.load_average = self.signals.load_average * left + runnable * (1.0 - left);
            self.at = now;
        }
        self.signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The load average every 10 ms, with these numbers of runnable requests.
    fn averages(requests: impl Fn(u64) -> f64, samples: u64) -> alloc::vec::Vec<f64> {
        let mut smoothed = SignalSmoother::new(Timestamp::ZERO, 0.0);
        let at = |sample| Timestamp::from_nanos((sample + 1) * 10_000_000);
        (0..samples).map(|sample| smoothed.sample(at(sample), 0.0, requests(sample)).load_average).collect()
    }

    #[test]
    fn lasting_rise_shows_and_a_short_burst_hardly_does() {
        let burst = averages(|sample| if sample == 100 { 50.0 } else { 4.0 }, 300);
        assert!(burst.into_iter().fold(0.0, f64::max) < 8.0);
        let rise = averages(|sample| if sample >= 100 { 50.0 } else { 4.0 }, 300);
        assert!((rise[99] - 4.0).abs() < 0.1 && rise[130] > 40.0 && (rise[299] - 50.0).abs() < 0.1);
    }

    #[test]
    fn cpus_in_use_are_known_after_some_samples() {
        let mut smoothed = SignalSmoother::new(Timestamp::ZERO, 3.0);
        let mut signals = Signals::default();
        for look in 1..=100_u32 {
            let now = Timestamp::from_nanos(u64::from(look) * 10_000_000);
            let cpu = 3.0 + f64::from(look) * 0.015;
            signals = smoothed.sample(now, cpu, 0.0);
            assert_eq!(smoothed.sample(now, cpu, 0.0), signals);
        }
        assert!((signals.cpus - 1.5).abs() < 0.01, "{signals:?}");
    }

    #[test]
    fn last_signals_are_those_of_the_last_sample() {
        let mut smoothed = SignalSmoother::new(Timestamp::ZERO, 0.0);
        let signals = smoothed.sample(Timestamp::from_nanos(10_000_000), 0.01, 5.0);
        assert!(signals.cpus > 0.0 && signals.load_average > 0.0);
        assert_eq!(smoothed.last(), signals);
    }
}
