//! Clients that learn of backends by a source: the core's merge, one for each client.

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Listed, Merge, Readiness};

use super::{Event, World};
use crate::experiment::fleet::plan::{Discovery, SourceState};
use crate::kernel::NEVER;
use crate::kernel::streams::unit;

/// The view of one client.
#[derive(Clone, Debug)]
pub(super) struct Following {
    merge: Merge<u32, ()>,
    /// Time of the next change that is due. An event for another time is outdated.
    due: Timestamp,
}

impl World<'_> {
    /// Lets clients without a view ask for their first list.
    pub(super) fn follow_source(&mut self, discovery: &Discovery) {
        for number in self.followings.len() as u32..self.clients.len() as u32 {
            let merge = Merge::new(self.arena.now, discovery.merge, Vec::new());
            self.followings.push(Following { merge, due: NEVER });
            self.take_answer(number);
            let mut rng = self.arena.streams.stream("discovery", u64::from(number));
            self.arena.push(self.arena.now + discovery.every.mul_f64(unit(&mut rng)), Event::List(number));
        }
    }

    /// A client asks the source, and again after the usual time.
    pub(super) fn ask_source(&mut self, number: u32) -> bool {
        let Some(discovery) = &self.arm.discovery else { return false };
        if self.arena.sources[number as usize].stopped {
            return false;
        }
        let next = self.arena.now + discovery.every;
        if next <= self.arena.end {
            self.arena.push(next, Event::List(number));
        }
        self.take_answer(number);
        true
    }

    /// Changes of a client's members are due.
    pub(super) fn merge(&mut self, number: u32) -> bool {
        let is_due =
            self.followings[number as usize].due == self.arena.now && !self.arena.sources[number as usize].stopped;
        if is_due {
            self.take_effect(number);
        }
        is_due
    }

    fn take_answer(&mut self, number: u32) {
        let listed = self.listed();
        let merge = &mut self.followings[number as usize].merge;
        match listed {
            Some(list) => merge.on_list(self.arena.now, list, &mut |_| {}),
            None => merge.on_error(self.arena.now, &mut |_| {}),
        }
        self.take_effect(number);
    }

    /// The list of the source; `None` is an error.
    fn listed(&self) -> Option<Vec<Listed<u32, ()>>> {
        let in_service = self.in_service();
        let length = match self.source {
            SourceState::Complete => in_service.len(),
            SourceState::Third => in_service.len() / 3,
            SourceState::Empty => 0,
            SourceState::Error => return None,
        };
        let listed = |key| Listed { key, properties: (), readiness: Readiness::Ready };
        Some(in_service.into_iter().take(length).map(listed).collect())
    }

    fn take_effect(&mut self, number: u32) {
        let now = self.arena.now;
        let following = &mut self.followings[number as usize];
        let is_changed = following.merge.handle_timeout(now, &mut |_| {});
        following.due = following.merge.poll_timeout().unwrap_or(NEVER);
        let members: Option<Vec<u32>> =
            is_changed.then(|| following.merge.members().iter().map(|member| member.key).collect());
        if following.due <= self.arena.end {
            self.arena.push(following.due, Event::Merge(number));
        }
        if let Some(members) = members {
            self.assign_client(number, &members);
        }
    }
}
