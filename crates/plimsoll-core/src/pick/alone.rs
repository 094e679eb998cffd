//! Pickers for callers without a [`Balancer`](crate::Balancer): weights, load reports or loads in,
//! an index out.
//!
//! | the caller has | picker |
//! |---|---|
//! | weights | [`WeightedPicker`] |
//! | reports of utilization and rates | [`ReportPicker`] |
//! | loads, such as active requests | [`less_loaded_of_two`] |
//!
//! They know nothing of health. A weight of zero leaves a backend out.

use alloc::vec::Vec;
use core::fmt;

use super::capability::Capability;
use super::counted::OwnRequests;
use super::stride::{ScaledWeight, Stride};
use super::weighted::Weighted;
use super::{WeightedConfig, two_below};
use crate::{LoadReport, Random, Timestamp};

/// Picks indexes in proportion to weights, evenly apart and in constant time: the stride scheduler
/// of gRPC's `weighted_round_robin`.
///
/// Weighted random would make bursts, which queue. Weights are rounded to 1/65,535 of the heaviest;
/// one above zero counts as that at least.
///
/// ```
/// use plimsoll_core::pick::WeightedPicker;
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let servers = ["large", "small", "drained"];
/// let mut picker = WeightedPicker::new([3.0, 1.0, 0.0])?;
/// let mut requests = [0; 3];
/// for _ in 0..400 {
///     let index = picker.pick(&mut rng);
///     requests[index] += 1; // to servers[index]
/// }
/// assert_eq!(requests, [300, 100, 0], "of {servers:?}");
/// # Ok::<(), plimsoll_core::pick::InvalidWeights>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightedPicker {
    weights: Vec<ScaledWeight>,
    stride: Stride,
}

/// The error of weights that are negative, not finite, or all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidWeights;

impl fmt::Display for InvalidWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid weights: each must be finite and not negative, and one above zero")
    }
}

impl core::error::Error for InvalidWeights {}

impl WeightedPicker {
    /// A picker by these weights, in the order of the indexes.
    ///
    /// # Errors
    /// A weight is negative or not finite, or none is above zero.
    pub fn new(weights: impl IntoIterator<Item = f64>) -> Result<Self, InvalidWeights> {
        let mut picker = Self { weights: Vec::new(), stride: Stride::default() };
        picker.set_weights(weights)?;
        Ok(picker)
    }

    /// Replaces the weights, in O(n): about once a second, and not for each pick, or the shares are
    /// inexact.
    ///
    /// # Errors
    /// As for [`new`](Self::new). The old weights stay.
    pub fn set_weights(&mut self, weights: impl IntoIterator<Item = f64>) -> Result<(), InvalidWeights> {
        let weights: Vec<f64> = weights.into_iter().collect();
        let heaviest = weights.iter().copied().fold(0.0, f64::max);
        if heaviest == 0.0 || weights.iter().any(|weight| !weight.is_finite() || *weight < 0.0) {
            return Err(InvalidWeights);
        }
        self.weights.clear();
        self.weights.extend(weights.into_iter().map(|weight| match weight {
            0.0 => ScaledWeight::NONE,
            weight => ScaledWeight::new(weight, heaviest),
        }));
        Ok(())
    }

    /// The next index. The first is random, so that clients that start together do not all begin
    /// with the same one.
    pub fn pick(&mut self, rng: &mut impl Random) -> usize {
        self.stride.next(self.weights.len(), rng, |index| self.weights[index])
    }
}

/// Picks indexes in proportion to the capability that load reports show: weighted round robin of
/// gRFC A58.
///
/// Each backend gets the requests that bring all to the same utilization: a machine of twice the
/// speed gets twice as many. Indexes without reports have the mean. All are equal while fewer than
/// two have any, and for the [blackout](WeightedConfig::blackout) after the first report.
///
/// ```
/// use core::time::Duration;
/// use plimsoll_core::pick::{ReportPicker, WeightedConfig};
/// use plimsoll_core::{LoadReport, Timestamp};
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let mut config = WeightedConfig::default();
/// config.blackout = Duration::ZERO;
/// let mut picker = ReportPicker::new(2, config);
/// let now = Timestamp::ZERO;
/// for (index, cpu_utilization) in [(0, 0.2), (1, 0.6)] {
///     let report = LoadReport { cpu_utilization, qps: 100.0, ..Default::default() };
///     picker.on_report(now, index, &report); // of each response or once a second
/// }
/// let picks = (0..400).filter(|_| picker.pick(now, &mut rng) == Some(0)).count();
/// assert_eq!(picks, 300);
/// ```
#[derive(Clone, Debug)]
pub struct ReportPicker {
    config: WeightedConfig,
    capabilities: Vec<Capability>,
    weights: Weighted,
    stride: Stride,
    /// Time of the next computation of weights.
    next_update: Timestamp,
}

