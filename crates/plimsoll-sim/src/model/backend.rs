//! A backend: a processor with a queue before it, its conduct, and what it says of itself.

use std::collections::VecDeque;
use std::time::Duration;

use plimsoll_core::health::CheckOutcome;
use plimsoll_core::pick::ProbeAnswer;
use plimsoll_core::report::{DEFAULT_WINDOW, Reporter, TimedReport, Totals};
use plimsoll_core::{LoadReport, Ratio, Timestamp, Weight};
use rand_pcg::Pcg64Mcg;

use super::antagonist::{Neighbours, Supply};
use super::processor::Processor;
use crate::kernel::NEVER;
use crate::kernel::streams::unit;

/// CPU-seconds that an answer at once costs: what a server needs to read a request and say no. Not nothing, because a
/// backend that uses no CPU at all reports none, and would be known by that.
const COST_OF_NO: f64 = 20e-6;

/// How a backend behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Conduct {
    /// It works.
    #[default]
    Serve,
    /// It works, but this share of its requests, having cost what they cost, end as failures.
    Err(Ratio),
    /// It answers every request with a failure, at once and at hardly any cost. Its health checks pass.
    FailFast,
    /// It answers every request as overloaded, at once and at hardly any cost. Its health checks pass.
    Overloaded,
    /// It takes requests and never answers; neither are its health checks.
    Hang,
    /// It works, and says that it is a lame duck: with each answer, to its health checks, and once to all of its
    /// clients.
    LameDuck,
    /// It is not there: what it had is lost, and connections to it are refused.
    Down,
}

/// What a backend says of itself with each answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reports {
    /// Nothing, as most servers.
    None,
    /// Its own CPU over its cores, rates of requests and failures, requests in flight and latency.
    #[default]
    Honest,
    /// As [`Reports::Honest`], with the CPU that antagonists take from its cores counted in.
    Machine,
    /// As [`Reports::Honest`], but it takes its failures for successes.
    HidesFailures,
    /// Its own CPU over its cores, and no rates.
    WithoutRates,
    /// Its requests in flight over its cores at this moment, and no rates: as the KV cache of an
    /// inference server.
    Slots,
}

/// What a backend is built with.
#[derive(Clone, Debug)]
pub(crate) struct Build {
    pub(crate) group: u32,
    pub(crate) domain: u32,
    pub(crate) weight: Weight,
    pub(crate) cores: f64,
    pub(crate) speed: f64,
    pub(crate) concurrency: usize,
    pub(crate) queue: usize,
    pub(crate) conduct: Conduct,
    pub(crate) reports: Reports,
    pub(crate) neighbours: Neighbours,
    /// Of its failures.
    pub(crate) rng: Pcg64Mcg,
}

/// What becomes of a request that has reached a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// It runs, or waits for its turn.
    Taken,
    /// It is never heard of again.
    Swallowed,
    /// It is answered at once.
    Failed,
    /// It is turned away at once.
    Overloaded,
    /// Nobody is there.
    Refused,
}

/// The message that carries a load report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// An answer or a failure. A server's request in flight ends with its answer, so it is part of the report.
    Answer,
    /// The answer to a shed request, which never was in flight.
    ShedAnswer,
    /// The answer to a health check, which is no request.
    CheckAnswer,
}

/// A backend.
#[derive(Clone, Debug)]
pub(crate) struct Backend {
    pub(crate) build: Build,
    pub(crate) conduct: Conduct,
    /// Out of service for good.
    pub(crate) removed: bool,
    /// When its next request is expected to end: an event for another time is void.
    pub(crate) scheduled: Timestamp,
    /// When its antagonist's usage changes: an event for another time is void.
    pub(crate) supply_until: Timestamp,
    processor: Processor,
    /// Requests, with their costs, that wait for their turn.
    waiting: VecDeque<(u32, f64)>,
    supply: Supply,
    /// What cold start leaves of the speed.
    warmth: f64,
    /// Requests answered, well or ill, and those of them that failed.
    answered: u64,
    failed: u64,
    /// CPU-seconds of its cores that antagonists took while it was up.
    taken: f64,
    up: f64,
    accounted: Timestamp,
    reporter: Reporter,
    said: TimedReport,
    /// Requests that were sent to it and reached it.
    received: u64,
}

