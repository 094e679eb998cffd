//! How critical a request is: what its sender claims, as far as the sender is trusted.
//!
//! A claim is worth something only inside a fleet that has agreed on what the levels mean. From outside, everybody's requests
//! are the most critical of all; so a listener that faces strangers ignores what they say, or believes it up to a level.

use crate::Criticality;

/// How far claims of criticality are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Whatever is claimed.
    Full,
    /// Claims up to this level; those above it count as this level.
    UpTo(Criticality),
    /// Not at all.
    None,
}

/// Where a decision about criticality comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The sender, who is believed.
    Claimed,
    /// The sender, who claims more than is believed.
    Capped,
    /// Nobody: the sender is not believed at all.
    Unbelieved,
    /// Nobody: the sender claims nothing.
    Unclaimed,
}

/// Decides how critical requests are.
///
/// By default senders are strangers: they may lower the criticality of their requests, and not raise it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classifier {
    /// How far claims are believed.
    pub trust: Trust,
    /// What requests are whose senders claim nothing, or are not believed.
    pub otherwise: Criticality,
}

impl Default for Classifier {
    fn default() -> Self {
        let otherwise = Criticality::default();
        Self { trust: Trust::UpTo(otherwise), otherwise }
    }
}

impl Classifier {
    /// Whether senders may raise their requests above those that claim nothing. Only such senders are trusted with other claims
    /// that can harm others: which attempt a request is.
    #[must_use]
    pub fn lets_raise(&self) -> bool {
        match self.trust {
            Trust::Full => true,
            Trust::UpTo(most) => most > self.otherwise,
            Trust::None => false,
        }
    }

    /// Whether every claim is believed as it is.
    #[must_use]
    pub fn believes_all(&self) -> bool {
        matches!(self.trust, Trust::Full | Trust::UpTo(Criticality::CriticalPlus))
    }

    /// How critical a request is that claims to be so critical.
    #[must_use]
    pub fn criticality(&self, claimed: Option<Criticality>) -> Criticality {
        self.decide(claimed).0
    }

    /// The same, and why.
    #[must_use]
    pub fn decide(&self, claimed: Option<Criticality>) -> (Criticality, Source) {
        match (claimed, self.trust) {
            (None, _) => (self.otherwise, Source::Unclaimed),
            (_, Trust::None) => (self.otherwise, Source::Unbelieved),
            (Some(claimed), Trust::UpTo(most)) if claimed > most => (most, Source::Capped),
            (Some(claimed), Trust::Full | Trust::UpTo(_)) => (claimed, Source::Claimed),
        }
    }
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

    use super::*;

    #[test]
    fn senders_are_strangers_unless_told_otherwise() {
        let strangers = Classifier::default();
        assert_eq!(strangers.criticality(Some(CriticalPlus)), Critical);
        assert_eq!(strangers.criticality(Some(Sheddable)), Sheddable);
        for (trust, otherwise, lets_raise, believes_all) in [
            (strangers.trust, strangers.otherwise, false, false),
            (Trust::UpTo(CriticalPlus), Critical, true, true),
            (Trust::UpTo(Critical), SheddablePlus, true, false),
            (Trust::UpTo(Sheddable), Critical, false, false),
            (Trust::Full, CriticalPlus, true, true),
            (Trust::None, Sheddable, false, false),
        ] {
            let classifier = Classifier { trust, otherwise };
            assert_eq!((classifier.lets_raise(), classifier.believes_all()), (lets_raise, believes_all), "{trust:?}");
        }
    }

    #[test]
    fn claims_are_believed_as_far_as_their_senders_are() {
        for (trust, claimed, is, source) in [
            (Trust::Full, Some(CriticalPlus), CriticalPlus, Source::Claimed),
            (Trust::Full, Some(Sheddable), Sheddable, Source::Claimed),
            (Trust::Full, None, SheddablePlus, Source::Unclaimed),
            (Trust::UpTo(Critical), Some(CriticalPlus), Critical, Source::Capped),
            (Trust::UpTo(Critical), Some(Critical), Critical, Source::Claimed),
            (Trust::UpTo(Critical), Some(Sheddable), Sheddable, Source::Claimed),
            (Trust::UpTo(Sheddable), None, SheddablePlus, Source::Unclaimed),
            (Trust::None, Some(CriticalPlus), SheddablePlus, Source::Unbelieved),
        ] {
            let classifier = Classifier { trust, otherwise: SheddablePlus };
            assert_eq!(classifier.decide(claimed), (is, source), "{trust:?} {claimed:?}");
            assert_eq!(classifier.criticality(claimed), is);
        }
    }
}
