//! A backend's account of its own load.
//!
//! [`LoadReport`] has the fields that balancing reads, from the ORCA report of a response, a health
//! check or a stream (`plimsoll-wire` holds the codecs). Source: `xds.data.orca.v3`, gRFC A51.
//!
//! [`Reporter`] is the backend's side: it makes reports from counts.

mod reporter;
mod window;

use core::time::Duration;

use crate::Speed;

pub use reporter::{REUSE_FOR, Reporter, TimedReport};
pub use window::{DEFAULT_WINDOW, TICK, Totals};

/// A backend's load as it reports it: rates per second, utilizations as shares of its capacity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// The backend's own measure of its utilization, 1.0 at its load line; 0 = not given.
    pub application_utilization: f64,
    /// CPU used over CPU available, 1.0 = all of it; 0 = not given.
    pub cpu_utilization: f64,
    /// Requests answered per second, all clients together.
    pub qps: f64,
    /// Requests failed per second, all clients together.
    pub eps: f64,
    /// Whether the backend is a lame duck (or not ready yet): it serves arriving requests and asks
    /// for no more.
    pub lame_duck: bool,
    /// Requests in flight there, all clients together; `None` = not given.
    pub in_flight: Option<u32>,
    /// The median latency of recent requests that found about as many in flight; `None` = not
    /// given.
    pub latency: Option<Duration>,
    /// The speed of its machine; `None` = not given, which counts as 1. Balancing has no use for it:
    /// utilization is a share of the backend's own CPUs.
    pub speed: Option<Speed>,
}

impl LoadReport {
    /// The utilization for balancing: the backend's own measure if given, else its CPU (gRFC A58).
    /// `None` if it gives neither.
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        [self.application_utilization, self.cpu_utilization].into_iter().find(|u| u.is_finite() && *u > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilization_prefers_the_own_measure_and_ignores_junk() {
        let mut report = LoadReport { application_utilization: 0.7, cpu_utilization: 0.4, ..LoadReport::default() };
        assert_eq!(report.utilization(), Some(0.7));
        report.application_utilization = f64::NAN;
        assert_eq!(report.utilization(), Some(0.4));
        report.cpu_utilization = -1.0;
        assert_eq!(report.utilization(), None);
    }
}
