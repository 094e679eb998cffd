//! Identity of a backend in its cluster.

use core::fmt;

/// A backend of one cluster, for as long as it is a member.
///
/// A slot is used again after its backend was removed. The generation tells the two apart, so a
/// late answer for a removed backend is never charged to its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BackendId {
    slot: u32,
    generation: u32,
}

impl BackendId {
    /// Identifies the `generation`-th tenant of `slot`.
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Self {
        Self { slot, generation }
    }

    /// Index into tables that the caller keeps per backend: below the largest number of backends
    /// that the cluster ever had at once.
    #[must_use]
    pub const fn slot(self) -> usize {
        self.slot as usize
    }

    /// Number of backends that had this slot before.
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.generation
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.generation)
    }
}
