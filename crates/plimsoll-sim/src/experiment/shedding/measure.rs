//! The counters of a server.
//!
//! A task counts in the window of its arrival, however late it ends. Otherwise an overload would
//! show in the calm that follows.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll_core::Timestamp;

use super::plan::Plan;
use crate::experiment::counts::{Counts, Course, ratio};

/// Longest distinct latency. Only abandoned work takes longer.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// The fate of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Tasks that arrived.
    pub arrived: u64,
    /// Tasks that ended because a request was shed by overload.
    pub shed: u64,
    /// Tasks that ended because a request was shed whose deadline could not be met.
    pub hopeless: u64,
    /// Tasks whose schedule stopped them from being sent or retried.
    pub cancelled: u64,
    /// Tasks with all requests answered in time.
    pub useful: u64,
    /// Tasks with a late answer.
    pub late: u64,
    /// Tasks that the server dropped after their users left.
    pub expired: u64,
    /// Requests sent to the server.
    pub requests: u64,
    /// Requests that were shed.
    pub requests_shed: u64,
    /// CPU-seconds of tasks answered in time.
    pub useful_cpu: f64,
    /// Time of the last task answered in time, from the beginning of the run.
    pub last: Duration,
}

impl Tally {
    /// The share of tasks answered in time; like all shares, `None` if no task arrived.
    #[must_use]
    pub fn useful_share(&self) -> Option<f64> {
        ratio(self.useful, self.arrived)
    }

    /// The share of tasks that ended because a request was shed.
    #[must_use]
    pub fn shed_share(&self) -> Option<f64> {
        ratio(self.shed + self.hopeless, self.arrived)
    }
}

impl AddAssign<&Self> for Tally {
    fn add_assign(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.shed += other.shed;
        self.hopeless += other.hopeless;
        self.cancelled += other.cancelled;
        self.useful += other.useful;
        self.late += other.late;
        self.expired += other.expired;
        self.requests += other.requests;
        self.requests_shed += other.requests_shed;
        self.useful_cpu += other.useful_cpu;
        self.last = self.last.max(other.last);
    }
}

/// The server at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// From the beginning of the run.
    pub at: Duration,
    /// Time that all cores need for the rest of the admitted work.
    pub delay: Duration,
    /// CPU-seconds used so far.
    pub cpu: f64,
    /// Most requests in progress since the last reading.
    pub in_progress: usize,
}

/// Requests by the time of sending, which may be long after their tasks arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) requests: u64,
    /// Requests that were shed.
    pub(super) shed: u64,
}

/// The counters of one source in one window.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) tally: Tally,
    /// Microseconds from arrival to the last answer, of tasks answered in time.
    pub(super) latency: Histogram<u64>,
    /// Most CPU-seconds of its requests in any second; zero if the window has no whole second.
    pub(super) most_in_a_second: f64,
}

impl Counted {
    pub(super) fn new() -> Self {
        let longest = LONGEST.as_micros() as u64;
        let latency = Histogram::new_with_bounds(1, longest, 3).expect("a day of microseconds to three digits");
        Self { tally: Tally::default(), latency, most_in_a_second: 0.0 }
    }
}

/// All counters.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    /// By source, of each window.
    pub(super) counted: Vec<Vec<Counted>>,
    /// For each window, the most CPU-seconds of requests of all sources in any second.
    pub(super) most_in_a_second: Vec<f64>,
    /// By source, of each point of figures over time.
    pub(super) samples: Vec<Vec<Tally>>,
    /// Of all sources.
    pub(super) sent: Counts<Sent>,
    pub(super) readings: Vec<Reading>,
}

impl Measure {
    pub(super) fn new(plan: &Plan) -> Self {
        let course = Course::new(&plan.phases, plan.warmup, plan.duration, plan.sample_every);
        let (windows, sources) = (course.windows.len(), plan.sources.len());
        Self {
            counted: vec![vec![Counted::new(); sources]; windows],
            most_in_a_second: vec![0.0; windows],
            samples: vec![vec![Tally::default(); sources]; course.samples],
            sent: Counts::new(&course, 1),
            readings: Vec::new(),
            course,
        }
    }

    /// Counts something about a task of this source that arrived then.
    pub(super) fn count(&mut self, arrived: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        let arrived = arrived.since(Timestamp::ZERO);
        for window in self.course.windows_at(arrived) {
            count(&mut self.counted[window][source].tally);
        }
        if let Some(sources) = self.samples.get_mut(self.course.sample(arrived)) {
            count(&mut sources[source]);
        }
    }

    /// Records the usage of a source, or of all, in the second before now.
    pub(super) fn used_in_a_second(&mut self, now: Timestamp, source: Option<usize>, used: f64) {
        let now = now.since(Timestamp::ZERO);
        let Some(begun) = now.checked_sub(Duration::from_secs(1)) else { return };
        for (i, window) in self.course.windows.iter().enumerate() {
            if window.from <= begun && now <= window.to {
                let most = match source {
                    Some(source) => &mut self.counted[i][source].most_in_a_second,
                    None => &mut self.most_in_a_second[i],
                };
                *most = most.max(used);
            }
        }
    }

    /// Counts a request of a task of this source that arrived then.
    pub(super) fn sent(&mut self, now: Timestamp, arrived: Timestamp, source: usize, is_shed: bool) {
        let shed = u64::from(is_shed);
        self.count(arrived, source, |tally| {
            tally.requests += 1;
            tally.requests_shed += shed;
        });
        self.sent.count(&self.course, now, 0, |sent| {
            sent.requests += 1;
            sent.shed += shed;
        });
    }

    /// Records the latency of a task that was answered in time.
    pub(super) fn answered(&mut self, now: Timestamp, arrived: Timestamp, source: usize) {
        let micros = now.nanos_since(arrived).div_ceil(1_000);
        for window in self.course.windows_at(arrived.since(Timestamp::ZERO)) {
            self.counted[window][source].latency.saturating_record(micros);
        }
    }
}