impl ReportPicker {
    /// A picker of `backends` indexes without reports.
    ///
    /// The [feedback](WeightedConfig::feedback) has no effect here.
    #[must_use]
    pub fn new(backends: usize, config: WeightedConfig) -> Self {
        let mut picker = Self {
            config,
            capabilities: Vec::new(),
            weights: Weighted::default(),
            stride: Stride::default(),
            next_update: Timestamp::ZERO,
        };
        picker.capabilities.resize_with(backends, Capability::default);
        picker
    }

    /// Takes a report of the backend at `index`. An index out of range has no effect.
    pub fn on_report(&mut self, now: Timestamp, index: usize, report: &LoadReport) {
        if let Some(capability) = self.capabilities.get_mut(index) {
            capability.on_report(now, report, &OwnRequests::default(), &self.config);
        }
    }

    /// Forgets the reports of an index: another backend took its place, or it was unreachable.
    pub fn reset(&mut self, index: usize) {
        if let Some(capability) = self.capabilities.get_mut(index) {
            capability.reset();
            self.weights.forget(index);
        }
    }

    /// Adds a backend without reports, at the next index.
    pub fn push(&mut self) {
        self.capabilities.push(Capability::default());
    }

    /// The next index; `None` without backends. Computes the weights if they are due, in O(n).
    pub fn pick(&mut self, now: Timestamp, rng: &mut impl Random) -> Option<usize> {
        let n = self.capabilities.len();
        if now >= self.next_update {
            self.update(now);
        }
        let weights = &self.weights;
        (n > 0).then(|| self.stride.next(n, rng, |index| weights.scaled(index)))
    }

    fn update(&mut self, now: Timestamp) {
        self.next_update = now + self.config.update;
        let config = WeightedConfig { feedback: core::time::Duration::ZERO, ..self.config };
        let capabilities = self.capabilities.iter().map(|capability| capability.weight(now, &config));
        if let Some(most) = self.weights.update(capabilities, |_| 1.0, &[], &[]) {
            self.capabilities.iter_mut().for_each(|capability| capability.cap(most));
        }
    }
}

