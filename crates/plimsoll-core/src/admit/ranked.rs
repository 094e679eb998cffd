//! Gives up the least important requests first, and takes on as much of the others as there is capacity for.
//!
//! # Whom
//!
//! In this order: lower criticality first; within one, the customer first that asks for most of what it is entitled to; within one
//! customer, at random, or by [`cohort`](super::cohort()). Each level of criticality has a fluid queue of its own work and all that is more critical
//! ([`backlog`](super::backlog)), which is f full. While f is below a quarter, everything is taken on; then a request is with the
//! probability
//!
//! ```text
//! P = min(1, λ ÷ u) · clamp(4 · (1 − f'), 0, 1),    f' = f · clamp(u ÷ û, ½, 1),    dλ/dt = λ · (1 − 2f) ÷ τ
//! ```
//!
//! where u is what its customer asks for ÷ what it is entitled to, and û the mean of u over the level's work. λ is a water level: a
//! customer with u ≤ λ loses nothing, one above is cut down to λ (Stoica, Shenker, Zhang: "Core-stateless fair queueing", 1998).
//! It falls while the queue is more than half full and rises while it is less, slowly, so that it does not follow chance; where
//! nobody asks for as long as τ, it begins anew, for nobody is cut down there. What is to be met at once, the second factor meets:
//! from three quarters on fewer are taken on, and when it is full, none; but who asks for less than the mean sees the queue less
//! full than it is, so that chance takes the others.
//!
//! λ follows a queue of some requests and is as noisy, and it is too low by what the heavy have while the queue is less than a
//! quarter full; both are theirs alone. A customer with u < ¾ û is measured by what the others are left of their u, P · u in the mean
//! over some seconds, if that is higher than λ. While customers of a more critical level are cut down, less critical ones get
//! nothing: else they would have what chance leaves.
//!
//! Why not a limit on requests in flight, found by watching latency: it cannot tell ten cheap requests from ten dear ones, needs
//! seconds to find its place, and when it has found it does not know whom to turn away. Why not a priority queue: whoever stands in
//! it has been read, parsed, and given memory.
//!
//! # How much
//!
//! Capacity is CPU-seconds per second, known beforehand; what requests cost is measured. The signals of the server itself say where
//! the one is wrong ([`Ranked::on_signals`]):
//!
//! - Requests that could run are more than are in order: there is less CPU than was said, because a neighbour takes half of a
//!   core, or a quota was changed. Capacity is believed to be less, down to what is being used, and less than that until they are
//!   fewer.
//! - Something is turned away and CPU is left: more again.
//! - More CPU is used than the load line allows: then work that is done early makes no room for more.
//! - Something else runs short that the owner knows of: fewer requests are in progress at a time.
//!
//! # What may go wrong
//!
//! Costs that are wrong by a factor for one kind of request are put right while it runs ([`Ranked::progress`]) and when it ends
//! ([`Ranked::finish`]), so that they shift who is given up, not how much. A burst of dear requests that were expected to be cheap is
//! taken on whole: for as long as these take, others wait.

use core::time::Duration;

use rand_core::Rng;

use super::attempts::Attempts;
use super::backlog::{Backlog, Supply};
use super::cohort::luck;
use super::usage::Usage;
use super::{Admission, Ask, Pressure, Shed, Verdict};
use crate::rng::{self, spread};
use crate::signal::{Signal, Signals};
use crate::{Criticality, Ratio, Timestamp, decay};

/// What a server expects while it does not know: of costs, and of a load that may last or be gone at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// The mean, and that it is chance: a burst is taken on, and what is too much is met when it is there. All of the capacity is used,
    /// and now and then more work is there than is meant to be, for some tens of milliseconds.
    #[default]
    Optimistic,
    /// The worst that is likely, and that it lasts: what a request may cost is kept free before it is taken on
    /// ([`Costs::high`](crate::meter::Costs::high)), and there is never more than fits. Less work waits, and less is done: below
    /// the capacity bursts are turned away that it could have done a moment later, and at it cores are idle now and then. For servers
    /// whose latency counts for more than their CPU.
    Pessimistic,
}

