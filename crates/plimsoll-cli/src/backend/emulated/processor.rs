//! A virtual processor: computes when each request on it would end.
//!
//! Pure: time is an argument, in seconds since any start. With n requests on c cores, in the order of
//! arrival, request i proceeds at the rate
//!
//! ```text
//! first come, first served   1 if i < c, else 0
//! processor sharing          min(1, c/n)
//! ```
//!
//! so none uses more than one core. The first is how [`Cores`](super::super::cores) serve, and handlers
//! that keep their thread until they are done; the second is a kernel that slices time among threads.
//! Costs come divided by the speed of the machine. Each step costs O(n), which is small beside the
//! handling of a real request.
//!
//! The simulator has a processor of its own. The two share no code, so that `bench/predict` shows a
//! mistake in either.

use std::collections::VecDeque;

use super::Discipline;

/// Less work than this is none, in seconds: the rounding error of a sum of steps.
const NOTHING: f64 = 1e-10;

/// Cores and the requests on them.
#[derive(Debug)]
pub(super) struct Processor {
    discipline: Discipline,
    cores: usize,
    /// In the order of arrival.
    jobs: VecDeque<Job>,
    /// The time advanced to.
    at: f64,
    /// CPU time used until then.
    used: f64,
    next_id: u64,
}

/// The work of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Job {
    pub(super) id: u64,
    /// CPU time used so far.
    pub(super) used: f64,
    left: f64,
}

impl Processor {
    pub(super) fn new(discipline: Discipline, cores: usize) -> Self {
        Self { discipline, cores, jobs: VecDeque::new(), at: 0.0, used: 0.0, next_id: 0 }
    }

    /// Lets time pass until `now`. Hands `ended` the requests that end by then, in their order.
    pub(super) fn advance(&mut self, now: f64, mut ended: impl FnMut(Job)) {
        while let Some((end, place)) = self.next().filter(|(end, _)| *end <= now) {
            self.step(end - self.at);
            self.at = self.at.max(end);
            // Whatever rounding left of it.
            self.jobs[place].left = 0.0;
            self.jobs.retain(|job| {
                let is_over = job.left <= NOTHING;
                if is_over {
                    ended(*job);
                }
                !is_over
            });
        }
        self.step(now - self.at);
        self.at = self.at.max(now);
    }

    /// A request of this cost arrives at the time advanced to. Returns its number.
    pub(super) fn begin(&mut self, cost: f64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.jobs.push_back(Job { id, used: 0.0, left: cost });
        id
    }

    /// Removes a request that has used nothing yet; says whether it did.
    pub(super) fn cancel(&mut self, id: u64) -> bool {
        let before = self.jobs.len();
        self.jobs.retain(|job| job.id != id || job.used > 0.0);
        self.jobs.len() < before
    }

    /// How requests share the cores.
    pub(super) fn discipline(&self) -> Discipline {
        self.discipline
    }

