//! `prequal`: the backend with the lowest announced latency among those that are not full.
//!
//! Wydrowski et al., "Load is not what you should balance" (NSDI 2024). Balancing CPU evens out
//! averages over seconds. Late requests come from a queue of milliseconds, at a backend on a
//! machine that is busy with other work. So the client probes backends all the time, ahead of need,
//! for their requests in flight and their latency. The answers wait in a [pool]. A request goes by
//! the best of them ([rule]), without waiting for a probe.
//!
//! ```text
//! probes per pick  p    removals per pick  r    answers kept  m    usable backends  n
//! uses of an answer  b = max(1, (1 + δ) ÷ ((1 − m/n) · p − r))
//! hot: requests in flight > the `hot_quantile` of those probed lately
//! ```
//!
//! Answers leave by age and by use. In addition one per pick is removed, in turn the oldest and the
//! worst. Otherwise the pool would fill with answers that never win. With fewer than two answers
//! the choice is uniform.
//!
//! A backend that fails fast has nothing in flight and no latency, and the paper leaves open how to
//! keep it from attracting everything. Here recent failures count as requests in flight, as in the
//! other policies. But requests in flight are those of all clients, perhaps thousands, so the
//! penalty grows with them. A share e of failures counts as 100·e² requests, as elsewhere, plus
//! 4·e² of the threshold ([`Policy::penalty_unit`]). So a backend that fails more than half is hot.
//!
//! Without live probes ([`ProbeSource::Responses`]), each pick draws as many backends as it would
//! probe. The same rule chooses among them by the load reports in this client's responses. If a
//! drawn backend has no recent report of requests in flight, the fewest of this client's own
//! requests decide. One client's count beside the count of all clients would make the silent
//! backend look idle, and attract every client. Nothing has to be kept ahead of need, so there is
//! no pool.
//!
//! [`ProbeSource::Frugal`] adds live probes of backends without a recent report ([heard]), at a
//! sixth of the paper's rate. Its choice is by load reports as well, and has no pool.

mod heard;
pub(crate) mod notes;
mod pool;
mod quantile;
mod rule;

use alloc::vec::Vec;
use core::num::NonZeroU32;
use core::time::Duration;

use super::{Candidate, Policy, View};
use crate::{Random, Ratio, Timestamp, rng};
use heard::Heard;
use notes::Notes;
use pool::{Entry, Pool};
use quantile::RunningQuantile;
pub use rule::ProbeRule;
use rule::{Score, weighted_in_flight};

/// Answers below which there is no choice to make.
const MIN_ANSWERS: usize = 2;
/// Largest number of probes for one pick: more only repeat each other.
const MAX_PROBES: usize = 8;
/// Requests in flight at the threshold for each further unit of the failure penalty. A backend that
/// fails half of its requests has 25 units.
const IN_FLIGHT_PER_UNIT: u32 = 25;
/// Uses of an answer if the formula has no bound. With a pool as large as the set of backends,
/// newer answers replace it long before it is used up.
const UNBOUNDED_USES: f64 = 1e6;

/// A backend's answer to a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Requests in flight at the backend, of all clients, including waiting ones.
    pub in_flight: u32,
    /// The median latency of recent requests that found about as many in flight; `None` if there
    /// are none.
    pub latency: Option<Duration>,
}

/// The source of probe answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbeSource {
    /// Live probes of backends: [`Balancer::poll_probe`](crate::Balancer::poll_probe).
    Live,
    /// Load reports in the responses to this client.
    #[default]
    Responses,
    /// Load reports in the responses to this client, and live probes of backends without a recent
    /// one, at most one for two picks: [`Balancer::poll_probe`](crate::Balancer::poll_probe).
    Frugal,
}

/// The settings of `prequal`; the defaults are the paper's.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct PrequalConfig {
    /// Capacity of the pool, in answers.
    pub pool: NonZeroU32,
    /// Age at which an answer expires.
    pub max_age: Duration,
    /// Backends probed for each pick, on average.
    pub probes_per_pick: f64,
    /// Answers removed from the pool for each pick, on average.
    pub removals_per_pick: f64,
    /// δ: uses of an answer beyond the balance of arrivals and removals.
    pub reuse_delta: f64,
    /// Quantile of requests in flight above which a backend is hot.
    pub hot_quantile: Ratio,
    /// The choice among the answers.
    pub rule: ProbeRule,
    /// The source of answers.
    pub source: ProbeSource,
}

