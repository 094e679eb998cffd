//! What throttling means, in one word.
//!
//! | verdict | when |
//! |---|---|
//! | `fine` | nothing was turned away in the last five minutes |
//! | `as-intended` | something was, and nothing of what follows is so: batch waits, or a customer is at its limit |
//! | `capacity-short` | capacity has been short for twelve hours without a pause: even work that can wait has waited for too long |
//! | `users-affected` | of the requests that users wait for, one in a thousand or more was lost over a minute |
//!
//! The last that holds counts. Two clocks and one share make it:
//!
//! - *Throttled* is a time with something turned away that has no pause of five minutes in it. *Short* is the same of what is turned
//!   away for want of capacity ([`Cause::is_shortage`]): a customer over its own limit says nothing of that.
//! - *Affected* begins at one lost in a thousand over a minute, and ends when it is less than half of that over five minutes
//!   ([`Cause::affects_users`]).
//!
//! What begins is seen within a minute; what ends is believed after five. So a gate that turns something away every other minute has
//! one verdict and not two that alternate. It is looked at each ten seconds, and when somebody asks.

use core::time::Duration;

use super::Cause;
use super::history::STEP;
use crate::Timestamp;

/// As long as nothing has to be turned away for throttling to be over.
pub(super) const PAUSE: Duration = Duration::from_secs(300);
/// Over this it is seen that users are affected.
pub(super) const NOTICE: Duration = Duration::from_secs(60);
/// Of the requests that users wait for: what a service that promises 99.9% may lose.
const AFFECTED: f64 = 1e-3;
/// Looks at a time without requests, after which nothing changes any more.
const LOOKS: u64 = PAUSE.as_secs() / STEP.as_secs() + 1;

/// What throttling means; the greater, the worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing is turned away.
    #[default]
    Fine,
    /// Only what can wait is turned away, and not for too long; or a customer that is at its limit.
    AsIntended,
    /// Something has been turned away for want of capacity for so long that what can wait has waited for too long.
    CapacityShort,
    /// Users lose requests.
    UsersAffected,
}

impl Verdict {
    /// All, the best first.
    pub const ALL: [Self; 4] = [Self::Fine, Self::AsIntended, Self::CapacityShort, Self::UsersAffected];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::AsIntended => "as-intended",
            Self::CapacityShort => "capacity-short",
            Self::UsersAffected => "users-affected",
        }
    }
}

/// Requests that users wait for, in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Visible {
    pub(super) offered: u64,
    pub(super) lost: u64,
}

impl Visible {
    fn share(self) -> f64 {
        if self.lost == 0 { 0.0 } else { self.lost as f64 / self.offered.max(self.lost) as f64 }
    }
}

/// A time with something turned away, without a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spell {
    pub(super) begun: Timestamp,
    pub(super) last: Timestamp,
}

impl Spell {
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last) >= PAUSE
    }

    fn go_on(spell: &mut Option<Self>, now: Timestamp) {
        match spell {
            Some(spell) if !spell.is_over(now) => spell.last = spell.last.max(now),
            _ => *spell = Some(Self { begun: now, last: now }),
        }
    }
}

/// Gives the verdict.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    short_after: Duration,
    pub(super) throttled: Option<Spell>,
    short: Option<Spell>,
    is_affected: bool,
    verdict: Verdict,
    since: Timestamp,
    looked: Timestamp,
}

impl Judge {
    pub(super) fn new(now: Timestamp, short_after: Duration) -> Self {
        Self {
            short_after,
            throttled: None,
            short: None,
            is_affected: false,
            verdict: Verdict::Fine,
            since: now,
            looked: now,
        }
    }

    /// A request was turned away.
    pub(super) fn on_shed(&mut self, now: Timestamp, cause: Cause) {
        Spell::go_on(&mut self.throttled, now);
        if cause.is_shortage() {
            Spell::go_on(&mut self.short, now);
        }
    }

    /// When to look: at each step since the last look, as far as something can have changed, and now.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let looked = self.looked;
        let steps = now.nanos_since(looked) / STEP.as_nanos() as u64;
        (1..=steps.min(LOOKS)).map(move |step| looked + STEP * step as u32).take_while(move |at| *at < now)
    }

    /// Whether a step has gone by since the last look, or a spell is over: it is remembered before the next one begins.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now.since(self.looked) >= STEP || self.throttled.is_some_and(|spell| spell.is_over(now))
    }

    /// Looks, given what happened in the [`NOTICE`] and the [`PAUSE`] before now. Returns a time with throttling that is over.
    pub(super) fn look(&mut self, now: Timestamp, lately: Visible, before: Visible) -> Option<Spell> {
        self.looked = self.looked.max(now);
        let over = self.throttled.take_if(|spell| spell.is_over(now));
        let _ = self.short.take_if(|spell| spell.is_over(now));
        self.is_affected = match self.is_affected {
            false => lately.share() >= AFFECTED,
            true => lately.share() >= AFFECTED || before.share() >= 0.5 * AFFECTED,
        };
        let is_short = self.short.is_some_and(|spell| now.since(spell.begun) >= self.short_after);
        let verdict = if self.is_affected {
            Verdict::UsersAffected
        } else if is_short {
            Verdict::CapacityShort
        } else if self.throttled.is_some() {
            Verdict::AsIntended
        } else {
            Verdict::Fine
        };
        if verdict != self.verdict {
            let begun = self.throttled.filter(|_| self.verdict == Verdict::Fine && verdict == Verdict::AsIntended);
            (self.verdict, self.since) = (verdict, begun.map_or(now, |spell| spell.begun));
        }
        over
    }

    /// The verdict of the last look, and since when it has been that.
    pub(super) fn verdict(&self) -> (Verdict, Timestamp) {
        (self.verdict, self.since)
    }
}
