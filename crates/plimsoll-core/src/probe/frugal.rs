//! Live probes for the policy `prequal`, only where responses bring no news.
//!
//! The paper probes three backends per pick. Each probe costs some 3.4 µs of kernel on either side:
//! three are 10 µs beside 17 for the request. But each response carries a load report anyway, so
//! only backends without a recent response need a probe. A pick deposits half a probe; a draw among
//! the usable backends spends one if the last report of the backend drawn is old.

use crate::{Random, rng};

/// Probes per pick at most, on average.
const PER_PICK: f64 = 0.5;
/// Probes kept for later: a burst of more would queue at the sender.
const MAX_KEPT: f64 = 2.0;
/// Backends drawn per pick. With more, the last few old ones would be found sooner than their turn.
const DRAWS: usize = 2;

/// Selects backends to probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrugalProbes {
    kept: f64,
}

impl FrugalProbes {
    /// The backend to probe after a pick, as an index below `usable`; `None` if there is no need, or
    /// no probe left. `is_due` says whether a backend has no recent load report and no probe in
    /// flight; it is called twice at most.
    pub fn on_pick(
        &mut self,
        usable: usize,
        is_due: impl FnMut(&usize) -> bool,
        rng: &mut impl Random,
    ) -> Option<usize> {
        self.kept = (self.kept + PER_PICK).min(MAX_KEPT);
        if self.kept < 1.0 || usable == 0 {
            return None;
        }
        let drawn = (0..DRAWS).map(|_| rng::below(rng, usable)).find(is_due)?;
        self.kept -= 1.0;
        Some(drawn)
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn backends_without_reports_get_half_a_probe_per_pick() {
        let (mut frugal, mut rng) = (FrugalProbes::default(), Pcg64Mcg::seed_from_u64(1));
        let mut probed = [0; 10];
        for _ in 0..1_000 {
            if let Some(index) = frugal.on_pick(10, |_| true, &mut rng) {
                probed[index] += 1;
            }
        }
        assert_eq!(probed.iter().sum::<u32>(), 500);
        // Seed 1, binomial with n = 500 and p = 0.1: five standard deviations are 34.
        assert!(probed.iter().all(|count| (16..=84).contains(count)), "{probed:?}");
    }

    #[test]
    fn backend_with_a_recent_report_is_never_probed() {
        let (mut frugal, mut rng) = (FrugalProbes::default(), Pcg64Mcg::seed_from_u64(1));
        let probed = |_| frugal.on_pick(5, |index| *index == 3, &mut rng);
        let probed: alloc::vec::Vec<usize> = (0..500).filter_map(probed).collect();
        assert!(probed.len() > 100 && probed.iter().all(|index| *index == 3), "{probed:?}");
    }

    #[test]
    fn picks_without_need_save_two_probes_at_most() {
        let (mut frugal, mut rng) = (FrugalProbes::default(), Pcg64Mcg::seed_from_u64(1));
        for _ in 0..100 {
            assert_eq!(frugal.on_pick(5, |_| false, &mut rng), None);
        }
        let burst = (0..6).filter(|_| frugal.on_pick(5, |_| true, &mut rng).is_some()).count();
        assert_eq!(burst, 4, "two kept, and five halves of the picks after the first");
        assert_eq!(frugal.on_pick(0, |_| true, &mut rng), None);
    }
}