impl PrequalConfig {
    /// Enough for a good choice; more would be older.
    pub const DEFAULT_POOL: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
    /// After a second the queue is another one.
    pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(1);
    /// Below one probe per pick, tail latency grows steeply.
    pub const DEFAULT_PROBES_PER_PICK: f64 = 3.0;
    /// Keeps the pool fresh at the cost of a third of the probes.
    pub const DEFAULT_REMOVALS_PER_PICK: f64 = 1.0;
    /// An answer may be used about once more than probes alone would refill.
    pub const DEFAULT_REUSE_DELTA: f64 = 1.0;
    /// 2^−0.25; anything from 0.6 to 0.9 does much the same.
    pub const DEFAULT_HOT_QUANTILE: Ratio = Ratio::from_percent(84);
}

impl Default for PrequalConfig {
    fn default() -> Self {
        Self {
            pool: Self::DEFAULT_POOL,
            max_age: Self::DEFAULT_MAX_AGE,
            probes_per_pick: Self::DEFAULT_PROBES_PER_PICK,
            removals_per_pick: Self::DEFAULT_REMOVALS_PER_PICK,
            reuse_delta: Self::DEFAULT_REUSE_DELTA,
            hot_quantile: Self::DEFAULT_HOT_QUANTILE,
            rule: ProbeRule::default(),
            source: ProbeSource::default(),
        }
    }
}

