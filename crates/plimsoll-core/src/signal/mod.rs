//! How busy a server is, from what it can see of itself.
//!
//! Two measures, for they fail in different ways:
//!
//! - *CPUs*: CPU-seconds used per second. Says how much is left below the load line, and nothing above it: a server that is asked for
//!   twice what it can do uses all of its CPU, as does one that is just full. Nor does it see a neighbour who takes half of the
//!   machine.
//! - *Executor load average*: requests that run or could run, on average (SRE ch. 21, "Utilization signals"). Says how much too much it
//!   is: requests that wait for something else than CPU do not count, and a request of which many tasks could run counts once, or a
//!   burst of small tasks would look like overload.
//!
//! Both are smoothed over a fraction of a second, so that a burst which is over by then passes nearly unseen:
//!
//! ```text
//! x = x · 2^(−Δt ÷ half-life) + now · (1 − 2^(−Δt ÷ half-life))
//! ```
//!
//! What could run is counted at each look, and not summed up over the time between: a sum would know of those who wait only once they
//! have waited, and a long queue is seen late by just its own length.

//!
//! What runs short beside CPU are *gauges* ([`Gauges`]): memory, time lost to pressure, and whatever the owner knows of. Each is a load of its
//! own, 1 is as much as can be borne; the highest counts (`scarce`).

mod memory;
mod scarce;
mod stalls;

use core::time::Duration;

use crate::{Timestamp, decay};

pub use memory::Memory;
pub use scarce::{Gauges, Readings, Scarce, ScarceConfig};

/// Ten times as long as chance takes to pass on a busy server, and short beside the patience of a user.
const HALF_LIFE: Duration = Duration::from_millis(100);

/// What a server goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// CPU: what requests cost, against what there is.
    Cpu,
    /// Requests that run or could run: more than are in order, so there is less CPU than was thought.
    LoadAverage,
    /// Memory that is running out.
    Memory,
    /// Time in which somebody waited for a CPU.
    CpuPressure,
    /// Time in which somebody waited for memory.
    MemoryPressure,
    /// A measure of the owner's own.
    Gauge,
}

impl Signal {
    /// All.
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::LoadAverage, Self::Memory, Self::CpuPressure, Self::MemoryPressure, Self::Gauge];

    /// The word for it in metrics and in the API.
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

/// How loaded a server is by each of its signals, and which one has it turn requests away.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loads {
    /// In the order of [`Signal::ALL`]; 1 is as much as can be borne, `None` where a signal is off or nothing is known.
    pub by_signal: [Option<f64>; Signal::ALL.len()],
    /// The one by which requests have been turned away in the last second; `None` while none were.
    pub binding: Option<Signal>,
}

impl Loads {
    /// The loads that are known.
    pub fn known(&self) -> impl Iterator<Item = (Signal, f64)> + '_ {
        Signal::ALL.into_iter().zip(self.by_signal).filter_map(|(signal, load)| Some((signal, load?)))
    }
}

/// What the signals say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Signals {
    /// CPUs in use.
    pub cpus: f64,
    /// Requests that run or could run.
    pub load_average: f64,
}

/// Smooths the signals.
#[derive(Clone, Debug)]
pub struct Smoothed {
    /// CPU-seconds that the process had used.
    cpu: f64,
    at: Timestamp,
    signals: Signals,
}

impl Smoothed {
    /// Of a process that has used so many CPU-seconds already.
    #[must_use]
    pub fn new(now: Timestamp, cpu: f64) -> Self {
        Self { cpu, at: now, signals: Signals::default() }
    }

    /// What the signals were at the last look.
    #[must_use]
    pub fn last(&self) -> Signals {
        self.signals
    }

    /// What the signals are, when the process has used so many CPU-seconds since its start and so many requests run or could run now:
    /// to be asked every few milliseconds.
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

    /// The load average every 10 ms, if so many requests could run in each.
    fn averages(requests: impl Fn(u64) -> f64, samples: u64) -> alloc::vec::Vec<f64> {
        let mut smoothed = Smoothed::new(Timestamp::ZERO, 0.0);
        let at = |sample| Timestamp::from_nanos((sample + 1) * 10_000_000);
        (0..samples).map(|sample| smoothed.sample(at(sample), 0.0, requests(sample)).load_average).collect()
    }

    #[test]
    fn a_short_burst_is_hardly_seen_and_a_lasting_rise_is() {
        let burst = averages(|sample| if sample == 100 { 50.0 } else { 4.0 }, 300);
        assert!(burst.into_iter().fold(0.0, f64::max) < 8.0);
        let rise = averages(|sample| if sample >= 100 { 50.0 } else { 4.0 }, 300);
        assert!((rise[99] - 4.0).abs() < 0.1 && rise[130] > 40.0 && (rise[299] - 50.0).abs() < 0.1);
    }

    #[test]
    fn cpus_in_use_are_known_after_some_looks_and_two_looks_at_one_time_say_the_same() {
        let mut smoothed = Smoothed::new(Timestamp::ZERO, 3.0);
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
        let mut smoothed = Smoothed::new(Timestamp::ZERO, 0.0);
        let signals = smoothed.sample(Timestamp::from_nanos(10_000_000), 0.01, 5.0);
        assert!(signals.cpus > 0.0 && signals.load_average > 0.0);
        assert_eq!(smoothed.last(), signals);
    }
}
