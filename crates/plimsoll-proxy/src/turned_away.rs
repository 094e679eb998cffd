//! Why a connection is closed as soon as it was accepted: the words and the counts.
//!
//! What fails later, while TLS is agreed upon, is in `handshake`; what ends a connection that had its chance, in `ended`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a connection was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Memory is nearly used up.
    Memory,
    /// There is no file descriptor left.
    Descriptors,
}

impl TurnedAway {
    /// All of them, in the order in which they are counted: that of their declaration.
    const ALL: [Self; 2] = [Self::Memory, Self::Descriptors];

    /// The word for it in metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
        }
    }
}

/// Connections that were not taken, by reason.
#[derive(Debug, Default)]
pub(crate) struct TurnedAwayCounts([AtomicU64; TurnedAway::ALL.len()]);

impl TurnedAwayCounts {
    pub(crate) fn add(&self, reason: TurnedAway, count: u64) {
        self.0[reason as usize].fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        TurnedAway::ALL.into_iter().map(|reason| (reason.name(), self.0[reason as usize].load(Ordering::Relaxed)))
    }
}
