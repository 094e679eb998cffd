//! The log of probes that are of no use: one line for each cause and cluster, now and then.
//!
//! A firewall blocks the UDP of all backends at once, and thousands of lines say no more than one.

use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_core::probe::SilenceCause;

/// Shortest time between two lines with the same cause.
const INTERVAL: Duration = Duration::from_secs(300);

/// The place of the lines about missing keys.
const KEYLESS: usize = SilenceCause::ALL.len();

/// The times of the last lines, in the order of [`SilenceCause::ALL`]; last, about missing keys.
#[derive(Default)]
pub(super) struct SilenceLog(Mutex<[Option<Timestamp>; KEYLESS + 1]>);

impl SilenceLog {
    pub(super) fn log(&self, now: Timestamp, cluster: &str, backend: &str, port: u16, cause: SilenceCause) {
        if !self.is_due(now, cause as usize) {
            return;
        }
        let reason = cause.name();
        match cause {
            SilenceCause::NoAnswer => {
                let help = format!(
                    "permit UDP in the firewall of the backends, such as `nft add rule inet filter input udp dport {port} accept`"
                );
                tracing::warn!(cluster, backend, reason, help, "probes get no answer: checks go on without them");
            }
            // A process that restarts refuses as well.
            SilenceCause::Refused => {
                let help = "run a responder at the backends: docs/probes.md";
                tracing::info!(cluster, backend, reason, help, "UDP port closed: checks go on without probes");
            }
            SilenceCause::NoSuchPort => {
                let help = format!("start the responder with TCP port {port}");
                tracing::warn!(
                    cluster,
                    backend,
                    reason,
                    help,
                    "responder of another port: checks go on without probes"
                );
            }
            SilenceCause::OtherVersion => {
                let help = "update the responder";
                tracing::warn!(
                    cluster,
                    backend,
                    reason,
                    help,
                    "responder of another version: checks go on without probes"
                );
            }
            SilenceCause::Alternating => {
                let help = "probe the processes behind the balancer by their own addresses";
                tracing::warn!(
                    cluster,
                    backend,
                    reason,
                    help,
                    "several processes answer in turn, as behind a packet balancer: checks go on without probes"
                );
            }
        }
    }

    /// A backend beyond loopback hands out no key.
    pub(super) fn log_keyless(&self, now: Timestamp, cluster: &str, backend: &str) {
        if self.is_due(now, KEYLESS) {
            let help = "update the backends, or share a file of keys: docs/probes.md";
            tracing::warn!(cluster, backend, help, "check brought no key: not probed");
        }
    }

    fn is_due(&self, now: Timestamp, place: usize) -> bool {
        let mut told = self.0.lock();
        let last = &mut told[place];
        let is_due = last.is_none_or(|at| now.since(at) >= INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_logged_every_five_minutes() {
        let log = SilenceLog::default();
        let at = |seconds: u64| Timestamp::from_nanos(seconds * 1_000_000_000);
        let due = |seconds, cause: SilenceCause| log.is_due(at(seconds), cause as usize);
        let (no_answer, refused) = (SilenceCause::NoAnswer, SilenceCause::Refused);
        assert_eq!([due(10, no_answer), due(11, no_answer), due(12, refused)], [true, false, true]);
        assert_eq!([due(309, no_answer), due(310, no_answer), due(311, refused)], [false, true, false]);
    }
}
