//! Ranked admission: sheds the least important requests first, and admits the others up to the
//! capacity.
//!
//! # The choice of requests
//!
//! Lower criticality is shed first. Within a criticality, the customer with the highest demand over
//! its share is cut first. Within a customer, requests are shed at random, or by
//! [`cohort`](super::cohort()). Each level of criticality has a fluid queue of its own work and all
//! more critical work ([`backlog`](super::backlog)), with a fill of f. While f is below a quarter,
//! every request is admitted. From there on the probability is
//!
//! ```text
//! P = min(1, λ ÷ u) · clamp(4 · (1 − f'), 0, 1)
//! f' = f · clamp(u ÷ û, ½, 1),    dλ/dt = λ · (1 − 2f) ÷ τ
//! ```
//!
//! where u is the customer's demand over its share, and û the mean of u over the work of the level.
//! λ is a water level: a customer with u ≤ λ loses nothing, and one above is cut to λ (Stoica,
//! Shenker, Zhang: "Core-stateless fair queueing", 1998). λ falls while the queue is more than half
//! full and rises while it is less, slowly, so that it does not follow chance. After a pause of τ
//! without requests it starts again, since no request was cut meanwhile. The second factor acts at
//! once: it admits fewer requests while f' is above three quarters, and none when f' is 1. A
//! customer with less than the mean demand sees the queue less full than it is, so that chance hits
//! the others.
//!
//! λ follows a queue of few requests and is as noisy. It is also too low by the admissions of heavy
//! customers while the queue is less than a quarter full. Only heavy customers should bear both. So
//! a customer with u < ¾ û gets a steadier level if that is higher than λ: the part P · u that the
//! others keep of their demand, in the mean over some seconds. While customers of a more critical
//! level are cut, less critical ones get nothing. Otherwise they would get the requests that chance
//! leaves over.
//!
//! Why not a limit on requests in flight, tuned by latency: it cannot tell ten cheap requests from
//! ten expensive ones, needs seconds to converge, and then does not know which requests to shed.
//! Why not a priority queue: each request in it has already been read, parsed and given memory.
//!
//! # The amount of work
//!
//! The capacity is in CPU-seconds per second and known beforehand; the costs of requests are
//! measured. The signals of the server correct both ([`RankedAdmission::on_signals`]):
//!
//! - Runnable requests exceed the limit: there is less CPU than configured, because a neighbour
//!   takes half of a core, or a quota was changed. The capacity estimate falls to the CPU in use,
//!   and below that until the queue is shorter.
//! - Requests are shed and CPU is left: the estimate rises.
//! - More CPU is used than the load line allows: work that ends early frees no headroom.
//! - Another resource is short, by the gauge of the owner: fewer requests are in progress at a
//!   time.
//!
//! # Failure modes
//!
//! The cost of one kind of request can be wrong by a factor. It is corrected while the request runs
//! ([`RankedAdmission::progress`]) and when it ends ([`RankedAdmission::finish`]). So wrong costs
//! change which requests are shed, but not how much. A burst of expensive requests that were
//! expected to be cheap is admitted whole, and other requests wait for as long as it takes.
//!
//! λ does not fall below û / 256. Beside a customer that asks for hundreds of times its share, û is so high that the
//! others are not cut by theirs: what is too much of them is cut in proportion to their demand. The harmonic mean for û
//! cuts them by their shares, but servers of three tiers then do not recover from a retry storm within 30 s.

use core::time::Duration;

use super::attempts::Attempts;
use super::backlog::{Backlog, Supply};
use super::cohort::draw;
use super::usage::Usage;
use super::{Admission, Ask, Pressure, Shed, Verdict};
use crate::outlook::Outlook;
use crate::rng::{self, spread};
use crate::signal::{Signal, Signals};
use crate::{Criticality, Random, Ratio, Speed, Timestamp, decay};

