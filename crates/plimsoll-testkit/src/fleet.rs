//! A fleet in virtual time: machines with a queue each, and balancers that send to them.
//!
//! A machine serves one request after the other; a request of cost `c` takes `c ÷ (speed · (1 −
//! antagonist))`. Its reports are those of a real machine. They give the CPU's busy share of the
//! last second, antagonist included, and the rates of answers and failures in it. The balancers are
//! real. They wake when they ask for it, and their checks are answered at once. One seed gives one
//! run, to the last pick.
//!
//! It leaves out connections, retries, and concurrent requests at a machine. The simulator has the
//! full models; this one suffices for the scenarios of the policies.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::health::CheckOutcome;
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, LoadReport, Outcome, Pick, Timestamp, Weight, spread,
};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use crate::events::Recorder;

/// Network round trip.
const ROUND_TRIP: Duration = Duration::from_micros(100);
/// Window of a machine's measurements.
const WINDOW: Duration = Duration::from_secs(1);
/// Wait before a request without a backend is picked for again.
const WAIT: Duration = Duration::from_millis(1);

/// The arrival of requests.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// At random instants (Poisson), with no regard to outcomes.
    Open {
        /// Mean rate.
        per_second: f64,
    },
    /// By users; each sends its next request when the last one has ended, so fast failures make
    /// them faster.
    Closed {
        /// Requests outstanding in all.
        users: usize,
    },
}

/// CPU time of a request on a machine of speed one.
#[derive(Clone, Copy, Debug)]
pub enum Cost {
    /// Always the same.
    Fixed(Duration),
    /// Exponentially distributed, with this mean.
    Exponential(Duration),
}

/// The behaviour of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// It works.
    Serve,
    /// It works as a lame duck: its reports say so, and its checks answer so.
    LameDuck,
    /// It answers every request at once with this outcome; its checks pass.
    Immediate(Outcome),
    /// It refuses connections.
    Down,
}

/// A machine's load reports with its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reports {
    /// Nothing.
    None,
    /// Utilization, rate, failures.
    Honest,
    /// As [`Reports::Honest`], with failures counted as successes.
    HidesFailures,
    /// Utilization alone.
    WithoutRates,
}

/// A machine to build a fleet with.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Relative to an ordinary machine.
    pub speed: f64,
    /// Share of its CPU, in [0, 1), that other work uses.
    pub antagonist: f64,
    /// The weight of the balancers' configuration.
    pub weight: Weight,
    /// Its behaviour at the start.
    pub conduct: Conduct,
    /// Its load reports.
    pub reports: Reports,
}

impl Default for Machine {
    fn default() -> Self {
        Self { speed: 1.0, antagonist: 0.0, weight: Weight::ONE, conduct: Conduct::Serve, reports: Reports::None }
    }
}

/// Counts of one machine since the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests sent to it.
    pub picked: u64,
    /// Requests that failed there, or were answered as overloaded.
    pub failed: u64,
    /// CPU time spent on requests.
    pub busy: Duration,
    /// Largest number of requests waiting there, including the one being served.
    pub longest_queue: usize,
}

struct Backend {
    machine: Machine,
    counts: Counts,
    /// Incremented when the process ends; requests of an earlier process are lost.
    life: u32,
    outstanding: usize,
    free_at: Timestamp,
    accounted_at: Timestamp,
    window_start: Timestamp,
    window: (Duration, u32, u32),
    report: LoadReport,
}

struct Client {
    balancer: Balancer,
    ids: Vec<BackendId>,
    recorder: Recorder,
}

enum Step {
    Arrive,
    Answer { client: usize, backend: usize, id: BackendId, life: u32, sent: Timestamp, outcome: Outcome },
}

/// Machines, balancers and the time.
pub struct Fleet {
    now: Timestamp,
    rng: Pcg64Mcg,
    load: Load,
    cost: Cost,
    clients: Vec<Client>,
    backends: Vec<Backend>,
    steps: BTreeMap<(Timestamp, u64), Step>,
    sequence: u64,
    counts_since: Timestamp,
    /// Requests without a backend that had to be picked for again, since the last reset.
    pub waits: u64,
    next_client: usize,
}

impl Fleet {
    /// `clients` balancers that know all `machines`, with the load already begun.
    #[must_use]
    pub fn new(
        config: BalancerConfig,
        clients: usize,
        machines: &[Machine],
        load: Load,
        cost: Cost,
        seed: u64,
    ) -> Self {
        let now = Timestamp::ZERO;
        let clients = (0..clients)
            .map(|_| {
                let (mut balancer, mut recorder) = (Balancer::new(config), Recorder::default());
                let ids = machines.iter().map(|m| balancer.add(now, m.weight, &mut recorder)).collect();
                Client { balancer, ids, recorder }
            })
            .collect();
        let backend = |machine: &Machine| Backend {
            machine: *machine,
            counts: Counts::default(),
            life: 0,
            outstanding: 0,
            free_at: now,
            accounted_at: now,
            window_start: now,
            window: (Duration::ZERO, 0, 0),
            report: LoadReport::default(),
        };
        let mut fleet = Self {
            now,
            rng: crate::seeded(seed),
            load,
            cost,
            clients,
            backends: machines.iter().map(backend).collect(),
            steps: BTreeMap::new(),
            sequence: 0,
            counts_since: now,
            waits: 0,
            next_client: 0,
        };
        fleet.wake();
        let first = match load {
            Load::Open { .. } => 1,
            Load::Closed { users } => users,
        };
        for user in 0..first {
            fleet.at(Duration::from_micros(user as u64), Step::Arrive);
        }
        fleet
    }

