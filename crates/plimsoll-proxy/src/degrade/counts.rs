//! How often something was given in place of an error.

use crate::config::Trouble;
use crate::counts::Label;

/// The kind of a degraded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An earlier response of a backend.
    Stale,
    /// An answer of the configuration.
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

/// An answer in place of an error: its kind, and the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Substitute(pub(crate) Kind, pub(crate) Trouble);

impl Substitute {
    const COUNT: usize = Kind::ALL.len() * Trouble::ALL.len();

    const TABLE: [Self; Self::COUNT] = {
        let mut table = [Self(Kind::Stale, Trouble::Overloaded); Self::COUNT];
        let mut i = 0;
        while i < table.len() {
            table[i] = Self(Kind::ALL[i / Trouble::ALL.len()], Trouble::ALL[i % Trouble::ALL.len()]);
            i += 1;
        }
        table
    };
}

impl Label for Substitute {
    type Name = (&'static str, &'static str);

    const ALL: &'static [Self] = &Self::TABLE;

    fn index(self) -> usize {
        self.0 as usize * Trouble::ALL.len() + self.1 as usize
    }

    fn name(self) -> Self::Name {
        (self.0.name(), self.1.name())
    }
}
