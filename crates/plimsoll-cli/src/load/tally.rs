//! What became of the requests of each group: all of them, those of a criticality, those of a customer.
//!
//! A group has few requests of use when a server is overloaded, and the question is whose they are. So
//! each request ends in one of four ways, and is counted in each group that it belongs to.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::mix::Kind;
use super::record::{histogram, micros};

/// How a request ended, as far as its user is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered in time.
    Useful,
    /// Answered, and nobody waits for it any more.
    Late,
    /// Turned away.
    Shed,
    /// Anything else.
    Failed,
}

/// Requests that are counted together. By places in the lists of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Every request.
    All,
    /// Those of one criticality.
    Criticality(usize),
    /// Those of one customer.
    Customer(usize),
}

impl Kind {
    fn groups(self) -> impl Iterator<Item = Group> {
        let criticality = self.criticality.map(Group::Criticality);
        [Some(Group::All), criticality, self.customer.map(Group::Customer)].into_iter().flatten()
    }
}

/// The requests of one group.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// That ended, in whatever way.
    pub(crate) requests: u64,
    /// Answered without failure.
    pub(crate) ok: u64,
    /// Those among them that came in time.
    pub(crate) useful: u64,
    /// Turned away.
    pub(crate) shed: u64,
    /// Those among them that a limit of their customer refused.
    pub(crate) limited: u64,
    /// Never sent.
    pub(crate) dropped: u64,
    /// CPU-microseconds of the answers without failure that tell their cost.
    pub(crate) cost_us: u64,
    useful_latency: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        Self { requests: 0, ok: 0, useful: 0, shed: 0, limited: 0, dropped: 0, cost_us: 0, useful_latency: histogram() }
    }
}

impl Tally {
    /// Milliseconds within which this share of the useful ones was answered; `None` without any.
    pub(crate) fn useful_ms(&self, quantile: f64) -> Option<f64> {
        (self.useful > 0).then(|| self.useful_latency.value_at_quantile(quantile) as f64 / 1e3)
    }

    fn ended(&mut self, latency: Duration, fate: Fate) {
        self.requests += 1;
        match fate {
            Fate::Useful => {
                self.ok += 1;
                self.useful += 1;
                self.useful_latency.saturating_record(micros(latency));
            }
            Fate::Late => self.ok += 1,
            Fate::Shed => self.shed += 1,
            Fate::Failed => {}
        }
    }

    fn append(&mut self, later: &Self) {
        self.requests += later.requests;
        self.ok += later.ok;
        self.useful += later.useful;
        self.shed += later.shed;
        self.limited += later.limited;
        self.dropped += later.dropped;
        self.cost_us += later.cost_us;
        self.useful_latency.add(&later.useful_latency).expect("all tallies have the same bounds");
    }
}

/// The requests of every group that had one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tallies(BTreeMap<Group, Tally>);

impl Tallies {
    /// A request of this kind ended.
    pub(crate) fn ended(&mut self, kind: Kind, latency: Duration, fate: Fate) {
        for group in kind.groups() {
            self.0.entry(group).or_default().ended(latency, fate);
        }
    }

    /// A request of this kind was served at this cost.
    pub(crate) fn charged(&mut self, kind: Kind, cost_us: u64) {
        for group in kind.groups() {
            self.0.entry(group).or_default().cost_us += cost_us;
        }
    }

    /// A request of this kind that was shed was refused by a limit of its customer.
    pub(crate) fn limited(&mut self, kind: Kind) {
        for group in kind.groups() {
            self.0.entry(group).or_default().limited += 1;
        }
    }

    /// A request of this kind was never sent.
    pub(crate) fn dropped(&mut self, kind: Kind) {
        for group in kind.groups() {
            self.0.entry(group).or_default().dropped += 1;
        }
    }

    /// One group.
    pub(crate) fn of(&self, group: Group) -> Tally {
        self.0.get(&group).cloned().unwrap_or_default()
    }

    /// Adds those of a later stretch.
    pub(crate) fn append(&mut self, later: &Self) {
        for (group, tally) in &later.0 {
            self.0.entry(*group).or_default().append(tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Kind = Kind { criticality: Some(0), customer: Some(1) };
    const SECOND: Kind = Kind { criticality: Some(1), customer: Some(1) };

    #[test]
    fn a_request_counts_in_each_of_its_groups_and_in_no_other() {
        let mut tallies = Tallies::default();
        tallies.ended(FIRST, Duration::from_millis(10), Fate::Useful);
        tallies.ended(FIRST, Duration::from_millis(900), Fate::Late);
        tallies.ended(SECOND, Duration::from_millis(1), Fate::Shed);
        tallies.ended(SECOND, Duration::from_millis(1), Fate::Failed);
        tallies.dropped(SECOND);
        let counts = |group| {
            let tally = tallies.of(group);
            (tally.requests, tally.ok, tally.useful, tally.shed, tally.dropped)
        };
        assert_eq!(counts(Group::All), (4, 2, 1, 1, 1));
        assert_eq!(counts(Group::Criticality(0)), (2, 2, 1, 0, 0));
        assert_eq!(counts(Group::Criticality(1)), (2, 0, 0, 1, 1));
        assert_eq!(counts(Group::Customer(0)), (0, 0, 0, 0, 0));
        assert_eq!(counts(Group::Customer(1)), (4, 2, 1, 1, 1));
    }

    #[test]
    fn percentiles_are_those_of_the_useful_ones() {
        let mut tallies = Tallies::default();
        assert_eq!(tallies.of(Group::All).useful_ms(0.5), None);
        tallies.ended(FIRST, Duration::from_millis(10), Fate::Useful);
        tallies.ended(FIRST, Duration::from_secs(10), Fate::Late);
        tallies.ended(FIRST, Duration::from_micros(1), Fate::Shed);
        for quantile in [0.0, 1.0] {
            let ms = tallies.of(Group::All).useful_ms(quantile).unwrap();
            assert!((ms / 10.0 - 1.0).abs() < 0.002, "{ms}");
        }
    }

    #[test]
    fn stretches_add_up() {
        let (mut first, mut second) = (Tallies::default(), Tallies::default());
        first.ended(FIRST, Duration::from_millis(1), Fate::Useful);
        second.ended(FIRST, Duration::from_millis(3), Fate::Useful);
        first.charged(FIRST, 900);
        second.charged(SECOND, 100);
        second.limited(SECOND);
        second.dropped(SECOND);
        first.append(&second);
        let all = first.of(Group::All);
        assert_eq!((all.requests, all.useful, all.dropped, all.cost_us), (2, 2, 1, 1_000));
        let second = first.of(Group::Criticality(1));
        assert_eq!((second.cost_us, second.limited, first.of(Group::Criticality(0)).limited), (100, 1, 0));
        assert!(all.useful_ms(1.0).unwrap() > 2.9);
        assert_eq!(first.of(Group::Criticality(1)).dropped, 1);
    }
}