    /// Lets `duration` pass.
    pub fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let step = self.steps.first_key_value().map(|(key, _)| key.0).filter(|at| *at <= end);
            let woken = self.clients.iter().filter_map(|c| c.balancer.poll_timeout()).min();
            if let Some(at) = woken.filter(|at| *at <= step.unwrap_or(end)) {
                self.now = at.max(self.now);
                self.wake();
                continue;
            }
            if step.is_none() {
                break;
            }
            if let Some(((at, _), step)) = self.steps.pop_first() {
                self.now = at;
                self.take(step);
            }
        }
        self.now = end;
        for backend in &mut self.backends {
            backend.account(end);
        }
    }

    /// Changes the behaviour of a machine from now on. A machine that goes down loses its requests.
    /// Balancers learn of the end of a lame duck from the connection that they hold to it.
    pub fn set_conduct(&mut self, index: usize, conduct: Conduct) {
        let backend = &mut self.backends[index];
        let was = std::mem::replace(&mut backend.machine.conduct, conduct);
        if conduct == Conduct::Down {
            backend.account(self.now);
            backend.life += 1;
            backend.free_at = self.now;
            backend.outstanding = 0;
        }
        for client in &mut self.clients {
            let (id, recorder) = (client.ids[index], &mut client.recorder);
            match conduct {
                Conduct::LameDuck => {
                    let report = LoadReport { lame_duck: true, ..LoadReport::default() };
                    client.balancer.on_report(self.now, id, &report, recorder);
                }
                Conduct::Down if was == Conduct::LameDuck => client.balancer.on_process_ended(self.now, id, recorder),
                _ => {}
            }
        }
    }

    /// Counts of each machine since the start or the last [`Fleet::reset_counts`].
    #[must_use]
    pub fn counts(&self) -> Vec<Counts> {
        self.backends.iter().map(|backend| backend.counts).collect()
    }

    /// Resets all counts.
    pub fn reset_counts(&mut self) {
        self.counts_since = self.now;
        self.waits = 0;
        for backend in &mut self.backends {
            backend.account(self.now);
            backend.counts = Counts::default();
        }
    }

    /// Requests sent since the last reset.
    #[must_use]
    pub fn picked(&self) -> u64 {
        self.backends.iter().map(|backend| backend.counts.picked).sum()
    }

    /// Share of its CPU that each machine used since the last reset, antagonist included.
    #[must_use]
    pub fn utilization(&self) -> Vec<f64> {
        let elapsed = self.now.since(self.counts_since).as_secs_f64();
        self.backends.iter().map(|b| b.counts.busy.as_secs_f64() / elapsed + b.machine.antagonist).collect()
    }

    /// The evenness of that utilization.
    ///
    /// # Panics
    /// If nothing was done at all.
    #[must_use]
    pub fn spread(&self) -> spread::Spread {
        spread::of(self.utilization()).expect("something was done")
    }

    /// The balancer of one client.
    #[must_use]
    pub fn balancer(&self, client: usize) -> &Balancer {
        &self.clients[client].balancer
    }

    /// The events of one client's balancer.
    #[must_use]
    pub fn recorder(&self, client: usize) -> &Recorder {
        &self.clients[client].recorder
    }

    /// The id of a machine in one client's balancer.
    #[must_use]
    pub fn id(&self, client: usize, index: usize) -> BackendId {
        self.clients[client].ids[index]
    }

    fn at(&mut self, after: Duration, step: Step) {
        self.sequence += 1;
        self.steps.insert((self.now + after, self.sequence), step);
    }

    /// Does the balancers' work that is due now.
    fn wake(&mut self) {
        for client in &mut self.clients {
            client.balancer.handle_timeout(self.now, &mut client.recorder);
            while let Some(id) = client.balancer.poll_check() {
                let index = client.ids.iter().position(|known| *known == id).expect("checks are of members");
                let outcome = match self.backends[index].machine.conduct {
                    Conduct::Serve | Conduct::Immediate(_) => CheckOutcome::Passed,
                    Conduct::LameDuck => CheckOutcome::NotServing,
                    Conduct::Down => CheckOutcome::Unreachable,
                };
                client.balancer.on_check(self.now, id, outcome, &mut self.rng, &mut client.recorder);
            }
            let next = client.balancer.poll_timeout();
            assert!(next.is_none_or(|at| at > self.now), "asks to be woken for work just done");
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Arrive => {
                if let Load::Open { per_second } = self.load {
                    let gap = exponential(&mut self.rng, 1.0 / per_second);
                    self.at(gap, Step::Arrive);
                }
                self.send();
            }
            Step::Answer { client, backend, id, life, sent, outcome } => {
                self.answer(client, backend, id, life, sent, outcome);
                if let Load::Closed { .. } = self.load {
                    self.send();
                }
            }
        }
    }

    fn send(&mut self) {
        let client = self.next_client;
        self.next_client = (client + 1) % self.clients.len();
        let Pick::Backend(id) = self.clients[client].balancer.pick(self.now, &mut self.rng) else {
            self.waits += 1;
            if let Load::Closed { .. } = self.load {
                self.at(WAIT, Step::Arrive);
            }
            return;
        };
        let index = self.clients[client].ids.iter().position(|known| *known == id).expect("picks are members");
        let backend = &mut self.backends[index];
        backend.counts.picked += 1;
        let (after, outcome) = match backend.machine.conduct {
            Conduct::Immediate(outcome) => (ROUND_TRIP, outcome),
            Conduct::Down => (ROUND_TRIP, Outcome::Failure),
            Conduct::Serve | Conduct::LameDuck => {
                let cost = match self.cost {
                    Cost::Fixed(cost) => cost,
                    Cost::Exponential(mean) => exponential(&mut self.rng, mean.as_secs_f64()),
                };
                (backend.enqueue(self.now, cost) + ROUND_TRIP, Outcome::Success)
            }
        };
        let life = backend.life;
        self.at(after, Step::Answer { client, backend: index, id, life, sent: self.now, outcome });
    }

    fn answer(&mut self, client: usize, index: usize, id: BackendId, life: u32, sent: Timestamp, outcome: Outcome) {
        let backend = &mut self.backends[index];
        let Client { balancer, recorder, .. } = &mut self.clients[client];
        let lost = backend.machine.conduct == Conduct::Down || backend.life != life;
        let outcome = if lost { Outcome::Failure } else { outcome };
        let failed = outcome != Outcome::Success;
        backend.counts.failed += u64::from(failed);
        if lost {
            if backend.machine.conduct == Conduct::Down {
                balancer.on_connect_failed(self.now, id, &mut self.rng, recorder);
            }
        } else {
            if outcome == Outcome::Success {
                backend.outstanding -= 1;
            }
            backend.measure(self.now, failed);
            if backend.machine.reports != Reports::None {
                balancer.on_report(self.now, id, &backend.report, recorder);
            }
        }
        let latency = (!lost).then(|| self.now.since(sent));
        balancer.finish(self.now, id, Completion { outcome, latency }, recorder);
    }
}

