//! How clients learn of backends, and the faults of their source.

use std::time::Duration;

use plimsoll_core::discover::MergeConfig;

/// Clients that ask a source for the list of backends, each at times of its own.
///
/// The rules of the merge decide on the members, as in the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// Time between two questions of a client. The first comes at its start.
    pub every: Duration,
    /// The rules about errors, empty lists and sudden losses.
    pub merge: MergeConfig,
}

impl Discovery {
    /// The TTL of names of services at CoreDNS.
    pub const DEFAULT_EVERY: Duration = Duration::from_secs(5);
}

impl Default for Discovery {
    fn default() -> Self {
        Self { every: Self::DEFAULT_EVERY, merge: MergeConfig::default() }
    }
}

/// The answers of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceState {
    /// The backends in service.
    #[default]
    Complete,
    /// The first third of them, such as a truncated answer.
    Third,
    /// None, such as those of a registry that has just started.
    Empty,
    /// Errors.
    Error,
}
