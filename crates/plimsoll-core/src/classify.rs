//! Classification: the criticality that a sender claims for a request, within its trust.
//!
//! A claim is worth something only inside a fleet that has agreed on the meaning of the levels. For
//! a stranger, each of its own requests is the most critical. So a listener for strangers ignores
//! their claims, or limits them to a level.
//!
//! Other systems claim an integer, such as 5G cores and the Envoy filters for them (0 to 31, 0 the
//! most critical). [`Priorities`] maps ranges of integers to levels; the numbers and their direction
//! are those of the fleet.

use crate::Criticality;

/// Trust in a sender's claims of criticality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Every claim counts.
    Full,
    /// Claims up to this level count; higher ones count as this level.
    UpTo(Criticality),
    /// No claim counts.
    None,
}

/// Origin of a request's criticality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The sender's claim, as it is.
    Claimed,
    /// The sender's claim, lowered to the trusted level.
    Capped,
    /// The default: the sender is not trusted.
    Untrusted,
    /// The default: the sender claims nothing.
    Unclaimed,
}

/// Decides the criticality of requests.
///
/// By default senders are strangers: they may lower the criticality of their requests, and not
/// raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// Trust in claims.
    pub trust: Trust,
    /// Criticality of requests without a claim, or from a sender without trust.
    pub otherwise: Criticality,
}

impl Default for Classifier {
    fn default() -> Self {
        let otherwise = Criticality::default();
        Self { trust: Trust::UpTo(otherwise), otherwise }
    }
}

impl Classifier {
    /// Whether senders may raise their requests above those without a claim. Only such senders are
    /// trusted with another claim that can harm others: the number of a request's attempt.
    #[must_use]
    pub fn lets_raise(&self) -> bool {
        match self.trust {
            Trust::Full => true,
            Trust::UpTo(most) => most > self.otherwise,
            Trust::None => false,
        }
    }

    /// Whether every claim counts as it is.
    #[must_use]
    pub fn trusts_all_claims(&self) -> bool {
        matches!(self.trust, Trust::Full | Trust::UpTo(Criticality::CriticalPlus))
    }

    /// The criticality of a request with this claim.
    #[must_use]
    pub fn criticality(&self, claimed: Option<Criticality>) -> Criticality {
        self.decide(claimed).0
    }

    /// The criticality of a request with this claim, and its origin.
    #[must_use]
    pub fn decide(&self, claimed: Option<Criticality>) -> (Criticality, Source) {
        match (claimed, self.trust) {
            (None, _) => (self.otherwise, Source::Unclaimed),
            (_, Trust::None) => (self.otherwise, Source::Untrusted),
            (Some(claimed), Trust::UpTo(most)) if claimed > most => (most, Source::Capped),
            (Some(claimed), Trust::Full | Trust::UpTo(_)) => (claimed, Source::Claimed),
        }
    }
}

/// A range of integer priorities, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityRange {
    first: u32,
    last: u32,
}

impl PriorityRange {
    /// The range from `first` to `last`; `None` if `last` is less.
    #[must_use]
    pub const fn new(first: u32, last: u32) -> Option<Self> {
        if first <= last { Some(Self { first, last }) } else { None }
    }

    /// The least number.
    #[must_use]
    pub const fn first(self) -> u32 {
        self.first
    }

    /// The greatest number.
    #[must_use]
    pub const fn last(self) -> u32 {
        self.last
    }

    const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Two levels with a number in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous(pub Criticality, pub Criticality);

/// The criticality that an integer priority claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    ranges: [Option<PriorityRange>; Criticality::ALL.len()],
}

