//! The metrics of single backends.

use plimsoll_config::Choice;

/// Whether backends have metrics of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendMetrics {
    /// Each has: some 25 lines.
    #[default]
    All,
    /// Sums over the backends of each cluster.
    Aggregate,
}

pub(super) const BACKEND_METRICS: Choice<BackendMetrics> = Choice {
    noun: "a choice of metrics of backends",
    names: &[("all", BackendMetrics::All), ("aggregate", BackendMetrics::Aggregate)],
};
