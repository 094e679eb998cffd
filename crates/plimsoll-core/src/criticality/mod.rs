//! Criticality: how bad it is to lose a request, and so the order in which overload sheds them.
//!
//! It has the four levels of SRE ch. 21 and is not a number: a whole company can agree on the
//! meaning of a level and provision for it. Two services that pass a level on understand the same
//! by it.

use core::fmt;

/// How bad it is to lose a request; greater is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Criticality {
    /// May be lost often, and be unavailable for hours.
    Sheddable,
    /// Lost now and then; retried minutes or hours later. Batch work.
    SheddablePlus,
    /// A user notices the loss. The default for interactive work; provisioned for.
    #[default]
    Critical,
    /// A user notices the loss, and it is expensive.
    CriticalPlus,
}

impl Criticality {
    /// All levels; the first is shed last.
    pub const ALL: [Self; 4] = [Self::CriticalPlus, Self::Critical, Self::SheddablePlus, Self::Sheddable];

    /// The level's name on the wire, in metrics and in configs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CriticalPlus => "critical-plus",
            Self::Critical => "critical",
            Self::SheddablePlus => "sheddable-plus",
            Self::Sheddable => "sheddable",
        }
    }

    /// The level of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|criticality| criticality.name() == name)
    }

    /// Index in [`Criticality::ALL`].
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
