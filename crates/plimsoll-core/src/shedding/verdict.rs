//! The verdict on a server's shedding, in one word.
//!
//! | verdict | condition |
//! |---|---|
//! | `fine` | nothing was shed in the last five minutes |
//! | `as-intended` | no later row holds: batch was shed, or a customer is at its limit |
//! | `capacity-short` | capacity was short for twelve hours without a pause: batch waits too long |
//! | `users-affected` | one in a thousand or more user-visible requests was lost over a minute |
//!
//! The last row that holds counts. Two periods and one share decide:
//!
//! - *Throttled* is a period of shedding without a pause of five minutes. *Short* is a period of
//!   shedding for want of capacity ([`Rejection::is_shortage`]), also without such a pause: a customer
//!   over its own limit tells nothing about capacity.
//! - *Affected* begins at one lost request in a thousand over a minute. It ends at less than half
//!   of that over five minutes ([`Rejection::affects_users`]).
//!
//! A beginning shows within a minute; an end counts only after five. So a gate that sheds every
//! other minute keeps one verdict in place of two that alternate. The verdict is updated every ten
//! seconds and at each query.

use core::time::Duration;

use super::history::STEP;
use crate::{Rejection, Timestamp};

/// Pause that ends a period of shedding.
pub(super) const PAUSE: Duration = Duration::from_secs(300);
/// Time over which lost requests make users affected.
pub(super) const NOTICE: Duration = Duration::from_secs(60);
/// Share of user-visible requests that may be lost: a service that promises 99.9% may lose as many.
const AFFECTED: f64 = 1e-3;
/// Updates after the last request, beyond which the verdict cannot change.
const MAX_UPDATES: u64 = PAUSE.as_secs() / STEP.as_secs() + 1;

/// Verdict on the shedding; a greater one is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing is shed.
    #[default]
    Fine,
    /// Only requests that can wait are shed, and not for too long, or a customer is at its limit.
    AsIntended,
    /// Shedding for want of capacity has lasted longer than requests can wait.
    CapacityShort,
    /// Users lose requests.
    UsersAffected,
}

impl Verdict {
    /// All verdicts, the best first.
    pub const ALL: [Self; 4] = [Self::Fine, Self::AsIntended, Self::CapacityShort, Self::UsersAffected];

    /// The verdict's name in metrics and in the API.
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

/// User-visible requests of some period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UserVisible {
    pub(super) offered: u64,
    pub(super) lost: u64,
}

impl UserVisible {
    fn share(self) -> f64 {
        if self.lost == 0 { 0.0 } else { self.lost as f64 / self.offered.max(self.lost) as f64 }
    }
}

/// A period of shedding without a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spell {
    pub(super) begin: Timestamp,
    pub(super) last: Timestamp,
}

impl Spell {
    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last) >= PAUSE
    }

    fn extend(spell: &mut Option<Self>, now: Timestamp) {
        match spell {
            Some(spell) if !spell.is_over(now) => spell.last = spell.last.max(now),
            _ => *spell = Some(Self { begin: now, last: now }),
        }
    }
}

/// State of the verdict.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    short_after: Duration,
    pub(super) shedding: Option<Spell>,
    short: Option<Spell>,
    is_affected: bool,
    verdict: Verdict,
    since: Timestamp,
    updated: Timestamp,
}

impl Judge {
    pub(super) fn new(now: Timestamp, short_after: Duration) -> Self {
        Self {
            short_after,
            shedding: None,
            short: None,
            is_affected: false,
            verdict: Verdict::Fine,
            since: now,
            updated: now,
        }
    }

    /// Notes a shed request.
    pub(super) fn on_shed(&mut self, now: Timestamp, reason: Rejection) {
        Spell::extend(&mut self.shedding, now);
        if reason.is_shortage() {
            Spell::extend(&mut self.short, now);
        }
    }

    /// Times for an update: each step since the last update until now, as far as something can have
    /// changed.
    pub(super) fn due(&self, now: Timestamp) -> impl Iterator<Item = Timestamp> + use<> {
        let updated = self.updated;
        let steps = now.nanos_since(updated) / STEP.as_nanos() as u64;
        (1..=steps.min(MAX_UPDATES)).map(move |step| updated + STEP * step as u32).take_while(move |at| *at < now)
    }

    /// Whether a step has passed since the last update or the spell is over. A spell that is over
    /// must be recorded before the next one begins.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        now.since(self.updated) >= STEP || self.shedding.is_some_and(|spell| spell.is_over(now))
    }

    /// Updates the verdict from the counts of the last [`NOTICE`] and the last [`PAUSE`]. Returns
    /// the spell that is over, if any.
    pub(super) fn update(&mut self, now: Timestamp, lately: UserVisible, before: UserVisible) -> Option<Spell> {
        self.updated = self.updated.max(now);
        let over = self.shedding.take_if(|spell| spell.is_over(now));
        let _ = self.short.take_if(|spell| spell.is_over(now));
        self.is_affected = match self.is_affected {
            false => lately.share() >= AFFECTED,
            true => lately.share() >= AFFECTED || before.share() >= 0.5 * AFFECTED,
        };
        let is_short = self.short.is_some_and(|spell| now.since(spell.begin) >= self.short_after);
        let verdict = if self.is_affected {
            Verdict::UsersAffected
        } else if is_short {
            Verdict::CapacityShort
        } else if self.shedding.is_some() {
            Verdict::AsIntended
        } else {
            Verdict::Fine
        };
        if verdict != self.verdict {
            let begin = self.shedding.filter(|_| self.verdict == Verdict::Fine && verdict == Verdict::AsIntended);
            (self.verdict, self.since) = (verdict, begin.map_or(now, |spell| spell.begin));
        }
        over
    }

    /// The verdict of the last update, and its beginning.
    pub(super) fn verdict(&self) -> (Verdict, Timestamp) {
        (self.verdict, self.since)
    }
}
