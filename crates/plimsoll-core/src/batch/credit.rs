//! Credit: the number of batch requests that may be at backends now, up to a target utilization.
//!
//! ```text
//! accepted, u ≤ t:  c ← c + (M ÷ 16) · h · Δ ÷ R    h = min(1, (t − u) ÷ (t ÷ 4)); 1 without reports
//! accepted, u > t:  c ← c · (1 − h · Δ ÷ 2R)        h = min(1, (u − t) ÷ (t ÷ 4))
//! rejected:         c ← c ÷ 2, at most once a round trip
//!
//! c: credit, in requests, from 1 to M
//! M: the maximum of credit
//! t: target utilization
//! u: utilization of the backends, by their reports of the last second
//! Δ: time since the last step, at most R
//! R: max(round trip, half a second)
//! ```
//!
//! Growth is additive and decrease multiplicative, as in TCP's window and for its reason: several
//! proxies converge to even shares without knowing each other. Why steps go by time and not by
//! answers: a report is a mean over some time. A sender that takes many steps within that time is
//! far above the target when the first report of them arrives. Growth slows down before the target,
//! so that credit settles.
//!
//! Why not a rate? A slower backend would have more and more requests in its queues. Credit bounds
//! the requests that are there, each of which can be a connection.
//!
//! Unused credit does not grow: nothing was learned of it. After a pause of ten seconds credit
//! starts again, since earlier knowledge is out of date.
//!
//! # At most once a round trip
//!
//! When a backend is full, all requests on their way to it are rejected, and tell the same fact. So
//! only the rejection of a request that was sent after the last decrease counts.
//!
//! # The fuse
//!
//! If credit is one request and that is rejected, there is a rest before the next: 50 ms, 100 ms,
//! up to 2 s, each at random from half to one and a half of it, until a request is accepted. So a
//! service that is down, or has no capacity for batch work, gets one probe at a time, however many
//! requests wait. Failures that are a request's own fault do not count
//! ([`requeue`](super::requeue)); otherwise one request could stop all others.
//!
//! # Failure modes
//!
//! Without load reports, only rejections show an overload, so backends are kept as busy as they
//! allow. All backends share one credit: a single backend that rejects everything lowers it for
//! all, until balancing avoids that backend.

use core::num::NonZeroU32;
use core::time::Duration;

use crate::{Random, Timestamp, decay, rng};

/// The shortest time of a full step: about the time that reports are a mean over.
const ROUND: Duration = Duration::from_millis(500);
/// Rounds from one request to the maximum.
const STEPS: f64 = 16.0;
/// The distance from the target within which steps become shorter: a quarter of it.
const BAND: f64 = 0.25;
/// The part of credit that a full step takes, at a quarter above the target or more.
const DECREASE: f64 = 0.5;
/// Half-life of reports: half of their mean is from the last 700 ms.
const REPORTS_HALF_LIFE: Duration = Duration::from_millis(700);
/// The largest utilization that a report counts as, in targets. Credit falls no faster for more. A
/// backend that reports more uses another unit, or no number, and would outweigh the others for
/// minutes.
const MAX_REPORT: f64 = 4.0;
/// The age at which reports expire.
const REPORTS_EXPIRE: Duration = Duration::from_secs(10);
/// The time without a request after which credit starts again.
const IDLE: Duration = Duration::from_secs(10);
/// The first rest.
const REST: Duration = Duration::from_millis(50);
/// The longest rest, before its random factor: a recovered service is noticed within three seconds.
const MAX_REST: Duration = Duration::from_secs(2);
/// The number of round trips in their mean.
const ROUND_TRIPS: f64 = 8.0;

/// The utilization of backends up to which batch work may go.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Target(f64);

impl Target {
    /// Interactive requests at a backend with a utilization of 70% wait 2.3 times their service
    /// time, at 80% four times, at 90% nine times (M/M/1).
    pub const DEFAULT: Self = Self(0.7);

    /// `utilization` as a target; `None` unless it is above 0 and at most 1.
    #[must_use]
    pub fn new(utilization: f64) -> Option<Self> {
        (utilization > 0.0 && utilization <= 1.0).then_some(Self(utilization))
    }

    /// As a number.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl Default for Target {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The outcome of a request at a backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// The backend admitted it.
    Accepted,
    /// The backend was overloaded and shed it, or did not answer, or was unreachable.
    Rejected,
    /// It says nothing of the backend: it was withdrawn first.
    Unknown,
}

