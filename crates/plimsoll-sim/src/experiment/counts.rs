//! Counters of a run: by window, and by sample for figures over time.

use std::time::Duration;

use plimsoll_core::Timestamp;

use super::fleet::plan::Phase;
use super::windows::{Window, windows};

/// The measured spans of a run: windows, and samples of one length from its beginning to its end.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    pub(crate) windows: Vec<Window>,
    pub(crate) sample_every: Duration,
    pub(crate) samples: usize,
}

impl Course {
    pub(crate) fn new(phases: &[Phase], warmup: Duration, duration: Duration, sample_every: Duration) -> Self {
        let sample_every = sample_every.max(Duration::from_nanos(1));
        let samples = duration.as_nanos().div_ceil(sample_every.as_nanos()) as usize;
        Self { windows: windows(phases, warmup, duration), sample_every, samples }
    }

    /// The number of the sample of a time, which may be past the last one.
    pub(crate) fn sample(&self, at: Duration) -> usize {
        (at.as_nanos() / self.sample_every.as_nanos()) as usize
    }

    /// The numbers of the windows that hold a time.
    pub(crate) fn windows_at(&self, at: Duration) -> impl Iterator<Item = usize> {
        (0..).zip(&self.windows).filter(move |(_, window)| window.holds(at)).map(|(number, _)| number)
    }
}

/// Counters `T` of several things, such as sources or tiers.
#[derive(Clone, Debug)]
pub(crate) struct Counts<T> {
    pub(crate) by_window: Vec<Vec<T>>,
    pub(crate) by_sample: Vec<Vec<T>>,
}

impl<T: Clone + Default> Counts<T> {
    pub(crate) fn new(course: &Course, things: usize) -> Self {
        let things = vec![T::default(); things];
        Self { by_window: vec![things.clone(); course.windows.len()], by_sample: vec![things; course.samples] }
    }

    /// Counts something about a thing, in each window and in the sample of that time.
    pub(crate) fn count(&mut self, course: &Course, at: Timestamp, thing: usize, count: impl Fn(&mut T)) {
        let at = at.since(Timestamp::ZERO);
        for window in course.windows_at(at) {
            count(&mut self.by_window[window][thing]);
        }
        if let Some(things) = self.by_sample.get_mut(course.sample(at)) {
            count(&mut things[thing]);
        }
    }
}

/// A part of a whole; `None` where there is nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_goes_to_its_sample_and_to_every_window_that_holds_its_time() {
        let secs = Duration::from_secs;
        let phases = [Phase { name: "late".to_owned(), at: secs(6), ..Phase::default() }];
        let course = Course::new(&phases, secs(2), secs(10), secs(3));
        let mut counts: Counts<u32> = Counts::new(&course, 2);
        for at in [0, 2, 6, 9, 10, 60] {
            counts.count(&course, Timestamp::from_origin(secs(at)), 1, |count| *count += 1);
        }
        assert_eq!(counts.by_window, [[0, 3], [0, 2]], "the whole run after the warm-up, and its last part");
        assert_eq!(counts.by_sample, [[0, 2], [0, 0], [0, 1], [0, 2]]);
    }
}
