//! Accidents at random: the same for all arms.

use std::time::Duration;

use plimsoll_core::Timestamp;
use rand_pcg::Pcg64Mcg;

use super::plan::{Accidents, Plan, Spread};
use crate::kernel::streams::unit;
use crate::model::arena::Arena;

/// One accident.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Accident {
    /// The demand of a task rises.
    Spike { source: usize, task: usize },
    /// An owner is lost, and another one follows. Of several servers it is the one at this part of them; of those that
    /// may follow it is the one at the other part.
    Loss { server: f64, successor: f64, lasts: Duration },
}

/// The draws of accidents.
pub(super) struct Draws {
    accidents: Accidents,
    /// Sources whose tasks have rates of their own.
    drifting: Vec<usize>,
    tasks: usize,
    draws: Pcg64Mcg,
}

impl Draws {
    pub(super) fn new<E: Copy>(plan: &Plan, arena: &Arena<E>) -> Self {
        let is_drifting = |place: &usize| matches!(plan.sources[*place].spread, Spread::Drifting { .. });
        Self {
            accidents: plan.accidents,
            drifting: (0..plan.sources.len()).filter(is_drifting).collect(),
            tasks: plan.tasks.get() as usize,
            draws: arena.stream("accidents"),
        }
    }

    /// The time of the accident after `now`. `None`: there is none.
    pub(super) fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let Accidents { every, spikes, losses, elections, .. } = self.accidents;
        every.filter(|_| spikes + losses + elections > 0).map(|every| now + every)
    }

    /// What happens now. Each kind takes the same number of draws.
    pub(super) fn draw(&mut self) -> Option<Accident> {
        let Accidents { spikes, losses, elections, longest, .. } = self.accidents;
        let [kind, first, second, third] = std::array::from_fn(|_| unit(&mut self.draws));
        let at = kind * f64::from(spikes + losses + elections);
        if at < f64::from(spikes) {
            let source = *self.drifting.get(place(first, self.drifting.len()))?;
            return Some(Accident::Spike { source, task: place(second, self.tasks) });
        }
        let is_loss = at < f64::from(spikes + losses);
        let lasts = if is_loss { longest.mul_f64(third) } else { Duration::ZERO };
        Some(Accident::Loss { server: first, successor: second, lasts })
    }
}

/// The place of a number below 1 among `count`.
pub(super) fn place(unit: f64, count: usize) -> usize {
    ((unit * count as f64) as usize).min(count.saturating_sub(1))
}