/// The settings of ranked admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    capacity: f64,
    /// The part of the capacity that requests may fill. The rest is for work outside requests that
    /// is not reported ([`RankedAdmission::overhead`]).
    pub load_line: Ratio,
    /// The delay of work under overload. It is longer if requests are so expensive that fewer than
    /// eight of them fill it.
    pub target_delay: Duration,
    /// The share of retries in arriving requests above which shed requests are told not to retry.
    pub max_retries: Ratio,
    /// Customers that are remembered, at 24 bytes for each. If there are more, light ones are
    /// forgotten.
    pub customers: usize,
    /// Whether to risk too much work for a moment, or too little.
    pub outlook: Outlook,
    /// The speed of the machine. [`Gate`](super::Gate) converts by it; admission is in local
    /// seconds.
    pub speed: Speed,
}

impl AdmissionConfig {
    /// Two per cent for the rest: timers, accepting connections, an allocator.
    pub const DEFAULT_LOAD_LINE: Ratio = Ratio::from_percent(98);
    /// A fiftieth of an interactive request's time, and longer than the slices of a kernel's
    /// scheduler. All requests in progress share it, so a request that costs many times the mean
    /// waits that many times longer. It suits requests of milliseconds. With requests of
    /// microseconds, each waits this long beside hundreds of others.
    pub const DEFAULT_TARGET_DELAY: Duration = Duration::from_millis(5);
    /// The limit that clients with a retry budget keep (SRE ch. 21).
    pub const DEFAULT_MAX_RETRIES: Ratio = Ratio::from_percent(10);
    /// 200 KiB. Only the heavy customers matter.
    pub const DEFAULT_CUSTOMERS: usize = 8_192;

    /// The settings for a server with this many CPU-seconds a second; `None` unless that is finite
    /// and above zero.
    #[must_use]
    pub fn new(capacity: f64) -> Option<Self> {
        (capacity > 0.0 && capacity.is_finite()).then_some(Self {
            capacity,
            load_line: Self::DEFAULT_LOAD_LINE,
            target_delay: Self::DEFAULT_TARGET_DELAY,
            max_retries: Self::DEFAULT_MAX_RETRIES,
            customers: Self::DEFAULT_CUSTOMERS,
            outlook: Outlook::default(),
            speed: Speed::REFERENCE,
        })
    }

    /// CPU-seconds a second.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        self.capacity
    }
}

/// Levels of criticality.
const LEVELS: usize = Criticality::ALL.len();
/// The fill of a queue from which requests are shed.
const SLACK: f64 = 0.25;
/// τ, in seconds: some hundreds of requests even on a small server, so that λ is no noisier than
/// the estimates of demand.
const TAU: f64 = 0.5;
/// The range of λ, in mean u of the level's work. At the high end, customers far above the mean
/// lose nothing, and λ is down again soon when it must fall. At the low end, next to no request is
/// admitted.
const LEVEL: core::ops::RangeInclusive<f64> = 1.0 / 256.0..=16.0;
/// Half-life of the mean of u, which changes as customers come and go.
const MEAN_HALF_LIFE: Duration = Duration::from_secs(2);
/// Half-life of the steady λ: long beside the noise of λ, which is that of a queue of few requests.
const STEADY_HALF_LIFE: Duration = Duration::from_secs(5);
/// The part of û below which a customer gets the steady λ. For customers with more, their own noise
/// hides the difference.
const LIGHT: f64 = 0.75;
/// The highest steady λ, in λ: when λ has fallen for good, light customers must follow at once down
/// to it.
const MAX_STEADY: f64 = 2.0;
/// Half-life of the gap between estimated and real capacity. It is slower than the signals, which
/// are smoothed over some tens of milliseconds.
const CORRECTION_HALF_LIFE: Duration = Duration::from_millis(250);
/// The least capacity and headroom that are left: without any request, nothing would ever be
/// learned.
const MIN_SHARE: f64 = 0.02;
/// The part of the limit that one request may fill beyond its use. A request that starts thousands
/// of small tasks should not affect others, whether its cost is known beforehand or not.
const ONE: f64 = SLACK;
/// The load average that counts as a load of 1, over the backlog's limit. A full queue is in order;
/// a longer one in the mean is longer than the estimate.
const QUEUES: f64 = 1.25;
/// The largest part of the capacity that work outside requests may claim.
const MAX_OVERHEAD: f64 = 0.9;
/// The time span for which such work may claim its part at once. Within it, signals come some tens
/// of times, and show a flood of such work.
const OVERHEAD_BURST: Duration = Duration::from_millis(100);
/// With this part of the headroom or capacity left, a lack of it is not the cause of shedding.
const ALL_BUT_ALL: f64 = 0.95;
/// The binding signal is visible for a second after the last shed request.
const BINDS_FOR: Duration = Duration::from_secs(1);
/// One in this many hopeless requests is begun although other work waits, if only its expected cost
/// makes it late. Little is wasted if it is late, and a few are enough to learn the real cost.
const BEGUN_LATE: usize = 16;

