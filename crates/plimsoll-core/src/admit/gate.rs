//! A server's gate: what it takes on, with all that this takes.
//!
//! [`Ranked`] decides from the cost that is expected of a request, [`Costs`] remembers what requests did cost, [`Overhead`] what each
//! costs the server beside its own code, and [`Smoothed`] what the signals say of the whole. This puts them together, so that no
//! shell has to.
//!
//! ```text
//!             ask ──▶ Costs::expected + Overhead ──▶ Ranked::admit ──▶ taken on, or turned away
//!                           ▲                            ▲  ▲
//!   ended: what it used ────┴──────▶ Ranked::finish ─────┘  │
//!   seen: process's CPU ──▶ Overhead, Smoothed ─────────────┘
//! ```
//!
//! Where nobody measures what a request uses, as in front of another process, [`Fitted`] finds it from the CPU of the whole.

use core::time::Duration;

use rand_core::Rng;

use super::{Admission, Ask, Pressure, Ranked, RankedConfig, Shed, Verdict};
use crate::meter::{Costs, Fitted, Kind, Overhead, Used};
use crate::signal::{Signals, Smoothed};
use crate::{Criticality, Timestamp, Weight};

/// What is known of a request at the gate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrival {
    /// How bad it is to lose it.
    pub criticality: Criticality,
    /// What its cost is remembered by; the customer is whose share it takes from, too.
    pub kind: Kind,
    /// What its customer is entitled to, beside other customers.
    pub share: Weight,
    /// After this time its answer is of no use.
    pub timeout: Option<Duration>,
    /// Requests of one cohort are taken on or turned away together; `None`: each by itself.
    pub cohort: Option<u64>,
    /// Whether it was turned away or failed before, here or elsewhere.
    pub is_retry: bool,
}

/// A request that was let in.
#[derive(Debug, PartialEq)]
#[must_use]
pub struct Entry {
    kind: Kind,
    expected: f64,
    /// None for one that would have been turned away, if this were not a dry run.
    admission: Option<Admission>,
}

impl Entry {
    /// What it is expected to use itself, in CPU-seconds.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.expected
    }

    /// When it has used so many CPU-seconds, and goes on, [`Gate::progress`] is to be told.
    #[must_use]
    pub fn tell_at(&self) -> f64 {
        self.admission.as_ref().map_or(self.expected, |admission| admission.counted)
    }
}

/// What can be seen of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// CPU-seconds of the process since its start.
    pub cpu: f64,
    /// CPU-seconds charged to requests since then.
    pub charged: f64,
    /// Requests that run or could run now.
    pub runnable: f64,
}

/// What is done about too much load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The least important requests are turned away.
    #[default]
    Protect,
    /// It is said what would be turned away, and nothing is.
    DryRun,
}

/// A server's gate.
#[derive(Clone, Debug)]
pub struct Gate {
    mode: Mode,
    ranked: Ranked,
    costs: Costs,
    overhead: Overhead,
    fitted: Fitted,
    smoothed: Smoothed,
    requests: u64,
}

impl Gate {
    /// The gate of a server that has used so much already.
    #[must_use]
    pub fn new(now: Timestamp, config: RankedConfig, mode: Mode, seen: Seen) -> Self {
        Self {
            mode,
            overhead: Overhead::new(config.capacity(), used(now, seen, 0)),
            fitted: Fitted::new(now, config.capacity(), seen.cpu),
            ranked: Ranked::new(now, config),
            costs: Costs::new(Costs::DEFAULT_KINDS),
            smoothed: Smoothed::new(now, seen.cpu),
            requests: 0,
        }
    }

    /// Whether a request is taken on, and what is said of it; in a dry run it may be both let in and spoken of as turned away.
    pub fn ask(&mut self, now: Timestamp, arrival: &Arrival, rng: &mut impl Rng) -> (Option<Entry>, Option<Shed>) {
        let &Arrival { criticality, kind, share, timeout, cohort, is_retry } = arrival;
        self.requests += 1;
        let expected = self.costs.expected(kind);
        let beside = self.overhead.per_request();
        let ask = Ask {
            criticality,
            customer: kind.customer,
            share,
            cost: expected + beside,
            deadline: timeout.map(|timeout| now + timeout),
            cohort,
            is_retry,
        };
        let entry = |admission| Entry { kind, expected, admission };
        match self.ranked.admit(now, &ask, rng) {
            Verdict::Admit(admission) => (Some(entry(Some(admission))), None),
            Verdict::Shed(shed) if self.mode == Mode::DryRun => (Some(entry(None)), Some(shed)),
            Verdict::Shed(shed) => {
                self.ranked.overhead(now, beside);
                (None, Some(shed))
            }
        }
    }

    /// What a request of this kind is expected to cost the server, with what is spent beside its own code, in CPU-seconds.
    #[must_use]
    pub fn expected(&self, kind: Kind) -> f64 {
        self.costs.expected(kind) + self.overhead.per_request()
    }

    /// A request that goes on has used so many CPU-seconds so far: see [`Ranked::progress`].
    pub fn progress(&mut self, now: Timestamp, entry: &mut Entry, used: f64) {
        entry.expected = entry.expected.max(2.0 * used);
        if let Some(admission) = &mut entry.admission {
            self.ranked.progress(now, admission, used);
        }
    }

    /// A request has ended, and used so many CPU-seconds.
    pub fn ended(&mut self, now: Timestamp, entry: Entry, used: f64) {
        self.costs.observe(entry.kind, used);
        if let Some(admission) = entry.admission {
            self.ranked.finish(now, admission, used + self.overhead.per_request());
        }
    }

