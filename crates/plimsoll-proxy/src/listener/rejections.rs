//! Why a connection is closed as soon as it was accepted: the words and the counts.
//!
//! Later failures, during the handshake, are in `handshakes`; later ends in
//! `connection::end_reason`.

use crate::counts::Label;

/// Why a connection was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// Memory is nearly used up.
    Memory,
    /// There is no file descriptor left.
    Descriptors,
}

impl Label for RejectReason {
    type Name = &'static str;

    const ALL: &'static [Self] = &[Self::Memory, Self::Descriptors];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Descriptors => "descriptors",
        }
    }
}
