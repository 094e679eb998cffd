//! Whether a policy's choice stands, or yields to a backend that is better off.
//!
//! Two things can speak against a choice: it is in slow start ([`SlowStartConfig`]), or it failed lately or was rate limited more
//! often than the others ([`errors`](crate::pick)). Its *standing* is the product of the shares that these leave it, and counts
//! only relative to others: a backend that is no worse off than its fellows has nothing to yield.
//!
//! The one that takes over is the emptier of two others, drawn at random. Why not ask the policy again: one that looks
//! for the fewest active requests would name the same, emptiest, backend each time. For the same reason slow start
//! is not left to chance but to turns: one in `n ÷ share` of the picks of its locality, however empty the backend is.

use rand_core::Rng;

use super::Balancer;
use super::members::Member;
use crate::health::SlowStartConfig;
use crate::pick::rate_limits::LimitedShares;
use crate::pick::{Policy, p2c};
use crate::{Timestamp, rng};

/// How often somebody better off is looked for before a choice is kept.
const DRAWS: u32 = 4;

/// A backend whose standing is this near to another's has nothing to yield to it. When all came within a moment of
/// each other, the first must not get everything.
const ALIKE: f64 = 0.9;

/// How much of what a policy gives it a backend may take: shares of one.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// By slow start.
    warmth: f64,
    /// By its recent failures and rate limits.
    success: f64,
}

impl Standing {
    fn of(member: &Member, now: Timestamp, slow_start: &SlowStartConfig, limited: &LimitedShares) -> Self {
        let success = 1.0 - f64::from(member.failing(now, limited));
        Self { warmth: member.warming.share(now, slow_start), success }
    }

    /// The two as parts of another's.
    fn relative_to(&self, other: &Self) -> Self {
        Self { warmth: self.warmth / other.warmth, success: self.success / other.success }
    }

    fn is_alike(&self) -> bool {
        self.warmth * self.success >= ALIKE
    }
}

/// Whether nothing speaks against choosing this backend: the quick way for nearly all picks.
fn is_settled(member: &Member, now: Timestamp, slow_start: &SlowStartConfig, limited: &LimitedShares) -> bool {
    let at_most = member.errors.at_most() + member.limited.excess(now, limited);
    at_most <= 1.0 - ALIKE as f32 && member.warming.share(now, slow_start) >= 1.0
}

impl Balancer {
    /// The slot of the backend of a locality that gets the next request; somebody there is usable.
    pub(super) fn choose(&mut self, now: Timestamp, rng: &mut impl Rng, locality: usize) -> u32 {
        let view = self.members.view(now, locality);
        let (slow_start, limited) = (&self.config.slow_start, &self.members.limited);
        let chosen = self.groups[locality].policy.choose(&view, rng);
        let member = self.members.at(chosen);
        if is_settled(member, now, slow_start, limited) {
            return chosen;
        }
        let standing = Standing::of(member, now, slow_start, limited);
        for _ in 0..DRAWS {
            let other = p2c::other_than(chosen, &view, rng);
            let other_standing = Standing::of(self.members.at(other), now, slow_start, limited);
            let relative = standing.relative_to(&other_standing);
            if relative.is_alike() {
                continue;
            }
            // With failures it gets that part of what the policy means it to have; in slow start, of an even share.
            let keeps = rng::unit(rng) < relative.success
                && (relative.warmth >= ALIKE || self.takes_turn(chosen, relative.warmth));
            return if keeps { chosen } else { other };
        }
        chosen
    }

    fn takes_turn(&mut self, slot: u32, share: f64) -> bool {
        let locality = self.members.locality(slot);
        let every = (self.members.usable[locality].len() as f64 / share) as u64;
        self.members.at_mut(slot).warming.take_turn(self.groups[locality].picks, every)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standing_counts_relative_to_that_of_another() {
        let relative = Standing { warmth: 0.2, success: 0.6 }.relative_to(&Standing { warmth: 0.5, success: 0.8 });
        assert!((relative.warmth - 0.4).abs() < 1e-9 && (relative.success - 0.75).abs() < 1e-9, "{relative:?}");
    }

    #[test]
    fn standings_are_alike_from_nine_tenths_on() {
        for (warmth, success, is_alike) in
            [(1.0, 0.9, true), (1.0, 0.89, false), (0.95, 0.96, true), (0.95, 0.93, false), (3.0, 0.5, true)]
        {
            assert_eq!(Standing { warmth, success }.is_alike(), is_alike, "{warmth} of warmth, {success} of success");
        }
    }
}