/// The limit on batch requests at backends.
#[derive(Clone, Debug)]
pub struct Credit {
    max: f64,
    target: Target,
    credit: f64,
    /// The last step by an accepted request.
    stepped_at: Timestamp,
    /// The last halving.
    halved_at: Timestamp,
    /// Seconds from a request to the end of its answer.
    round_trip: f64,
    reports: Reports,
    /// Rejections in a row, with credit for one.
    failures: u32,
    rests_until: Timestamp,
    used_at: Timestamp,
}

/// The mean utilization by load reports, decayed.
#[derive(Clone, Copy, Debug, Default)]
struct Reports {
    sum: f64,
    weight: f64,
    at: Timestamp,
}

impl Reports {
    fn add(&mut self, now: Timestamp, utilization: f64) {
        let left = decay::remaining(now, self.at, REPORTS_HALF_LIFE);
        self.sum = self.sum * left + utilization;
        self.weight = self.weight * left + 1.0;
        self.at = self.at.max(now);
    }

    fn mean(&self, now: Timestamp) -> Option<f64> {
        (self.weight > 0.0 && now.since(self.at) < REPORTS_EXPIRE).then(|| self.sum / self.weight)
    }
}

impl Credit {
    /// Starts with credit for one request, up to `max`.
    #[must_use]
    pub fn new(now: Timestamp, max: NonZeroU32, target: Target) -> Self {
        Self {
            max: f64::from(max.get()),
            target,
            credit: 1.0,
            stepped_at: now,
            halved_at: Timestamp::ZERO,
            round_trip: 0.0,
            reports: Reports::default(),
            failures: 0,
            rests_until: Timestamp::ZERO,
            used_at: now,
        }
    }

    /// Changes the settings.
    pub fn set(&mut self, max: NonZeroU32, target: Target) {
        self.max = f64::from(max.get());
        self.target = target;
        self.credit = self.credit.min(self.max);
    }

    /// The limit on requests at backends, with its fraction; from 1 to the maximum.
    #[must_use]
    pub const fn as_f64(&self) -> f64 {
        self.credit
    }

    /// The mean utilization that backends reported lately; `None` without reports.
    #[must_use]
    pub fn utilization(&self, now: Timestamp) -> Option<f64> {
        self.reports.mean(now)
    }