/// Of two indexes at random, the one with the lower load: the *power of two choices*. `None` without
/// loads.
///
/// Many clients with the same stale loads do not all pick the same index, unlike with the least of
/// all.
///
/// ```
/// use plimsoll_core::pick::less_loaded_of_two;
///
/// let mut rng = rand_pcg::Pcg64Mcg::new(1);
/// let mut active = [0.0; 8];
/// for _ in 0..800 {
///     let index = less_loaded_of_two(&active, &mut rng).expect("there are eight");
///     active[index] += 1.0; // and less at the end of the request
/// }
/// assert!(active.iter().all(|active| (95.0..=105.0).contains(active)), "{active:?}");
/// ```
pub fn less_loaded_of_two(loads: &[f64], rng: &mut impl Random) -> Option<usize> {
    if loads.is_empty() {
        return None;
    }
    let (first, second) = two_below(loads.len(), rng);
    Some(if loads[second] < loads[first] { second } else { first })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use core::time::Duration;

    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn counts(n: usize, picks: usize, mut pick: impl FnMut() -> usize) -> Vec<usize> {
        let mut counts = vec![0; n];
        (0..picks).for_each(|_| counts[pick()] += 1);
        counts
    }

    #[test]
    fn weights_without_a_usable_one_are_invalid() {
        for weights in [&[][..], &[0.0, 0.0], &[1.0, -1.0], &[1.0, f64::NAN], &[f64::INFINITY, 1.0]] {
            assert_eq!(WeightedPicker::new(weights.iter().copied()).err(), Some(InvalidWeights), "{weights:?}");
        }
    }

    #[test]
    fn new_weights_hold_from_the_next_pick_and_invalid_ones_change_nothing() {
        let mut rng = Pcg64Mcg::new(3);
        let mut picker = WeightedPicker::new([1.0, 0.0, 1.0]).expect("valid");
        assert_eq!(counts(3, 100, || picker.pick(&mut rng)), [50, 0, 50]);
        assert_eq!(picker.set_weights([0.0]), Err(InvalidWeights));
        assert_eq!(counts(3, 100, || picker.pick(&mut rng)), [50, 0, 50]);
        picker.set_weights([0.0, 9.0]).expect("valid");
        assert_eq!(counts(2, 100, || picker.pick(&mut rng)), [0, 100]);
    }

    /// New weights every hundred picks, as for loads that move: shares follow the mean weight.
    #[test]
    fn shares_hold_over_changes_of_weights() {
        let mut rng = Pcg64Mcg::new(4);
        let mut picker = WeightedPicker::new([1.0, 1.0]).expect("valid");
        let mut turn = 0;
        let counts = counts(2, 6_000, || {
            if turn % 100 == 0 {
                picker.set_weights([if turn % 200 == 0 { 2.0 } else { 4.0 }, 1.0]).expect("valid");
            }
            turn += 1;
            picker.pick(&mut rng)
        });
        assert!(counts[0].abs_diff(4_400) < 60, "{counts:?}");
    }

    const NO_BLACKOUT: WeightedConfig = WeightedConfig {
        blackout: Duration::ZERO,
        expiry: WeightedConfig::DEFAULT_EXPIRY,
        update: WeightedConfig::DEFAULT_UPDATE,
        smoothing: WeightedConfig::DEFAULT_SMOOTHING,
        error_penalty: WeightedConfig::DEFAULT_ERROR_PENALTY,
        feedback: WeightedConfig::DEFAULT_FEEDBACK,
    };

    fn report(cpu_utilization: f64) -> LoadReport {
        LoadReport { cpu_utilization, qps: 100.0, ..LoadReport::default() }
    }

    fn secs(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn backends_are_equal_until_two_have_reports() {
        let mut rng = Pcg64Mcg::new(5);
        let mut picker = ReportPicker::new(3, NO_BLACKOUT);
        picker.on_report(secs(1), 0, &report(0.1));
        picker.on_report(secs(1), 7, &report(0.1));
        assert_eq!(counts(3, 300, || picker.pick(secs(1), &mut rng).expect("some")), [100; 3]);
        picker.on_report(secs(2), 1, &report(0.3));
        // Capabilities of 1,000 and 333, and the mean, 667, for the third.
        let shares = counts(3, 6_000, || picker.pick(secs(2), &mut rng).expect("some"));
        assert!(shares.iter().zip([3_000, 1_000, 2_000]).all(|(found, expected)| found.abs_diff(expected) < 10));
        picker.reset(0);
        assert_eq!(counts(3, 300, || picker.pick(secs(3), &mut rng).expect("some")), [100; 3], "one has reports");
        let expired = secs(2) + WeightedConfig::DEFAULT_EXPIRY;
        picker.on_report(expired, 2, &report(0.1));
        assert_eq!(counts(3, 300, || picker.pick(expired, &mut rng).expect("some")), [100; 3], "one is recent");
        assert_eq!(ReportPicker::new(0, NO_BLACKOUT).pick(secs(1), &mut rng), None);
    }

    #[test]
    fn pushed_backend_has_the_mean_at_once() {
        let mut rng = Pcg64Mcg::new(6);
        let mut picker = ReportPicker::new(2, NO_BLACKOUT);
        picker.on_report(secs(1), 0, &report(0.1));
        picker.on_report(secs(1), 1, &report(0.3));
        assert!(picker.pick(secs(1), &mut rng).is_some());
        picker.push();
        let shares = counts(3, 6_000, || picker.pick(secs(1), &mut rng).expect("some"));
        assert!(shares.iter().zip([3_000, 1_000, 2_000]).all(|(found, expected)| found.abs_diff(expected) < 10));
    }

    /// By its own account the third could take all requests.
    #[test]
    fn wild_report_has_ten_times_the_median_at_most() {
        let mut rng = Pcg64Mcg::new(7);
        let mut picker = ReportPicker::new(3, NO_BLACKOUT);
        for (index, utilization) in [(0, 0.5), (1, 0.5), (2, 1e-6)] {
            picker.on_report(secs(1), index, &report(utilization));
        }
        let shares = counts(3, 1_200, || picker.pick(secs(1), &mut rng).expect("some"));
        assert!(shares[0].abs_diff(100) < 5 && shares[1].abs_diff(100) < 5, "{shares:?}");
    }

    #[test]
    fn less_loaded_of_two_never_takes_the_most_loaded() {
        let mut rng = Pcg64Mcg::new(8);
        let loads = [1.0, 0.0, f64::INFINITY];
        let picks = counts(3, 3_000, || less_loaded_of_two(&loads, &mut rng).expect("three"));
        // The least is in two of three pairs: 2,000, within five standard deviations.
        assert!(picks[1].abs_diff(2_000) < 130 && picks[2] == 0, "{picks:?}");
        assert_eq!([less_loaded_of_two(&[], &mut rng), less_loaded_of_two(&[9.0], &mut rng)], [None, Some(0)]);
    }
}