impl PrequalConfig {
    /// Uses of an answer, with `n` usable backends.
    fn uses(&self, n: usize) -> f64 {
        let share_in_pool = f64::from(self.pool.get()) / n as f64;
        let surplus = (1.0 - share_in_pool) * self.probes_per_pick - self.removals_per_pick;
        let uses = (1.0 + self.reuse_delta) / surplus;
        // Written so that the NaN of senseless settings is unbounded too.
        if surplus > 0.0 && uses < UNBOUNDED_USES { uses.max(1.0) } else { UNBOUNDED_USES }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub(crate) struct Prequal {
    config: PrequalConfig,
    pool: Pool,
    threshold: RunningQuantile,
    notes: Notes,
    /// Probes and removals that are due, and uses left over from rounding: fractions add up.
    probes_due: f64,
    removals_due: f64,
    uses_left_over: f64,
    /// Whether the next removal takes the oldest answer or the worst.
    oldest_next: bool,
    /// Backends probed since the last pick.
    probed: Vec<u32>,
    /// Used with [`ProbeSource::Frugal`].
    heard: Heard,
}

impl Prequal {
    pub(crate) fn new(config: PrequalConfig) -> Self {
        Self {
            config,
            pool: Pool::new(config.pool.get() as usize),
            threshold: RunningQuantile::new(config.hot_quantile),
            notes: Notes::default(),
            probes_due: 0.0,
            removals_due: 0.0,
            uses_left_over: 0.0,
            oldest_next: true,
            probed: Vec::with_capacity(MAX_PROBES),
            heard: Heard::default(),
        }
    }

    pub(crate) fn config(&self) -> &PrequalConfig {
        &self.config
    }

    pub(crate) fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    /// Takes a load report with requests in flight, which came while this client had `load` there.
    pub(crate) fn on_report(&mut self, now: Timestamp, slot: u32, answer: ProbeAnswer, load: u32, usable: bool) {
        self.notes.on_report(now, slot, answer, load);
        if usable && self.config.source == ProbeSource::Frugal {
            self.heard.on_report(slot);
        }
    }

    /// A backend to probe now; `None` if none is due.
    pub(crate) fn poll_probe(&mut self, usable: &[u32], rng: &mut impl Random) -> Option<u32> {
        match self.config.source {
            ProbeSource::Responses => None,
            ProbeSource::Live => self.next_probe(usable, rng),
            ProbeSource::Frugal => self.heard.poll_probe(),
        }
    }

    /// A backend drawn, not yet drawn since the last pick; `None` if no more are due.
    fn next_probe(&mut self, usable: &[u32], rng: &mut impl Random) -> Option<u32> {
        if self.probes_due < 1.0 {
            return None;
        }
        if self.probed.len() >= usable.len() {
            self.probes_due = 0.0;
            return None;
        }
        self.probes_due -= 1.0;
        let mut index = rng::below(rng, usable.len());
        while self.probed.contains(&usable[index]) {
            index = (index + 1) % usable.len();
        }
        self.probed.push(usable[index]);
        Some(usable[index])
    }

    /// Takes a usable backend's answer to a probe.
    pub(crate) fn on_answer(&mut self, view: &View<'_>, slot: u32, answer: ProbeAnswer) {
        let uses = self.config.uses(view.usable.len()) + self.uses_left_over;
        let uses_left = uses as u32;
        self.uses_left_over = uses - f64::from(uses_left);
        self.sample(view, slot, answer.in_flight);
        let latency_s = answer.latency.map_or(0.0, |latency| latency.as_secs_f32());
        self.pool.insert(Entry { slot, in_flight: answer.in_flight, latency_s, at: view.now, uses_left });
    }

    fn sample(&mut self, view: &View<'_>, slot: u32, in_flight: u32) {
        let inverse_weight = view.candidates[slot as usize].inverse_weight;
        self.threshold.insert(weighted_in_flight(in_flight, inverse_weight, view.least_inverse_weight));
    }

    /// Picks from the pool.
    fn choose_probed(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        self.pool.expire(view.now, self.config.max_age);
        let entries = self.pool.entries();
        if entries.len() < MIN_ANSWERS {
            return view.usable[rng::below(rng, view.usable.len())];
        }
        let index = self.config.rule.best(entries, view, self.threshold.value(), rng);
        let slot = entries[index].slot;
        self.pool.use_up(index);
        self.thin_out(view);
        slot
    }

    fn thin_out(&mut self, view: &View<'_>) {
        self.removals_due += self.config.removals_per_pick;
        // Removals beyond the size of the pool have no effect.
        self.removals_due = self.removals_due.min(self.pool.entries().len() as f64 + 1.0);
        while self.removals_due >= 1.0 {
            self.removals_due -= 1.0;
            let oldest = (!self.pool.entries().is_empty()).then_some(0);
            let worst = || self.config.rule.worst(self.pool.entries(), view, self.threshold.value());
            let index = if self.oldest_next { oldest } else { worst() };
            self.oldest_next = !self.oldest_next;
            if let Some(index) = index {
                self.pool.remove(index);
            }
        }
    }

    /// Picks from the notes on the backends drawn.
    fn choose_noted(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        while self.next_probe(view.usable, rng).is_some() {}
        let Some(first) = self.probed.first().copied() else {
            return view.usable[rng::below(rng, view.usable.len())];
        };
        let threshold = self.threshold.value();
        let heard = |slot: u32| self.notes.entry(view.now, slot, &view.candidates[slot as usize], self.config.max_age);
        let of_first = heard(first);
        let by_report = |slot| heard(slot).map(|entry| (self.config.rule.score(&entry, view, threshold), slot));
        let by_own = |slot: u32| (Score::new(view.candidates[slot as usize].relative_load(), 0.0), slot);
        // Of equals the one drawn first: the draw is in random order.
        let fewer = |best: (Score, u32), other: (Score, u32)| if other.0 < best.0 { other } else { best };
        let mut drawn = self.probed.iter().copied();
        let reported = drawn.clone().map(by_report).reduce(|best, other| Some(fewer(best?, other?))).flatten();
        let chosen = reported.or_else(|| drawn.by_ref().map(by_own).reduce(fewer));
        if let Some(entry) = of_first {
            // The first is drawn uniformly; one sample per pick is enough.
            self.sample(view, first, entry.in_flight);
        }
        chosen.map_or(first, |(_, slot)| slot)
    }
}

impl Policy for Prequal {
    fn choose(&mut self, view: &View<'_>, rng: &mut impl Random) -> u32 {
        self.probed.clear();
        self.probes_due = (self.probes_due + self.config.probes_per_pick).min(MAX_PROBES as f64);
        let chosen = match self.config.source {
            ProbeSource::Live => return self.choose_probed(view, rng),
            ProbeSource::Responses => None,
            ProbeSource::Frugal => {
                // Draws that were not needed before are none for this pick.
                self.probes_due = self.probes_due.min(self.config.probes_per_pick);
                self.choose_heard(view, rng)
            }
        };
        match chosen {
            Some(slot) => slot,
            None => self.choose_noted(view, rng),
        }
    }

    fn on_usable(&mut self, slot: u32, _candidate: &Candidate) {
        self.notes.reserve(slot);
        self.pool.reserve(slot as usize + 1);
        if self.config.source == ProbeSource::Frugal {
            self.heard.reserve(slot);
        }
    }

    fn on_unusable(&mut self, slot: u32) {
        self.pool.forget(slot);
        self.heard.forget(slot);
    }

    fn penalty_unit(&self) -> u32 {
        1 + self.threshold.value() / IN_FLIGHT_PER_UNIT
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;
    use std::vec::Vec;

    use super::*;

    const COUNT_IN_FLIGHT: PrequalConfig = PrequalConfig {
        pool: PrequalConfig::DEFAULT_POOL,
        max_age: PrequalConfig::DEFAULT_MAX_AGE,
        probes_per_pick: PrequalConfig::DEFAULT_PROBES_PER_PICK,
        removals_per_pick: PrequalConfig::DEFAULT_REMOVALS_PER_PICK,
        reuse_delta: PrequalConfig::DEFAULT_REUSE_DELTA,
        hot_quantile: PrequalConfig::DEFAULT_HOT_QUANTILE,
        rule: ProbeRule::LeastInFlight,
        source: ProbeSource::Live,
    };

    /// Answers of backends 0, 1 ... with these requests in flight, the oldest first.
    struct Answered {
        policy: Prequal,
        candidates: Vec<Candidate>,
    }

    impl Answered {
        fn new(removals_per_pick: f64, in_flight: &[u32]) -> Self {
            let candidate = |_: &u32| Candidate { load: 0, inverse_weight: 1.0, latency: Default::default() };
            let policy = Prequal::new(PrequalConfig { removals_per_pick, ..COUNT_IN_FLIGHT });
            let mut answered = Self { policy, candidates: in_flight.iter().map(candidate).collect() };
            (0..).zip(in_flight).for_each(|(slot, in_flight)| answered.insert(slot, *in_flight));
            answered
        }

        fn insert(&mut self, slot: u32, in_flight: u32) {
            let at = Timestamp::ZERO;
            self.policy.pool.insert(Entry { slot, in_flight, latency_s: 0.0, at, uses_left: 9 });
        }

        /// The backends with answers left after a pick has thinned out the pool.
        fn thin_out(&mut self) -> Vec<u32> {
            let (now, candidates) = (Timestamp::ZERO, &self.candidates);
            self.policy.thin_out(&View { now, usable: &[], candidates, least_inverse_weight: 1.0, key: None });
            self.policy.pool.entries().iter().map(|entry| entry.slot).collect()
        }
    }

    #[test]
    fn the_oldest_and_the_worst_answer_leave_in_turn() {
        let mut answered = Answered::new(1.0, &[3, 0, 9, 1, 8]);
        assert_eq!([(); 4].map(|()| answered.thin_out()), [vec![1, 2, 3, 4], vec![1, 3, 4], vec![3, 4], vec![3]]);
    }

    #[test]
    fn fractions_of_a_removal_add_up() {
        let mut answered = Answered::new(0.4, &[0; 5]);
        assert_eq!([(); 5].map(|()| answered.thin_out().len()), [5, 5, 4, 4, 3]);
        let mut answered = Answered::new(1.5, &[0]);
        assert_eq!(answered.thin_out().len(), 0);
        (0..3).for_each(|slot| answered.insert(slot, 0));
        answered.candidates = Answered::new(0.0, &[0; 3]).candidates;
        assert_eq!(answered.thin_out().len(), 1, "the half that was left over counts");
    }

    #[test]
    fn uses_balance_probes_and_removals() {
        // 2 ÷ (0.84 · 3 − 1).
        assert!((COUNT_IN_FLIGHT.uses(100) - 2.0 / 1.52).abs() < 1e-9, "{}", COUNT_IN_FLIGHT.uses(100));
        assert_eq!(COUNT_IN_FLIGHT.uses(16), UNBOUNDED_USES, "the pool holds all");
    }

    #[test]
    fn penalty_grows_with_the_threshold() {
        let mut policy = Prequal::new(COUNT_IN_FLIGHT);
        assert_eq!(policy.penalty_unit(), 1);
        policy.threshold.insert(60);
        assert_eq!(policy.penalty_unit(), 3);
    }

    #[test]
    fn pool_reserves_an_answer_of_each_backend() {
        let mut policy = Prequal::new(COUNT_IN_FLIGHT);
        policy.on_usable(8, &Answered::new(0.0, &[0]).candidates[0]);
        assert!(policy.pool.allocated() >= 9, "{}", policy.pool.allocated());
    }
}
