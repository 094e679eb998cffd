//! Rate-limited answers of a backend, compared with those of the other backends.
//!
//! A backend that answers 429 at once has few active requests and a low latency, so a policy that
//! looks for these sends it everything. It has not failed, though: a rate limit mostly concerns the
//! sender. Every backend answers so to a customer over quota, and that must neither eject a backend
//! nor move traffic. So only the *excess* over the other backends counts. Symbols: `r` is the share
//! of such answers among about a backend's last ten. `w` is the weight of all its answers in `r` so
//! far. `m = Σr ÷ Σw` over the others, and `a` is the same over all:
//!
//! ```text
//! rate limited:      r ← r + (1 − r)·g
//! any other answer:  r ← r − r·g
//! either:            w ← w + (1 − w)·g
//! g = 1/10
//!
//! excess = r − m   if r − m > 1/10  and  (r − m)² > 3²·a·(1 − a)·g/(2 − g),   else 0
//! ```
//!
//! The second condition is three standard deviations of `r` if all backends answer alike; chance
//! exceeds it about 1% of the time. The first condition says that one answer is no evidence. The
//! excess fades with a half-life. Policies and the balancer treat it as a share of failures
//! ([`errors`](super::errors)).
//!
//! Why not count such answers as failures? Ten of them in a row, all for one customer, would make a
//! backend look full. The others, which the customer has not reached yet, would look idle. Why not
//! the largest share of the others instead of their mean? Two limited backends of three would
//! excuse each other.
//!
//! It is weak if most backends are limited and few are not: then the mean excuses the limited ones.
//! The few get their usual share.

use core::time::Duration;

use crate::{Timestamp, decay};

/// The half-life of failures: long enough for a trickle, short enough to forgive in seconds.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// Weight of one answer.
const GAIN: f32 = 0.1;
/// Largest excess that is no evidence: one answer in ten.
const MIN_EXCESS: f32 = GAIN;
/// Variance of the share of a backend with random rate limits, per `a·(1 − a)`.
const VARIANCE: f32 = GAIN / (2.0 - GAIN);
/// Standard deviations that chance still explains.
const CHANCE: f32 = 3.0;
/// Smallest weight of all other backends' answers for a comparison: five answers of one, or one
/// each of five.
const MIN_WEIGHT: f64 = 0.4;
/// Share below which a backend counts as without rate limits.
const NEGLIGIBLE: f32 = 0.01;

/// The share of rate-limited answers of one backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitedShare {
    share: f32,
    at: Timestamp,
    /// Weight of its answers in the share: zero before the first, near one after some twenty.
    weight: f32,
}

/// The shares of all backends together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitedShares {
    share: f64,
    weight: f64,
}

impl LimitedShare {
    /// Records an answer of the backend.
    pub(crate) fn on_answer(&mut self, now: Timestamp, is_limited: bool) {
        self.weight += (1.0 - self.weight) * GAIN;
        if !is_limited && self.is_clean() {
            return;
        }
        let share = self.share * decay::remaining(now, self.at, HALF_LIFE) as f32;
        let share = if is_limited { share + (1.0 - share) * GAIN } else { share * (1.0 - GAIN) };
        // Only `forgive` resets it, so that a list of backends to forgive holds each once.
        (self.share, self.at) = (share.max(f32::MIN_POSITIVE), now);
    }

    /// Whether there is nothing to forgive.
    pub(crate) fn is_clean(&self) -> bool {
        self.share == 0.0
    }

    /// Drops a share that has become negligible; returns whether it did.
    pub(crate) fn forgive(&mut self, now: Timestamp) -> bool {
        let is_forgiven = self.share * (decay::remaining(now, self.at, HALF_LIFE) as f32) < NEGLIGIBLE;
        if is_forgiven {
            self.share = 0.0;
        }
        is_forgiven
    }

    /// Its share of such answers above that of the others, in [0, 1]; zero if chance explains it.
    pub(crate) fn excess(&self, now: Timestamp, all: &LimitedShares) -> f32 {
        if self.share <= MIN_EXCESS {
            return 0.0;
        }
        let others = all.without(self);
        if others.weight < MIN_WEIGHT {
            return 0.0;
        }
        let over = self.share - others.mean();
        let of_all = all.mean();
        if over <= MIN_EXCESS || over * over <= CHANCE * CHANCE * of_all * (1.0 - of_all) * VARIANCE {
            return 0.0;
        }
        over * decay::remaining(now, self.at, HALF_LIFE) as f32
    }
}

impl LimitedShares {
    /// The same shares with one more backend.
    pub(crate) fn with(mut self, share: &LimitedShare) -> Self {
        self.share += f64::from(share.share);
        self.weight += f64::from(share.weight);
        self
    }