/// How a server is protected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedConfig {
    capacity: f64,
    /// The part of the capacity that requests may fill. What is left is for what a server does beside them and nobody tells
    /// of ([`Ranked::overhead`]).
    pub load_line: Ratio,
    /// How long work may wait when more is offered than can be done; longer where requests are so dear that fewer than eight of them
    /// fill this time.
    pub target_delay: Duration,
    /// Retries among the requests that come, above which those turned away are told not to try again.
    pub most_retries: Ratio,
    /// Customers that are remembered, at 24 bytes for each; of more than so many, the light ones are forgotten.
    pub customers: usize,
    /// Whether it had better take on too much for a moment, or too little.
    pub outlook: Outlook,
}

impl RankedConfig {
    /// Two per cent for the rest: timers, accepting connections, an allocator.
    pub const DEFAULT_LOAD_LINE: Ratio = Ratio::from_percent(98);
    /// A fiftieth of what an interactive request may take as a whole, and more than the slices of a kernel's scheduler. It is shared
    /// by all in progress, so that one that costs many times the mean waits that many times longer. For requests of milliseconds: where they
    /// take microseconds, all wait for this long beside hundreds of others.
    pub const DEFAULT_TARGET_DELAY: Duration = Duration::from_millis(5);
    /// What clients with a budget for retries keep to (SRE ch. 21).
    pub const DEFAULT_MOST_RETRIES: Ratio = Ratio::from_percent(10);
    /// 200 KiB; only the heavy ones matter.
    pub const DEFAULT_CUSTOMERS: usize = 8_192;

