//! Reads a protected process periodically, for its gate.

use std::sync::Weak;
use std::time::Duration;

use plimsoll::server::admission::{ForeignProcess, Gate};
use plimsoll_system::ProcessReader;
use tokio::time::Instant;

use crate::config::Inbound;

/// A fifth of the time over which signals are smoothed.
const EVERY: Duration = Duration::from_millis(20);
/// A reading takes longer the more threads there are, some microseconds for each. It may use at
/// most a fiftieth of a CPU.
const PAUSE: u32 = 50;

/// Passes readings of the process to `gate`, until it is dropped.
pub(super) async fn watch(gate: Weak<Gate<ForeignProcess>>, inbound: Inbound) {
    let process = inbound.process();
    let mut reader = ProcessReader::new(process.clone(), inbound.cpus, inbound.scarce());
    // The log tells the first state, and each change.
    let mut is_seen = None;
    while let Some(gate) = gate.upgrade() {
        let begun = Instant::now();
        let sample = reader.read();
        gate.observe(sample.as_ref().ok().copied());
        let was_seen = is_seen.replace(sample.is_ok());
        match sample {
            Ok(_) if was_seen != Some(true) => tracing::info!(%process, "process found, overload protection active"),
            Err(why) if was_seen.is_none() => tracing::warn!(
                %process,
                why,
                help = "start it, or correct pid_file, cgroup or pid in inbound",
                "process not found: no request is shed until it is found"
            ),
            Err(why) if was_seen == Some(true) => {
                tracing::warn!(%process, why, "process lost: requests are admitted by the last known state");
            }
            _ => {}
        }
        drop(gate);
        tokio::time::sleep(EVERY.max(begun.elapsed() * PAUSE)).await;
    }
}
