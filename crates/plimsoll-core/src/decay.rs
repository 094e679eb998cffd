//! Exponential decay without a mathematics library.
//!
//! Every smoothed number in the core forgets by half-life: after `h` its past counts half.
//! Half-lives are used in place of time constants for two reasons. Operators think in them, and
//! powers of two are cheap: `2^-x = 2^-⌊x⌋ · 2^-frac(x)` is an exponent field times a short
//! polynomial.

use core::time::Duration;

use crate::Timestamp;

/// The part of a value that is left after the time from `since` to `now`.
///
/// It is `2^(-elapsed / half_life)` in [0, 1], with an error below 2·10⁻⁴. A half-life of zero
/// forgets at once.
pub(crate) fn remaining(now: Timestamp, since: Timestamp, half_life: Duration) -> f64 {
    let elapsed = now.nanos_since(since);
    let half_life = half_life.as_nanos() as u64;
    if elapsed == 0 {
        return 1.0;
    }
    if half_life == 0 || elapsed / 64 >= half_life {
        return 0.0;
    }
    exp2_neg(elapsed as f64 / half_life as f64)
}

/// `e^-x` for x in [0, 44], with an error below 2·10⁻⁴.
pub(crate) fn exp_neg(x: f64) -> f64 {
    exp2_neg(x * core::f64::consts::LOG2_E)
}

/// The rate per second of additions to a sum that decays by `half_life`.
pub(crate) fn rate(sum: f64, half_life: Duration) -> f64 {
    sum * core::f64::consts::LN_2 / half_life.as_secs_f64()
}

/// `2^-x` for x in [0, 64].
fn exp2_neg(x: f64) -> f64 {
    let whole = x as u64;
    let y = -(x - whole as f64) * core::f64::consts::LN_2;
    // Taylor series of e^y on (-0.694, 0].
    let fraction = 1.0 + y * (1.0 + y * (0.5 + y * (1.0 / 6.0 + y * (1.0 / 24.0 + y * (1.0 / 120.0)))));
    f64::from_bits((1023 - whole) << 52) * fraction
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn decay_is_monotonic_and_within_the_stated_error() {
        let half_life = Duration::from_millis(1000);
        let mut last = 1.0;
        for ms in 1..70_000_u64 {
            let got = remaining(Timestamp::from_nanos(ms * 1_000_000), Timestamp::ZERO, half_life);
            let exact = std::primitive::f64::exp2(-(ms as f64) / 1000.0);
            assert!((got - exact).abs() < 2e-4, "{ms} ms: {got} for {exact}");
            assert!(got <= last + 1e-4 && got >= 0.0, "rises at {ms} ms");
            last = got;
        }
    }

    #[test]
    fn zero_half_life_forgets_at_once() {
        assert_eq!(remaining(Timestamp::from_nanos(1), Timestamp::ZERO, Duration::ZERO), 0.0);
        assert_eq!(remaining(Timestamp::ZERO, Timestamp::ZERO, Duration::ZERO), 1.0);
    }

    #[test]
    fn nothing_is_left_after_thousands_of_half_lives() {
        let half_life = Duration::from_millis(1);
        assert_eq!(remaining(Timestamp::from_nanos(2_000_000_000), Timestamp::ZERO, half_life), 0.0);
    }
}
