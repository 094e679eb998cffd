//! Measures the load of a protected process, for answers to probes.
//!
//! The same measures as in the load report of a server that protects itself: CPU usage over the
//! CPUs that the process may use, answers and failures per second, all over one window of a second.
//! Requests that the gate shed count as answered and failed there, so they do here. A request is in
//! flight until the head of its response, and the latency is that to the head.

use std::time::Duration;

use plimsoll_core::report::{DEFAULT_WINDOW, Reporter, Totals};
use plimsoll_core::{LoadReport, Timestamp};

/// Facts about a cluster at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// Attempts sent to its present backends so far.
    pub(super) requests: u64,
    /// Failures among them.
    pub(super) failures: u64,
    /// Attempts in flight, to the end of their responses.
    pub(super) active: u64,
    /// Requests at the process without a head of a response, and those that wait for it.
    pub(super) in_flight: u32,
    /// The latency to expect with as many.
    pub(super) latency: Option<Duration>,
    /// Requests that its gate shed so far.
    pub(super) shed: u64,
    /// CPU time of the process so far; `None` while it is not found.
    pub(super) cpu: Option<Duration>,
    /// CPUs that it may use.
    pub(super) cpus: f64,
}

/// The load of a cluster with a gate.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    reporter: Reporter,
    totals: Totals,
    before: Look,
}

impl Meter {
    /// Begins to measure.
    pub(super) fn new(now: Timestamp, look: Look) -> Self {
        let totals = Totals::default();
        Self { reporter: Reporter::new(now, DEFAULT_WINDOW, look.cpus, totals), totals, before: look }
    }

    /// The load now. The utilization is 0, which stands for unknown, while the process is not found.
    pub(super) fn on_look(&mut self, now: Timestamp, look: Look) -> LoadReport {
        // Before the process was found, the window has no measure of its CPU usage.
        if self.before.cpu.is_none() && look.cpu.is_some() {
            *self = Self::new(now, look);
        }
        // A removed backend takes its counts along, and another gate begins at zero.
        let ended = |look: &Look| look.requests.saturating_sub(look.active);
        let shed = look.shed.saturating_sub(self.before.shed);
        self.totals.answered += ended(&look).saturating_sub(ended(&self.before)) + shed;
        self.totals.failed += look.failures.saturating_sub(self.before.failures) + shed;
        let used = look.cpu.zip(self.before.cpu).map(|(now, before)| now.saturating_sub(before));
        self.totals.cpu += used.unwrap_or_default();
        self.before = look;
        self.reporter.resize(look.cpus);
        if self.reporter.wants_totals(now) {
            self.reporter.on_totals(now, self.totals);
        }
        let load = self.reporter.report(now, look.in_flight, false).load;
        let load = LoadReport { latency: look.latency, ..load };
        match look.cpu {
            Some(_) => load,
            None => LoadReport { application_utilization: 0.0, cpu_utilization: 0.0, ..load },
        }
    }
}

/// The load of several clusters behind one listener: the highest utilization and latency, and the sums
/// of the rest.
pub(super) fn together(loads: impl IntoIterator<Item = LoadReport>) -> Option<LoadReport> {
    loads.into_iter().reduce(|one, other| LoadReport {
        application_utilization: one.application_utilization.max(other.application_utilization),
        cpu_utilization: one.cpu_utilization.max(other.cpu_utilization),
        qps: one.qps + other.qps,
        eps: one.eps + other.eps,
        latency: one.latency.max(other.latency),
        in_flight: one.in_flight.zip(other.in_flight).map(|(one, other)| one.saturating_add(other)),
        ..one
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn time(millis: u64) -> Option<Duration> {
        Some(Duration::from_millis(millis))
    }

    #[test]
    fn load_has_rates_of_a_second_and_shed_requests_as_failures() {
        let first = Look { requests: 1_000, failures: 7, shed: 3, cpu: time(5_000), cpus: 2.0, ..Look::default() };
        let mut meter = Meter::new(ms(0), first);
        let latency = time(4);
        let look = Look {
            latency,
            requests: 1_105,
            failures: 8,
            shed: 13,
            active: 5,
            in_flight: 7,
            cpu: time(6_000),
            ..first
        };
        let load = meter.on_look(ms(1_000), look);
        assert_eq!((load.qps, load.eps, load.cpu_utilization), (110.0, 11.0, 0.5));
        assert_eq!((load.in_flight, load.latency), (Some(7), Some(Duration::from_millis(4))));
    }

    #[test]
    fn utilization_is_unknown_while_the_process_is_not_found_and_begins_anew() {
        let found = Look { cpu: time(5_000), cpus: 1.0, ..Look::default() };
        let lost = Look { cpu: None, requests: 10, ..found };
        let mut meter = Meter::new(ms(0), found);
        assert_eq!(meter.on_look(ms(500), lost).utilization(), None);
        assert_eq!(meter.on_look(ms(600), lost).qps, 10.0 / 0.6);
        assert_eq!(meter.on_look(ms(700), Look { cpu: time(9_000), ..lost }).utilization(), None, "no second sample");
        let load = meter.on_look(ms(1_700), Look { cpu: time(9_250), ..lost });
        assert_eq!(load.utilization(), Some(0.25));
    }

    #[test]
    fn counts_of_a_removed_backend_do_not_count_backwards() {
        let mut meter = Meter::new(ms(0), Look { requests: 100, cpus: 1.0, ..Look::default() });
        meter.on_look(ms(500), Look { requests: 150, cpus: 1.0, ..Look::default() });
        meter.on_look(ms(800), Look { requests: 20, cpus: 1.0, ..Look::default() });
        let load = meter.on_look(ms(1_000), Look { requests: 40, cpus: 1.0, ..Look::default() });
        assert_eq!(load.qps, 70.0);
    }

    #[test]
    fn cpu_time_of_another_gate_counts_from_its_first_reading() {
        let of = |millis| Look { cpu: time(millis), cpus: 1.0, ..Look::default() };
        let mut meter = Meter::new(ms(0), of(90_000));
        meter.on_look(ms(500), of(90_200));
        meter.on_look(ms(600), of(10));
        assert_eq!(meter.on_look(ms(1_000), of(310)).utilization(), Some(0.5));
    }

    #[test]
    fn several_clusters_have_the_utilization_of_the_most_loaded() {
        let of = |utilization, qps, in_flight| LoadReport {
            application_utilization: utilization,
            cpu_utilization: utilization,
            qps,
            in_flight: Some(in_flight),
            ..LoadReport::default()
        };
        let load = together([of(0.2, 10.0, 3), of(0.7, 5.0, 1)]).unwrap();
        assert_eq!((load.utilization(), load.qps, load.in_flight), (Some(0.7), 15.0, Some(4)));
        assert_eq!(together([]), None);
    }
}