impl Backend {
    pub(crate) fn new(now: Timestamp, build: Build) -> Self {
        let supply = Supply { cores: build.cores, speed: 1.0, taken: 0.0 };
        Self {
            conduct: build.conduct,
            removed: false,
            scheduled: NEVER,
            supply_until: NEVER,
            processor: Processor::new(now, build.cores, build.speed),
            waiting: VecDeque::new(),
            supply,
            warmth: 1.0,
            answered: 0,
            failed: 0,
            taken: 0.0,
            up: 0.0,
            accounted: now,
            reporter: Reporter::new(now, DEFAULT_WINDOW, build.cores, Totals::default()),
            said: TimedReport::default(),
            received: 0,
            build,
        }
    }

    /// Takes a request in, or not.
    pub(crate) fn receive(&mut self, now: Timestamp, request: u32, cost: f64) -> Reception {
        let reception = match self.conduct {
            Conduct::Down => return Reception::Refused,
            Conduct::Hang => Reception::Swallowed,
            Conduct::FailFast => Reception::Failed,
            Conduct::Overloaded => Reception::Overloaded,
            Conduct::Serve | Conduct::Err(_) | Conduct::LameDuck => {
                if self.processor.len() < self.build.concurrency {
                    self.processor.begin(now, cost, request);
                    Reception::Taken
                } else if self.waiting.len() < self.build.queue {
                    self.waiting.push_back((request, cost));
                    Reception::Taken
                } else {
                    Reception::Overloaded
                }
            }
        };
        self.received += 1;
        if matches!(reception, Reception::Failed | Reception::Overloaded) {
            self.processor.charge(COST_OF_NO);
            self.answered(true);
        }
        reception
    }

    /// A request that has ended by `now`, and whether it failed.
    pub(crate) fn pop_ended(&mut self, now: Timestamp) -> Option<(u32, bool)> {
        self.processor.advance(now);
        let request = self.processor.pop_ended()?;
        if let Some((next, cost)) = self.waiting.pop_front() {
            self.processor.begin(now, cost, next);
        }
        let failed = match self.conduct {
            Conduct::Err(share) => unit(&mut self.build.rng) < share.as_f64(),
            _ => false,
        };
        self.answered(failed);
        Some((request, failed))
    }

    /// How long a request took that found so many in flight.
    pub(crate) fn learn(&mut self, now: Timestamp, found: u32, reached: Timestamp) {
        self.reporter.on_answer(now, found, now.since(reached));
    }

