//! All backends at one moment, added up: an answer whose size does not depend on their number.
//!
//! A page that is open during an incident asks once a second, so the answer must stay small with ten
//! thousand backends, and the lock of the balancer must be free for requests. [`Overview::add`]
//! therefore reads a range of slots, and its caller may release the lock between two ranges.
//!
//! The load of a backend is its reported utilization. Where no healthy backend reports one, it is
//! the number of requests in flight ([`LoadMeasure`]).

use alloc::vec::Vec;
use core::ops::Range;

use super::Balancer;
use crate::BackendId;
use crate::health::State;
use crate::spread::{self, Spread};

/// Bins of the histogram.
pub const LOAD_BINS: usize = 20;
/// Width of a bin of utilization: twenty of them reach from idle to full.
const UTILIZATION_BIN: f64 = 1.0 / LOAD_BINS as f64;

/// The quantity that is the load of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMeasure {
    /// Reported utilization; 1 is full.
    Utilization,
    /// Requests in flight from this process.
    #[default]
    InFlight,
}

impl LoadMeasure {
    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Utilization => "utilization",
            Self::InFlight => "in-flight",
        }
    }
}

/// The distribution of load over the healthy backends that have one.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// The quantity.
    pub measure: LoadMeasure,
    /// Largest load.
    pub max: f64,
    /// Mean load.
    pub mean: f64,
    /// Evenness; `None` if nothing has load.
    pub spread: Option<Spread>,
    /// Backends by load; the last bin has no upper bound.
    pub histogram: [u32; LOAD_BINS],
    /// Width of a bin, in the unit of the load.
    pub bin: f64,
}

/// A backend in a list: its load and its identity.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loaded {
    load: f64,
    id: BackendId,
}

/// Sums over the backends of a balancer, and the few that a person looks at first.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Number of backends by state, in the order of [`State::ALL`].
    pub states: [u32; State::ALL.len()],
    /// Requests in flight.
    pub active: u64,
    /// Attempts sent so far to the present backends.
    pub requests: u64,
    /// Failures among them.
    pub failures: u64,
    /// Loads of healthy backends, in one list for each measure.
    utilization: Vec<Loaded>,
    in_flight: Vec<Loaded>,
    unhealthy: Vec<BackendId>,
}

impl Overview {
    /// Adds the backends in these slots.
    pub fn add(&mut self, balancer: &Balancer, slots: Range<usize>) {
        for (id, member) in balancer.members.iter_in(slots) {
            let state = member.health.state();
            self.states[state as usize] += 1;
            self.active += u64::from(member.active);
            self.requests += member.requests;
            self.failures += member.failures;
            if state != State::Healthy {
                self.unhealthy.push(id);
                continue;
            }
            self.in_flight.push(Loaded { load: f64::from(member.active), id });
            if let Some(load) = member.report.and_then(|(_, report)| report.utilization()) {
                self.utilization.push(Loaded { load, id });
            }
        }
    }