    /// The end of the present rest, if it is later than `now`.
    #[must_use]
    pub fn rests_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.rests_until > now).then_some(self.rests_until)
    }

    /// Whether the last request, with credit for one, was rejected.
    #[must_use]
    pub const fn is_probing(&self) -> bool {
        self.failures > 0
    }

    /// Whether one more request may be sent while `active` are at backends. If so, it counts as
    /// sent.
    pub fn take(&mut self, now: Timestamp, active: u32) -> bool {
        if active == 0 && now.since(self.used_at) >= IDLE {
            self.credit = 1.0;
        }
        let may = now >= self.rests_until && f64::from(active) < self.whole();
        if may {
            self.used_at = self.used_at.max(now);
        }
        may
    }

    /// A backend reports its utilization.
    pub fn on_report(&mut self, now: Timestamp, utilization: f64) {
        if utilization.is_finite() && utilization >= 0.0 {
            self.reports.add(now, utilization.min(MAX_REPORT * self.target.as_f64()));
        }
    }

    /// A request has ended that was `sent` then; `active` were at backends, this one included.
    pub fn on_end(&mut self, now: Timestamp, sent: Timestamp, active: u32, fate: Fate, rng: &mut impl Random) {
        self.used_at = self.used_at.max(now);
        match fate {
            Fate::Unknown => {}
            Fate::Accepted => self.on_accepted(now, sent, active),
            Fate::Rejected => self.on_rejected(now, sent, rng),
        }
    }

    fn on_accepted(&mut self, now: Timestamp, sent: Timestamp, active: u32) {
        (self.failures, self.rests_until) = (0, Timestamp::ZERO);
        let took = now.since(sent).as_secs_f64();
        let weight = if self.round_trip > 0.0 { 1.0 / ROUND_TRIPS } else { 1.0 };
        self.round_trip += (took - self.round_trip) * weight;
        let round = self.round_trip.max(ROUND.as_secs_f64());
        let part = now.since(self.stepped_at).as_secs_f64().min(round) / round;
        self.stepped_at = self.stepped_at.max(now);
        let target = self.target.as_f64();
        let headroom = match self.reports.mean(now) {
            Some(utilization) => ((target - utilization) / (target * BAND)).clamp(-1.0, 1.0),
            None => 1.0,
        };
        if headroom < 0.0 {
            self.credit = (self.credit * (1.0 + headroom * part * DECREASE)).max(1.0);
        } else if f64::from(active) + 1.0 > self.credit {
            self.credit = (self.credit + headroom * part * (self.max / STEPS)).min(self.max);
        }
    }

    fn on_rejected(&mut self, now: Timestamp, sent: Timestamp, rng: &mut impl Random) {
        if sent < self.halved_at {
            return;
        }
        if self.credit >= 2.0 {
            self.credit /= 2.0;
        } else {
            self.credit = 1.0;
            let rest = REST.saturating_mul(1 << self.failures.min(16)).min(MAX_REST);
            self.failures = self.failures.saturating_add(1);
            self.rests_until = now + rest.mul_f64(0.5 + rng::unit(rng));
        }
        // A request that is sent at this very moment counts as sent after it.
        (self.halved_at, self.stepped_at) = (now, now.max(self.stepped_at));
    }

    fn whole(&self) -> f64 {
        // Never below 1, and far below 2⁵³.
        (self.credit as u32).into()
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_millis(ms))
    }

    fn credit(max: u32) -> Credit {
        Credit::new(ms(0), NonZeroU32::new(max).unwrap(), Target::DEFAULT)
    }

    fn rng() -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(1)
    }

    /// Ends a request every 10 ms for `millis`, sent 20 ms before and accepted, each with this
    /// utilization.
    fn accept(credit: &mut Credit, from: u64, millis: u64, utilization: Option<f64>) -> u64 {
        for at in (from..from + millis).step_by(10) {
            utilization.into_iter().for_each(|utilization| credit.on_report(ms(at), utilization));
            let active = credit.as_f64() as u32;
            credit.on_end(ms(at), ms(at.saturating_sub(20)), active, Fate::Accepted, &mut rng());
        }
        from + millis
    }

    #[test]
    fn credit_grows_to_its_maximum_in_sixteen_rounds() {
        let mut credit = credit(32);
        assert_eq!(credit.as_f64(), 1.0);
        let now = accept(&mut credit, 0, 4_000, None);
        assert!((16.0..18.0).contains(&credit.as_f64()), "{credit:?}");
        accept(&mut credit, now, 10_000, Some(0.1));
        assert_eq!(credit.as_f64(), 32.0);
    }

    #[test]
    fn credit_falls_above_the_target_and_is_constant_at_it() {
        let mut credit = credit(32);
        let now = accept(&mut credit, 0, 20_000, None);
        let now = accept(&mut credit, now, 3_000, Some(0.9));
        let fallen = credit.as_f64();
        assert!((1.0..8.0).contains(&fallen), "{fallen}");
        let now = accept(&mut credit, now, 20_000, Some(0.7));
        let stands = credit.as_f64();
        accept(&mut credit, now, 10_000, Some(0.7));
        assert!((credit.as_f64() - stands).abs() < 0.1, "{stands}, then {}", credit.as_f64());
    }

    #[test]
    fn unused_credit_does_not_grow() {
        let mut credit = credit(32);
        for at in 0..1_000 {
            credit.on_end(ms(at * 10), ms(at * 10), 1, Fate::Accepted, &mut rng());
        }
        assert!(credit.as_f64() <= 4.0, "{credit:?}");
    }

    #[test]
    fn rejections_of_one_round_trip_count_once() {
        let mut credit = credit(32);
        let now = accept(&mut credit, 0, 20_000, None);
        for _ in 0..32 {
            credit.on_end(ms(now), ms(now - 5), 32, Fate::Rejected, &mut rng());
        }
        assert_eq!(credit.as_f64(), 16.0);
        credit.on_end(ms(now + 5), ms(now), 16, Fate::Rejected, &mut rng());
        assert_eq!(credit.as_f64(), 8.0);
    }

    #[test]
    fn rests_between_probes_grow_while_nothing_is_accepted() {
        let (mut credit, mut rng) = (credit(32), rng());
        let (mut now, mut rests) = (ms(0), 0);
        for failures in 0..12 {
            assert!(credit.take(now, 0), "one may go");
            assert!(!credit.take(now, 1), "and no second one");
            credit.on_end(now, now, 1, Fate::Rejected, &mut rng);
            let until = credit.rests_until(now).expect("there is a rest");
            let rest = until.since(now);
            let mean = REST.saturating_mul(1 << failures).min(MAX_REST);
            assert!((mean / 2..mean * 3 / 2).contains(&rest), "{rest:?} after {failures}");
            assert!(!credit.take(now, 0), "not before it is over");
            (now, rests) = (until, rests + 1);
        }
        assert_eq!(rests, 12);
        assert!(credit.take(now, 0));
        credit.on_end(now + Duration::from_millis(20), now, 1, Fate::Accepted, &mut rng);
        assert_eq!(credit.rests_until(now), None);
        assert!(credit.take(now + Duration::from_millis(20), 0), "it goes on at once");
        assert!(credit.as_f64() > 1.0, "and grows");
    }

    #[test]
    fn credit_starts_again_after_a_pause() {
        let mut credit = credit(32);
        let now = accept(&mut credit, 0, 20_000, None);
        assert!(credit.take(ms(now + 1_000), 0) && credit.as_f64() == 32.0);
        assert!(credit.take(ms(now + 12_000), 0) && credit.as_f64() == 1.0);
    }

    #[test]
    fn lower_maximum_holds_at_once() {
        let mut credit = credit(32);
        let now = accept(&mut credit, 0, 20_000, None);
        credit.set(NonZeroU32::new(4).unwrap(), Target::DEFAULT);
        assert!(credit.take(ms(now), 3) && !credit.take(ms(now), 4));
    }

    #[test]
    fn excessive_report_is_forgotten_as_soon_as_any() {
        let mut credit = credit(32);
        let now = accept(&mut credit, 0, 20_000, Some(0.1));
        for _ in 0..2 {
            credit.on_report(ms(now), f64::MAX);
        }
        let now = accept(&mut credit, now, 8_000, Some(0.1));
        let said = credit.utilization(ms(now)).expect("something");
        assert!((said - 0.1).abs() < 0.01, "{said}");
        assert_eq!(credit.as_f64(), 32.0);
    }

    #[test]
    fn invalid_report_is_ignored() {
        let mut credit = credit(32);
        for junk in [f64::NAN, f64::INFINITY, -1.0] {
            credit.on_report(ms(1), junk);
        }
        assert_eq!(credit.utilization(ms(1)), None);
        assert!(Target::new(0.0).is_none() && Target::new(f64::NAN).is_none() && Target::new(1.1).is_none());
    }

    /// A maximum of sixteen, so that a whole round adds one.
    #[test]
    fn credit_grows_by_the_part_of_a_mean_round_trip_that_has_passed() {
        let mut credit = credit(16);
        credit.on_end(ms(9_000), ms(0), 1, Fate::Accepted, &mut rng());
        assert_eq!(credit.as_f64(), 2.0);
        // A mean over about eight: 9 s, and then 8 s. Half of it has passed since the last answer.
        credit.on_end(ms(13_000), ms(12_000), 2, Fate::Accepted, &mut rng());
        assert_eq!(credit.as_f64(), 2.5);
    }

    #[test]
    fn credit_does_not_grow_when_one_more_request_may_be_sent() {
        let mut credit = credit(16);
        credit.on_end(ms(500), ms(480), 1, Fate::Accepted, &mut rng());
        assert_eq!(credit.as_f64(), 2.0);
        credit.on_end(ms(1_000), ms(980), 1, Fate::Accepted, &mut rng());
        assert_eq!(credit.as_f64(), 2.0);
        credit.on_end(ms(1_500), ms(1_480), 2, Fate::Accepted, &mut rng());
        assert_eq!(credit.as_f64(), 3.0);
    }

    #[test]
    fn credit_falls_in_proportion_to_the_load_above_the_target() {
        // At the target, a tenth above it (h = 2/5), a quarter, a half.
        for (above, left) in [(1.0, 1.0), (1.1, 0.8), (1.25, 0.5), (1.5, 0.5)] {
            let mut credit = credit(32);
            let now = accept(&mut credit, 0, 20_000, None);
            credit.on_report(ms(now), above * Target::DEFAULT.as_f64());
            // The last answer came 10 ms before `now`: a round has passed.
            credit.on_end(ms(now + 490), ms(now + 470), 32, Fate::Accepted, &mut rng());
            assert!((credit.as_f64() / 32.0 - left).abs() < 1e-9, "{above}: {}", credit.as_f64());
        }
    }

    #[test]
    fn report_counts_as_four_times_the_target_at_most() {
        for (target, said, expected) in [(0.7, 100.0, 2.8), (0.5, 100.0, 2.0), (0.5, 1.9, 1.9)] {
            let mut credit = Credit::new(ms(0), NonZeroU32::MIN, Target::new(target).unwrap());
            credit.on_report(ms(1), said);
            assert_eq!(credit.utilization(ms(1)), Some(expected), "{said} at a target of {target}");
        }
    }

    #[test]
    fn report_is_forgotten_after_ten_seconds() {
        let mut credit = credit(32);
        credit.on_report(ms(500), 0.4);
        assert_eq!([10_499, 10_500].map(|at| credit.utilization(ms(at))), [Some(0.4), None]);
    }
}
