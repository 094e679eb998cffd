//! Whether a backend is at fault, or the load of its cluster: compares its failures with those of
//! its peers.
//!
//! An ejection moves the load of a backend to its peers. That is right if the backend is broken. If
//! the cluster is overloaded it is wrong. The slowest machine fails first, and each ejection leaves
//! less capacity for the same load. A cluster that lost a zone at 90% CPU failed seven times as
//! many requests with ejection as without. So the length of a row of failures, or a success rate
//! below that of the others, is not enough.
//!
//! **A row of `k` failures** ejects if chance does not explain it. Here `q` is the mean of the
//! peers' shares of failures, each among its last ten requests or so:
//!
//! ```text
//! qᵏ ≤ CHANCE                                                         (1)
//! ```
//!
//! With healthy peers any `k` will do. If peers fail one request in ten, six in a row are needed;
//! if they fail half, twenty. When all fail, no row is long enough. A row of timeouts alone is also
//! the symptom of load. It ejects only if most peers serve, and if they would serve the load of
//! this backend too: `moved < 1` in (2) over the last one or two intervals. This sum leaves out
//! peers that fail most requests, so that a hanging zone does not protect its members.
//!
//! **A success rate** ejects if the backend fails at least [`MIN_SHARE`] of its requests. The
//! failures must also be significantly more than its peers would have if these requests moved to
//! them:
//!
//! ```text
//! moved = errors ÷ requests + ELASTICITY · (timeouts + overloaded) ÷ answers          (2)
//! P(Poisson(n · moved) ≥ failures) ≤ e^−λ · (e·λ ÷ failures)^failures ≤ CHANCE          (3)
//! ```
//!
//! The counts are those of all peers together in an interval, λ = n · moved, and n is the number of
//! the backend's requests. Errors are assumed not to depend on load. The rest grows far faster than
//! the load. With f the share of timeouts at the utilization ρ, a moved request fails `1 +
//! ρ·f′(ρ)/f(ρ)` times as likely as the average one. If more than one peer request in thirty fails,
//! moving is hopeless.
//!
//! If load reports exist, the others must also stay below [`MAX_UTILIZATION`] without the backend:
//! latency rises before timeouts do.
//!
//! # Where it is weak
//!
//! A backend that fails one request in ten is not ejected while its peers time out on one in a
//! hundred. The error penalty of the policies and retries deal with it. With two backends, the only
//! peer is the whole evidence.

use crate::decay;

/// Probability of an ejection by chance, for each row or backend and interval. A fleet of 10
/// clients and 30 backends makes 1,800 comparisons a minute. A false one is expected in nine hours,
/// if the shares of failures are all the same.
const CHANCE: f64 = 1e-6;
/// Smallest share of failures for the success-rate rule. Below one in twenty, retries repair more
/// than an ejection, which costs the capacity of a whole backend.
const MIN_SHARE: f64 = 0.05;
/// How many times as likely as the average request a moved one fails for load. In
/// `what-if-zone-loss`, 6.7% more load means six times the timeouts: an elasticity of ln 6 ÷ ln
/// 1.067 = 28. It is smaller far above capacity, but there the moved request fails for certain in
/// any case.
const ELASTICITY: f64 = 30.0;
/// Highest utilization of the others after an ejection by success rate. Above it, queues more than
/// double with the next 5% of load.
const MAX_UTILIZATION: f64 = 0.9;
/// A peer with this recent share of failures, or more, does not serve.
const FAILING_PEER_SHARE: f64 = 0.5;

/// Failures of a backend since its last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    /// Errors and broken connections.
    pub(crate) failures: u32,
    /// Requests that had no answer in time.
    pub(crate) timeouts: u32,
    /// Length at the last comparison with the peers.
    compared_at: u32,
}

impl Row {
    fn len(&self) -> u32 {
        self.failures + self.timeouts
    }

    /// Whether a comparison with the peers is due: at `min` failures, and again whenever the row is
    /// a quarter longer. In an outage, a comparison of all backends for each failure would be too
    /// expensive.
    pub(crate) fn is_due(&self, min: u32) -> bool {
        self.len() >= min && (self.compared_at == 0 || self.len() > self.compared_at + self.compared_at / 4)
    }

    /// Notes that the comparison happens now.
    pub(crate) fn mark_compared(&mut self) -> Self {
        self.compared_at = self.len();
        *self
    }

