//! Says in the log why requests were not served: a few lines a second of each reason, however many
//! there are.
//!
//! A line for each would be the heaviest part of a storm of refusals, and would displace other
//! lines. So each reason has a rate of lines; the next line says how many were left out.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Explanation, Reason};

/// Of each reason: enough to see examples, and not more than a person can read.
const LINES_A_SECOND: u32 = 2;
const SECOND: Duration = Duration::from_secs(1);

/// Writes refusals to the log.
#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<Vec<(&'static str, Budget)>>);

impl RefusalLog {
    pub(super) fn write(&self, explanation: &Explanation) {
        let Explanation { end, cluster, route, customer, criticality, ended, .. } = explanation;
        let Some(Reason { word: reason, cause, .. }) = end.reason else { return };
        let Some(left_out) = self.take(reason, *ended) else { return };
        tracing::info!(
            id = %explanation.id,
            reason,
            cause,
            listener = &*explanation.listener,
            cluster = cluster.as_deref(),
            route = route.as_deref(),
            criticality = criticality.map(|criticality| criticality.level.name()),
            customer = customer.as_ref().map(tracing::field::display),
            backend = end.backend.map(tracing::field::display),
            attempts = explanation.failed.len(),
            left_out,
            "request not served"
        );
    }

    /// How many of this reason were left out since the last line, if there may be another now.
    fn take(&self, reason: &'static str, now: Instant) -> Option<u64> {
        let mut budgets = self.0.lock();
        // There are some tens of reasons, and in a storm it is one of the first few.
        let known = budgets.iter().position(|(known, _)| *known == reason);
        let place = known.unwrap_or_else(|| {
            budgets.push((reason, Budget { begun: now, lines: 0, left_out: 0 }));
            budgets.len() - 1
        });
        budgets[place].1.take(now)
    }
}

/// Lines of one reason.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// Of the second that is counted.
    begun: Instant,
    lines: u32,
    left_out: u64,
}

impl Budget {
    fn take(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.begun) >= SECOND {
            (self.begun, self.lines) = (now, 0);
        }
        if self.lines >= LINES_A_SECOND {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_rate_and_omitted_lines_are_counted() {
        let log = RefusalLog::default();
        let begun = Instant::now();
        let lines = |(reason, at)| {
            let now = begun + Duration::from_millis(at);
            (0..1_000).filter_map(|_| log.take(reason, now)).collect::<Vec<u64>>()
        };
        let lines = [("quota", 0), ("memory", 0), ("quota", 999), ("quota", 1_000)].map(lines);
        assert_eq!(lines, [vec![0, 0], vec![0, 0], vec![], vec![1_998, 0]]);
    }
}