/// Demand and water level of one level's customers.
#[derive(Clone, Copy, Debug)]
struct Water {
    /// CPU-seconds of demand, and the same times u, decayed.
    asked: (f64, f64),
    /// λ, in mean u.
    level: f64,
    /// The part P · u of the last customer that is not light, in mean u, and its mean over some
    /// seconds; zero before the first.
    last: f64,
    steady: f64,
    at: Timestamp,
    /// The time of the last request.
    came: Timestamp,
}

impl Water {
    const fn new(now: Timestamp) -> Self {
        Self { asked: (0.0, 0.0), level: *LEVEL.end(), last: 0.0, steady: 0.0, at: now, came: now }
    }

    /// Moves the water level in time, with this fill of the queue. Without requests nobody is cut,
    /// whatever else fills the queue.
    fn advance(&mut self, now: Timestamp, fill: f64) {
        if now.nanos_since(self.came) as f64 * 1e-9 >= TAU {
            *self = Self { came: self.came, ..Self::new(now) };
            return;
        }
        let left = decay::remaining(now, self.at, MEAN_HALF_LIFE);
        self.asked = (self.asked.0 * left, self.asked.1 * left);
        self.steady = self.last + (self.steady - self.last) * decay::remaining(now, self.at, STEADY_HALF_LIFE);
        let step = (now.nanos_since(self.at) as f64 * 1e-9 / TAU).min(0.5);
        let level = self.level * (1.0 + step * (1.0 - 2.0 * fill).max(-4.0));
        self.level = level.clamp(*LEVEL.start(), *LEVEL.end());
        self.at = self.at.max(now);
    }

    /// A customer with a demand of `u` asks for `cost` CPU-seconds more. Returns the probability to
    /// admit the request.
    fn on_request(&mut self, u: f64, cost: f64, fill: f64) -> f64 {
        self.came = self.at;
        self.asked = (self.asked.0 + cost, self.asked.1 + cost * u);
        let mean = self.asked.1 / self.asked.0;
        let is_light = u < LIGHT * mean;
        let lambda = self.level * mean;
        let lambda = if is_light { lambda.max((self.steady * mean).min(MAX_STEADY * lambda)) } else { lambda };
        let part = if fill < SLACK {
            1.0
        } else {
            let seen = fill * (u / mean).clamp(0.5, 1.0);
            (lambda / u).min(1.0) * (4.0 * (1.0 - seen)).clamp(0.0, 1.0)
        };
        if !is_light {
            self.last = part * u / mean;
            if self.steady == 0.0 {
                self.steady = self.last;
            }
        }
        part
    }

    /// The part left for less critical levels: 1 if no customer of this level is cut, 0 if they are
    /// cut by a quarter or more.
    fn leaves(&self) -> f64 {
        (4.0 * self.level - 3.0).clamp(0.0, 1.0)
    }
}

/// Ranked admission: sheds the least important requests first.
#[derive(Clone, Debug)]
pub struct RankedAdmission {
    config: AdmissionConfig,
    backlog: Backlog<LEVELS>,
    water: [Water; LEVELS],
    usage: Usage,
    attempts: Attempts,
    /// The estimated capacity over the configured one; at most 1.
    pub(super) correction: f64,
    /// The part of the backlog's limit that other scarce resources leave.
    pub(super) headroom: f64,
    /// CPU-seconds that work outside requests may still claim.
    beside: f64,
    /// Whether more CPU is used than the load line allows.
    is_over: bool,
    /// Whether the backlog includes a count of waiting requests.
    is_counted: bool,
    /// Whether a request was shed since the last signal.
    pub(super) is_limiting: bool,
    /// The time of the last shed request for overload.
    shed_at: Option<Timestamp>,
    /// CPU in use, and requests that run or could run, each over its limit.
    loads: [f64; 2],
    at: Timestamp,
    signalled: Timestamp,
}

