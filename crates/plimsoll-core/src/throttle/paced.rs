//! A throttle that follows each outcome: the bound of [`adaptive`](super::adaptive), within
//! seconds.
//!
//! A client keeps one number, the *share* of its requests that it sends. Each outcome moves it a
//! little:
//!
//! ```text
//! accepted:  share ← share · (1 + g)^(K − 1)
//! rejected:  share ← share ÷ (1 + g)              g = 1 ÷ max(24, outcomes of the last ½ s)
//! ```
//!
//! The two balance only if one of K sent requests is accepted. So the sent requests settle at K
//! times the accepted ones, as with equation 21-1, but without a memory of two minutes. A gain g of
//! one over the outcomes of half a second moves the share e-fold in half a second, at any rate.
//! That is slow beside round trips, so the share does not swing.
//!
//! The alternative is two decaying sums, of requests and of accepts, with a shorter window. At a
//! low rate of accepts, such a sum is 0 most of the time and a few at others. A client with 0.2
//! accepts a second would forget each before the next. A number that moves only with outcomes stays
//! while there are none.
//!
//! # Certain evidence
//!
//! With 24, a share is the mean of some thirty outcomes. But a run of equal outcomes may be so long
//! that it has a probability of 10⁻⁴ in balance (14 at K = 2). Then the share is certainly wrong.
//! While the run goes on, g = 1 ÷ max(1, outcomes of the last quarter of a second): a client of 10
//! requests a second is quiet two seconds after everything begins to fail. Such a run of rejections
//! is an *outage*. It lasts until two requests are accepted with less than half as many rejections
//! between them. From the first of these accepts on, the share doubles with each accept, or grows
//! e-fold in a quarter of a second, until a rejection.
//!
//! # Probes
//!
//! A share alone would fall towards nothing and stay there. So after a time without a sent request
//! the next one is sent as a probe. That time is a second in an outage (0.5 to 1.5, at random, so
//! that clients do not probe in step), and thirty without certainty. As one of n requests was sent
//! then, the share is at least 1/n. Outcomes of probes count like others, so probes do not add to
//! the bound: the share makes up for them, as long as K times the accepted requests exceed the
//! probes.
//!
//! # Headroom
//!
//! The share may exceed 1, up to [`MAX_SHARE`], and throttling begins only below 1. So 30% of
//! random failures, which K = 2 allows, never come in a run long enough to throttle.
//!
//! # Where it is weak
//!
//! - *Late outcomes.* Above three quarters of a second from request to rejection (timeouts) the
//!   share swings about its balance.
//! - *Many clients of one backend.* Their shares drift apart, since the balance is that of all
//!   together: over a minute, one may send several times as much as another. With equation 21-1
//!   they do too, only slower by its window.
//! - *Falling load.* The share is relative to the offered load. If that falls to a tenth without an
//!   outage, so do the sent requests, and the share learns more slowly.

use core::time::Duration;

use super::draw::Draw;
use super::{Multiple, Outcome, SendKind, ThrottledShare, Verdict, ratio};
use crate::{Random, Ratio, Timestamp, decay};

/// A time constant of half a second: 0.5 s · ln 2. It is short beside the seconds of a recovery,
/// and long beside round trips.
const HALF_LIFE: Duration = Duration::from_millis(347);
/// Interval between two decays of the count. A twentieth of the half-life is an error of 3%, and
/// saves 15 ns a request.
pub(super) const TICK: Duration = Duration::from_millis(16);
/// Smallest number of outcomes that the share averages. Fewer would not tell a half from a quarter.
/// If half a second brings about as many, gains vary at random. With 16 it shows: 2.08 times the
/// accepted requests in place of 2.01, at 40 sent a second.
const STEADY: f64 = 24.0;
/// A run of this probability in balance proves that there is no balance. With 10⁻³, chance produces
/// such runs often enough among many clients of small rates: at fifty times the capacity they send
/// 2.13 times the capacity in place of 2.02.
const UNLIKELY: f64 = 1e-4;
/// An accept ends an outage after less than this part of the rejections that make one. Any accept
/// would be too early: a backend in a flood accepts one in a hundred sheddable requests. A client
/// that took that for the end would probe every half minute only, with a share relative to the
/// flood. Only two accepts in a row would be too late: if one in five is accepted, clients that all
/// probe each second keep each other in the outage.
const BACK: u32 = 2;
/// Largest share: 27 steps above 1. With K = 2 and 30% of random failures it is below 1 with a
/// probability of (3/7)^27, 10⁻¹⁰. It delays the reaction to an outage by half a second at most.
pub const MAX_SHARE: f64 = 3.0;
/// Smallest share. A smaller one makes no difference, thanks to probes.
const MIN_SHARE: f64 = 1e-9;
/// Time from the last request to a probe, in an outage and just after it. It is long enough to be
/// no load, and short enough to see the end within seconds.
const PROBE_OUTAGE: Duration = Duration::from_secs(1);
/// The same while some requests are accepted. Ordinary requests bring evidence enough then, and
/// probes must not raise a share that is small for good reason: of the 0.4 requests a second that K
/// = 2 may allow, one probe every ten seconds would be a quarter.
const PROBE: Duration = Duration::from_secs(30);