    /// Whether the backend is at fault, given its peers.
    pub(crate) fn is_fault(&self, peers: impl Iterator<Item = Peer>) -> bool {
        let (mut count, mut serving) = (0_u32, 0_u32);
        let (mut failing, mut tally) = (0.0, Tally::default());
        for peer in peers {
            count += 1;
            failing += peer.failing;
            if peer.failing < FAILING_PEER_SHARE {
                serving += 1;
                tally = tally.with(&peer.tally);
            }
        }
        let is_load = 2 * serving < count || tally.failing_for_load() >= 1.0;
        let is_symptom_of_load = self.failures == 0;
        let by_chance = power(failing / f64::from(count.max(1)), u64::from(self.len()));
        by_chance <= CHANCE && !(is_load && is_symptom_of_load)
    }
}

/// Failures of one of the other backends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Share of failures among about the last ten requests.
    pub(crate) failing: f64,
    /// Requests of the last one to two intervals.
    pub(crate) tally: Tally,
}

/// Outcomes of the requests of an interval, at one backend or several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) successes: u64,
    /// Errors and broken connections.
    pub(crate) failures: u64,
    /// Requests that had no answer in time.
    pub(crate) timeouts: u64,
    /// Answers of an overloaded backend.
    pub(crate) overloaded: u64,
}

impl Tally {
    /// Requests that a success rate counts.
    pub(crate) fn total(&self) -> u64 {
        self.successes + self.failures + self.timeouts
    }

    pub(crate) fn with(&self, other: &Self) -> Self {
        Self {
            successes: self.successes + other.successes,
            failures: self.failures + other.failures,
            timeouts: self.timeouts + other.timeouts,
            overloaded: self.overloaded + other.overloaded,
        }
    }

    pub(crate) fn without(&self, other: &Self) -> Self {
        Self {
            successes: self.successes - other.successes,
            failures: self.failures - other.failures,
            timeouts: self.timeouts - other.timeouts,
            overloaded: self.overloaded - other.overloaded,
        }
    }

    /// Equation (2). One failure is added, because none in n requests does not mean never.
    fn failing_if_moved(&self) -> f64 {
        let errors = (self.failures + 1) as f64 / (self.total() + 1) as f64;
        (errors + self.failing_for_load()).min(1.0)
    }

    /// The second term of (2).
    fn failing_for_load(&self) -> f64 {
        let answers = (self.total() + self.overloaded).max(1);
        ELASTICITY * (self.timeouts + self.overloaded) as f64 / answers as f64
    }

    /// Whether the backend with this tally is at fault, given that of its peers.
    pub(crate) fn is_fault(&self, peers: &Self) -> bool {
        let (total, failed) = (self.total() as f64, (self.failures + self.timeouts) as f64);
        let expected = total * peers.failing_if_moved();
        if failed < MIN_SHARE * total || failed <= expected {
            return false;
        }
        // The bound (3), as one power: λ < failures.
        let each = core::f64::consts::E * expected / failed * decay::exp_neg(expected / failed);
        power(each, self.failures + self.timeouts) <= CHANCE
    }
}

/// Whether the other backends have the capacity for the load of one of `healthy`, by the mean of
/// their reported utilization. True without reports.
pub(crate) fn has_capacity(utilization: impl Iterator<Item = f64> + Clone, healthy: usize) -> bool {
    let count = utilization.clone().count();
    let mean = utilization.sum::<f64>() / count.max(1) as f64;
    mean * healthy as f64 <= MAX_UTILIZATION * healthy.saturating_sub(1) as f64
}