    /// When the next request ends.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.processor.next()
    }

    /// Drops a request that runs or waits; says whether it did either.
    pub(crate) fn cancel(&mut self, now: Timestamp, request: u32) -> bool {
        if let Some(at) = self.waiting.iter().position(|(waiting, _)| *waiting == request) {
            self.waiting.remove(at);
            return true;
        }
        let ran = self.processor.cancel(now, request);
        if ran && let Some((next, cost)) = self.waiting.pop_front() {
            self.processor.begin(now, cost, next);
        }
        ran
    }

    /// Changes its conduct; going down, it gives back what it had.
    pub(crate) fn set_conduct(&mut self, now: Timestamp, conduct: Conduct) -> Vec<u32> {
        self.account(now);
        let was = std::mem::replace(&mut self.conduct, conduct);
        if conduct == Conduct::Down {
            let mut lost = self.processor.clear(now);
            lost.extend(self.waiting.drain(..).map(|(request, _)| request));
            return lost;
        }
        if was == Conduct::Down {
            // Another process, which knows nothing of the one before.
            self.reporter = Reporter::new(now, DEFAULT_WINDOW, self.build.cores, self.totals_at(now));
            self.said = TimedReport::default();
        }
        Vec::new()
    }

    /// What it has of its machine from now on.
    pub(crate) fn set_supply(&mut self, now: Timestamp, supply: Supply) {
        self.account(now);
        self.supply = supply;
        self.apply(now);
    }

    /// How much of its speed cold start leaves from now on.
    pub(crate) fn set_warmth(&mut self, now: Timestamp, warmth: f64) {
        self.warmth = warmth;
        self.apply(now);
    }

    /// Multiplies the speed of its machine.
    pub(crate) fn change_speed(&mut self, now: Timestamp, factor: f64) {
        self.build.speed *= factor;
        self.apply(now);
    }

    fn apply(&mut self, now: Timestamp) {
        self.processor.set(now, self.supply.cores, self.build.speed * self.supply.speed * self.warmth);
    }

    /// Whether it is there, and in service.
    pub(crate) fn is_up(&self) -> bool {
        self.conduct != Conduct::Down && !self.removed
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.processor.len() + self.waiting.len()) as u32
    }

    /// The load report of a message, as old as a server's own reports are.
    ///
    /// The request that is answered has left the processor here, but counts as in flight in the report.
    pub(crate) fn report(&mut self, now: Timestamp, message: Message) -> Option<LoadReport> {
        if self.build.reports == Reports::None {
            return None;
        }
        let lame_duck = self.conduct == Conduct::LameDuck;
        if !self.said.is_current(now, lame_duck) {
            if self.reporter.wants_totals(now) {
                let totals = self.totals_at(now);
                self.reporter.on_totals(now, totals);
            }
            let in_flight = self.in_flight() + u32::from(message == Message::Answer);
            self.said = self.reporter.report(now, in_flight, lame_duck);
        }
        Some(self.shown(self.said.load, message))
    }

    /// The part of a report that it shows.
    fn shown(&self, load: LoadReport, message: Message) -> LoadReport {
        let lame_duck = load.lame_duck;
        match self.build.reports {
            Reports::WithoutRates => {
                LoadReport { cpu_utilization: load.cpu_utilization, lame_duck, ..LoadReport::default() }
            }
            Reports::Slots => {
                let serving = self.in_flight() + u32::from(message == Message::Answer);
                let application_utilization = f64::from(serving) / self.build.cores;
                LoadReport { application_utilization, lame_duck, ..LoadReport::default() }
            }
            Reports::None | Reports::Honest | Reports::Machine | Reports::HidesFailures => load,
        }
    }

    /// What it answers to a probe; nothing when it would not answer requests either.
    pub(crate) fn probe(&self, now: Timestamp) -> Option<ProbeAnswer> {
        if matches!(self.conduct, Conduct::Down | Conduct::Hang) {
            return None;
        }
        let in_flight = self.in_flight();
        Some(ProbeAnswer { in_flight, latency: self.reporter.latency(now, in_flight) })
    }

    /// What a health check finds; `None`: nothing, for as long as it waits.
    pub(crate) fn check(&self) -> Option<CheckOutcome> {
        match self.conduct {
            Conduct::Serve | Conduct::Err(_) | Conduct::FailFast | Conduct::Overloaded => Some(CheckOutcome::Passed),
            Conduct::LameDuck => Some(CheckOutcome::NotServing),
            Conduct::Down => Some(CheckOutcome::Unreachable),
            Conduct::Hang => None,
        }
    }

    /// What it has used since the start, as of now.
    pub(crate) fn usage(&mut self, now: Timestamp) -> Used {
        Used { cpu: self.cpu_at(now), provided: self.up * self.build.cores, received: self.received }
    }

    fn answered(&mut self, failed: bool) {
        self.answered += 1;
        self.failed += u64::from(failed);
    }

    fn totals_at(&mut self, now: Timestamp) -> Totals {
        let failed = if self.build.reports == Reports::HidesFailures { 0 } else { self.failed };
        Totals { answered: self.answered, failed, cpu: Duration::from_secs_f64(self.cpu_at(now)) }
    }

    /// CPU-seconds used by now, as its reports count them.
    fn cpu_at(&mut self, now: Timestamp) -> f64 {
        self.account(now);
        let taken = if self.build.reports == Reports::Machine { self.taken } else { 0.0 };
        self.processor.cpu() + taken
    }

    fn account(&mut self, now: Timestamp) {
        self.processor.advance(now);
        if self.is_up() {
            let seconds = now.since(self.accounted).as_secs_f64();
            self.up += seconds;
            self.taken += self.supply.taken * seconds;
        }
        self.accounted = now;
    }
}

/// What a backend has used since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Used {
    /// CPU-seconds, as its reports count them.
    pub(crate) cpu: f64,
    /// CPU-seconds that it was provisioned with while it was up.
    pub(crate) provided: f64,
    /// Requests that reached it.
    pub(crate) received: u64,
}