    /// The requests that have not ended.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter()
    }

    /// The next end, if nothing changes; `None` without requests.
    pub(super) fn next_end(&self) -> Option<f64> {
        self.next().map(|(end, _)| end)
    }

    /// CPU time used until the time advanced to.
    pub(super) fn used(&self) -> f64 {
        self.used
    }

    /// The next end, and the place of its request.
    fn next(&self) -> Option<(f64, usize)> {
        let ends = (0..).zip(&self.jobs).map(|(place, job)| (job.left / self.rate(place), place));
        // A request that waits has no rate, and ends never.
        let (after, place) = ends.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        Some((self.at + after.max(0.0), place))
    }

    /// Progress per second of the request at this place.
    fn rate(&self, place: usize) -> f64 {
        match self.discipline {
            Discipline::Fcfs if place < self.cores => 1.0,
            Discipline::Fcfs => 0.0,
            Discipline::Sharing => (self.cores as f64 / self.jobs.len() as f64).min(1.0),
        }
    }

    fn step(&mut self, seconds: f64) {
        if seconds <= 0.0 {
            return;
        }
        let rates: Vec<f64> = (0..).zip(&self.jobs).map(|(place, _)| self.rate(place)).collect();
        for (job, rate) in self.jobs.iter_mut().zip(rates) {
            let done = rate * seconds;
            job.left -= done;
            job.used += done;
            self.used += done;
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Ends by request, in seconds, of requests given as arrival and cost.
    fn ends(discipline: Discipline, cores: usize, requests: &[(f64, f64)]) -> Vec<f64> {
        let mut processor = Processor::new(discipline, cores);
        let mut ends = vec![f64::NAN; requests.len()];
        for (at, cost) in requests {
            while let Some(end) = processor.next_end().filter(|end| end <= at) {
                processor.advance(end, |job| ends[job.id as usize] = end);
            }
            processor.advance(*at, |_| unreachable!("all ends until then were steps"));
            processor.begin(*cost);
        }
        while let Some(end) = processor.next_end() {
            processor.advance(end, |job| ends[job.id as usize] = end);
        }
        ends
    }

    fn assert_close(got: &[f64], expected: &[f64]) {
        let is_close = got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(is_close, "{got:?}, not {expected:?}");
    }

    #[test]
    fn first_come_first_served_ends_by_lindley() {
        // W' = max(0, W + S − A): the wait of a request from that of the one before.
        let requests = [(0.0, 3.0), (1.0, 1.0), (2.0, 2.0), (9.0, 1.0)];
        assert_close(&ends(Discipline::Fcfs, 1, &requests), &[3.0, 4.0, 6.0, 10.0]);
    }

    #[test]
    fn sharing_halves_the_speed_of_two() {
        // Alone until 1, with 2 left; then both at half speed: the second ends at 3, the first at 4.
        assert_close(&ends(Discipline::Sharing, 1, &[(0.0, 3.0), (1.0, 1.0)]), &[4.0, 3.0]);
    }

    #[test]
    fn no_request_uses_more_than_one_core() {
        for discipline in [Discipline::Fcfs, Discipline::Sharing] {
            assert_close(&ends(discipline, 2, &[(0.0, 3.0), (1.0, 1.0)]), &[3.0, 2.0]);
        }
        assert_close(&ends(Discipline::Fcfs, 2, &[(0.0, 3.0), (0.0, 1.0), (0.0, 1.0)]), &[3.0, 1.0, 2.0]);
    }

    #[test]
    fn a_late_look_finds_the_ends_where_they_were() {
        for discipline in [Discipline::Fcfs, Discipline::Sharing] {
            let mut processor = Processor::new(discipline, 1);
            processor.begin(1.0);
            processor.begin(2.0);
            let mut ended = Vec::new();
            processor.advance(2.5, |job| ended.push(job.id));
            assert_eq!(ended, [0], "{discipline:?}");
            assert!((processor.next_end().unwrap() - 3.0).abs() < 1e-9);
            processor.advance(50.0, |job| ended.push(job.id));
            assert_eq!(ended, [0, 1]);
            assert!((processor.used() - 3.0).abs() < 1e-9, "idle time is not used");
        }
    }

    #[test]
    fn only_a_request_that_used_nothing_is_cancelled() {
        for (discipline, cancelled) in [(Discipline::Fcfs, true), (Discipline::Sharing, false)] {
            let mut processor = Processor::new(discipline, 1);
            let (first, second) = (processor.begin(1.0), processor.begin(1.0));
            processor.advance(0.5, |_| {});
            assert!(!processor.cancel(first));
            assert_eq!(processor.cancel(second), cancelled, "{discipline:?}");
        }
    }

    /// Mean time in an M/M/1 queue: 1/(μ − λ) under both disciplines, 1/(1 − 0.5) = 2 here. Seed 5, n = 400,000.
    /// The variance of a mean over n is at most 2(1 + ρ)/(1 − ρ)² · 4/n, so its standard error is
    /// 0.011, and 0.06 is 5.4 of them: false alarm 7e-8.
    #[test]
    fn mean_time_in_the_queue_is_that_of_the_formula() {
        const N: usize = 400_000;
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let mut exponential = |mean: f64| {
            let uniform = ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
            -mean * uniform.ln()
        };
        let mut at = 0.0;
        let requests: Vec<_> = (0..N)
            .map(|_| {
                at += exponential(2.0);
                (at, exponential(1.0))
            })
            .collect();
        for discipline in [Discipline::Fcfs, Discipline::Sharing] {
            let ends = ends(discipline, 1, &requests);
            let sum: f64 = ends.iter().zip(&requests).map(|(end, (arrival, _))| end - arrival).sum();
            let mean = sum / N as f64;
            assert!((mean - 2.0).abs() < 0.06, "{discipline:?}: {mean}");
        }
    }
}
