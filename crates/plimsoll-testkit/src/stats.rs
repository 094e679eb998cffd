//! Asserts on counts from a random source.
//!
//! A statistical assert that fails once in a hundred runs teaches people to run it again. So each
//! assert here takes the probability of a false alarm as an argument. The bound is Bernstein's
//! inequality, which holds for every n and p. The normal approximation is wrong exactly in the
//! tails that matter:
//!
//! ```text
//! P(|X − np| ≥ t) ≤ 2·exp(−t² / (2np(1−p) + 2t/3))
//! ```
//!
//! Seeds are fixed in all tests, so a run that passed passes for ever. The probability is that of a
//! *correct* change (another order of draws) that trips the assert.

/// Largest deviation from `n·p` of a binomial count of `n` draws with probability `p`, but for a
/// chance of `false_alarm`.
#[must_use]
pub fn tolerance(n: u64, p: f64, false_alarm: f64) -> f64 {
    let log = (2.0 / false_alarm).ln();
    let variance = n as f64 * p * (1.0 - p);
    // t² − (2/3)·log·t − 2·variance·log = 0, solved for t.
    let half = log / 3.0;
    half + (half * half + 2.0 * variance * log).sqrt()
}

/// Panics unless `count` of `n` independent draws agrees with the probability `p`.
///
/// # Panics
/// If it does not, with everything needed to judge it.
#[track_caller]
pub fn assert_share(name: &str, count: u64, n: u64, p: f64, false_alarm: f64) {
    let (want, tolerance) = (n as f64 * p, tolerance(n, p, false_alarm));
    assert!(
        (count as f64 - want).abs() <= tolerance,
        "{name}: {count} of {n}, expected {want:.0} ± {tolerance:.0} (p = {p:.4}, false alarm {false_alarm:e})"
    );
}

/// Largest count of `n` independent draws with probability at most `p`, but for a chance of
/// `false_alarm`.
#[must_use]
pub fn max_in_share(n: u64, p: f64, false_alarm: f64) -> f64 {
    n as f64 * p + tolerance(n, p, false_alarm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tolerance_covers_a_fair_coin_and_little_more() {
        // σ = 50; one in a million is 4.9 σ by the normal approximation, and the bound is not much
        // wider.
        let tolerance = tolerance(10_000, 0.5, 1e-6);
        assert!((245.0..300.0).contains(&tolerance), "{tolerance}");
    }

    #[test]
    #[should_panic(expected = "expected 5000")]
    fn biased_coin_fails_the_assert() {
        assert_share("heads", 5_400, 10_000, 0.5, 1e-6);
    }
}