    /// For a server with so many CPU-seconds a second; `None` unless that is finite and above zero.
    #[must_use]
    pub fn new(capacity: f64) -> Option<Self> {
        (capacity > 0.0 && capacity.is_finite()).then_some(Self {
            capacity,
            load_line: Self::DEFAULT_LOAD_LINE,
            target_delay: Self::DEFAULT_TARGET_DELAY,
            most_retries: Self::DEFAULT_MOST_RETRIES,
            customers: Self::DEFAULT_CUSTOMERS,
            outlook: Outlook::default(),
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
/// How full a queue is before anything is turned away.
const SLACK: f64 = 0.25;
/// τ: some hundreds of requests even on a small server, so that λ is no noisier than what customers ask for is known.
const TAU: f64 = 0.5;
/// λ, in mean u of the level's work: at the one end customers that ask for far more than most are let through, and it is soon down where
/// it has to be; at the other next to nobody is.
const LEVEL: core::ops::RangeInclusive<f64> = 1.0 / 256.0..=16.0;
/// Of the mean of u, which changes as customers come and go.
const MEAN_HALF_LIFE: Duration = Duration::from_secs(2);
/// Of what the heavy are left: long beside the noise of λ, which is that of a queue of some requests.
const STEADY_HALF_LIFE: Duration = Duration::from_secs(5);
/// In û, whom the steady λ is for: those who ask for more can tell by their own noise no better where they are.
const LIGHT: f64 = 0.75;
/// In λ: when it has fallen for good, the light have to follow at once so far.
const MOST_STEADY: f64 = 2.0;
/// Of what is between belief and capacity, by the signals: slower than these, which are smoothed over some tens of milliseconds.
const CORRECTION_HALF_LIFE: Duration = Duration::from_millis(250);
/// Of capacity or of room: something has to be taken on, or nothing would ever be learned.
const LEAST: f64 = 0.02;
/// Of what is tolerable, the part that one request may fill beside what it has used: of one that starts thousands of small tasks
/// nobody else is to take notice, whether it is known beforehand or not.
const ONE: f64 = SLACK;
/// A queue that is full is in order; one that is longer than that on average is longer than it is believed to be.
const QUEUES: f64 = 1.25;
/// Of the capacity, what may go to something else than requests before it is no longer looked at; and what may do so in one go.
const MOST_BESIDE: f64 = 0.9;
/// Signals, by which such a flood is known as one, come some tens of times in it.
const BESIDE_AT_ONCE: Duration = Duration::from_millis(100);
/// With so much of its room or capacity left, it is not the want of that by which a server turns requests away.
const ALL_BUT_ALL: f64 = 0.95;
/// Who looks a second after the last request was turned away is to see why.
const BINDS_FOR: Duration = Duration::from_secs(1);
/// Of requests that would be late only by what they are expected to cost themselves, one in so many is begun although there is
/// something else to do: little is wasted if they are late indeed, and a few are enough to learn what they cost.
const BEGUN_LATE: usize = 16;

/// The customers of one level.
#[derive(Clone, Copy, Debug)]
struct Water {
    /// CPU-seconds asked for, and the same times u, decayed.
    asked: (f64, f64),
    /// λ, in mean u.
    level: f64,
    /// What the last customer that is not light was left of its u, in mean u, and the mean of that over some seconds; zero before there was one.
    last: f64,
    steady: f64,
    at: Timestamp,
    /// When the last request came.
    came: Timestamp,
}

impl Water {
    const fn new(now: Timestamp) -> Self {
        Self { asked: (0.0, 0.0), level: *LEVEL.end(), last: 0.0, steady: 0.0, at: now, came: now }
    }

    /// Time goes by while the level is so full. Where nobody asks, nobody is cut down, whatever else fills the queue.
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

    /// A customer that asks for `u` asks for `cost` CPU-seconds more, while the level is so full. Returns the part of that which is
    /// taken on.
    fn on_request(&mut self, u: f64, cost: f64, fill: f64) -> f64 {
        self.came = self.at;
        self.asked = (self.asked.0 + cost, self.asked.1 + cost * u);
        let mean = self.asked.1 / self.asked.0;
        let is_light = u < LIGHT * mean;
        let lambda = self.level * mean;
        let lambda = if is_light { lambda.max((self.steady * mean).min(MOST_STEADY * lambda)) } else { lambda };
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

    /// Whether customers of the level are cut down: 1 if none are, 0 if they are by a quarter or more. Nothing is left for less
    /// critical ones then.
    fn leaves(&self) -> f64 {
        (4.0 * self.level - 3.0).clamp(0.0, 1.0)
    }
}

/// Gives up the least important first.
#[derive(Clone, Debug)]
pub struct Ranked {
    config: RankedConfig,
    backlog: Backlog<LEVELS>,
    water: [Water; LEVELS],
    usage: Usage,
    attempts: Attempts,
    /// What the capacity is believed to be, over that of the configuration; at most 1.
    pub(super) correction: f64,
    /// Of the backlog that is tolerable, the part that is left by what else runs short.
    pub(super) room: f64,
    /// CPU-seconds that may still go to something else than requests.
    beside: f64,
    /// More CPU is used than the load line allows.
    is_over: bool,
    /// The backlog has in it what waits.
    is_counted: bool,
    /// Something was turned away since the last signal.
    pub(super) is_limiting: bool,
    /// When something was turned away last.
    shed_at: Option<Timestamp>,
    /// Of as much as can be borne: CPU in use, and requests that run or could run.
    loads: [f64; 2],
    at: Timestamp,
    signalled: Timestamp,
}

impl Ranked {
    /// One that begins.
    #[must_use]
    pub fn new(now: Timestamp, config: RankedConfig) -> Self {
        Self {
            backlog: Backlog::new(now),
            water: [Water::new(now); LEVELS],
            usage: Usage::new(config.customers),
            attempts: Attempts::new(now, config.most_retries),
            correction: 1.0,
            room: 1.0,
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

    /// There are so many CPU-seconds a second from now on.
    pub fn resize(&mut self, now: Timestamp, config: RankedConfig) {
        self.advance(now);
        self.config.capacity = config.capacity;
    }

    /// Whether a request is taken on. Health checks and the like are not to be asked about: they are always.
    pub fn admit(&mut self, now: Timestamp, ask: &Ask, rng: &mut impl Rng) -> Verdict {
        self.advance(now);
        if self.has_no_hope(now, ask, rng) {
            return Verdict::Shed(Shed::DEADLINE);
        }
        self.attempts.on_request(now, ask.is_retry);
        let rank = ask.criticality.rank();
        let share = self.share_taken(now, ask);
        if share < 1.0 && luck(ask, rng) >= share {
            return self.overloaded(now);
        }
        let counted = ask.cost.min(self.most_of_one(rank));
        if self.config.outlook == Outlook::Pessimistic && !self.backlog.fits(rank, counted, &self.supply()) {
            return self.overloaded(now);
        }
        self.backlog.add(rank, counted);
        Verdict::Admit(Admission { criticality: ask.criticality, counted, used: 0.0 })
    }

    fn overloaded(&mut self, now: Timestamp) -> Verdict {
        self.is_limiting = true;
        self.shed_at = Some(now);
        Verdict::Shed(Shed::overloaded(self.attempts.advice()))
    }

    /// A request that was taken on is over, and has used so many CPU-seconds.
    pub fn finish(&mut self, now: Timestamp, admission: Admission, used: f64) {
        self.advance(now);
        let rank = admission.criticality.rank();
        self.backlog.add(rank, used - admission.counted);
        self.backlog.done(rank, used - admission.used, &self.supply());
    }

    /// Nobody waits any more for a request that was taken on, and it is not known whether the server knows: what it is counted with is not there for
    /// others before it would have been.
    pub fn abandon(&mut self, now: Timestamp, admission: Admission) {
        self.advance(now);
        self.backlog.abandon(admission.criticality.rank(), admission.counted - admission.used);
    }

    /// A request that was taken on has used so many CPU-seconds so far and goes on; to be told in the course of long ones, at least
    /// each [`RankedConfig::target_delay`].
    ///
    /// One that has used up what it is counted with is counted with twice that, for the dearer a request has been, the more is to be
    /// expected of it; but never with so much more that it alone would have others turned away. Were it counted only once it is over, the dear ones would gather unseen: cheap ones are over first, and make
    /// room for more of both.
    pub fn progress(&mut self, now: Timestamp, admission: &mut Admission, used: f64) {
        self.advance(now);
        let rank = admission.criticality.rank();
        if used >= admission.counted {
            let left = used.min(self.most_of_one(rank));
            self.backlog.add(rank, used + left - admission.counted);
            admission.counted = used + left;
        }
        self.backlog.done(rank, used - admission.used, &self.supply());
        admission.used = used;
    }

    /// CPU-seconds went to something else than requests that were taken on: to turning others away, above all. They are not there for
    /// requests then; but a tenth of the capacity always is, or a flood that takes all there is only to be turned away would have
    /// everybody turned away for as long as it lasts, and where clients come again at once, for longer.
    pub fn overhead(&mut self, now: Timestamp, used: f64) {
        self.advance(now);
        let counted = used.min(self.beside);
        self.beside -= counted;
        self.backlog.delay(counted);
    }

    /// What the server's signals say, a few times each [`RankedConfig::target_delay`] or rarer. `gauge` is a measure of the owner's own: 0
    /// is nothing, 1 as much as the server can bear.
    pub fn on_signals(&mut self, now: Timestamp, signals: Signals, gauge: f64) {
        let [used, queue] = self.measure(now, signals);
        let step = 1.0 - decay::remaining(now, self.signalled, CORRECTION_HALF_LIFE);
        self.signalled = self.signalled.max(now);
        // Where nothing is turned away, a low load says that little was asked for, and nothing of the capacity.
        let is_limiting = core::mem::replace(&mut self.is_limiting, false);
        if queue > 1.0 {
            self.correction *= toward(queue, step);
        } else if is_limiting && used < 1.0 {
            self.correction *= toward(used.max(queue), step);
        }
        // As much as is used is there; but less must be taken on until a queue that is too long has gone, unless it is counted.
        let excess = if self.is_counted { 1.0 } else { queue.max(1.0) };
        let least = (used.min(1.0) / excess).max(LEAST);
        self.correction = self.correction.clamp(least, 1.0);
        self.is_over = used > 1.0;
        if !gauge.is_nan() {
            self.room = (self.room * toward(gauge, step)).clamp(LEAST, 1.0);
        }
    }

    /// So many requests are known to wait for a CPU or to have one: more than is counted, where the CPUs do less than they are believed to or requests
    /// cost more. To be told before the signals.
    pub fn on_queued(&mut self, now: Timestamp, requests: f64) {
        self.advance(now);
        self.is_counted = requests > 0.0;
        self.backlog.at_least(requests);
    }

    /// How near requests of this criticality are to being turned away, for handlers that could answer at less cost.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        let fill = self.backlog.fill(criticality.rank(), &self.supply());
        Pressure::of((fill - SLACK) / (1.0 - SLACK))
    }

    /// Takes down the loads that the signals tell of, and concludes nothing.
    pub(super) fn measure(&mut self, now: Timestamp, signals: Signals) -> [f64; 2] {
        self.advance(now);
        let used = signals.cpus / (self.config.capacity * self.config.load_line.as_f64());
        let queue = signals.load_average / (QUEUES * self.backlog.tolerable(&self.supply()));
        self.loads = [used, queue];
        self.loads
    }

    /// CPU in use and requests that run or could run when they were measured last, 1 is as much as can be borne.
    pub(super) fn loads(&self) -> [f64; 2] {
        self.loads
    }

    /// What has requests turned away: `scarce` where something beside CPU leaves less room. `None` while none are.
    pub(super) fn binding(&self, now: Timestamp, scarce: Signal) -> Option<Signal> {
        self.shed_at.filter(|shed| now.since(*shed) <= BINDS_FOR)?;
        Some(if self.room < ALL_BUT_ALL {
            scarce
        } else if self.correction < ALL_BUT_ALL {
            Signal::LoadAverage
        } else {
            Signal::Cpu
        })
    }

    /// Whether a request would be answered too late: for certain if its time is up before it is begun; most likely if it is expected to
    /// take longer than that leaves. The latter is no more than a guess at what it costs, or how many cores it uses, and only requests
    /// that are taken on can put it right. So it is begun if nothing else is there to be done, and now and then in any case.
    fn has_no_hope(&self, now: Timestamp, ask: &Ask, rng: &mut impl Rng) -> bool {
        let Some(deadline) = ask.deadline else { return false };
        let after = |seconds| now + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let before_it = self.backlog.all() / self.supply().capacity;
        if after(before_it) >= deadline {
            return true;
        }
        after(before_it + ask.cost - ask.overhead) > deadline && before_it > 0.0 && rng::below(rng, BEGUN_LATE) != 0
    }

    /// The part of requests such as this one that is taken on.
    fn share_taken(&mut self, now: Timestamp, ask: &Ask) -> f64 {
        let rank = ask.criticality.rank();
        let time = ask.deadline.map(|deadline| deadline.since(now).as_secs_f64());
        self.backlog.on_request(rank, ask.cost, time);
        // A customer's standing in one level is none of the others' business.
        let asks_for = self.usage.on_request(now, spread(ask.customer).wrapping_add(rank as u64), ask.cost);
        let u = asks_for / ask.share.as_f64();
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

    /// CPU-seconds that one request may be counted with beside what it has used.
    fn most_of_one(&self, rank: usize) -> f64 {
        if self.config.outlook == Outlook::Pessimistic {
            return f64::INFINITY;
        }
        // Where less is tolerable for want of something else than CPU, one weighs what it always does.
        ONE * self.backlog.limit(rank, &Supply { room: 1.0, ..self.supply() })
    }

    fn supply(&self) -> Supply {
        let RankedConfig { capacity, load_line, target_delay, outlook, .. } = self.config;
        let capacity = capacity * load_line.as_f64() * self.correction;
        Supply { capacity, target_delay, room: self.room, is_over: self.is_over, outlook }
    }

    fn advance(&mut self, now: Timestamp) {
        if now <= self.at {
            return;
        }
        let supply = self.supply();
        self.backlog.advance(now, &supply);
        let most = MOST_BESIDE * supply.capacity;
        let gained = most * (now.nanos_since(self.at) as f64 * 1e-9);
        self.beside = (self.beside + gained).min(most * BESIDE_AT_ONCE.as_secs_f64());
        self.at = now;
    }
}

/// By how much something changes for which this is the load: less above 1, more below it.
fn toward(load: f64, step: f64) -> f64 {
    1.0 + step * (1.0 - load).max(-1.0)
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::Weight;

    const CRITICAL: usize = 1;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn ask(cost: f64) -> Ask {
        Ask {
            criticality: Criticality::Critical,
            customer: 1,
            share: Weight::ONE,
            cost,
            overhead: 0.0,
            deadline: None,
            cohort: None,
            is_retry: false,
        }
    }

    /// A server of `cores` cores; requests may use all of them.
    fn ranked(cores: f64) -> Ranked {
        let config = RankedConfig { load_line: Ratio::ONE, ..RankedConfig::new(cores).expect("above zero") };
        Ranked::new(ms(0), config)
    }

    fn admit(ranked: &mut Ranked, cost: f64) -> Admission {
        match ranked.admit(ms(0), &ask(cost), &mut Pcg64Mcg::seed_from_u64(1)) {
            Verdict::Admit(admission) => admission,
            Verdict::Shed(shed) => panic!("{shed:?}"),
        }
    }

    fn assert_close(got: f64, expected: f64, what: &str) {
        assert!((got - expected).abs() < 1e-9, "{what}: {got}, not {expected}");
    }

    /// Of a level where customers ask for twice their share in the mean.
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
    fn dear_request_is_counted_with_twice_what_it_has_used() {
        let mut ranked = ranked(1.0);
        let mut admission = admit(&mut ranked, 0.001);
        // 48 mean requests are tolerable, and one request may fill a quarter of that.
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
    fn abandoned_request_makes_no_room_until_others_are_done() {
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
        assert_close(ranked.backlog.all(), 0.18 - 0.1 + 0.09, "what 50 ms have added");
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
            // 48 mean requests are tolerable.
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
        // 48 requests are tolerable, and a quarter more on average.
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
        assert!((correction - 0.56).abs() < 1e-3, "more while some are turned away: {correction}");
        assert_eq!(corrected(0.4, false, 0.2, 0.2), 0.4, "little load says nothing");
    }

    #[test]
    fn correction_follows_the_load_by_a_step_of_one_at_most() {
        assert_eq!([0.5, 1.0, 1.5, 3.0].map(|load| toward(load, 0.25)), [1.125, 1.0, 0.875, 0.75]);
    }

    #[test]
    fn early_end_makes_room_up_to_the_load_line_and_not_above() {
        for (cpus, left) in [(1.0, 0.0), (1.01, 0.01)] {
            let mut ranked = ranked(1.0);
            let admission = admit(&mut ranked, 0.01);
            ranked.on_signals(ms(0), Signals { cpus, load_average: 1.0 }, 0.0);
            ranked.finish(ms(0), admission, 0.01);
            assert_close(ranked.backlog.all(), left, "backlog");
        }
    }

    #[test]
    fn room_or_capacity_binds_only_below_95_percent() {
        for (room, correction, signal) in
            [(0.94, 0.94, Signal::Memory), (0.95, 0.94, Signal::LoadAverage), (0.95, 0.95, Signal::Cpu)]
        {
            let mut ranked = ranked(1.0);
            assert_eq!(ranked.binding(ms(0), Signal::Memory), None, "nothing was turned away");
            (ranked.room, ranked.correction, ranked.shed_at) = (room, correction, Some(ms(0)));
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
            (0..64).filter(|_| !ranked.has_no_hope(ms(0), &asks, &mut rng)).count()
        };
        assert_eq!(asks(Duration::from_millis(11)), 64);
        assert_eq!(asks(Duration::from_millis(10)), 0, "it would begin when its time is up");
    }

    #[test]
    fn resized_server_is_loaded_by_its_new_capacity() {
        let mut ranked = ranked(1.0);
        ranked.backlog.on_request(CRITICAL, 0.001, None);
        let config = RankedConfig::new(2.5).expect("above zero");
        assert_eq!(config.capacity(), 2.5);
        ranked.resize(ms(0), config);
        let _ = ranked.measure(ms(0), Signals { cpus: 2.0, load_average: 30.0 });
        assert_eq!(ranked.loads().map(|load| (load * 1e6).round()), [800_000.0, 500_000.0]);
    }
}
