//! How often something was given in place of an error.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Trouble;

/// What is given in place of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What a backend answered a while ago.
    Stale,
    /// What stands in the configuration.
    Static,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Stale, Self::Static];

    /// The word for it in metrics, logs, and in the header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::Static => "static",
        }
    }
}

/// Answers in place of errors, by kind and by why.
#[derive(Debug, Default)]
pub(crate) struct DegradedCounts([[AtomicU64; Trouble::ALL.len()]; Kind::ALL.len()]);

impl DegradedCounts {
    pub(crate) fn count(&self, kind: Kind, trouble: Trouble) {
        self.0[kind as usize][trouble as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Kind, reason, and how many.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let of = move |kind: Kind, trouble: Trouble| self.0[kind as usize][trouble as usize].load(Ordering::Relaxed);
        Kind::ALL.into_iter().flat_map(move |kind| {
            Trouble::ALL.into_iter().map(move |trouble| (kind.name(), trouble.name(), of(kind, trouble)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_and_reason_is_counted_in_a_place_of_its_own() {
        let counts = DegradedCounts::default();
        let all = Kind::ALL.into_iter().flat_map(|kind| Trouble::ALL.map(|trouble| (kind, trouble)));
        for (times, (kind, trouble)) in (1..).zip(all) {
            (0..times).for_each(|_| counts.count(kind, trouble));
        }
        assert_eq!(counts.counts().map(|(_, _, count)| count).collect::<Vec<_>>(), (1..=14).collect::<Vec<_>>());
    }
}