/// A run of equal outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Accepted(u32),
    Rejected(u32),
}

/// Share of the requests of one criticality that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    share: f64,
    /// Recent outcomes, decaying.
    outcomes: f64,
    outcomes_at: Timestamp,
    run: Run,
    /// Whether nearly nothing is accepted, for certain.
    outage: bool,
    /// Whether an outage has ended without a rejection since.
    recovering: bool,
    /// Lengths of runs that are certain evidence.
    certain: Certain,
    sent_at: Timestamp,
    /// Requests since then.
    asked: u32,
    /// Factor on the time to the next probe, in [0.5, 1.5).
    jitter: f64,
}

/// Lengths of runs that are certain evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Certain {
    accepted: u32,
    rejected: u32,
}

impl Certain {
    /// In balance one of K is accepted.
    fn new(k: Multiple) -> Self {
        let accepted = 1.0 / k.as_f64();
        Self { accepted: unlikely(accepted), rejected: unlikely(1.0 - accepted) }
    }
}

/// The smallest n with `probability`^n ≤ [`UNLIKELY`].
fn unlikely(probability: f64) -> u32 {
    let (mut n, mut left) = (0, 1.0);
    while left > UNLIKELY {
        left *= probability;
        n += 1;
    }
    n
}

impl Pace {
    /// A throttle that sends everything.
    #[must_use]
    pub fn new(now: Timestamp, k: Multiple) -> Self {
        Self {
            share: MAX_SHARE,
            outcomes: 0.0,
            outcomes_at: now,
            run: Run::Accepted(0),
            outage: false,
            recovering: false,
            certain: Certain::new(k),
            sent_at: now,
            asked: 0,
            jitter: 1.0,
        }
    }

    /// Decides on a request and counts it.
    pub fn ask(&mut self, now: Timestamp, rng: &mut impl Random) -> Verdict {
        let mut draw = Draw::new(rng);
        match self.judge(now, &mut draw) {
            Some(sent) => {
                self.on_sent(now, sent, &mut draw);
                Verdict::Send(sent)
            }
            None => {
                self.on_throttled();
                Verdict::Throttle(ThrottledShare { share: self.throttled_share() })
            }
        }
    }

    /// Decides whether the next request would be sent, and its kind. Changes nothing: another
    /// history may throttle it.
    pub(super) fn judge(&self, now: Timestamp, draw: &mut Draw<impl Random>) -> Option<SendKind> {
        if self.share >= 1.0 || draw.unit() < self.share {
            return Some(SendKind::Ordinary);
        }
        let interval = if self.outage || self.recovering { PROBE_OUTAGE } else { PROBE };
        let is_due = now.nanos_since(self.sent_at) as f64 >= interval.as_nanos() as f64 * self.jitter;
        is_due.then_some(SendKind::Probe)
    }

    /// Notes that the request is sent, as [`judge`](Self::judge) decided.
    pub(super) fn on_sent(&mut self, now: Timestamp, sent: SendKind, draw: &mut Draw<impl Random>) {
        if self.share < 1.0 {
            let draw = draw.unit();
            match sent {
                SendKind::Ordinary => self.jitter = 0.5 + (draw / self.share).min(1.0),
                SendKind::Probe => {
                    self.share = self.share.max(1.0 / f64::from(self.asked.saturating_add(1)));
                    self.jitter = 0.5 + draw;
                }
            }
        }
        self.sent_at = self.sent_at.max(now);
        self.asked = 0;
    }

