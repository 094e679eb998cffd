//! The counters of a world.
//!
//! A request counts in the window of its arrival, however late it ends. Otherwise an overload would
//! show its time-outs in the calm that follows. The usage of backends counts from the beginning of
//! a window to its end.

use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll_core::Timestamp;

use crate::experiment::windows::Window;
use crate::model::backend::Used;
use crate::model::keys::KeyCounts;

/// Outside every window.
pub(super) const UNMEASURED: u16 = u16::MAX;
/// The window of the whole run.
pub(super) const WHOLE: u16 = 0;
/// Longest distinct latency. No request is awaited for longer.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Most distinct requests in flight at one backend.
const MOST_IN_FLIGHT: u64 = 1_000_000;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Answered,
    TimedOut,
    Failed,
    Overloaded,
    NoBackend,
}

/// The counters of one window.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    pub(super) arrived: u64,
    /// By [`Ending`].
    pub(super) ended: [u64; 5],
    pub(super) offers: u64,
    pub(super) probes: u64,
    /// Picks with a key.
    pub(super) keyed: KeyCounts,
    /// Microseconds from arrival to answer or time-out.
    pub(super) latency: Histogram<u64>,
    /// The same of each group, by the last backend of a request.
    pub(super) latency_by_group: Vec<Histogram<u32>>,
    /// The largest of them, exactly.
    pub(super) longest: u64,
    /// Length of the window.
    pub(super) seconds: f64,
    /// Requests in flight at a backend, at each sample.
    pub(super) in_flight: Histogram<u64>,
    /// The usage of each backend.
    pub(super) used: Vec<Used>,
}

impl Tally {
    fn new(window: &Window) -> Self {
        let longest = LONGEST.as_micros() as u64;
        Self {
            arrived: 0,
            ended: [0; 5],
            offers: 0,
            probes: 0,
            keyed: KeyCounts::default(),
            latency: Histogram::new_with_bounds(1, longest, 3).expect("an hour of microseconds to three digits"),
            latency_by_group: Vec::new(),
            longest: 0,
            seconds: window.seconds(),
            in_flight: Histogram::new_with_bounds(1, MOST_IN_FLIGHT, 3).expect("a million to three digits"),
            used: Vec::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.offers += other.offers;
        self.probes += other.probes;
        self.keyed.add(&other.keyed);
        for (sum, count) in self.ended.iter_mut().zip(other.ended) {
            *sum += count;
        }
        self.longest = self.longest.max(other.longest);
        self.latency.add(&other.latency).expect("the same bounds");
        for (group, latency) in other.latency_by_group.iter().enumerate() {
            of_group(&mut self.latency_by_group, group).add(latency).expect(GROWS);
        }
        self.in_flight.add(&other.in_flight).expect("the same bounds");
    }
}

/// The histogram of a group. Most groups of a large fleet get no request in most parts of a run, so
/// histograms begin small and grow.
fn of_group(latencies: &mut Vec<Histogram<u32>>, group: usize) -> &mut Histogram<u32> {
    while latencies.len() <= group {
        latencies.push(Histogram::new(3).expect("three digits are possible"));
    }
    &mut latencies[group]
}

const GROWS: &str = "a histogram without bounds grows";

/// CPU used over CPU provisioned, of the backends that were up, since the last sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) at: Timestamp,
    pub(super) least: f64,
    pub(super) mean: f64,
    pub(super) greatest: f64,
}

/// The counters of a run.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) tallies: Vec<Tally>,
    /// The innermost window at this time.
    pub(super) current: u16,
    pub(super) samples: Vec<Sample>,
    /// The usage at the last sample.
    sampled: Vec<Used>,
}

impl Measure {
    pub(super) fn new(windows: &[Window]) -> Self {
        let tallies = windows.iter().map(Tally::new).collect();
        Self { tallies, current: UNMEASURED, samples: Vec::new(), sampled: Vec::new() }
    }

    /// A window begins; `used` is the usage of backends until now.
    pub(super) fn begin(&mut self, window: u16, used: Vec<Used>) {
        self.tallies[usize::from(window)].used = used;
        if window != WHOLE || self.current == UNMEASURED {
            self.current = window;
        }
    }

    /// A window ends.
    pub(super) fn end(&mut self, window: u16, used: Vec<Used>) {
        let tally = &mut self.tallies[usize::from(window)];
        let before = std::mem::take(&mut tally.used);
        tally.used = differences(&before, &used);
        // Phases lie within the whole and end no later.
        self.current = if window == WHOLE { UNMEASURED } else { WHOLE };
    }

    pub(super) fn arrived(&mut self, window: u16) {
        if let Some(tally) = self.tallies.get_mut(usize::from(window)) {
            tally.arrived += 1;
        }
    }

    pub(super) fn offered(&mut self, window: u16, probes: u32) {
        if let Some(tally) = self.tallies.get_mut(usize::from(window)) {
            tally.offers += 1;
            tally.probes += u64::from(probes);
        }
    }

    /// Counts a pick with a key.
    pub(super) fn keyed(&mut self, window: u16, counts: &KeyCounts) {
        if let Some(tally) = self.tallies.get_mut(usize::from(window)) {
            tally.keyed.add(counts);
        }
    }

    /// Counts the end of a request; `group` is that of its last backend.
    pub(super) fn ended(&mut self, window: u16, ending: Ending, after: Duration, group: Option<u32>) {
        let Some(tally) = self.tallies.get_mut(usize::from(window)) else { return };
        tally.ended[ending as usize] += 1;
        if matches!(ending, Ending::Answered | Ending::TimedOut) {
            let micros = after.as_nanos().div_ceil(1_000) as u64;
            tally.longest = tally.longest.max(micros);
            tally.latency.saturating_record(micros);
            if let Some(group) = group {
                let latency = of_group(&mut tally.latency_by_group, group as usize);
                latency.record(micros.min(LONGEST.as_micros() as u64)).expect(GROWS);
            }
        }
    }

    /// Takes a sample.
    pub(super) fn sample(&mut self, at: Timestamp, used: Vec<Used>, in_flight: impl Iterator<Item = u32>) {
        let loads: Vec<f64> = differences(&self.sampled, &used).iter().filter_map(Used::load).collect();
        self.sampled = used;
        if !loads.is_empty() {
            self.samples.push(Sample {
                at,
                least: loads.iter().copied().fold(f64::INFINITY, f64::min),
                mean: loads.iter().sum::<f64>() / loads.len() as f64,
                greatest: loads.iter().copied().fold(0.0, f64::max),
            });
        }
        if let Some(tally) = self.tallies.get_mut(usize::from(self.current)) {
            in_flight.for_each(|count| tally.in_flight.saturating_record(u64::from(count)));
        }
    }

    /// The counters of each window. Those of the whole run include the phases.
    pub(super) fn finish(mut self) -> (Vec<Tally>, Vec<Sample>) {
        let (whole, phases) = self.tallies.split_at_mut(1);
        phases.iter().for_each(|phase| whole[0].add(phase));
        (self.tallies, self.samples)
    }
}

/// The usage of each backend between two times. A new backend had none before.
fn differences(before: &[Used], after: &[Used]) -> Vec<Used> {
    let none = Used::default();
    after.iter().enumerate().map(|(i, after)| after.since(before.get(i).unwrap_or(&none))).collect()
}
