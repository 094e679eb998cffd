//! How long to wait before trying again: exponential backoff with full jitter, drawn from all of [0, ceiling).
//!
//! Why all of it, and not a little about the ceiling: clients that failed together are spread over the whole wait, so that the load of
//! the next attempts is least where it is highest (Brooker, "Exponential Backoff and Jitter", 2015).

use core::time::Duration;

use rand_core::Rng;

use crate::rng;

/// The longest wait before the `retry`-th retry, from 1: `base · 2^(retry − 1)`, at most `max`.
pub(super) fn ceiling(base: Duration, max: Duration, retry: u32) -> Duration {
    let doublings = retry.saturating_sub(1).min(31);
    base.saturating_mul(1 << doublings).min(max)
}

/// A part of `span`, uniformly. By nanoseconds: multiplying a `Duration` takes 20 ns longer, and each attempt that fails asks.
pub(super) fn within(span: Duration, rng: &mut impl Rng) -> Duration {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos((nanos as f64 * rng::unit(rng)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_double_up_to_the_most() {
        let (base, max) = (Duration::from_millis(25), Duration::from_millis(250));
        let ceilings = [1, 2, 3, 4, 5, 99].map(|retry| ceiling(base, max, retry).as_millis());
        assert_eq!(ceilings, [25, 50, 100, 200, 250, 250]);
    }
}
