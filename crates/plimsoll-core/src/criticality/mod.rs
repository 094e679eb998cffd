//! How bad it is to lose a request: the order in which overload takes them.
//!
//! Four levels, of SRE ch. 21. Four and not a number: a level means something that a whole company can agree on and provision for,
//! and two services that pass it on understand the same by it.

use core::fmt;

/// How bad it is to lose a request; greater is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criticality {
    /// May be lost often, and be gone for hours.
    Sheddable,
    /// Lost now and then; retried minutes or hours later. Batch work.
    SheddablePlus,
    /// A user sees it when it is lost. What interactive work is unless it says otherwise; provisioned for.
    #[default]
    Critical,
    /// A user sees it, and it is dear to lose.
    CriticalPlus,
}

impl Criticality {
    /// All, the one that is given up last first.
    pub const ALL: [Self; 4] = [Self::CriticalPlus, Self::Critical, Self::SheddablePlus, Self::Sheddable];

    /// The word for it on the wire, in metrics and in configs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CriticalPlus => "critical-plus",
            Self::Critical => "critical",
            Self::SheddablePlus => "sheddable-plus",
            Self::Sheddable => "sheddable",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|criticality| criticality.name() == name)
    }

    /// Its place in [`Criticality::ALL`].
    #[must_use]
    pub const fn rank(self) -> usize {
        Self::CriticalPlus as usize - self as usize
    }
}

impl fmt::Display for Criticality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ranks_and_order_agree() {
        for (rank, criticality) in Criticality::ALL.into_iter().enumerate() {
            assert_eq!((criticality.rank(), Criticality::from_name(criticality.name())), (rank, Some(criticality)));
        }
        assert!(Criticality::ALL.is_sorted_by(|one, next| one > next));
        assert_eq!(Criticality::from_name("Critical"), None);
    }
}
