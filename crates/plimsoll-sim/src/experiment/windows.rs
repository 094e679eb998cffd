//! The measured parts of a run: all of it after the warm-up, and each phase.

use std::time::Duration;

use super::fleet::plan::Phase;
use crate::findings::{Mark, MarkKind};

/// A part of a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Window {
    /// The name of the phase; `None` for the whole run.
    pub(crate) name: Option<String>,
    /// Its beginning.
    pub(crate) begins: Duration,
    /// The beginning of its measurements.
    pub(crate) from: Duration,
    /// Its end.
    pub(crate) to: Duration,
}

impl Window {
    pub(crate) fn holds(&self, at: Duration) -> bool {
        self.from <= at && at < self.to
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.to.saturating_sub(self.from).as_secs_f64()
    }

    /// The first parts of the names of its metrics.
    pub(crate) fn prefix(&self, arm: &str) -> String {
        self.name.as_ref().map_or_else(|| arm.to_owned(), |phase| format!("{arm}.{phase}"))
    }
}

/// The whole run, then each phase.
pub(crate) fn windows(phases: &[Phase], warmup: Duration, duration: Duration) -> Vec<Window> {
    let whole = Window { name: None, begins: warmup, from: warmup, to: duration };
    let parts = phases.iter().enumerate().map(|(i, phase)| Window {
        name: Some(phase.name.clone()),
        begins: phase.at,
        from: (phase.at + phase.settle).max(warmup),
        to: phases.get(i + 1).map_or(duration, |next| next.at),
    });
    std::iter::once(whole).chain(parts).collect()
}

/// The beginnings of phases, as marks of figures over time.
pub(crate) fn marks(phases: &[Phase]) -> Vec<Mark> {
    let mark = |phase: &Phase| Mark { at: phase.at.as_secs_f64(), label: phase.name.clone(), kind: MarkKind::Phase };
    phases.iter().map(mark).collect()
}