impl RankedAdmission {
    /// Starts with an empty backlog.
    #[must_use]
    pub fn new(now: Timestamp, config: AdmissionConfig) -> Self {
        Self {
            backlog: Backlog::new(now),
            water: [Water::new(now); LEVELS],
            usage: Usage::new(config.customers),
            attempts: Attempts::new(now, config.max_retries),
            correction: 1.0,
            headroom: 1.0,
            beside: 0.0,
            is_over: false,
            is_counted: false,
            is_limiting: false,
            shed_at: None,
            loads: [0.0; 2],
            at: now,
            signalled: now,
            config,
        }
    }

    /// Changes the capacity. No other setting of `config` has an effect.
    pub fn resize(&mut self, now: Timestamp, config: AdmissionConfig) {
        self.advance(now);
        self.config.capacity = config.capacity;
    }

    /// Decides on a request. Do not call it for health checks and the like, which are always
    /// admitted.
    pub fn admit(&mut self, now: Timestamp, ask: &Ask, rng: &mut impl Random) -> Verdict {
        self.advance(now);
        if self.is_hopeless(now, ask, rng) {
            return Verdict::Shed(Shed::DEADLINE);
        }
        self.attempts.on_request(now, ask.is_retry);
        let rank = ask.criticality.rank();
        let share = self.admitted_share(now, ask);
        if share < 1.0 && draw(ask, rng) >= share {
            return self.overloaded(now, ask.criticality);
        }
        let counted = ask.cost.min(self.max_of_one(rank));
        if self.config.outlook == Outlook::Pessimistic && !self.backlog.fits(rank, counted, &self.supply()) {
            return self.overloaded(now, ask.criticality);
        }
        self.backlog.add(rank, counted);
        Verdict::Admit(Admission { criticality: ask.criticality, counted, used: 0.0 })
    }

    /// The most critical requests for which most servers of the fleet are overloaded, so that retries elsewhere are
    /// useless.
    pub fn set_fleet_overload(&mut self, fleet_overload: Option<Criticality>) {
        self.attempts.set_fleet_overload(fleet_overload);
    }

    fn overloaded(&mut self, now: Timestamp, criticality: Criticality) -> Verdict {
        self.is_limiting = true;
        self.shed_at = Some(now);
        Verdict::Shed(Shed::at_once(self.attempts.rejection(criticality)))
    }

    /// An admitted request has ended, with its use in CPU-seconds.
    pub fn finish(&mut self, now: Timestamp, admission: Admission, used: f64) {
        self.advance(now);
        let rank = admission.criticality.rank();
        self.backlog.add(rank, used - admission.counted);
        self.backlog.done(rank, used - admission.used, &self.supply());
    }

    /// An admitted request was abandoned, and the server may not know. Its cost becomes headroom no
    /// sooner than it would have.
    pub fn abandon(&mut self, now: Timestamp, admission: Admission) {
        self.advance(now);
        self.backlog.abandon(admission.criticality.rank(), admission.counted - admission.used);
    }

    /// A running request has used this many CPU-seconds so far. Call it in the course of long
    /// requests, at least each [`AdmissionConfig::target_delay`].
    ///
    /// A request that has used its count counts twice its use: the more it has cost, the more is to
    /// be expected. But the part ahead is bounded, so that one request alone never causes shedding.
    /// If requests were counted only at their end, expensive ones would gather unseen: cheap ones
    /// end first, and free headroom for more of both.
    pub fn progress(&mut self, now: Timestamp, admission: &mut Admission, used: f64) {
        self.advance(now);
        let rank = admission.criticality.rank();
        if used >= admission.counted {
            let left = used.min(self.max_of_one(rank));
            self.backlog.add(rank, used + left - admission.counted);
            admission.counted = used + left;
        }
        self.backlog.done(rank, used - admission.used, &self.supply());
        admission.used = used;
    }

