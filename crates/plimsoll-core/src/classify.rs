//! How critical a request is: what its sender claims, as far as the sender is trusted.
//!
//! A claim is worth something only inside a fleet that has agreed on what the levels mean. From outside, everybody's requests
//! are the most critical of all; so a listener that faces strangers ignores what they say, or believes it up to a level.

use crate::Criticality;

/// How far claims of criticality are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Whatever is claimed.
    #[default]
    Full,
    /// Claims up to this level; those above it count as this level.
    UpTo(Criticality),
    /// Not at all.
    None,
}

/// Decides how critical requests are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classifier {
    /// How far claims are believed.
    pub trust: Trust,
    /// What requests are whose senders claim nothing, or are not believed.
    pub otherwise: Criticality,
}

impl Classifier {
    /// How critical a request is that claims to be so critical.
    #[must_use]
    pub fn criticality(&self, claimed: Option<Criticality>) -> Criticality {
        match (claimed, self.trust) {
            (Some(claimed), Trust::Full) => claimed,
            (Some(claimed), Trust::UpTo(most)) => claimed.min(most),
            (None, _) | (_, Trust::None) => self.otherwise,
        }
    }
}

#[cfg(test)]
mod tests {
    use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

    use super::*;

    #[test]
    fn claims_are_believed_as_far_as_their_senders_are() {
        for (trust, claimed, is) in [
            (Trust::Full, Some(CriticalPlus), CriticalPlus),
            (Trust::Full, Some(Sheddable), Sheddable),
            (Trust::Full, None, SheddablePlus),
            (Trust::UpTo(Critical), Some(CriticalPlus), Critical),
            (Trust::UpTo(Critical), Some(Sheddable), Sheddable),
            (Trust::UpTo(Sheddable), None, SheddablePlus),
            (Trust::None, Some(CriticalPlus), SheddablePlus),
        ] {
            let classifier = Classifier { trust, otherwise: SheddablePlus };
            assert_eq!(classifier.criticality(claimed), is, "{trust:?} {claimed:?}");
        }
    }
}
