//! The CPU of each task, where it is not enough for all: the core's admission beside the limits.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::admit::{Admission, AdmissionConfig, Ask, RankedAdmission, Verdict};
use plimsoll_core::quota::FairShare;
use rand_core::Rng;

use super::rules::Request;

/// One server for each task.
pub(super) struct Cores {
    cpus: f64,
    tasks: Vec<Core>,
}

/// Requests run one after the other.
struct Core {
    ranked: RankedAdmission,
    /// Ends of the requests that run or wait, with their costs.
    running: VecDeque<(Timestamp, Admission, f64)>,
    free_at: Timestamp,
}

impl Cores {
    pub(super) fn new(now: Timestamp, tasks: usize, cpus: f64) -> Self {
        let config = AdmissionConfig::new(cpus).expect("files have numbers above zero");
        let core = || Core { ranked: RankedAdmission::new(now, config), running: VecDeque::new(), free_at: now };
        Self { cpus, tasks: (0..tasks).map(|_| core()).collect() }
    }

    /// Whether a request of this expected cost is admitted beside customers of other shares. CPU-microseconds.
    pub(super) fn admit(
        &mut self,
        now: Timestamp,
        request: &Request,
        expected: f64,
        FairShare { share, demand }: FairShare,
        rng: &mut impl Rng,
    ) -> bool {
        let core = &mut self.tasks[request.task];
        while let Some((end, admission, used)) = core.running.pop_front_if(|(end, ..)| *end <= now) {
            core.ranked.finish(end, admission, used);
        }
        let ask = Ask {
            criticality: request.criticality,
            customer: request.customer as u64 + 1,
            share,
            demand,
            cost: expected * 1e-6,
            overhead: 0.0,
            deadline: None,
            cohort: None,
            is_retry: false,
        };
        let Verdict::Admit(admission) = core.ranked.admit(now, &ask, rng) else { return false };
        let used = request.cost * 1e-6;
        core.free_at = core.free_at.max(now) + Duration::from_secs_f64(used / self.cpus);
        core.running.push_back((core.free_at, admission, used));
        true
    }
}