/// `base^exponent` for a base from 0 to 1, by squaring.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut product = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product *= base;
        }
        base *= base;
        exponent /= 2;
    }
    product
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    /// The tally of `total` requests.
    fn tally(total: u64, failures: u64, timeouts: u64) -> Tally {
        Tally { successes: total - failures - timeouts, failures, timeouts, overloaded: 0 }
    }

    fn row(failures: u32, timeouts: u32) -> Row {
        Row { failures, timeouts, compared_at: 0 }
    }

    fn peers(failing: f64, tally: Tally) -> impl Iterator<Item = Peer> {
        core::iter::repeat_n(Peer { failing, tally }, 9)
    }

    #[test]
    fn row_is_a_fault_only_if_peers_would_hardly_ever_have_it() {
        for (failing, longest_by_chance) in [(0.0, 0), (0.05, 4), (0.1, 5), (0.5, 19), (0.9, 131)] {
            let few = tally(100, 0, 0);
            assert!(!row(longest_by_chance, 0).is_fault(peers(failing, few)) || longest_by_chance == 0, "{failing}");
            assert!(row(longest_by_chance + 1, 0).is_fault(peers(failing, few)), "{failing}");
        }
        assert!(!row(1_000_000, 0).is_fault(peers(1.0, tally(100, 0, 0))));
    }

    #[test]
    fn row_of_timeouts_alone_is_load_where_peers_time_out_as_well() {
        let (calm, loaded) = (tally(1_000, 0, 32), tally(1_000, 0, 34));
        for (timeouts, others, is_fault) in [(9, calm, true), (9, loaded, false)] {
            assert_eq!(row(0, timeouts).is_fault(peers(0.03, others)), is_fault, "{others:?}");
        }
        assert!(row(1, 8).is_fault(peers(0.03, loaded)), "an error is no symptom of load");
        let overloaded = Tally { overloaded: 40, ..tally(960, 0, 0) };
        assert!(!row(0, 9).is_fault(peers(0.0, overloaded)));
    }

    #[test]
    fn peers_that_hang_too_explain_nothing_unless_they_are_most() {
        let hangs = Peer { failing: 0.6, tally: tally(100, 0, 60) };
        let serves = Peer { failing: 0.0, tally: tally(100, 0, 0) };
        let of = |hanging, serving| core::iter::repeat_n(hangs, hanging).chain(core::iter::repeat_n(serves, serving));
        assert!(row(0, 30).is_fault(of(1, 1)) && row(0, 30).is_fault(of(10, 19)));
        assert!(!row(0, 50).is_fault(of(2, 1)));
    }

    #[test]
    fn row_is_compared_again_when_it_is_a_quarter_longer() {
        let mut row = Row::default();
        let mut looks = alloc::vec::Vec::new();
        for _ in 0..40 {
            row.failures += 1;
            if row.is_due(5) {
                looks.push(row.mark_compared().len());
            }
        }
        assert_eq!(looks, [5, 7, 9, 12, 16, 21, 27, 34]);
    }

    #[test]
    fn success_rate_is_a_fault_beyond_chance_and_beyond_the_harm_of_moving() {
        for (own, of_peers, is_fault) in [
            // Peers without failures: one in twenty.
            (tally(100, 4, 0), tally(900, 0, 0), false),
            (tally(100, 5, 0), tally(900, 0, 0), true),
            (tally(10_000, 499, 0), tally(90_000, 0, 0), false),
            (tally(10_000, 500, 0), tally(90_000, 0, 0), true),
            // Few peers: a failure rate of one in five hundred is not ruled out.
            (tally(100, 6, 0), tally(400, 0, 0), false),
            (tally(100, 7, 0), tally(400, 0, 0), true),
            // Errors that load does not cause: one in twenty at the others.
            (tally(1_000, 70, 0), tally(9_000, 450, 0), false),
            (tally(1_000, 100, 0), tally(9_000, 450, 0), true),
            // Timeouts: thirty times as many, if the requests moved.
            (tally(1_000, 0, 100), tally(9_000, 0, 90), false),
            (tally(1_000, 0, 400), tally(9_000, 0, 90), true),
            (tally(1_000, 1_000, 0), tally(9_000, 0, 300), false),
        ] {
            assert_eq!(own.is_fault(&of_peers), is_fault, "{own:?} beside {of_peers:?}");
        }
        let overloaded = Tally { overloaded: 300, ..tally(9_000, 0, 0) };
        assert!(!tally(1_000, 500, 0).is_fault(&overloaded));
    }

    #[test]
    fn capacity_is_that_of_the_others_if_they_report() {
        let utilization = |value: f64, count| core::iter::repeat_n(value, count);
        assert!(has_capacity(utilization(0.8, 9), 10) && !has_capacity(utilization(0.82, 9), 10));
        assert!(has_capacity(utilization(0.0, 0), 10), "none reports");
    }

    #[test]
    fn powers_are_powers() {
        for (base, exponent) in [(0.0, 3), (0.5, 0), (0.9, 1), (0.37, 29), (1.0, 1_000_000)] {
            let exact = std::primitive::f64::powi(base, exponent);
            assert!((power(base, exponent as u64) - exact).abs() <= 1e-12 * exact, "{base}^{exponent}");
        }
    }

    #[test]
    fn tally_without_a_part_is_the_rest() {
        let part = Tally { successes: 1, failures: 2, timeouts: 3, overloaded: 4 };
        let rest = Tally { successes: 50, failures: 60, timeouts: 70, overloaded: 80 };
        assert_eq!(rest.with(&part).without(&part), rest);
    }

    #[test]
    fn peers_would_fail_as_now_and_with_one_failure_more() {
        // Nineteen failures of 79 count as twenty of eighty.
        assert_eq!(tally(79, 19, 0).failing_if_moved(), 0.25);
        assert_eq!(Tally::default().failing_if_moved(), 1.0);
    }
}
