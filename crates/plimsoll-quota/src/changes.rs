//! Changes of the limits of a service. They wait for each other, and one task tries each before all get it
//! ([`Rollout`]).
//!
//! Changes that come during a trial wait for its end, so a good one never carries a bad one on.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::quota::Rollout;
use plimsoll_tls_config::ClientName;

use crate::limits::{Change, ServiceLimits};
use crate::name::Name;

/// Ends of changes that are remembered.
const MAX_OUTCOMES: usize = 64;

/// The end of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is in force.
    Applied,
    /// These tasks lost their streams or hung when they had got it.
    Refused(Vec<Arc<str>>),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) rollout: Rollout,
    /// Limits that are tried, and the number of the last change in them.
    next: Option<(ServiceLimits, u64)>,
    queued: Vec<Change>,
    /// The number of the last change.
    last: u64,
    /// The tasks that tried the limits.
    pub(crate) tried: Vec<Arc<str>>,
    /// By the number of the last change in the limits.
    outcomes: VecDeque<(u64, Outcome)>,
    /// The end of limits by operators is under way.
    is_expiring: bool,
}

impl Changes {
    /// Adds a change. Returns its number.
    pub(crate) fn add(&mut self, change: Change) -> u64 {
        let replaces = |queued: &Change| match (queued, &change) {
            (Change::Config(_), Change::Config(_)) | (Change::Expiry(_), Change::Expiry(_)) => true,
            (Change::Override(of, _), Change::Override(name, _)) => of == name,
            _ => false,
        };
        self.queued.retain(|queued| !replaces(queued));
        self.is_expiring |= matches!(change, Change::Expiry(_));
        self.queued.push(change);
        self.last += 1;
        self.last
    }

    /// The limits that are to be tried, by those in force. `None`: there is no change.
    pub(crate) fn next(&mut self, in_force: &ServiceLimits) -> Option<&ServiceLimits> {
        if self.next.is_none() && !self.queued.is_empty() {
            let mut limits = in_force.clone();
            self.queued.drain(..).for_each(|change| limits.change(change));
            self.next = Some((limits, self.last));
            self.tried.clear();
            self.rollout.begin();
        }
        self.next.as_ref().map(|(limits, _)| limits)
    }

    /// Ends the trial, and returns the limits.
    pub(crate) fn end(&mut self, outcome: Outcome) -> Option<ServiceLimits> {
        let (limits, last) = self.next.take()?;
        self.rollout = Rollout::default();
        self.is_expiring = self.queued.iter().any(|queued| matches!(queued, Change::Expiry(_)));
        self.outcomes.push_back((last, outcome));
        if self.outcomes.len() > MAX_OUTCOMES {
            self.outcomes.pop_front();
        }
        Some(limits)
    }

    /// Names in certificates of tasks, at once.
    pub(crate) fn set_reporters(&mut self, reporters: &[ClientName]) {
        if let Some((limits, _)) = &mut self.next {
            limits.set_reporters(reporters.to_vec());
        }
    }

    /// Whether limits by operators are about to end.
    pub(crate) fn is_expiring(&self) -> bool {
        self.is_expiring
    }

    /// Whether there is a change to be tried.
    pub(crate) fn is_idle(&self) -> bool {
        self.next.is_none() && self.queued.is_empty()
    }

    /// The end of a change, by its number; `None` before it.
    pub(crate) fn outcome(&self, number: u64) -> Option<&Outcome> {
        self.outcomes.iter().find(|(last, _)| *last >= number).map(|(_, outcome)| outcome)
    }

    /// The end of the last change that has one.
    pub(crate) fn last_outcome(&self) -> Option<&Outcome> {
        self.outcomes.back().map(|(_, outcome)| outcome)
    }

    /// The names of limits by operators that are not in force yet.
    pub(crate) fn overridden(&self) -> BTreeSet<&Name> {
        let tried = self.next.iter().flat_map(|(limits, _)| limits.overridden());
        let queued = self.queued.iter().filter_map(|change| match change {
            Change::Override(name, Some(_)) => Some(name),
            _ => None,
        });
        tried.chain(queued).collect()
    }
}