    /// Number of backends.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.states.iter().sum()
    }

    /// Number of backends that are not healthy.
    #[must_use]
    pub fn unhealthy(&self) -> usize {
        self.unhealthy.len()
    }

    /// The distribution of load; `None` without a healthy backend.
    #[must_use]
    pub fn distribution(&self) -> Option<Distribution> {
        let (measure, loads) = self.loads();
        let largest = loads.iter().map(|each| each.load).reduce(f64::max)?;
        let bin = match measure {
            LoadMeasure::Utilization => UTILIZATION_BIN,
            // Whole requests, and the largest in the last bin.
            LoadMeasure::InFlight => (largest as u64 + 1).div_ceil(LOAD_BINS as u64) as f64,
        };
        let mut histogram = [0; LOAD_BINS];
        for each in loads {
            // A load at a bound belongs above it, in spite of rounding: 0.7 / 0.05 is 13.99…
            histogram[((each.load / bin + 1e-9) as usize).min(LOAD_BINS - 1)] += 1;
        }
        let mean = loads.iter().map(|each| each.load).sum::<f64>() / loads.len() as f64;
        let spread = spread::of(loads.iter().map(|each| each.load));
        Some(Distribution { measure, max: largest, mean, spread, histogram, bin })
    }

    /// The backends to show, at most `rows`: all of them, in the order of their slots, or else the most
    /// loaded third and then unhealthy ones. Both ends of a distribution that a person looks for.
    #[must_use]
    pub fn rows(&self, rows: usize) -> Vec<BackendId> {
        if self.total() as usize <= rows {
            let healthy = self.in_flight.iter().map(|each| each.id);
            let mut all: Vec<BackendId> = healthy.chain(self.unhealthy.iter().copied()).collect();
            all.sort_unstable_by_key(|id| id.slot());
            return all;
        }
        let mut loads = self.loads().1.to_vec();
        let most = (rows / 3).max(rows.saturating_sub(self.unhealthy.len())).min(loads.len());
        if most > 0 && most < loads.len() {
            loads.select_nth_unstable_by(most - 1, |a, b| b.load.total_cmp(&a.load));
        }
        loads.truncate(most);
        loads.sort_unstable_by(|a, b| b.load.total_cmp(&a.load).then(a.id.slot().cmp(&b.id.slot())));
        let unhealthy = self.unhealthy.iter().copied().take(rows - most);
        loads.into_iter().map(|each| each.id).chain(unhealthy).collect()
    }

    fn loads(&self) -> (LoadMeasure, &[Loaded]) {
        if self.utilization.is_empty() {
            (LoadMeasure::InFlight, &self.in_flight)
        } else {
            (LoadMeasure::Utilization, &self.utilization)
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::pick::PolicyKind;
    use crate::{BalancerConfig, LoadReport, Timestamp, Weight};

    fn balancer(backends: usize) -> (Balancer, Vec<BackendId>) {
        let mut balancer =
            Balancer::new(BalancerConfig { policy: PolicyKind::LeastLoaded, ..BalancerConfig::default() });
        let ids = (0..backends).map(|_| balancer.add(Timestamp::ZERO, Weight::ONE, &mut ())).collect();
        (balancer, ids)
    }

    fn overview(balancer: &Balancer) -> Overview {
        let mut overview = Overview::default();
        // In two parts, as a caller does that releases the lock between them.
        overview.add(balancer, 0..3);
        overview.add(balancer, 3..usize::MAX);
        overview
    }

    /// Healthy, with this utilization.
    fn report(balancer: &mut Balancer, id: BackendId, utilization: f64) {
        let now = Timestamp::ZERO + Duration::from_secs(1);
        balancer.on_connected(now, id, &mut ());
        let load = LoadReport { application_utilization: utilization, ..LoadReport::default() };
        balancer.on_report(now, id, &load, &mut ());
    }

    #[test]
    fn overview_adds_all_backends_once() {
        let (mut balancer, ids) = balancer(8);
        for (i, id) in ids.iter().enumerate().skip(2) {
            report(&mut balancer, *id, i as f64 / 10.0);
        }
        let overview = overview(&balancer);
        assert_eq!((overview.total(), overview.unhealthy()), (8, 2));
        let distribution = overview.distribution().unwrap();
        assert_eq!((distribution.measure, distribution.max), (LoadMeasure::Utilization, 0.7));
        assert!((distribution.mean - 0.45).abs() < 1e-9);
        assert_eq!(distribution.histogram.iter().sum::<u32>(), 6);
        assert_eq!(distribution.histogram[14], 1, "0.7: {:?}", distribution.histogram);
        assert_eq!(overview.rows(8), ids, "all, in the order of their slots");
    }

    #[test]
    fn rows_are_the_most_loaded_and_unhealthy_backends() {
        let (mut balancer, ids) = balancer(20);
        for (i, id) in ids.iter().enumerate().skip(8) {
            report(&mut balancer, *id, i as f64 / 20.0);
        }
        let rows = overview(&balancer).rows(6);
        assert_eq!(rows, [ids[19], ids[18], ids[0], ids[1], ids[2], ids[3]]);
        let mut healthy = Overview::default();
        healthy.add(&balancer, 8..20);
        assert_eq!(healthy.rows(3), [ids[19], ids[18], ids[17]], "no unhealthy one needs a row");
    }

    #[test]
    fn load_is_in_flight_requests_where_no_backend_reports() {
        let (mut balancer, ids) = balancer(2);
        for id in &ids {
            balancer.on_connected(Timestamp::ZERO, *id, &mut ());
        }
        let distribution = overview(&balancer).distribution().unwrap();
        assert_eq!((distribution.measure, distribution.bin, distribution.spread), (LoadMeasure::InFlight, 1.0, None));
        assert_eq!(distribution.histogram[0], 2);
    }

    #[test]
    fn distribution_is_none_without_a_healthy_backend() {
        assert_eq!(overview(&balancer(2).0).distribution(), None);
    }
}