impl Priorities {
    /// The levels of these ranges. A number in none of them claims nothing.
    ///
    /// # Errors
    /// If two levels have a number in common.
    pub fn new(range: impl Fn(Criticality) -> Option<PriorityRange>) -> Result<Self, Ambiguous> {
        let ranges = Criticality::ALL.map(range);
        for (i, one) in ranges.iter().enumerate() {
            for (j, other) in ranges.iter().enumerate().skip(i + 1) {
                if one.zip(*other).is_some_and(|(one, other)| one.overlaps(other)) {
                    return Err(Ambiguous(Criticality::ALL[i], Criticality::ALL[j]));
                }
            }
        }
        Ok(Self { ranges })
    }

    /// The level of this priority.
    #[must_use]
    pub fn criticality(&self, priority: u32) -> Option<Criticality> {
        let holds = |range: &Option<PriorityRange>| range.is_some_and(|r| r.first <= priority && priority <= r.last);
        self.ranges.iter().position(holds).map(|place| Criticality::ALL[place])
    }
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

    use super::*;

    #[test]
    fn senders_are_untrusted_by_default() {
        let strangers = Classifier::default();
        assert_eq!(strangers.criticality(Some(CriticalPlus)), Critical);
        assert_eq!(strangers.criticality(Some(Sheddable)), Sheddable);
        for (trust, otherwise, lets_raise, trusts_all_claims) in [
            (strangers.trust, strangers.otherwise, false, false),
            (Trust::UpTo(CriticalPlus), Critical, true, true),
            (Trust::UpTo(Critical), SheddablePlus, true, false),
            (Trust::UpTo(Sheddable), Critical, false, false),
            (Trust::Full, CriticalPlus, true, true),
            (Trust::None, Sheddable, false, false),
        ] {
            let classifier = Classifier { trust, otherwise };
            assert_eq!(
                (classifier.lets_raise(), classifier.trusts_all_claims()),
                (lets_raise, trusts_all_claims),
                "{trust:?}"
            );
        }
    }

    #[test]
    fn claims_count_up_to_the_trust_in_the_sender() {
        for (trust, claimed, is, source) in [
            (Trust::Full, Some(CriticalPlus), CriticalPlus, Source::Claimed),
            (Trust::Full, Some(Sheddable), Sheddable, Source::Claimed),
            (Trust::Full, None, SheddablePlus, Source::Unclaimed),
            (Trust::UpTo(Critical), Some(CriticalPlus), Critical, Source::Capped),
            (Trust::UpTo(Critical), Some(Critical), Critical, Source::Claimed),
            (Trust::UpTo(Critical), Some(Sheddable), Sheddable, Source::Claimed),
            (Trust::UpTo(Sheddable), None, SheddablePlus, Source::Unclaimed),
            (Trust::None, Some(CriticalPlus), SheddablePlus, Source::Untrusted),
        ] {
            let classifier = Classifier { trust, otherwise: SheddablePlus };
            assert_eq!(classifier.decide(claimed), (is, source), "{trust:?} {claimed:?}");
            assert_eq!(classifier.criticality(claimed), is);
        }
    }

    #[test]
    fn priority_is_of_the_level_with_its_range() {
        let range = |first, last| PriorityRange::new(first, last);
        let three = |level| match level {
            CriticalPlus => range(0, 7),
            Critical => range(8, 15),
            Sheddable => range(16, 16),
            SheddablePlus => None,
        };
        let priorities = Priorities::new(three).expect("they have nothing in common");
        for (priority, level) in [
            (0, Some(CriticalPlus)),
            (7, Some(CriticalPlus)),
            (8, Some(Critical)),
            (16, Some(Sheddable)),
            (17, None),
            (u32::MAX, None),
        ] {
            assert_eq!(priorities.criticality(priority), level, "{priority}");
        }
        assert_eq!((range(8, 7), Priorities::default().criticality(0)), (None, None));
        for (first, last, is_ambiguous) in [(0, 0, true), (4, 4, true), (7, 9, true), (8, 9, false)] {
            let two = |level| match level {
                CriticalPlus => range(0, 7),
                Sheddable => range(first, last),
                _ => None,
            };
            assert_eq!(Priorities::new(two).is_err(), is_ambiguous, "{first} to {last}");
        }
    }
}
