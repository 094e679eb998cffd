//! Whether a policy's choice stands, or yields to a backend with a better standing.
//!
//! Two facts speak against a choice: the backend is in slow start ([`SlowStartConfig`]), or it
//! failed or was rate limited more often than the others lately ([`errors`](crate::pick)). The
//! *standing* of a backend is the product of the shares that these two leave it. It counts only
//! relative to another backend's: a backend that is no worse than its peers need not yield.
//!
//! The replacement is the less loaded of two other backends, drawn at random. Under `hash` it is the
//! next backend in the order of the request's key. Asking the policy
//! again would not do: a policy that looks for the fewest active requests would name the same least
//! loaded backend each time. For the same reason slow start works by turns and not by chance. A
//! backend gets one in `n ÷ share` of its locality's picks, however few requests it has.

use super::Balancer;
use super::members::Member;
use crate::health::SlowStartConfig;
use crate::pick::rate_limits::LimitedShares;
use crate::pick::{HashKey, Policy};
use crate::{Random, Timestamp, rng};

/// Draws of another backend before the choice is kept.
const DRAWS: usize = 4;

/// Relative standing from which on a backend does not yield. Without it, of several backends that
/// came within a moment, the first would get all requests.
const MIN_RELATIVE_STANDING: f64 = 0.9;

/// The part of its share that a backend may take, by cause.
#[derive(Clone, Copy, Debug)]
struct Standing {
    /// The part that slow start leaves it.
    warmth: f64,
    /// The part that recent failures and rate limits leave it.
    success: f64,
}

impl Standing {
    fn of(member: &Member, now: Timestamp, slow_start: &SlowStartConfig, limited: &LimitedShares) -> Self {
        let success = 1.0 - f64::from(member.failing(now, limited));
        Self { warmth: member.warming.share(now, slow_start), success }
    }

    /// Both parts relative to another backend's.
    fn relative_to(&self, other: &Self) -> Self {
        Self { warmth: self.warmth / other.warmth, success: self.success / other.success }
    }

    fn is_alike(&self) -> bool {
        self.warmth * self.success >= MIN_RELATIVE_STANDING
    }
}

/// Whether nothing speaks against this backend: the fast path of nearly all picks.
fn is_settled(member: &Member, now: Timestamp, slow_start: &SlowStartConfig, limited: &LimitedShares) -> bool {
    let at_most = member.errors.max_share() + member.limited.excess(now, limited);
    at_most <= 1.0 - MIN_RELATIVE_STANDING as f32 && member.warming.share(now, slow_start) >= 1.0
}

impl Balancer {
    /// The slot that gets the next request; the locality must have a usable backend.
    pub(super) fn choose(
        &mut self,
        now: Timestamp,
        rng: &mut impl Random,
        locality: usize,
        key: Option<HashKey>,
    ) -> u32 {
        let view = self.members.view(now, locality, key);
        let (slow_start, limited) = (&self.config.slow_start, &self.members.limited);
        let policy = &mut self.groups[locality].policy;
        let chosen = policy.choose(&view, rng);
        let member = self.members.at(chosen);
        if is_settled(member, now, slow_start, limited) {
            return chosen;
        }
        let standing = Standing::of(member, now, slow_start, limited);
        let mut passed = [chosen; DRAWS + 1];
        for draw in 1..=DRAWS {
            let other = policy.alternative(&view, &passed[..draw], rng);
            passed[draw] = other;
            let other_standing = Standing::of(self.members.at(other), now, slow_start, limited);
            let relative = standing.relative_to(&other_standing);
            if relative.is_alike() {
                continue;
            }
            // With failures it gets a part of the share that the policy gives it; in slow start, a
            // part of an even share.
            let keeps = rng::unit(rng) < relative.success
                && (relative.warmth >= MIN_RELATIVE_STANDING || self.takes_turn(chosen, relative.warmth));
            if keeps {
                return chosen;
            }
            self.groups[locality].policy.on_replaced();
            return other;
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
