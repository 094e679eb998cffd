//! The latest changes: states of backends, verdicts, reloads.

use std::collections::VecDeque;

use plimsoll_core::health::{Reason, State};

use super::source::LiveClusterSnapshot;
use super::view::LiveChange;

/// Changes kept: those that an event carries.
pub const MAX_CHANGES: usize = 20;
/// Backends that change alike within a second and are named. More of them are one change: a lost zone
/// would displace everything else.
const MAX_NAMED: usize = 3;

/// The latest changes of a process, the newest first.
#[derive(Debug)]
pub struct Changes<C>(VecDeque<C>);

impl<C> Default for Changes<C> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<C: Clone> Changes<C> {
    /// Adds the newest change. The oldest one makes way.
    pub fn add(&mut self, change: C) {
        self.0.truncate(MAX_CHANGES - 1);
        self.0.push_front(change);
    }

    /// Adds a change, or puts it in place of an earlier state of itself, which `is_same` knows.
    pub fn update(&mut self, change: C, is_same: impl Fn(&C) -> bool) {
        match self.0.iter_mut().find(|known| is_same(known)) {
            Some(known) => *known = change,
            None => self.add(change),
        }
    }

    /// All of them.
    #[must_use]
    pub fn latest(&self) -> Vec<C> {
        self.0.iter().cloned().collect()
    }
}

/// Changes of state of a cluster that were seen already.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Vec<(State, Reason, u64)>);

impl Seen {
    /// Sees the changes of `cluster` at `at`, in seconds since 1970; returns the new ones, the oldest
    /// first.
    pub(super) fn look(&mut self, at: f64, cluster: &LiveClusterSnapshot) -> Vec<LiveChange> {
        let overview = &cluster.overview;
        let mut changes = Vec::new();
        for &(state, reason, count) in &overview.counts.transitions {
            let new = count.saturating_sub(self.count_of(state, reason)) as usize;
            let change = |at, subject| LiveChange {
                at,
                kind: "backend".to_owned(),
                cluster: Some(overview.name.to_string()),
                subject,
                text: format!("{state}: {}", reason.name()),
                proxies: Vec::new(),
            };
            if new > MAX_NAMED {
                changes.push(change(at, format!("{new} backends")));
                continue;
            }
            let alike = overview.transitions.iter().rev().filter(|of| (of.to, of.reason) == (state, reason));
            changes.extend(alike.take(new).map(|transition| {
                let age = overview.at.since(transition.at).as_secs_f64();
                change(at - age, transition.backend.label().to_owned())
            }));
        }
        self.0.clone_from(&overview.counts.transitions);
        changes.sort_by(|a, b| a.at.total_cmp(&b.at));
        changes
    }

    fn count_of(&self, state: State, reason: Reason) -> u64 {
        let known = self.0.iter().find(|(known, why, _)| (*known, *why) == (state, reason));
        known.map_or(0, |(.., count)| *count)
    }
}
