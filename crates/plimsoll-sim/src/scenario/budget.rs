//! How much a file may ask for.
//!
//! A mistyped unit, or some digits too many, would fill the memory or go on for years without a word. So what a run is expected to
//! take is reckoned before it begins, and what is too much is reported where it is asked for. The bounds lie far above what
//! anybody waits for: a run that they let through may still be long, but it has an end, and shows how far it is.

use std::time::Duration;

use plimsoll_config::Checker;

use super::fleet::LONGEST;
use super::fleet_check::text;
use crate::experiment::fleet::plan::Phase;

/// Points of a figure over time: more than there are pixels.
const MOST_SAMPLES: f64 = 1e4;
/// Seeds of one scenario, at most: what they find is kept until all are done.
pub const MOST_SEEDS: usize = 10_000;
/// Requests that arrive, and events of other kinds, in one arm: at a million or so a second, some minutes.
pub(super) const MOST_EVENTS: f64 = 1e8;
/// Users, and clients that keep little in mind.
pub(super) const MOST_PARTIES: f64 = 1e6;
/// Clients of a fleet, and clients and tasks of tiers: a balancer takes some 5 KiB, a throttle with a budget some 2 KiB.
pub(super) const MOST_CLIENTS: f64 = 1e5;
/// Pairs of a client and a backend that it may know, of some 800 bytes.
pub(super) const MOST_PAIRS: f64 = 5e6;
/// Pairs of a client and a backend in an order of preference, of four bytes, and there are some such orders at a time.
pub(super) const MOST_PREFERENCES: f64 = 2e8;
/// Cores of one machine, or how many times faster than an ordinary one it is.
pub(super) const MOST_POWER: f64 = 1e6;

/// Whether a run can have so much; what is no number is too much, too.
pub(super) fn fits(expected: f64, most: f64) -> bool {
    expected <= most
}

/// Reports at `path` that it asks for more of something than a run can have.
pub(super) fn budget(checker: &mut Checker<'_>, path: impl Into<String>, what: &str, expected: f64, most: f64) {
    if !fits(expected, most) {
        let mend = format!("lower it to at most {}", number(most));
        checker.report(path, format!("one run would have about {} {what}", number(expected)), mend);
    }
}

/// Reports a span at `path` that fits into the run more often than a run can go through it, each time for `each` of something. A run that is
/// too long itself is told that alone.
pub(super) fn repeats(checker: &mut Checker<'_>, path: &str, span: Duration, run: Duration, each: f64, most: f64) {
    let count = run.as_secs_f64() / span.as_secs_f64();
    if run <= LONGEST && !fits(count * each, most) {
        let of = if each > 1.0 { format!(" for each of {}", number(each)) } else { String::new() };
        let reason = format!("{} fits into the run ({}) {} times{of}", text(span), text(run), number(count));
        checker.report(
            path,
            reason,
            format!("raise it, so that it fits at most {} times", number((most / each.max(1.0)).floor())),
        );
    }
}

/// Reports a time between two points of figures that makes too many of them.
pub(super) fn samples(checker: &mut Checker<'_>, path: &str, span: Duration, run: Duration) {
    repeats(checker, path, span, run, 1.0, MOST_SAMPLES);
}

/// Reports phases whose loads are more than a run can have, of `rate` a second at a load of 1, and whether there was none.
pub(super) fn phases(checker: &mut Checker<'_>, phases: &[Phase], run: Duration, rate: f64) -> bool {
    let mut good = true;
    for (i, phase) in phases.iter().enumerate() {
        let end = phases.get(i + 1).map_or(run, |next| next.at);
        let expected = rate * phase.load * end.saturating_sub(phase.at).as_secs_f64();
        if !fits(expected, MOST_EVENTS) {
            budget(checker, format!("phases[{i}].load"), "requests", expected, MOST_EVENTS);
            good = false;
        }
    }
    good
}

/// Whole, with digits as long as these can be counted.
pub(super) fn number(number: f64) -> String {
    if number.abs() < 1e12 { format!("{}", number.round()) } else { format!("{number:.1e}") }
}
