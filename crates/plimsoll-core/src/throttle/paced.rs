//! A throttle that goes by each outcome: the same bound as [`adaptive`](super::adaptive), known in seconds.
//!
//! A client keeps one number, the *share* of its requests that it sends, and moves it a little with each outcome:
//!
//! ```text
//! accepted:  share ← share · (1 + g)^(K − 1)
//! rejected:  share ← share ÷ (1 + g)              g = 1 ÷ max(24, outcomes of the last half second)
//! ```
//!
//! The two balance when of K requests sent one is accepted, and only then: so what is sent settles at K times what the backend accepts,
//! as with equation 21-1, but nothing has to be remembered for two minutes. A gain g of one over what half a second brings moves
//! the share e-fold in half a second, whatever the rate; that is slow beside round trips, so it does not swing.
//!
//! Why not two sums that decay, of requests and of accepts, with a shorter window? At a low rate of accepts such a sum is 0 most of the
//! time and a few at others: a client to which 0.2 a second are accepted would forget each before the next. A number that moves with
//! outcomes only stays where it is while there are none.
//!
//! # Certain evidence
//!
//! With 24 a share is the mean of some thirty outcomes. But when so many outcomes are alike, one after another, that in balance it
//! would happen once in ten thousand times (14 at K = 2), the share is wrong for certain, and as long as that goes on g = 1 ÷ max(1, outcomes of the
//! last quarter of a second): a client of 10 requests a second is quiet two seconds after everything has failed. Such a run of rejections is an
//! *outage*, until two requests are accepted with less than half as many rejections between them. From the first of them on the share
//! doubles with each accept, or grows e-fold in a quarter of a second, until one is rejected.
//!
//! # Probes
//!
//! A share alone would reach nothing, and stay. So when nothing was sent for a while the next request is, as a probe: after a second of an
//! outage (0.5 to 1.5, at random, so that clients do not probe in step), after thirty when there is no certainty; and since one of n requests
//! was sent then, the share is at least 1/n. The outcomes of probes count as any others, so they do not add to the bound: the share
//! makes room for them, as long as K times what is accepted is more than the probes alone.
//!
//! # Headroom
//!
//! The share may be above 1, up to [`HEADROOM`], by which it falls before anything is held back: 30% of random failures, which K = 2 allows,
//! are never that many at a time.
//!
//! # Where it is weak
//!
//! Outcomes that come late: above three quarters of a second from request to rejection (time-outs) the share swings about its balance. Among
//! many clients of one backend shares drift apart, since the balance is that of all together: over a minute, one may send
//! several times what another does. Both are so with equation 21-1, whose window makes it slower. And a share is of what is asked for:
//! when that falls to a tenth while there is no outage, so does what is sent, and with it how fast the share learns.

use core::time::Duration;

use rand_core::Rng;

use super::draw::Draw;
use super::{Hold, Multiple, Outcome, Sent, Verdict, ratio};
use crate::{Ratio, Timestamp, decay};

/// Half a second as a time constant: 0.5 s · ln 2. Short beside the seconds in which a recovery should be over, long beside round trips.
const HALF_LIFE: Duration = Duration::from_millis(347);
/// What is counted decays by so much time at once: a twentieth of the half-life is 3%, and a request costs 15 ns less than with each.
const TICK: Duration = Duration::from_millis(16);
/// Outcomes over which the share is a mean, at least. Fewer would not tell a half from a quarter; and where half a second brings about as many,
/// gains rise and fall with chance, and with 16 it shows: 2.08 times what is accepted and not 2.01, at 40 sent a second.
const STEADY: f64 = 24.0;
/// What is so unlikely in balance is not in balance. At 10⁻³ chance does it often enough, with many clients of small rates, for what is
/// sent at fifty times the capacity to be 2.13 times that, and not 2.02.
const UNLIKELY: f64 = 1e-4;
/// An accept after less than this part of the rejections that make an outage ends it. Any accept would be too early: a backend in a flood takes
/// on one in a hundred of what is sheddable, and a client that took that for the end would probe every half minute only, with a share for
/// what was asked in the flood. Only two at once would be too late: where one in five is accepted, clients that all probe each second keep each
/// other there.
const BACK: u32 = 2;
/// The most that the share can be: 27 steps above 1. With K = 2 and 30% of random failures it is below 1 with a probability of (3/7)^27, 10⁻¹⁰;
/// and an outage is answered half a second later for it, at most.
pub const HEADROOM: f64 = 3.0;
/// The least: what is below it makes no difference, as there are probes.
const LEAST: f64 = 1e-9;
/// From the last request to a probe, in an outage and just after it: seldom enough to be no load, often enough to see its end within seconds.
const PROBE_OUTAGE: Duration = Duration::from_secs(1);
/// The same when some are accepted. What is sent by itself tells enough then, and a share that is small for good reason must not be
/// raised: of 0.4 a second that K = 2 allows, a probe every ten would be a quarter.
const PROBE: Duration = Duration::from_secs(30);

/// Outcomes that were alike, one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    Accepted(u32),
    Rejected(u32),
}

/// How much of what one criticality asks for is sent.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    share: f64,
    /// Outcomes of late, decaying.
    outcomes: f64,
    outcomes_at: Timestamp,
    run: Run,
    /// For certain, nearly nothing is accepted.
    outage: bool,
    /// The outage is over, and nothing was rejected since.
    recovering: bool,
    /// Alike, so many outcomes are certain evidence.
    certain: Certain,
    sent_at: Timestamp,
    /// Requests since then.
    asked: u32,
    /// By how much the time to the next probe is longer or shorter, in [0.5, 1.5).
    jitter: f64,
}

