//! What is counted while a server runs.
//!
//! A task is counted in the part of the run in which it arrived, however late it ends: else an overload would show in the calm that
//! follows.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll_core::Timestamp;

use super::plan::Plan;
use crate::experiment::counts::{Counts, Course, ratio};

/// Longest latency told apart: longer ones are those of work that nobody waits for.
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

/// What became of tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How many arrived.
    pub arrived: u64,
    /// Of these, given up because a request was shed as one too many.
    pub shed: u64,
    /// Given up because a request was shed whose deadline could not be met.
    pub hopeless: u64,
    /// Never sent, or not sent again: too old by their schedule.
    pub cancelled: u64,
    /// Answered in time, all of their requests.
    pub useful: u64,
    /// Answered too late.
    pub late: u64,
    /// Dropped by the server when nobody wanted the answer any more.
    pub expired: u64,
    /// Requests that the server was asked to take on.
    pub requests: u64,
    /// Of these, shed.
    pub requests_shed: u64,
    /// CPU-seconds of those that were answered in time.
    pub useful_cpu: f64,
    /// When the last one was answered in time, since the beginning.
    pub last: Duration,
}

impl Tally {
    /// The part that was answered in time; `None` where nothing arrived, as of every share.
    #[must_use]
    pub fn useful_share(&self) -> Option<f64> {
        ratio(self.useful, self.arrived)
    }

    /// The part that was given up for being shed.
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

/// How the server was at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// Since the beginning.
    pub at: Duration,
    /// How long the work that was taken on and is not done takes all cores.
    pub delay: Duration,
    /// CPU-seconds used so far.
    pub cpu: f64,
    /// The most requests in progress since the last reading.
    pub in_progress: usize,
}

/// Requests by the time at which they were sent, which may be long after their tasks arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) requests: u64,
    /// Of these.
    pub(super) shed: u64,
}

/// What is counted of one source in one part of the run.
#[derive(Clone, Debug)]
pub(super) struct Counted {
    pub(super) tally: Tally,
    /// Microseconds from arrival to the last answer, of those answered in time.
    pub(super) latency: Histogram<u64>,
    /// The most CPU-seconds that its requests used in any second; zero where the part has no whole one.
    pub(super) most_in_a_second: f64,
}

impl Counted {
    pub(super) fn new() -> Self {
        let longest = LONGEST.as_micros() as u64;
        let latency = Histogram::new_with_bounds(1, longest, 3).expect("a day of microseconds to three digits");
        Self { tally: Tally::default(), latency, most_in_a_second: 0.0 }
    }
}

/// All that is counted.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    pub(super) course: Course,
    /// By source, of each window.
    pub(super) counted: Vec<Vec<Counted>>,
    /// Of each window, the most CPU-seconds that requests of all sources used in any second.
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

    /// Counts something of a task of this source that arrived then.
    pub(super) fn count(&mut self, arrived: Timestamp, source: usize, count: impl Fn(&mut Tally)) {
        let arrived = arrived.since(Timestamp::ZERO);
        for window in self.course.windows_at(arrived) {
            count(&mut self.counted[window][source].tally);
        }
        if let Some(sources) = self.samples.get_mut(self.course.sample(arrived)) {
            count(&mut sources[source]);
        }
    }

    /// Notes what requests of a source, or of all, used in the second up to now.
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

    /// Notes when a task that arrived then was answered in time.
    pub(super) fn answered(&mut self, now: Timestamp, arrived: Timestamp, source: usize) {
        let micros = now.nanos_since(arrived).div_ceil(1_000);
        for window in self.course.windows_at(arrived.since(Timestamp::ZERO)) {
            self.counted[window][source].latency.saturating_record(micros);
        }
    }
}
