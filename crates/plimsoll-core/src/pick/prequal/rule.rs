//! The rule that ranks probe answers.
//!
//! `hot-cold` is Prequal's rule. A backend is *hot* if it has more requests in flight than the
//! `hot_quantile` of those probed lately. Among cold backends the least latency wins; if all are
//! hot, the fewest in flight. So latency decides in ordinary times. Requests in flight rise at
//! once, while latency is known only when requests end, so they guard against piling up. The paper
//! compares it with these rules:
//!
//! | rule | the least of |
//! |---|---|
//! | `least-in-flight` | requests in flight, in the whole pool |
//! | `two-choices` | requests in flight, of two answers at random |
//! | `linear` | (1 − λ) · latency + λ · α · requests in flight |
//! | `c3` | R − S + q³ · S, with q = 1 + own · n + in flight (Suresh et al., NSDI 2015) |
//!
//! Here R is the latency that this client sees, and S the latency that the backend announces. own
//! is this client's requests there, and n the number of clients.

use core::time::Duration;

use super::pool::Entry;
use crate::pick::{Candidate, View};
use crate::{Random, Ratio, rng};

/// The choice among probe answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum ProbeRule {
    /// Prequal's rule: the least latency among backends that are not hot.
    #[default]
    HotCold,
    /// The fewest requests in flight.
    LeastInFlight,
    /// The fewer requests in flight of two answers at random.
    TwoChoices,
    /// The least weighted sum of latency and requests in flight.
    Linear {
        /// Weight of the requests in flight; latency has the rest.
        in_flight_share: Ratio,
        /// Latency that one request in flight counts as.
        per_request: Duration,
    },
    /// C3's score.
    C3 {
        /// Number of clients that send to the same backends.
        clients: u32,
    },
}

/// The rank of an answer: less is better. Two numbers of zero or more, the first before the second.
/// Kept as bits, which order such numbers as well and compare at once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Score(u64);

impl Score {
    pub(super) fn new(first: f32, second: f32) -> Self {
        Self(u64::from(first.max(0.0).to_bits()) << 31 | u64::from(second.max(0.0).to_bits() >> 1))
    }

    /// Ranks it behind all scores without this mark.
    fn last(self) -> Self {
        Self(self.0 | 1 << 63)
    }
}

/// Requests in flight at the backend of an answer, relative to its weight. This client's own, with
/// the penalty for recent failures, are a lower bound. Otherwise a backend that fails fast would
/// always look idle.
pub(super) fn in_flight(entry: &Entry, view: &View<'_>) -> f32 {
    let candidate = candidate(entry, view);
    entry.in_flight.max(candidate.load) as f32 * candidate.inverse_weight
}

/// Whether its requests in flight exceed `threshold`, in the unit of the samples behind it.
/// Rounding must not make a backend at the threshold itself hot.
fn is_hot(entry: &Entry, view: &View<'_>, threshold: u32) -> bool {
    let candidate = candidate(entry, view);
    weighted_in_flight(entry.in_flight.max(candidate.load), candidate.inverse_weight, view.least_inverse_weight)
        > threshold
}

/// Requests in flight, relative to the weight of the heaviest backend, as a whole number. A request
/// counts as one at the heaviest and as more at others, so rounding loses nothing at any weights.
pub(super) fn weighted_in_flight(in_flight: u32, inverse_weight: f32, least_inverse_weight: f32) -> u32 {
    (in_flight as f32 * (inverse_weight / least_inverse_weight) + 0.5) as u32
}

fn candidate<'v>(entry: &Entry, view: &'v View<'_>) -> &'v Candidate {
    &view.candidates[entry.slot as usize]
}

impl ProbeRule {
    /// The index of the winning answer; `entries` must not be empty.
    pub(super) fn best(&self, entries: &[Entry], view: &View<'_>, threshold: u32, rng: &mut impl Random) -> usize {
        // Starts anywhere: of equals the first wins, and none shall always be first.
        let from = rng::below(rng, entries.len());
        if let Self::TwoChoices = self {
            let other = (from + 1 + rng::below(rng, (entries.len() - 1).max(1))) % entries.len();
            let fewer = in_flight(&entries[other], view) < in_flight(&entries[from], view);
            return if fewer { other } else { from };
        }
        let (before, after) = entries.split_at(from);
        let mut best = (from, self.score(&after[0], view, threshold));
        for (index, entry) in (from + 1..).zip(&after[1..]).chain((0..).zip(before)) {
            let score = self.score(entry, view, threshold);
            best = if score < best.1 { (index, score) } else { best };
        }
        best.0
    }

    /// The index of the worst answer, the first to leave when the pool is thinned out; `None`
    /// without answers.
    pub(super) fn worst(&self, entries: &[Entry], view: &View<'_>, threshold: u32) -> Option<usize> {
        (0..entries.len()).max_by_key(|index| self.score(&entries[*index], view, threshold))
    }