    /// Notes that the request is throttled.
    pub(super) fn on_throttled(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// Whether a new history would decide the same.
    pub(super) fn is_like_new(&self) -> bool {
        self.share >= MAX_SHARE
    }

    /// Whether an accept is news: nearly nothing is accepted, or was until just now.
    pub(super) fn is_in_outage(&self) -> bool {
        self.outage || self.recovering
    }

    /// Counts accepts while the share is at its maximum: they do not move it.
    pub(super) fn on_quiet_accepts(&mut self, now: Timestamp, count: u32) {
        self.count(now, count);
        let run = if let Run::Accepted(run) = self.run { run } else { 0 };
        self.run = Run::Accepted(run.saturating_add(count));
    }

    /// Counts outcomes.
    fn count(&mut self, now: Timestamp, count: u32) {
        if now.nanos_since(self.outcomes_at) >= TICK.as_nanos() as u64 {
            self.outcomes *= decay::remaining(now, self.outcomes_at, HALF_LIFE);
            self.outcomes_at = now;
        }
        self.outcomes += f64::from(count);
    }

    /// Moves the share by the outcome of a sent request.
    pub fn on_outcome(&mut self, now: Timestamp, k: Multiple, outcome: Outcome) {
        if outcome == Outcome::Unknown {
            return;
        }
        self.count(now, 1);
        if outcome == Outcome::Accepted {
            let (run, rejected) = match self.run {
                Run::Accepted(run) => (run.saturating_add(1), 0),
                Run::Rejected(rejected) => (1, rejected),
            };
            self.run = Run::Accepted(run);
            if self.share >= MAX_SHARE {
                return;
            }
            if self.outage && rejected < self.certain.rejected / BACK {
                (self.outage, self.recovering) = (false, rejected == 0);
            }
            let is_certain = self.outage || self.recovering || run >= self.certain.accepted;
            let gain = self.gain(is_certain);
            // With certain evidence, an accept raises the share at least as much as a rejection
            // lowers it: else a K near 1 would take minutes.
            let exponent = if is_certain { (k.as_f64() - 1.0).max(1.0) } else { k.as_f64() - 1.0 };
            self.share *= power(gain, exponent);
            if self.share >= 1.0 {
                (self.outage, self.recovering) = (false, false);
                self.share = self.share.min(MAX_SHARE);
            }
        } else {
            let run = if let Run::Rejected(run) = self.run { run.saturating_add(1) } else { 1 };
            self.run = Run::Rejected(run);
            self.recovering = false;
            self.outage |= run >= self.certain.rejected;
            self.share = (self.share / (1.0 + self.gain(self.outage))).max(MIN_SHARE);
        }
    }

    /// The share of requests that is throttled now.
    #[must_use]
    pub fn throttled_share(&self) -> Ratio {
        ratio(1.0 - self.share)
    }

    fn gain(&self, is_certain: bool) -> f64 {
        if is_certain { (self.outcomes / 2.0).max(1.0).recip() } else { self.outcomes.max(STEADY).recip() }
    }
}

/// (1 + `gain`)^`exponent`, to third order: exact for whole exponents up to 3, and close enough for
/// the gains in use.
fn power(gain: f64, exponent: f64) -> f64 {
    let second = exponent * (exponent - 1.0) / 2.0;
    let third = second * (exponent - 2.0) / 3.0;
    1.0 + gain * (exponent + gain * (second + gain * third))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pace after these outcomes, one a second, and the time of the last.
    fn after(k: Multiple, outcomes: &[(Outcome, u64)]) -> (Pace, Timestamp) {
        let (mut pace, mut now) = (Pace::new(Timestamp::ZERO, k), Timestamp::ZERO);
        for (outcome, times) in outcomes {
            for _ in 0..*times {
                now = now + Duration::from_secs(1);
                pace.on_outcome(now, k, *outcome);
            }
        }
        (pace, now)
    }

    #[test]
    fn outage_lasts_until_accepts_with_few_rejections_between() {
        use Outcome::{Accepted, Rejected};
        for (outcomes, outage, recovering) in [
            (&[(Rejected, 13)][..], false, false),
            (&[(Rejected, 14)], true, false),
            (&[(Rejected, 30), (Accepted, 1)], true, false),
            (&[(Rejected, 30), (Accepted, 1), (Rejected, 7), (Accepted, 1)], true, false),
            (&[(Rejected, 30), (Accepted, 1), (Rejected, 6), (Accepted, 1)], false, false),
            (&[(Rejected, 30), (Accepted, 2)], false, true),
            (&[(Rejected, 30), (Accepted, 2), (Rejected, 1)], false, false),
            (&[(Rejected, 30), (Accepted, 20)], false, false),
        ] {
            let (pace, _) = after(Multiple::DEFAULT, outcomes);
            assert_eq!((pace.outage, pace.recovering), (outage, recovering), "{outcomes:?}");
            assert_eq!(pace.is_in_outage(), outage || recovering, "{outcomes:?}");
        }
    }

    #[test]
    fn share_doubles_with_each_accept_at_the_end_of_an_outage() {
        for (k, times) in [(1.5, 2.0), (2.0, 2.0), (3.0, 4.0)] {
            let k = Multiple::new(k).expect("it is in range");
            let (mut pace, mut now) = after(k, &[(Outcome::Rejected, 30)]);
            for _ in 0..3 {
                let before = pace.share;
                now = now + Duration::from_secs(1);
                pace.on_outcome(now, k, Outcome::Accepted);
                assert!((pace.share / before - times).abs() < 1e-9, "{k}: {before}, then {}", pace.share);
            }
        }
    }

    #[test]
    fn power_is_exact_for_small_whole_exponents_and_near_for_others() {
        for (gain, exponent, expected) in [
            (0.1, 0.0, 1.0),
            (0.1, 1.0, 1.1),
            (0.1, 2.0, 1.21),
            (0.1, 3.0, 1.331),
            (1.0, 3.0, 8.0),
            (0.0404, 0.5, 1.02),
        ] {
            let found = power(gain, exponent);
            assert!((found - expected).abs() < 1e-6, "{gain}, {exponent}: {found}");
        }
    }
}