impl Used {
    /// What was used since an earlier time.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu: self.cpu - earlier.cpu,
            provided: self.provided - earlier.provided,
            received: self.received - earlier.received,
        }
    }

    /// CPU used over CPU provisioned; `None` when it was not up.
    pub(crate) fn load(&self) -> Option<f64> {
        (self.provided > 0.0).then(|| self.cpu / self.provided)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::report::REUSE_FOR;

    use super::*;
    use crate::kernel::streams::Streams;
    use crate::model::antagonist::Antagonist;

    fn ms(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn backend(conduct: Conduct, reports: Reports) -> Backend {
        let rng = Streams::new(1).stream("backend", 0);
        let build = Build {
            group: 0,
            domain: 0,
            weight: Weight::ONE,
            cores: 1.0,
            speed: 1.0,
            concurrency: 2,
            queue: 3,
            conduct,
            reports,
            neighbours: Neighbours::new(Antagonist::None, rng.clone()),
            rng,
        };
        Backend::new(ms(0), build)
    }

    /// Serves a request of 5 ms every 10 ms from `from` to `to`: the last report.
    fn serve(backend: &mut Backend, from: u64, to: u64) -> LoadReport {
        let mut report = None;
        for at in (from..to).step_by(10) {
            assert_eq!(backend.receive(ms(at), 1, 0.005), Reception::Taken);
            assert!(backend.pop_ended(ms(at + 5)).is_some());
            backend.learn(ms(at + 5), 0, ms(at));
            report = backend.report(ms(at + 5), Message::Answer);
        }
        report.expect("it reports")
    }

    #[test]
    fn reports_say_what_was_done_in_the_last_second() {
        let mut backend = backend(Conduct::Serve, Reports::Honest);
        let report = serve(&mut backend, 0, 3_000);
        assert!((report.qps - 100.0).abs() < 2.0 && (report.cpu_utilization - 0.5).abs() < 0.01, "{report:?}");
        assert_eq!((report.eps, report.in_flight, report.lame_duck), (0.0, Some(1), false));
        let latency = report.latency.expect("asked for").as_secs_f64();
        assert!((latency - 0.005).abs() < 1e-6, "{latency}");
    }

    #[test]
    fn reports_without_rates_show_a_utilization_alone() {
        let load = serve(&mut backend(Conduct::Serve, Reports::WithoutRates), 0, 3_000);
        let cpu_utilization = load.cpu_utilization;
        assert_eq!(load, LoadReport { cpu_utilization, ..LoadReport::default() });
        assert!((cpu_utilization - 0.5).abs() < 0.01, "{load:?}");
        let mut full = backend(Conduct::Serve, Reports::Slots);
        assert!((0..3).all(|request| full.receive(ms(0), request, 0.005) == Reception::Taken));
        let load = full.report(ms(1), Message::CheckAnswer);
        let expected = LoadReport { application_utilization: 3.0, ..LoadReport::default() };
        assert_eq!(load, Some(expected), "three requests on one core");
    }

    #[test]
    fn a_new_process_knows_nothing_of_the_one_before() {
        let mut backend = backend(Conduct::Serve, Reports::Honest);
        serve(&mut backend, 0, 2_000);
        backend.set_conduct(ms(2_000), Conduct::Down);
        backend.set_conduct(ms(2_010), Conduct::Serve);
        let report = backend.report(ms(2_020), Message::CheckAnswer).expect("it reports");
        assert_eq!((report.qps, report.cpu_utilization, report.latency), (0.0, 0.0, None));
        let report = serve(&mut backend, 2_020, 2_520);
        assert!((report.qps - 100.0).abs() < 6.0, "over its own age: {report:?}");
    }

    #[test]
    fn beyond_the_queue_requests_are_turned_away_and_counted_as_failed() {
        let mut backend = backend(Conduct::Serve, Reports::Honest);
        let receptions: Vec<_> = (0..7).map(|request| backend.receive(ms(0), request, 0.01)).collect();
        assert_eq!(receptions[..5], [Reception::Taken; 5]);
        assert_eq!(receptions[5..], [Reception::Overloaded; 2]);
        assert_eq!(backend.in_flight(), 5);
        assert!(backend.report(ms(100), Message::ShedAnswer).expect("it reports").eps > 0.0);
        assert!(backend.cancel(ms(0), 4) && backend.cancel(ms(0), 0) && !backend.cancel(ms(0), 0));
        assert_eq!(backend.set_conduct(ms(0), Conduct::Down), [1, 2, 3], "running ones first");
        assert_eq!(backend.receive(ms(0), 9, 0.01), Reception::Refused);
    }

    #[test]
    fn report_with_an_answer_counts_the_request_it_answers() {
        let in_flight = |report: Option<LoadReport>| report.expect("it reports").in_flight;
        let mut serving = backend(Conduct::Serve, Reports::Honest);
        assert!((0..3).all(|request| serving.receive(ms(0), request, 0.005) == Reception::Taken));
        assert!(serving.pop_ended(ms(10)).is_some());
        assert_eq!(in_flight(serving.report(ms(10), Message::Answer)), Some(3), "two others, and the one answered");
        assert_eq!(in_flight(serving.report(ms(20), Message::ShedAnswer)), Some(2), "a shed request never began");
        assert_eq!(in_flight(serving.report(ms(30), Message::CheckAnswer)), Some(2));
        let mut failing = backend(Conduct::FailFast, Reports::Honest);
        assert_eq!(failing.receive(ms(0), 0, 0.005), Reception::Failed);
        assert_eq!(in_flight(failing.report(ms(0), Message::Answer)), Some(1));
        let latency = |message| {
            let mut backend = backend(Conduct::Serve, Reports::Honest);
            (0..100).for_each(|_| backend.learn(ms(0), 1, ms(0)));
            backend.learn(ms(9), 0, ms(0));
            backend.report(ms(9), message).expect("it reports").latency
        };
        assert_ne!(latency(Message::Answer), latency(Message::CheckAnswer), "latency is that of as many in flight");
    }

    #[test]
    fn a_report_is_as_old_as_a_servers_own_may_be() {
        let mut backend = backend(Conduct::Serve, Reports::Honest);
        let mut in_flight = |at| {
            assert_eq!(backend.receive(at, 0, 10.0), Reception::Taken);
            backend.report(at, Message::CheckAnswer).expect("it reports").in_flight
        };
        let last = Timestamp::from_nanos((ms(7) + REUSE_FOR).as_nanos() - 1);
        assert_eq!([ms(7), last, ms(7) + REUSE_FOR].map(&mut in_flight), [Some(1), Some(1), Some(3)]);
        backend.set_conduct(ms(9), Conduct::LameDuck);
        assert!(backend.report(ms(9), Message::CheckAnswer).expect("it reports").lame_duck, "that shows at once");
    }

    #[test]
    fn conduct_shows_in_checks_probes_and_reports() {
        let of = |conduct| {
            let mut backend = backend(conduct, Reports::Honest);
            let lame = backend.report(ms(0), Message::CheckAnswer).is_some_and(|report| report.lame_duck);
            (backend.check(), backend.probe(ms(0)).is_some(), lame)
        };
        assert_eq!(of(Conduct::Serve), (Some(CheckOutcome::Passed), true, false));
        assert_eq!(of(Conduct::FailFast), (Some(CheckOutcome::Passed), true, false));
        assert_eq!(of(Conduct::LameDuck), (Some(CheckOutcome::NotServing), true, true));
        assert_eq!(of(Conduct::Down), (Some(CheckOutcome::Unreachable), false, false));
        assert_eq!(of(Conduct::Hang), (None, false, false));
    }

    #[test]
    fn failures_are_reported_unless_they_are_hidden() {
        let eps = |reports| {
            let mut backend = backend(Conduct::FailFast, reports);
            assert_eq!(backend.receive(ms(50), 0, 0.01), Reception::Failed);
            backend
                .report(ms(100), Message::Answer)
                .map(|report| (report.qps > 0.0, report.eps > 0.0, report.cpu_utilization > 0.0))
        };
        assert_eq!(eps(Reports::Honest), Some((true, true, true)));
        assert_eq!(eps(Reports::HidesFailures), Some((true, false, true)));
        assert_eq!(eps(Reports::None), None);
    }
}