    pub(super) fn score(&self, entry: &Entry, view: &View<'_>, threshold: u32) -> Score {
        let in_flight = in_flight(entry, view);
        match *self {
            Self::HotCold if is_hot(entry, view, threshold) => Score::new(in_flight, entry.latency_s).last(),
            Self::HotCold => Score::new(entry.latency_s, in_flight),
            Self::LeastInFlight | Self::TwoChoices => Score::new(in_flight, entry.latency_s),
            Self::Linear { in_flight_share, per_request } => {
                let share = in_flight_share.as_f64() as f32;
                let sum = (1.0 - share) * entry.latency_s + share * per_request.as_secs_f32() * in_flight;
                Score::new(sum, in_flight)
            }
            Self::C3 { clients } => {
                let candidate = candidate(entry, view);
                let seen = candidate.latency.seconds(view.now).map_or(entry.latency_s, |seconds| seconds as f32);
                let queue = 1.0 + candidate.load as f32 * clients as f32 + in_flight;
                Score::new(seen - entry.latency_s + queue * queue * queue * entry.latency_s, in_flight)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;

    use super::*;
    use crate::Timestamp;
    use crate::pick::latency::PeakEwma;

    /// Backends with this load and inverse weight.
    fn candidates<const N: usize>(of: [(u32, f32); N]) -> [Candidate; N] {
        of.map(|(load, inverse_weight)| Candidate { load, inverse_weight, latency: PeakEwma::default() })
    }

    fn view(candidates: &[Candidate]) -> View<'_> {
        View { now: Timestamp::ZERO, usable: &[], candidates, least_inverse_weight: 0.125, key: None }
    }

    fn entry(slot: u32, in_flight: u32, latency_s: f32) -> Entry {
        Entry { slot, in_flight, latency_s, at: Timestamp::ZERO, uses_left: 1 }
    }

    fn assert_score(rule: ProbeRule, entry: &Entry, view: &View<'_>, expected: f32) {
        let score = rule.score(entry, view, 0);
        let [less, more] = [0.999, 1.001].map(|factor| Score::new(expected * factor, 0.0));
        assert!(less < score && score < more, "{rule:?}: not {expected}");
    }

    #[test]
    fn requests_in_flight_count_by_weight() {
        let candidates = candidates([(0, 0.25), (0, 1.0)]);
        let entries = [entry(0, 8, 0.0), entry(1, 4, 0.0)];
        let scores = entries.map(|entry| ProbeRule::LeastInFlight.score(&entry, &view(&candidates), 0));
        assert!(scores[0] < scores[1], "8 at four times the weight are fewer than 4");
        assert_eq!(weighted_in_flight(7, 0.5, 0.125), 28);
    }

    #[test]
    fn backend_at_the_threshold_is_cold_and_beyond_it_behind_all_cold() {
        let candidates = candidates([(0, 0.125); 3]);
        let score = |entry| ProbeRule::HotCold.score(&entry, &view(&candidates), 3);
        let (at_threshold, slow, hot) = (entry(0, 3, 0.001), entry(1, 0, 50.0), entry(2, 4, 0.0));
        assert!(score(at_threshold) < score(slow) && score(slow) < score(hot));
    }

    #[test]
    fn linear_score_is_a_weighted_sum() {
        let candidates = candidates([(0, 1.0)]);
        let (in_flight_share, per_request) = (Ratio::from_percent(25), Duration::from_millis(40));
        // 0.75 · 20 ms + 0.25 · 40 ms · 3.
        let rule = ProbeRule::Linear { in_flight_share, per_request };
        assert_score(rule, &entry(0, 3, 0.02), &view(&candidates), 0.045);
    }

    #[test]
    fn c3_score_grows_with_the_cube_of_the_queue() {
        let mut candidates = candidates([(2, 1.0)]);
        let rule = ProbeRule::C3 { clients: 3 };
        // A queue of 1 + 2 · 3 + 4 = 11; this client has no latency of its own yet.
        assert_score(rule, &entry(0, 4, 0.01), &view(&candidates), 13.31);
        candidates[0].latency.on_answer(Timestamp::ZERO, Duration::from_millis(510));
        assert_score(rule, &entry(0, 4, 0.01), &view(&candidates), 13.81);
    }

    #[test]
    fn worst_answer_has_the_greatest_score() {
        let candidates = candidates([(0, 1.0); 3]);
        let entries = [entry(0, 2, 0.0), entry(1, 7, 0.0), entry(2, 5, 0.0)];
        assert_eq!(ProbeRule::LeastInFlight.worst(&entries, &view(&candidates), 0), Some(1));
        assert_eq!(ProbeRule::LeastInFlight.worst(&[], &view(&candidates), 0), None);
    }

    /// Seed 1, 6,000 draws. Of the six ordered pairs of three answers, four hold the least: it wins
    /// 4,000, with a deviation of 37. The bounds are five and a half deviations away, a chance of
    /// 4e-8.
    #[test]
    fn two_choices_takes_the_fewer_of_two_different_answers() {
        let candidates = candidates([(0, 1.0); 3]);
        let entries = [entry(0, 9, 0.0), entry(1, 0, 0.0), entry(2, 5, 0.0)];
        let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut wins = [0; 3];
        for _ in 0..6_000 {
            wins[ProbeRule::TwoChoices.best(&entries, &view(&candidates), 0, &mut rng)] += 1;
        }
        assert_eq!(wins[0], 0, "{wins:?}");
        assert!((3_800..4_200).contains(&wins[1]), "{wins:?}");
        assert_eq!(ProbeRule::TwoChoices.best(&entries[..1], &view(&candidates), 0, &mut rng), 0);
    }
}
