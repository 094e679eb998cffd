//! Cores that requests share evenly: processor sharing.
//!
//! With n requests on c cores of speed s each proceeds at `s · min(1, c/n)` CPU-seconds of an ordinary core per
//! second: none can use more than one core, and beyond that all get the same. It is what a preemptive scheduler does
//! with time slices far shorter than a request. First come, first served is the same with a limit on n: its owner
//! begins as many requests as there are worker threads, and queues the rest.
//!
//! All that run have done the same work since the later of two came. So one number is kept, the *work* W that any one
//! of them would have done since the processor was last empty, and a request of cost x that begins at W₀ ends when W
//! = W₀ + x. The next to end is the least of a heap; a change of n, c or s changes only the rate of W. CPU used rises
//! at `min(n, c)`: on a slow core a request uses more CPU time for the same work.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_core::Timestamp;

/// A request counts as done when less work than this, in CPU-seconds, is left: the rounding error of W, and far below
/// the nanosecond that time is counted in.
const NOTHING: f64 = 1e-11;

/// Cores, and the requests that run on them.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    /// By the work at which they end (as the bits of a number above zero, which order as it does), then by their
    /// coming.
    running: BinaryHeap<Reverse<(u64, u32, u32)>>,
    coming: u32,
    cores: f64,
    speed: f64,
    /// dW/dt
    rate: f64,
    work: f64,
    cpu: f64,
    at: Timestamp,
}

impl Processor {
    pub(crate) fn new(now: Timestamp, cores: f64, speed: f64) -> Self {
        Self { running: BinaryHeap::new(), coming: 0, cores, speed, rate: speed, work: 0.0, cpu: 0.0, at: now }
    }

    /// Lets time go by up to `now`.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        let n = self.running.len();
        if n > 0 {
            let seconds = now.nanos_since(self.at) as f64 * 1e-9;
            self.work += self.rate * seconds;
            self.cpu += self.cores.min(n as f64) * seconds;
        }
        self.at = now;
    }

    /// From `now` on there are so many cores of such a speed.
    pub(crate) fn set(&mut self, now: Timestamp, cores: f64, speed: f64) {
        self.advance(now);
        (self.cores, self.speed) = (cores, speed);
        self.share();
    }

    /// A request of `cost` CPU-seconds begins.
    pub(crate) fn begin(&mut self, now: Timestamp, cost: f64, request: u32) {
        self.advance(now);
        if self.running.is_empty() {
            self.work = 0.0;
        }
        self.coming = self.coming.wrapping_add(1);
        self.running.push(Reverse(((self.work + cost).to_bits(), self.coming, request)));
        self.share();
    }

    /// When the next request ends if nothing changes; `None` when there is none, or no core.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        let Reverse((end, ..)) = self.running.peek()?;
        let left = (f64::from_bits(*end) - self.work).max(0.0);
        // Rounded up, so that at that time it has ended.
        let nanos = (left / self.rate * 1e9).ceil();
        (nanos < 1e18).then(|| Timestamp::from_nanos(self.at.as_nanos() + nanos as u64))
    }

    /// A request that has ended by the time advanced to.
    pub(crate) fn pop_ended(&mut self) -> Option<u32> {
        let Reverse((end, _, request)) = *self.running.peek()?;
        if f64::from_bits(end) > self.work + NOTHING {
            return None;
        }
        self.running.pop();
        self.share();
        Some(request)
    }

    /// Takes a request out before its end; says whether it was there.
    pub(crate) fn cancel(&mut self, now: Timestamp, request: u32) -> bool {
        self.advance(now);
        let before = self.running.len();
        self.running.retain(|Reverse((.., running))| *running != request);
        self.share();
        self.running.len() < before
    }

    /// Takes all requests out, in the order of their coming.
    pub(crate) fn clear(&mut self, now: Timestamp) -> Vec<u32> {
        self.advance(now);
        let mut all: Vec<_> = self.running.drain().map(|Reverse((_, coming, request))| (coming, request)).collect();
        all.sort_unstable();
        self.share();
        all.into_iter().map(|(_, request)| request).collect()
    }

    /// Uses CPU beside the requests that run, without slowing them.
    pub(crate) fn charge(&mut self, seconds: f64) {
        self.cpu += seconds;
    }

    /// Requests that run.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// What any request that has run since the processor was last empty has had of it, in CPU-seconds of work, up to the time advanced
    /// to. A request has had the difference since it began.
    pub(crate) fn work(&self) -> f64 {
        self.work
    }

    /// CPU-seconds used so far, up to the time advanced to.
    pub(crate) fn cpu(&self) -> f64 {
        self.cpu
    }

    fn share(&mut self) {
        let n = self.running.len().max(1) as f64;
        self.rate = self.speed * (self.cores / n).min(1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    /// Runs to the next end: when, and who.
    fn end(processor: &mut Processor) -> (u64, u32) {
        let at = processor.next().expect("somebody runs");
        processor.advance(at);
        ((at.as_nanos() + 500_000) / 1_000_000, processor.pop_ended().expect("ends when it is said to"))
    }

    #[test]
    fn requests_share_cores_evenly_and_none_gets_more_than_one() {
        let mut processor = Processor::new(ms(0), 2.0, 1.0);
        processor.begin(ms(0), 0.1, 0);
        processor.begin(ms(0), 0.2, 1);
        assert_eq!(processor.next(), Some(ms(100)), "a core each");
        processor.begin(ms(0), 0.3, 2);
        processor.begin(ms(0), 0.4, 3);
        // Half a core each until the first ends at 200; three on two cores until the second has its last 0.1 at 350;
        // and so on.
        assert_eq!(end(&mut processor), (200, 0));
        assert_eq!(end(&mut processor), (350, 1));
        assert_eq!(end(&mut processor), (450, 2));
        assert_eq!(end(&mut processor), (550, 3));
        assert!((processor.cpu() - 1.0).abs() < 1e-8, "CPU is the sum of the costs: {}", processor.cpu());
    }

    #[test]
    fn a_slow_core_uses_more_cpu_for_the_same_work() {
        let mut processor = Processor::new(ms(0), 1.0, 0.5);
        processor.begin(ms(0), 0.1, 0);
        assert_eq!(end(&mut processor), (200, 0));
        assert!((processor.cpu() - 0.2).abs() < 1e-9);
    }

    #[test]
    fn what_happens_on_the_way_counts_from_then_on() {
        let mut processor = Processor::new(ms(0), 1.0, 1.0);
        processor.begin(ms(0), 0.1, 0);
        processor.set(ms(50), 0.5, 1.0);
        assert_eq!(processor.next(), Some(ms(150)));
        processor.set(ms(100), 0.0, 1.0);
        assert_eq!(processor.next(), None, "no core, no end");
        processor.set(ms(200), 1.0, 2.0);
        assert_eq!(end(&mut processor), (213, 0));
    }

    #[test]
    fn one_that_is_taken_out_leaves_its_share_to_the_others() {
        let mut processor = Processor::new(ms(0), 1.0, 1.0);
        processor.begin(ms(0), 0.1, 7);
        processor.begin(ms(0), 0.1, 8);
        assert!(processor.cancel(ms(100), 7));
        assert!(!processor.cancel(ms(100), 7));
        assert_eq!(end(&mut processor), (150, 8));
        processor.begin(ms(150), 0.1, 9);
        processor.begin(ms(150), 0.05, 4);
        assert_eq!(processor.clear(ms(150)), [9, 4]);
        assert_eq!((processor.len(), processor.next()), (0, None));
    }
}
