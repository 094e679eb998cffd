//! The configuration in force: its last reload, and the certificates that clients are shown.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Metric;
use super::text::Kind;

/// The table.
pub(super) static CONFIG: &[Metric] = &[
    Metric {
        name: "certificate_expiry_timestamp_seconds",
        kind: Kind::Gauge,
        labels: &["listener", "certificate"],
        help: "Unix time at which a certificate shown to clients expires, by its first name",
        fill: |s, out| {
            for listener in &s.snapshot.listeners {
                for (name, not_after) in &listener.certificates {
                    out.gauge(&[&listener.name, name], unix_seconds(*not_after));
                }
            }
        },
    },
    Metric {
        name: "last_reload_successful",
        kind: Kind::Gauge,
        labels: &[],
        help: "1 if the last reload was taken, or there was none; 0 if it was refused",
        fill: |s, out| out.gauge(&[], s.snapshot.last_reload.map(|last| f64::from(u8::from(last.is_taken)))),
    },
    Metric {
        name: "last_reload_timestamp_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Unix time of the last reload, taken or refused; else of the start",
        fill: |s, out| out.gauge(&[], s.snapshot.last_reload.map(|last| unix_seconds(last.at))),
    },
];

/// Seconds since the Unix epoch; negative before it.
fn unix_seconds(at: SystemTime) -> f64 {
    match at.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_secs_f64(),
        Err(before) => -before.duration().as_secs_f64(),
    }
}