    /// The same shares without one of their backends.
    pub(crate) fn without(mut self, share: &LimitedShare) -> Self {
        self.share -= f64::from(share.share);
        self.weight -= f64::from(share.weight);
        self
    }

    fn mean(&self) -> f32 {
        (self.share / self.weight).clamp(0.0, 1.0) as f32
    }
}

#[cfg(test)]
mod tests {
    use rand_core::{Rng as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    impl LimitedShares {
        /// Equal but for rounding.
        pub(crate) fn is_near(&self, other: &Self) -> bool {
            (self.share - other.share).abs() < 1e-6 && (self.weight - other.weight).abs() < 1e-6
        }
    }

    /// Each backend answers once a millisecond, with `percent` of its answers limited. Returns the
    /// excess of each after `rounds`.
    fn excess_of<const N: usize>(percent: [u32; N], rounds: u64, seed: u64) -> [f32; N] {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut shares = [LimitedShare::default(); N];
        for round in 0..rounds {
            for (share, percent) in shares.iter_mut().zip(percent) {
                share.on_answer(ms(round), rng.next_u32() % 100 < percent);
            }
        }
        let all = shares.iter().fold(LimitedShares::default(), LimitedShares::with);
        shares.map(|share| share.excess(ms(rounds), &all))
    }

    #[test]
    fn backend_that_alone_limits_has_all_of_its_share_as_excess() {
        let [limited, others @ ..] = excess_of([100, 0, 0], 100, 1);
        assert!(limited > 0.99, "{limited}");
        assert_eq!(others, [0.0; 2]);
        let [limited, ..] = excess_of([100, 10, 10], 100, 1);
        assert!(limited > 0.5, "{limited}");
    }

    #[test]
    fn two_limited_backends_of_three_do_not_excuse_each_other() {
        let excess = excess_of([100, 100, 0], 100, 1);
        assert!(excess[0] > 0.4 && excess[1] > 0.4 && excess[2] == 0.0, "{excess:?}");
    }

    /// Seeds 0 to 1,999, ten thousand samples a row. Shares of about ten answers are skewed, so
    /// about 1% are beyond three deviations. A limit of 3% gives a false alarm in far fewer than
    /// one of a million cases.
    #[test]
    fn backends_that_limit_alike_have_no_excess_but_by_chance() {
        for percent in [0, 1, 10, 50, 90, 100] {
            let found =
                (0..2_000).flat_map(|seed| excess_of([percent; 5], 60, seed)).filter(|over| *over > 0.0).count();
            assert!(found < 300, "{percent}%: {found} of 10,000");
        }
    }

    #[test]
    fn only_backend_and_first_answers_have_no_excess() {
        assert_eq!(excess_of([100], 100, 1), [0.0]);
        let [mut limited, mut other] = [LimitedShare::default(); 2];
        let excess = |limited: &LimitedShare, other: &LimitedShare| {
            limited.excess(ms(0), &LimitedShares::default().with(limited).with(other))
        };
        (0..10).for_each(|_| limited.on_answer(ms(0), true));
        (0..4).for_each(|_| other.on_answer(ms(0), false));
        assert_eq!(excess(&limited, &other), 0.0, "too little is known of the other");
        (0..6).for_each(|_| other.on_answer(ms(0), false));
        assert!(excess(&limited, &other) > 0.6);
        let mut first = LimitedShare::default();
        first.on_answer(ms(0), true);
        assert_eq!(excess(&first, &other), 0.0, "one answer is no news");
    }

    #[test]
    fn excess_fades_and_is_forgiven() {
        let mut limited = LimitedShare::default();
        let mut other = LimitedShare::default();
        for _ in 0..100 {
            limited.on_answer(ms(0), true);
            other.on_answer(ms(0), false);
        }
        let all = LimitedShares::default().with(&limited).with(&other);
        assert!((limited.excess(ms(5_000), &all) - 0.5).abs() < 0.01);
        assert!(!limited.forgive(ms(5_000)));
        assert!(limited.forgive(ms(60_000)) && limited.is_clean());
    }

    /// A hundred others are limited half of the time: three deviations of a share are 0.344.
    #[test]
    fn excess_within_three_standard_deviations_is_chance() {
        let share = |share| LimitedShare { share, at: ms(0), weight: 1.0 };
        let others = (0..100).fold(LimitedShares::default(), |all, _| all.with(&share(0.5)));
        for (over, excess) in [(0.09, 0.0), (0.31, 0.0), (0.36, 0.36)] {
            let one = share(0.5 + over);
            let found = one.excess(ms(0), &others.with(&one));
            assert!((found - excess).abs() < 1e-3, "{over} over the others: {found}");
        }
    }
}
