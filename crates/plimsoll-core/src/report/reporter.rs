//! A server's load reports, and the time for which it may repeat one.
//!
//! - *Rates* (requests, failures, CPU) are means over one sliding window, renewed once a
//!   [`TICK`](super::TICK): see `window.rs`.
//! - *Utilization* is the CPU used over the CPU available. It is also given as the application's
//!   own measure, because some clients read only the one and some only the other.
//! - *Requests in flight*, and the latency that one more of them can expect ([`LatencyByLoad`]),
//!   are those at the making of the report.
//!
//! An answer carries a new report if the last one is [`REUSE_FOR`] old or has another lame duck
//! state. The state does not wait: until clients know it, their new requests arrive for nothing.
//!
//! A new report for each answer would be too expensive: making and encoding it takes about a
//! microsecond, more than some answers. So clients that balance by requests in flight (the policy
//! `prequal`) see them late, by the network's delay and up to that time.

use core::time::Duration;

use super::LoadReport;
use super::window::{LoadWindow, Rates, Totals};
use crate::probe::LatencyByLoad;
use crate::{Speed, Timestamp};

/// Time for which a report may be sent again. At a microsecond each, reports then cost half a
/// thousandth of one CPU at most. The p99 of `prequal` in the scenario `policy-spread` is 40.8 ms
/// with a report for each answer, 41.1 with 2 ms, 41.4 with 5 ms and 43.3 with 20 ms.
pub const REUSE_FOR: Duration = Duration::from_millis(2);

/// A report and its expiry. The default is expired.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimedReport {
    /// The load.
    pub load: LoadReport,
    /// Expiry of the report.
    pub until: Timestamp,
}

impl TimedReport {
    /// Whether it may be sent again.
    #[must_use]
    pub fn is_current(&self, now: Timestamp, lame_duck: bool) -> bool {
        now < self.until && self.load.lame_duck == lame_duck
    }
}

/// A server's measures of its own load.
#[derive(Clone, Debug)]
pub struct Reporter {
    /// CPUs at 100% utilization.
    cpus: f64,
    /// The speed of the machine, if it is known.
    speed: Option<Speed>,
    window: LoadWindow,
    rates: Rates,
    latency: LatencyByLoad,
}

impl Reporter {
    /// A server that starts now, with these totals. Rates are means over `window` (at least a
    /// tick), utilization is that of `cpus`.
    #[must_use]
    pub fn new(now: Timestamp, window: Duration, cpus: f64, totals: Totals) -> Self {
        Self {
            cpus,
            speed: None,
            window: LoadWindow::new(now, window, totals),
            rates: Rates::default(),
            latency: LatencyByLoad::default(),
        }
    }

    /// The same on a machine of this speed, which its reports state.
    #[must_use]
    pub fn on(self, speed: Option<Speed>) -> Self {
        Self { speed, ..self }
    }

    /// Sets the number of CPUs.
    pub fn resize(&mut self, cpus: f64) {
        self.cpus = cpus;
    }

    /// Counts a successful answer, `latency` after its request arrived and `found` others were in
    /// flight. The latency of a failure says nothing about successes.
    pub fn on_answer(&mut self, now: Timestamp, found: u32, latency: Duration) {
        self.latency.on_answer(now, found, latency);
    }

    /// The latency to expect for one request more than `in_flight`; `None` without recent
    /// latencies.
    #[must_use]
    pub fn latency(&self, now: Timestamp, in_flight: u32) -> Option<Duration> {
        self.latency.estimate(now, in_flight)
    }

    /// Whether the next report needs totals first, by [`on_totals`](Self::on_totals). It does not
    /// each time: reading a process's CPU clock takes a microsecond.
    #[must_use]
    pub fn wants_totals(&self, now: Timestamp) -> bool {
        self.window.due(now)
    }

    /// Takes the present totals.
    pub fn on_totals(&mut self, now: Timestamp, totals: Totals) {
        self.rates = self.window.sample(now, totals);
    }

    /// A new report, even if the last one has not expired.
    #[must_use]
    pub fn report(&self, now: Timestamp, in_flight: u32, lame_duck: bool) -> TimedReport {
        let Rates { qps, eps, cpus } = self.rates;
        let utilization = cpus / self.cpus;
        let load = LoadReport {
            application_utilization: utilization,
            cpu_utilization: utilization,
            qps,
            eps,
            lame_duck,
            in_flight: Some(in_flight),
            latency: self.latency(now, in_flight),
            speed: self.speed,
        };
        TimedReport { load, until: now + REUSE_FOR }
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT_WINDOW;
    use super::*;

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_nanos(millis * 1_000_000)
    }

    fn totals(answered: u64, cpu: u64) -> Totals {
        Totals { answered, failed: answered / 10, cpu: Duration::from_millis(cpu) }
    }

    #[test]
    fn report_has_rates_of_the_window_and_present_values() {
        let mut reporter = Reporter::new(ms(0), DEFAULT_WINDOW, 2.0, Totals::default());
        reporter.on_answer(ms(90), 3, Duration::from_millis(7));
        assert!(reporter.wants_totals(ms(100)));
        reporter.on_totals(ms(100), totals(50, 100));
        assert!(!reporter.wants_totals(ms(199)) && reporter.wants_totals(ms(200)));
        let load = reporter.report(ms(150), 3, true).load;
        let utilization = (load.application_utilization, load.cpu_utilization);
        assert_eq!((load.qps, load.eps, utilization), (500.0, 50.0, (0.5, 0.5)));
        assert_eq!((load.in_flight, load.lame_duck), (Some(3), true));
        assert!(load.latency.unwrap().abs_diff(Duration::from_millis(7)) < Duration::from_micros(1));
        assert_eq!(reporter.report(ms(150), 0, false).load.in_flight, Some(0));
        reporter.resize(4.0);
        let load = reporter.report(ms(150), 0, false).load;
        assert_eq!((load.cpu_utilization, load.speed), (0.25, None));
        let fast = Speed::new(2.0);
        let load = reporter.on(fast).report(ms(150), 0, false).load;
        assert_eq!((load.cpu_utilization, load.speed), (0.25, fast), "a share of the machine's own CPUs");
    }

    #[test]
    fn report_is_current_until_it_expires_or_lame_duck_changes() {
        assert!(!TimedReport::default().is_current(ms(0), false), "nothing was said yet");
        let reporter = Reporter::new(ms(0), DEFAULT_WINDOW, 1.0, Totals::default());
        let report = reporter.report(ms(100), 0, false);
        assert_eq!(report.until, ms(100) + REUSE_FOR);
        assert!(
            report.is_current(ms(100), false)
                && report.is_current(Timestamp::from_nanos(report.until.as_nanos() - 1), false)
        );
        assert!(!report.is_current(report.until, false) && !report.is_current(ms(100), true));
        let lame = reporter.report(ms(100), 0, true);
        assert!(lame.is_current(ms(100), true) && !lame.is_current(ms(100), false));
    }
}