    /// CPU-seconds were used outside admitted requests, above all to shed others. They are not
    /// available to requests. But a tenth of the capacity always is: otherwise a flood of requests
    /// that are only shed would have every request shed for as long as it lasts. If clients retry
    /// at once, that would be longer.
    pub fn overhead(&mut self, now: Timestamp, used: f64) {
        self.advance(now);
        let counted = used.min(self.beside);
        self.beside -= counted;
        self.backlog.delay(counted);
    }

    /// Takes the signals of the server, a few times each [`AdmissionConfig::target_delay`] or less
    /// often. `gauge` is a load of the owner: 0 is none, 1 is the most that the server can bear.
    pub fn on_signals(&mut self, now: Timestamp, signals: Signals, gauge: f64) {
        let [used, queue] = self.measure(now, signals);
        let step = 1.0 - decay::remaining(now, self.signalled, CORRECTION_HALF_LIFE);
        self.signalled = self.signalled.max(now);
        // Without shedding, a low load says that demand is low, and nothing of the capacity.
        let is_limiting = core::mem::replace(&mut self.is_limiting, false);
        if queue > 1.0 {
            self.correction *= toward(queue, step);
        } else if is_limiting && used < 1.0 {
            self.correction *= toward(used.max(queue), step);
        }
        // The CPU in use is certainly there. A queue that is too long shrinks only with a lower
        // estimate, unless the backlog counts it.
        let excess = if self.is_counted { 1.0 } else { queue.max(1.0) };
        let least = (used.min(1.0) / excess).max(MIN_SHARE);
        self.correction = self.correction.clamp(least, 1.0);
        self.is_over = used > 1.0;
        if !gauge.is_nan() {
            self.headroom = (self.headroom * toward(gauge, step)).clamp(MIN_SHARE, 1.0);
        }
    }

    /// Requests are known to have a CPU or to wait for one. The backlog may hold fewer if the CPUs
    /// do less than estimated or requests cost more. Call it before the signals.
    pub fn on_queued(&mut self, now: Timestamp, requests: f64) {
        self.advance(now);
        self.is_counted = requests > 0.0;
        self.backlog.at_least(requests);
    }

    /// How close requests of this criticality are to being shed, for handlers with a cheaper
    /// answer.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        let fill = self.backlog.fill(criticality.rank(), &self.supply());
        Pressure::of((fill - SLACK) / (1.0 - SLACK))
    }

    /// Records the loads by the signals, without a reaction.
    pub(super) fn measure(&mut self, now: Timestamp, signals: Signals) -> [f64; 2] {
        self.advance(now);
        let used = signals.cpus / (self.config.capacity * self.config.load_line.as_f64());
        let queue = signals.load_average / (QUEUES * self.backlog.tolerable(&self.supply()));
        self.loads = [used, queue];
        self.loads
    }

    /// The last measured CPU in use, and requests that run or could run; 1 is the limit of each.
    pub(super) fn loads(&self) -> [f64; 2] {
        self.loads
    }

    /// The signal that causes shedding; `scarce` if a resource beside CPU leaves less headroom.
    /// `None` while nothing is shed.
    pub(super) fn binding(&self, now: Timestamp, scarce: Signal) -> Option<Signal> {
        self.shed_at.filter(|shed| now.since(*shed) <= BINDS_FOR)?;
        Some(if self.headroom < ALL_BUT_ALL {
            scarce
        } else if self.correction < ALL_BUT_ALL {
            Signal::LoadAverage
        } else {
            Signal::Cpu
        })
    }

    /// Whether a request would be answered too late. That is certain if its deadline passes before
    /// it begins. It is likely if its expected cost exceeds the rest of its time. The latter is a
    /// guess at its cost or at the cores that it uses, and only admitted requests correct it. So
    /// such a request is begun if no other work waits, and otherwise now and then.
    fn is_hopeless(&self, now: Timestamp, ask: &Ask, rng: &mut impl Random) -> bool {
        let Some(deadline) = ask.deadline else { return false };
        let after = |seconds| now + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let before_it = self.backlog.all() / self.supply().capacity;
        if after(before_it) >= deadline {
            return true;
        }
        after(before_it + ask.cost - ask.overhead) > deadline && before_it > 0.0 && rng::below(rng, BEGUN_LATE) != 0
    }

    /// The probability to admit a request like this one.
    fn admitted_share(&mut self, now: Timestamp, ask: &Ask) -> f64 {
        let rank = ask.criticality.rank();
        let time = ask.deadline.map(|deadline| deadline.since(now).as_secs_f64());
        self.backlog.on_request(rank, ask.cost, time);
        // The demand of a customer in one level does not affect the others.
        let asks_for = self.usage.on_request(now, spread(ask.customer).wrapping_add(rank as u64), ask.cost);
        let u = ask.demand.unwrap_or(asks_for) / ask.share;
        let supply = self.supply();
        let mut left = 1.0;
        for (above, water) in self.water[..rank].iter_mut().enumerate() {
            water.advance(now, self.backlog.fill(above, &supply));
            left *= water.leaves();
        }
        let fill = self.backlog.fill(rank, &supply);
        let water = &mut self.water[rank];
        water.advance(now, fill);
        left * water.on_request(u, ask.cost, fill)
    }

    /// CPU-seconds that one request may count for beyond its use.
    fn max_of_one(&self, rank: usize) -> f64 {
        if self.config.outlook == Outlook::Pessimistic {
            return f64::INFINITY;
        }
        // If another resource lowers the limit, one request still weighs the same.
        ONE * self.backlog.limit(rank, &Supply { headroom: 1.0, ..self.supply() })
    }

    fn supply(&self) -> Supply {
        let AdmissionConfig { capacity, load_line, target_delay, outlook, .. } = self.config;
        let capacity = capacity * load_line.as_f64() * self.correction;
        Supply { capacity, target_delay, headroom: self.headroom, is_over: self.is_over, outlook }
    }

    fn advance(&mut self, now: Timestamp) {
        if now <= self.at {
            return;
        }
        let supply = self.supply();
        self.backlog.advance(now, &supply);
        let most = MAX_OVERHEAD * supply.capacity;
        let gained = most * (now.nanos_since(self.at) as f64 * 1e-9);
        self.beside = (self.beside + gained).min(most * OVERHEAD_BURST.as_secs_f64());
        self.at = now;
    }
}

