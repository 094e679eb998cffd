//! The source of a cluster's backends, as the API shows it.

use std::fmt;

use plimsoll::client::{self, SourceFailure};
use plimsoll::discover::{Freshness, OverrideKind};
use plimsoll_core::Timestamp;
use plimsoll_core::discover::MergeCounts;
use serde::Serialize;

/// The source of a cluster's backends.
#[derive(Clone, Debug, Serialize)]
pub struct DiscoveryView {
    /// Its kind: `"static"`, `"file"`, `"dns"`, ...
    pub kind: &'static str,
    /// The source in a few words, such as the path of a file; `null` for the configuration.
    pub source: Option<String>,
    /// `"ok"`, `"waiting"` for the first list, `"failing"`.
    pub state: &'static str,
    /// A saved list is in force: the source has not answered since the start.
    pub stale: bool,
    /// Age of the last list that differed from the one before, in seconds.
    pub answer_age_s: Option<f64>,
    /// The last error, also after a recovery.
    pub last_error: Option<LastError>,
    /// The last error about static backends beside the source, while they fail.
    pub static_error: Option<LastError>,
    /// Backends by the source.
    pub backends: Known,
    /// Changes since the cluster began, by reason.
    pub changes: Changes,
    /// Errors of the source.
    pub errors: u64,
    /// Empty lists without effect.
    pub empty_lists: u64,
    /// Changes by hand, over the word of the source.
    pub overrides: Overrides,
}

/// A cluster without a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// The name of the cluster.
    pub cluster: String,
    /// The reason.
    pub reason: String,
}

impl Unserved {
    /// A cluster of this name, which has no backend, with the state of its source.
    #[must_use]
    pub fn of(cluster: &str, discovery: &client::DiscoveryView) -> Self {
        let source = match discovery.kind {
            "static" => "the configuration".to_owned(),
            kind => format!("{kind} {}", discovery.source).trim_end().to_owned(),
        };
        let error = discovery.last_error.as_ref().filter(|_| discovery.is_failing);
        let error = error.or(discovery.fixed_error.as_ref());
        let reason = match error {
            Some(last) => last.error.to_string(),
            None if !discovery.is_ready => format!("no answer of {source} yet"),
            None if discovery.freshness == Freshness::Waiting => format!("no answer of {source}"),
            None if discovery.backends.ready + discovery.backends.held > 0 => "all are removed by hand".to_owned(),
            None if discovery.backends.known() > 0 => format!("{source} lists none that is ready"),
            None => format!("{source} lists none"),
        };
        // One line, also if a source quotes several.
        Self { cluster: cluster.to_owned(), reason: reason.replace(char::is_control, " ") }
    }
}

impl fmt::Display for Unserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {:?} has no backend: {}", self.cluster, self.reason)
    }
}

/// The last error of a source.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastError {
    /// Its text.
    pub error: String,
    /// Its age in seconds.
    pub age_s: f64,
}

/// Backends by the source, without changes by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Known {
    /// All of them.
    pub known: usize,
    /// Members that are listed.
    pub ready: usize,
    /// Missing members that stay for a time.
    pub held: usize,
    /// Stated as draining.
    pub draining: usize,
    /// Not ready yet.
    pub starting: usize,
}

/// Changes by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// New backends.
    pub added: u64,
    /// Backends with another weight, zone or locality.
    pub changed: u64,
    /// Backends that the source removed.
    pub removed: u64,
    /// Backends that the source drains.
    pub drained: u64,
    /// Backends held after a sudden loss.
    pub held: u64,
    /// Held backends removed at the end of their time.
    pub expired: u64,
}

/// Changes by hand in force, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overrides {
    /// Added backends.
    pub added: usize,
    /// Removed backends.
    pub removed: usize,
    /// Backends with a weight by hand.
    pub weight: usize,
    /// Backends drained by hand.
    pub drained: usize,
}

impl DiscoveryView {
    /// The source of `cluster`.
    pub(crate) fn of(cluster: &client::ClusterSummary) -> Self {
        let discovery = &cluster.discovery;
        let age = |at: Timestamp| (cluster.at.since(at).as_secs_f64() * 1e3).round() / 1e3;
        let overridden = |kind| cluster.overrides.iter().filter(|each| each.change.kind() == kind).count();
        let last = |error: Option<&SourceFailure>| {
            error.map(|last| LastError { error: last.error.to_string(), age_s: age(last.at) })
        };
        Self {
            kind: discovery.kind,
            source: Some(discovery.source.to_string()).filter(|source| !source.is_empty()),
            state: state(discovery),
            stale: discovery.freshness == Freshness::Stale,
            answer_age_s: discovery.answered.map(age),
            last_error: last(discovery.last_error.as_ref()),
            static_error: last(discovery.fixed_error.as_ref()),
            backends: Known {
                known: discovery.backends.known(),
                ready: discovery.backends.ready,
                held: discovery.backends.held,
                draining: discovery.backends.draining,
                starting: discovery.backends.starting,
            },
            changes: Changes::of(&discovery.counts),
            errors: discovery.counts.errors,
            empty_lists: discovery.counts.empty,
            overrides: Overrides {
                added: overridden(OverrideKind::Added),
                removed: overridden(OverrideKind::Removed),
                weight: overridden(OverrideKind::Weight),
                drained: overridden(OverrideKind::Drained),
            },
        }
    }
}

fn state(discovery: &client::DiscoveryView) -> &'static str {
    match discovery.freshness {
        _ if discovery.is_failing => "failing",
        Freshness::Waiting => "waiting",
        Freshness::Stale | Freshness::Fresh => "ok",
    }
}

impl Changes {
    fn of(counts: &MergeCounts) -> Self {
        let MergeCounts { added, changed, removed, drained, held, expired, errors: _, empty: _ } = *counts;
        Self { added, changed, removed, drained, held, expired }
    }

    /// Each reason with its count.
    pub(crate) fn by_reason(counts: &MergeCounts) -> [(&'static str, u64); 6] {
        let Self { added, changed, removed, drained, held, expired } = Self::of(counts);
        [
            ("added", added),
            ("changed", changed),
            ("removed", removed),
            ("drained", drained),
            ("held", held),
            ("expired", expired),
        ]
    }
}