impl Backend {
    /// Puts a request into the queue; returns the time until it is done.
    fn enqueue(&mut self, now: Timestamp, cost: Duration) -> Duration {
        self.account(now);
        let takes = cost.div_f64(self.machine.speed * (1.0 - self.machine.antagonist));
        self.free_at = self.free_at.max(now) + takes;
        self.outstanding += 1;
        self.counts.longest_queue = self.counts.longest_queue.max(self.outstanding);
        self.free_at.since(now)
    }

    /// Counts the CPU time used up to `now`: the machine is busy from each arrival until it is
    /// free.
    fn account(&mut self, now: Timestamp) {
        let wall = self.free_at.min(now).since(self.accounted_at);
        let busy = wall.mul_f64(1.0 - self.machine.antagonist);
        self.counts.busy += busy;
        self.window.0 += busy;
        self.accounted_at = now.max(self.accounted_at);
    }

    /// Counts an answer, and renews the report once per window.
    fn measure(&mut self, now: Timestamp, failed: bool) {
        self.account(now);
        self.window.1 += 1;
        self.window.2 += u32::from(failed && self.machine.reports == Reports::Honest);
        let elapsed = now.since(self.window_start);
        if elapsed >= WINDOW {
            let (busy, answers, failures) = std::mem::take(&mut self.window);
            let secs = elapsed.as_secs_f64();
            self.report = LoadReport {
                // A machine that only fails still uses a little CPU.
                cpu_utilization: (busy.as_secs_f64() / secs + self.machine.antagonist).max(0.001),
                qps: f64::from(answers) / secs,
                eps: f64::from(failures) / secs,
                ..LoadReport::default()
            };
            if self.machine.reports == Reports::WithoutRates {
                (self.report.qps, self.report.eps) = (0.0, 0.0);
            }
            self.window_start = now;
        }
        self.report.lame_duck = self.machine.conduct == Conduct::LameDuck;
    }
}

fn exponential(rng: &mut impl Rng, mean_s: f64) -> Duration {
    let uniform = (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
    Duration::from_secs_f64(-(1.0 - uniform).ln() * mean_s)
}