    /// A request has ended of which nobody knows what it used: what it is expected to, until more is known of all that ended with it.
    pub fn ended_unmeasured(&mut self, now: Timestamp, entry: Entry) {
        let expected = self.costs.expected(entry.kind);
        self.fitted.ended(entry.kind, expected);
        if let Some(admission) = entry.admission {
            self.ranked.finish(now, admission, expected + self.overhead.per_request());
        }
    }

    /// So many CPU-seconds went to what no request in progress is to be charged with.
    pub fn used_late(&mut self, now: Timestamp, used: f64) {
        self.ranked.overhead(now, used);
    }

    /// What can be seen of the server now, each 10 ms or rarer. `gauge` is a measure of load of the owner's own, 1 is as much
    /// as the server can bear.
    pub fn see(&mut self, now: Timestamp, seen: Seen, gauge: f64) {
        self.overhead.sample(used(now, seen, self.requests));
        self.fitted.sample(now, seen.cpu, &mut self.costs);
        let signals = self.smoothed.sample(now, seen.cpu, seen.runnable);
        // In a dry run what is above the line stays there, and would be taken for a lack of CPU.
        if self.mode == Mode::Protect {
            self.ranked.on_signals(now, signals, gauge);
        }
    }

    /// The process could not be seen until now, and has used so much: what ended meanwhile says nothing of costs.
    pub fn see_again(&mut self, now: Timestamp, seen: Seen) {
        self.fitted.restart(now, seen.cpu);
    }

    /// The process may use as many CPUs as this says from now on; no other setting of it is looked at.
    pub fn resize(&mut self, now: Timestamp, config: RankedConfig) {
        self.overhead.resize(config.capacity());
        self.fitted.resize(config.capacity());
        self.ranked.resize(now, config);
    }

    /// What the signals were at the last look.
    #[must_use]
    pub fn signals(&self) -> Signals {
        self.smoothed.last()
    }

    /// How near requests of this criticality are to being turned away.
    #[must_use]
    pub fn pressure(&self, criticality: Criticality) -> Pressure {
        self.ranked.pressure(criticality)
    }
}

fn used(now: Timestamp, seen: Seen, requests: u64) -> Used {
    let wall = now.nanos_since(Timestamp::ZERO) as f64 * 1e-9;
    Used { wall, cpu: seen.cpu, charged: seen.charged, requests }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const MS: u64 = 1_000_000;
    const ARRIVAL: Arrival = Arrival {
        criticality: Criticality::Critical,
        kind: Kind { route: 1, customer: 1 },
        share: Weight::ONE,
        timeout: None,
        cohort: None,
        is_retry: false,
    };

    /// Who knows what a request used.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Measured {
        Itself,
        Nobody,
    }

    /// One core; 2,000 requests a second for ten seconds, each of which uses a millisecond itself and a quarter of one beside, also when
    /// it is turned away. Returns how many were taken on and turned away in the last second.
    fn overload(mode: Mode, measured: Measured) -> (u64, u64) {
        let mut rng = Pcg64Mcg::seed_from_u64(3);
        let mut gate = Gate::new(Timestamp::ZERO, RankedConfig::new(1.0).expect("a core"), mode, Seen::default());
        let mut seen = Seen::default();
        let mut running = std::collections::VecDeque::new();
        // CPU-seconds that the core has still to spend.
        let mut work: f64 = 0.0;
        let (mut taken, mut shed) = (0, 0);
        for n in 0..20_000_u64 {
            let now = Timestamp::from_nanos(n * MS / 2);
            let step = work.min(0.0005);
            work -= step;
            seen.cpu += step;
            while running.front().is_some_and(|(done, _)| *done <= seen.cpu) {
                let (_, entry) = running.pop_front().expect("just seen");
                match measured {
                    Measured::Itself => {
                        seen.charged += 0.001;
                        gate.ended(now, entry, 0.001);
                    }
                    Measured::Nobody => gate.ended_unmeasured(now, entry),
                }
            }
            if n % 20 == 0 {
                if measured == Measured::Nobody {
                    seen.charged = seen.cpu;
                }
                gate.see(now, seen, 0.0);
            }
            let (entry, turned_away) = gate.ask(now, &ARRIVAL, &mut rng);
            work += 0.00025 + if entry.is_some() { 0.001 } else { 0.0 };
            if n >= 18_000 {
                taken += u64::from(entry.is_some());
                shed += u64::from(turned_away.is_some());
            }
            running.extend(entry.map(|entry| (seen.cpu + work, entry)));
        }
        (taken, shed)
    }

    #[test]
    fn what_is_used_beside_requests_leaves_less_for_them() {
        // 2,000 quarters of a millisecond are half of the core.
        let (taken, shed) = overload(Mode::Protect, Measured::Itself);
        assert!((450..=510).contains(&taken), "{taken}");
        assert_eq!(taken + shed, 2_000);
    }

    #[test]
    fn what_is_used_by_requests_that_nobody_measures_is_laid_upon_those_taken_on() {
        // The same half of the core goes to turning away, and all of it is taken for what the others cost.
        let (taken, shed) = overload(Mode::Protect, Measured::Nobody);
        assert!((400..=510).contains(&taken), "{taken}");
        assert_eq!(taken + shed, 2_000);
    }

    #[test]
    fn a_dry_run_lets_all_in_and_says_whom_it_would_not() {
        let (taken, shed) = overload(Mode::DryRun, Measured::Itself);
        assert_eq!(taken, 2_000);
        assert!(shed > 1_000, "{shed}");
    }
}