/// How many outcomes alike are certain evidence.
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

/// The least n with `probability`^n ≤ [`UNLIKELY`].
fn unlikely(probability: f64) -> u32 {
    let (mut n, mut left) = (0, 1.0);
    while left > UNLIKELY {
        left *= probability;
        n += 1;
    }
    n
}

impl Pace {
    /// One that sends everything.
    #[must_use]
    pub fn new(now: Timestamp, k: Multiple) -> Self {
        Self {
            share: HEADROOM,
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

    /// Whether a request is sent.
    pub fn ask(&mut self, now: Timestamp, rng: &mut impl Rng) -> Verdict {
        let mut draw = Draw::new(rng);
        match self.judge(now, &mut draw) {
            Some(sent) => {
                self.sent(now, sent, &mut draw);
                Verdict::Send(sent)
            }
            None => {
                self.held_back();
                Verdict::Hold(Hold { share: self.held() })
            }
        }
    }

    /// Decides whether the next request would be sent, and its kind. Changes nothing: another
    /// history may throttle it.
    pub(super) fn judge(&self, now: Timestamp, draw: &mut Draw<impl Rng>) -> Option<Sent> {
        if self.share >= 1.0 || draw.unit() < self.share {
            return Some(Sent::Ordinary);
        }
        let interval = if self.outage || self.recovering { PROBE_OUTAGE } else { PROBE };
        let is_due = now.nanos_since(self.sent_at) as f64 >= interval.as_nanos() as f64 * self.jitter;
        is_due.then_some(Sent::Probe)
    }

    /// The request is sent, as [`judge`](Self::judge) said.
    pub(super) fn sent(&mut self, now: Timestamp, sent: Sent, draw: &mut Draw<impl Rng>) {
        if self.share < 1.0 {
            let draw = draw.unit();
            match sent {
                Sent::Ordinary => self.jitter = 0.5 + (draw / self.share).min(1.0),
                Sent::Probe => {
                    self.share = self.share.max(1.0 / f64::from(self.asked.saturating_add(1)));
                    self.jitter = 0.5 + draw;
                }
            }
        }
        self.sent_at = self.sent_at.max(now);
        self.asked = 0;
    }

    /// The request is not sent.
    pub(super) fn held_back(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// Whether nothing but a new history is left of it.
    pub(super) fn is_full(&self) -> bool {
        self.share >= HEADROOM
    }

    /// Whether an accept is news: nearly nothing is accepted, or was until just now.
    pub(super) fn is_in_outage(&self) -> bool {
        self.outage || self.recovering
    }

    /// What became of one that was sent.
    pub fn on_outcome(&mut self, now: Timestamp, k: Multiple, outcome: Outcome) {
        if outcome == Outcome::Unknown {
            return;
        }
        if now.nanos_since(self.outcomes_at) >= TICK.as_nanos() as u64 {
            self.outcomes *= decay::remaining(now, self.outcomes_at, HALF_LIFE);
            self.outcomes_at = now;
        }
        self.outcomes += 1.0;
        if outcome == Outcome::Accepted {
            let (run, rejected) = match self.run {
                Run::Accepted(run) => (run.saturating_add(1), 0),
                Run::Rejected(rejected) => (1, rejected),
            };
            self.run = Run::Accepted(run);
            if self.share >= HEADROOM {
                return;
            }
            if self.outage && rejected < self.certain.rejected / BACK {
                (self.outage, self.recovering) = (false, rejected == 0);
            }
            let is_certain = self.outage || self.recovering || run >= self.certain.accepted;
            let gain = self.gain(is_certain);
            // By one accept at least as much as by one rejection, once the evidence is certain: else a K near 1 would take minutes.
            let exponent = if is_certain { (k.as_f64() - 1.0).max(1.0) } else { k.as_f64() - 1.0 };
            self.share *= power(gain, exponent);
            if self.share >= 1.0 {
                (self.outage, self.recovering) = (false, false);
                self.share = self.share.min(HEADROOM);
            }
        } else {
            let run = if let Run::Rejected(run) = self.run { run.saturating_add(1) } else { 1 };
            self.run = Run::Rejected(run);
            self.recovering = false;
            self.outage |= run >= self.certain.rejected;
            self.share = (self.share / (1.0 + self.gain(self.outage))).max(LEAST);
        }
    }

    /// The share that is held back now.
    #[must_use]
    pub fn held(&self) -> Ratio {
        ratio(1.0 - self.share)
    }

    fn gain(&self, is_certain: bool) -> f64 {
        if is_certain { (self.outcomes / 2.0).max(1.0).recip() } else { self.outcomes.max(STEADY).recip() }
    }
}

/// (1 + `gain`)^`exponent`, to third order: exact for whole exponents up to 3, and near enough for the gains that there are.
fn power(gain: f64, exponent: f64) -> f64 {
    let second = exponent * (exponent - 1.0) / 2.0;
    let third = second * (exponent - 2.0) / 3.0;
    1.0 + gain * (exponent + gain * (second + gain * third))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a new history after these outcomes, each a second after the one before.
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
    fn outage_lasts_until_accepts_come_with_few_rejections_between() {
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