/// The factor of a step toward load 1: below 1 for a load above 1, above 1 for a load below it.
fn toward(load: f64, step: f64) -> f64 {
    1.0 + step * (1.0 - load).max(-1.0)
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const CRITICAL: usize = 1;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn ask(cost: f64) -> Ask {
        Ask {
            criticality: Criticality::Critical,
            customer: 1,
            share: 1.0,
            demand: None,
            cost,
            overhead: 0.0,
            deadline: None,
            cohort: None,
            is_retry: false,
        }
    }

    /// A server of `cores` cores; requests may use all of them.
    fn ranked(cores: f64) -> RankedAdmission {
        let config = AdmissionConfig { load_line: Ratio::ONE, ..AdmissionConfig::new(cores).expect("above zero") };
        RankedAdmission::new(ms(0), config)
    }

    fn admit(ranked: &mut RankedAdmission, cost: f64) -> Admission {
        match ranked.admit(ms(0), &ask(cost), &mut Pcg64Mcg::seed_from_u64(1)) {
            Verdict::Admit(admission) => admission,
            Verdict::Shed(shed) => panic!("{shed:?}"),
        }
    }

    fn assert_close(got: f64, expected: f64, what: &str) {
        assert!((got - expected).abs() < 1e-9, "{what}: {got}, not {expected}");
    }

    /// A level where customers ask for twice their share in the mean.
    fn water(level: f64, steady: f64) -> Water {
        Water { asked: (10.0, 20.0), level, last: steady, steady, ..Water::new(ms(0)) }
    }

    #[test]
    fn customer_gets_the_water_level_and_less_as_the_queue_fills() {
        for (what, level, steady, u, fill, part) in [
            ("below a quarter all are admitted", 0.5, 0.0, 4.0, 0.249, 1.0),
            ("from a quarter on heavy ones get the level", 0.5, 0.0, 4.0, 0.25, 0.25),
            ("nearly full", 0.5, 0.0, 4.0, 0.9, 0.25 * 0.4),
            ("below the mean the queue looks less full", 16.0, 0.0, 1.6, 1.0, 0.8),
            ("by a half at most", 16.0, 0.0, 0.4, 1.0, 1.0),
            ("light, nothing steady known", 0.5, 0.0, 1.2, 0.5, 1.0 / 1.2),
            ("light, a higher steady level", 0.5, 0.55, 1.2, 0.5, 1.1 / 1.2),
            ("light, steady of more than twice the level", 0.25, 2.0, 1.2, 0.5, 1.0 / 1.2),
            ("three quarters of the mean are not light", 0.5, 1.0, 1.5, 0.5, 1.0 / 1.5),
        ] {
            assert_close(water(level, steady).on_request(u, 0.0, fill), part, what);
        }
    }

    #[test]
    fn steady_level_is_what_heavy_customers_got_over_seconds() {
        let mut water = water(0.5, 0.0);
        let _ = water.on_request(1.2, 0.0, 0.5);
        assert_eq!((water.last, water.steady), (0.0, 0.0), "a light customer says nothing");
        let _ = water.on_request(4.0, 0.0, 0.5);
        assert_eq!((water.last, water.steady), (0.5, 0.5), "a quarter of twice the mean, at once");
        let _ = water.on_request(3.0, 0.0, 0.9);
        assert_close(water.last, 0.2, "a third of 0.4 of 1.5 times the mean");
        assert_eq!(water.steady, 0.5, "only time changes it");
        water.came = ms(5_000);
        water.advance(ms(5_000), 0.5);
        assert_close(water.steady, 0.35, "half of the way after a half-life");
    }

    #[test]
    fn expensive_request_counts_twice_its_use() {
        let mut ranked = ranked(1.0);
        let mut admission = admit(&mut ranked, 0.001);
        // 48 mean requests are the limit, and one request may fill a quarter of it.
        for (used, counted, left) in [
            (0.000_5, 0.001, 0.000_5),
            (0.001, 0.002, 0.001),
            (0.003, 0.006, 0.003),
            (0.004, 0.006, 0.002),
            (0.1, 0.112, 0.012),
        ] {
            ranked.progress(ms(0), &mut admission, used);
            assert_close(admission.counted, counted, "counted");
            assert_close(ranked.backlog.all(), left, "left of it");
        }
    }

    #[test]
    fn finished_request_leaves_the_work_of_the_others() {
        let mut ranked = ranked(1.0);
        let mut first = admit(&mut ranked, 0.01);
        ranked.progress(ms(0), &mut first, 0.004);
        let _second = admit(&mut ranked, 0.01);
        ranked.finish(ms(0), first, 0.01);
        assert_close(ranked.backlog.all(), 0.01, "backlog");
    }

    #[test]
    fn abandoned_request_frees_no_headroom_until_others_are_done() {
        let mut ranked = ranked(1.0);
        let mut first = admit(&mut ranked, 0.01);
        let mut second = admit(&mut ranked, 0.01);
        ranked.progress(ms(0), &mut first, 0.004);
        ranked.abandon(ms(0), first);
        assert_close(ranked.backlog.all(), 0.016, "the server may go on with it");
        ranked.progress(ms(0), &mut second, 0.0);
        assert_close(ranked.backlog.all(), 0.01, "all that is in progress");
        ranked.finish(ms(0), second, 0.01);
        assert_close(ranked.backlog.all(), 0.0, "nothing is in progress");
    }

    #[test]
    fn work_beside_requests_is_counted_up_to_a_tenth_of_a_second() {
        let mut ranked = ranked(2.0);
        ranked.overhead(ms(1_000), 10.0);
        assert_close(ranked.backlog.all(), 0.18, "nine tenths of two cores for 100 ms");
        ranked.overhead(ms(1_050), 10.0);
        assert_close(ranked.backlog.all(), 0.18 - 0.1 + 0.09, "the allowance of 50 ms");
    }

    #[test]
    fn pressure_begins_at_a_quarter_and_is_severe_from_five_eighths() {
        for (fill, pressure) in [
            (0.24, Pressure::None),
            (0.26, Pressure::Degrade),
            (0.62, Pressure::Degrade),
            (0.63, Pressure::Severe),
            (1.2, Pressure::Severe),
        ] {
            let mut ranked = ranked(1.0);
            ranked.backlog.on_request(CRITICAL, 0.001, None);
            // 48 mean requests are the limit.
            ranked.backlog.add(CRITICAL, fill * 0.048);
            assert_eq!(ranked.pressure(Criticality::Critical), pressure, "{fill}");
        }
        assert_eq!([0.0, 0.5].map(Pressure::of), [Pressure::None, Pressure::Severe]);
    }

    /// The correction of the capacity, a factor, after one half-life that began at `before`.
    fn corrected(before: f64, is_limiting: bool, used: f64, queue: f64) -> f64 {
        let mut ranked = ranked(1.0);
        ranked.backlog.on_request(CRITICAL, 0.001, None);
        (ranked.correction, ranked.is_limiting) = (before, is_limiting);
        // 48 requests are the limit, and a quarter more on average.
        let signals = Signals { cpus: used, load_average: queue * 60.0 };
        ranked.on_signals(Timestamp::ZERO + CORRECTION_HALF_LIFE, signals, 0.0);
        ranked.correction
    }

    #[test]
    fn capacity_is_corrected_downwards_while_the_queue_is_too_long() {
        for is_limiting in [false, true] {
            let correction = corrected(1.0, is_limiting, 0.2, 1.5);
            assert!((correction - 0.75).abs() < 1e-3, "{is_limiting}: {correction}");
        }
        let correction = corrected(0.4, true, 0.2, 0.2);
        assert!((correction - 0.56).abs() < 1e-3, "it rises while requests are shed: {correction}");
        assert_eq!(corrected(0.4, false, 0.2, 0.2), 0.4, "little load says nothing");
    }

    #[test]
    fn correction_follows_the_load_by_a_step_of_one_at_most() {
        assert_eq!([0.5, 1.0, 1.5, 3.0].map(|load| toward(load, 0.25)), [1.125, 1.0, 0.875, 0.75]);
    }

    #[test]
    fn early_end_frees_headroom_up_to_the_load_line() {
        for (cpus, left) in [(1.0, 0.0), (1.01, 0.01)] {
            let mut ranked = ranked(1.0);
            let admission = admit(&mut ranked, 0.01);
            ranked.on_signals(ms(0), Signals { cpus, load_average: 1.0 }, 0.0);
            ranked.finish(ms(0), admission, 0.01);
            assert_close(ranked.backlog.all(), left, "backlog");
        }
    }

    #[test]
    fn headroom_or_capacity_binds_only_below_95_percent() {
        for (headroom, correction, signal) in
            [(0.94, 0.94, Signal::Memory), (0.95, 0.94, Signal::LoadAverage), (0.95, 0.95, Signal::Cpu)]
        {
            let mut ranked = ranked(1.0);
            assert_eq!(ranked.binding(ms(0), Signal::Memory), None, "nothing was shed");
            (ranked.headroom, ranked.correction, ranked.shed_at) = (headroom, correction, Some(ms(0)));
            assert_eq!(ranked.binding(ms(1_000), Signal::Memory), Some(signal));
            assert_eq!(ranked.binding(ms(1_001), Signal::Memory), None, "long ago");
        }
    }

    #[test]
    fn request_that_ends_just_at_its_deadline_is_in_time() {
        let mut ranked = ranked(1.0);
        let _before_it = admit(&mut ranked, 0.01);
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut asks = |left| {
            let asks = Ask { deadline: Some(Timestamp::ZERO + left), ..ask(0.001) };
            (0..64).filter(|_| !ranked.is_hopeless(ms(0), &asks, &mut rng)).count()
        };
        assert_eq!(asks(Duration::from_millis(11)), 64);
        assert_eq!(asks(Duration::from_millis(10)), 0, "it would begin when its time is up");
    }

    #[test]
    fn resized_server_is_loaded_by_its_new_capacity() {
        let mut ranked = ranked(1.0);
        ranked.backlog.on_request(CRITICAL, 0.001, None);
        let config = AdmissionConfig::new(2.5).expect("above zero");
        assert_eq!(config.capacity(), 2.5);
        ranked.resize(ms(0), config);
        let _ = ranked.measure(ms(0), Signals { cpus: 2.0, load_average: 30.0 });
        assert_eq!(ranked.loads().map(|load| (load * 1e6).round()), [800_000.0, 500_000.0]);
    }
}
