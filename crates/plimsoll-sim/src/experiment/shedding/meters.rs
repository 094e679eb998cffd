//! The CPU usage of each source's requests, and its maximum in any second.

use std::collections::VecDeque;
use std::time::Duration;

/// CPU-seconds used by requests of one source.
///
/// All running requests have had the same of the processor since the later of two started. So two
/// sums give their usage together.
#[derive(Clone, Debug, Default)]
struct Meter {
    ended: f64,
    running: u32,
    /// Sum of the processor's work at the start of each running request.
    begun: f64,
    /// Usage by each tick of the last second.
    recent: VecDeque<f64>,
}

/// Of all sources, and of all together.
#[derive(Clone, Debug)]
pub(super) struct Meters {
    sources: Vec<Meter>,
    all: VecDeque<f64>,
    /// Ticks in a second.
    ticks: usize,
}

impl Meters {
    pub(super) fn new(sources: usize, tick: Duration) -> Self {
        let ticks = Duration::from_secs(1).as_nanos().div_ceil(tick.as_nanos().max(1)) as usize;
        Self { sources: vec![Meter::default(); sources], all: VecDeque::new(), ticks }
    }

    /// A request starts when the processor has done this work.
    pub(super) fn begin(&mut self, source: usize, work: f64) {
        let meter = &mut self.sources[source];
        meter.running += 1;
        meter.begun += work;
    }

    /// A request ends. `begun` is the processor's work at its start.
    pub(super) fn end(&mut self, source: usize, begun: f64, used: f64) {
        let meter = &mut self.sources[source];
        meter.running -= 1;
        // Rounding errors end with the last request.
        meter.begun = if meter.running == 0 { 0.0 } else { meter.begun - begun };
        meter.ended += used;
    }

    /// A tick at which the processor has done this work. `tell` gets the usage of each source
    /// (`None`: all) in the second before, once there was one.
    pub(super) fn tick(&mut self, work: f64, mut tell: impl FnMut(Option<usize>, f64)) {
        let mut all = 0.0;
        for (source, meter) in self.sources.iter_mut().enumerate() {
            let used = meter.ended + f64::from(meter.running) * work - meter.begun;
            all += used;
            if let Some(used) = last_second(&mut meter.recent, self.ticks, used) {
                tell(Some(source), used);
            }
        }
        if let Some(used) = last_second(&mut self.all, self.ticks, all) {
            tell(None, used);
        }
    }
}

/// Usage since a second ago.
fn last_second(recent: &mut VecDeque<f64>, ticks: usize, used: f64) -> Option<f64> {
    recent.push_back(used);
    if recent.len() <= ticks {
        return None;
    }
    recent.pop_front().map(|before| used - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_of_a_second_includes_running_and_ended_requests() {
        let mut meters = Meters::new(2, Duration::from_millis(250));
        let mut told = Vec::new();
        meters.begin(0, 0.0);
        meters.begin(1, 0.0);
        for tick in 0..=6 {
            // Both run, on a core each, until one ends.
            let work = f64::from(tick) * 0.25;
            if tick == 2 {
                meters.end(1, 0.0, 0.5);
            }
            meters.tick(work, |source, used| told.push((tick, source, used)));
        }
        let of = |tick: i32| [(tick, Some(0), 1.0), (tick, Some(1), 0.5 - 0.25 * f64::from(tick - 4).min(2.0))];
        let expected: Vec<_> = (4..=6)
            .flat_map(|tick| {
                let [first, second] = of(tick);
                [first, second, (tick, None, first.2 + second.2)]
            })
            .collect();
        assert_eq!(told, expected);
    }
}
